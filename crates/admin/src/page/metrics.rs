//! The Metrics page: calls, errors and latency of the last hour, day or week, for all, one client or one server.

use super::chart::ChartSet;
use super::formatting as w;
use super::frame::{NavSection, PageFrame};
use super::page_request::{PageRequest, render};
use crate::RedactedValue;
use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use jiff::Timestamp;
use portcullis_ops::Problem;
use portcullis_ops::desk::{CallSeries, PeriodSummary, Statistics, StatisticsQuery};

/// Ranges, with their seconds.
const RANGES: [(&str, &str, u64); 3] =
    [("hour", "Hour", 3_600), ("day", "Day", 86_400), ("week", "Week", 604_800)];

#[derive(Template)]
#[template(path = "metrics.html")]
struct Page {
    frame: PageFrame,
    ranges: Vec<RangeLink>,
    chosen: ChosenSeries,
    /// Link to the same range of all calls.
    all: String,
    total: PeriodSummary,
    charts: ChartSet,
    counted_since: Option<Timestamp>,
    groups: Vec<SeriesGroup>,
}

struct RangeLink {
    title: &'static str,
    href: String,
    current: bool,
}

/// What the charts show.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ChosenSeries {
    All,
    Client(String),
    Server(String),
}

impl ChosenSeries {
    fn title(&self) -> String {
        match self {
            ChosenSeries::All => "All calls".to_owned(),
            ChosenSeries::Client(name) => format!("Client {name}"),
            ChosenSeries::Server(name) => format!("Server {name}"),
        }
    }

    fn is_all(&self) -> bool {
        *self == ChosenSeries::All
    }

    fn link(&self, range: &str) -> String {
        match self {
            ChosenSeries::All => format!("/admin/metrics?range={range}"),
            ChosenSeries::Client(name) => format!("/admin/metrics?range={range}&client={}", w::url(name)),
            ChosenSeries::Server(name) => format!("/admin/metrics?range={range}&server={}", w::url(name)),
        }
    }

    /// Returns the link to the calls behind the charts.
    fn calls(&self, range: &str) -> String {
        let since = match range {
            "week" => "7d",
            "day" => "24h",
            _ => "1h",
        };
        match self {
            ChosenSeries::All => format!("/admin/audit?since={since}"),
            ChosenSeries::Client(name) => format!("/admin/audit?since={since}&client={}", w::url(name)),
            ChosenSeries::Server(name) => format!("/admin/audit?since={since}&server={}", w::url(name)),
        }
    }
}

/// The clients or the servers.
struct SeriesGroup {
    id: &'static str,
    title: &'static str,
    one: &'static str,
    rows: Vec<SeriesRow>,
}

struct SeriesRow {
    name: String,
    href: String,
    calls: String,
    current: bool,
    total: PeriodSummary,
    charts: ChartSet,
}

pub(crate) async fn show(visit: PageRequest) -> Response {
    match page(&visit).await {
        Ok(page) => render(StatusCode::OK, &page),
        Err(problem) => visit.error_page(NavSection::Metrics, problem).await,
    }
}

async fn page(visit: &PageRequest) -> Result<Page, Problem> {
    let wanted = StatisticsQuery { range: visit.query.some("range") };
    let asked = visit.counter().ask(|desk| desk.statistics(wanted)).await;
    let stats = asked.map_err(RedactedValue::into_inner)?.into_inner();
    let chosen = match (visit.query.some("client"), visit.query.some("server")) {
        (Some(client), _) => ChosenSeries::Client(client),
        (None, Some(server)) => ChosenSeries::Server(server),
        (None, None) => ChosenSeries::All,
    };
    let seconds =
        RANGES.iter().find(|(name, ..)| *name == stats.range).map_or(3_600, |(.., seconds)| *seconds);
    let series = match &chosen {
        ChosenSeries::All => Some(&stats.all),
        ChosenSeries::Client(name) => stats.clients.iter().find(|one| one.name == *name),
        ChosenSeries::Server(name) => stats.servers.iter().find(|one| one.name == *name),
    };
    let draw = |one: &CallSeries| ChartSet::of(stats.now, seconds, one.period_seconds, &one.periods);
    let (charts, total) = match series {
        Some(series) => (draw(series), series.total.clone()),
        // It did not call in this range.
        None => (ChartSet::of(stats.now, seconds, stats.all.period_seconds, &[]), PeriodSummary::default()),
    };
    let range = |&(name, title, _): &(&str, &'static str, u64)| RangeLink {
        title,
        href: chosen.link(name),
        current: name == stats.range,
    };
    let rows = |of: &[CallSeries], series: fn(String) -> ChosenSeries| {
        let row = |one: &CallSeries| {
            let this = series(one.name.clone());
            SeriesRow {
                name: one.name.clone(),
                href: this.link(&stats.range),
                calls: this.calls(&stats.range),
                current: this == chosen,
                total: one.total.clone(),
                charts: draw(one),
            }
        };
        let mut rows: Vec<SeriesRow> = of.iter().map(row).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.total.calls));
        rows
    };
    let Statistics { clients, servers, counted_since, .. } = &stats;
    let groups = vec![
        SeriesGroup {
            id: "clients",
            title: "By client",
            one: "Client",
            rows: rows(clients, ChosenSeries::Client),
        },
        SeriesGroup {
            id: "servers",
            title: "By server",
            one: "Server",
            rows: rows(servers, ChosenSeries::Server),
        },
    ];
    Ok(Page {
        frame: visit.frame(NavSection::Metrics, None).await,
        ranges: RANGES.iter().map(range).collect(),
        all: ChosenSeries::All.link(&stats.range),
        total,
        charts,
        counted_since: *counted_since,
        groups,
        chosen,
    })
}
