//! Counts every call and how it ended.
//!
//! The number of series has a bound: a name that nobody registered shares one label, and everything that is not
//! a tool is counted by its kind. What a client types can therefore never make the page longer.

use crate::ending::Ending;
use arc_swap::ArcSwap;
use portcullis_core::{BoxFuture, Call, ErrorKind, Layer, Limit, Next, Outcome, Scrub, Target};
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tokio::time::Instant;

/// From a call that only looks something up to the longest deadline that is usual.
const DURATION_BUCKETS_SECONDS: [f64; 17] = [
    0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    10.0, 30.0,
];

/// How many tools have series of their own. Upstream servers may change their tools as often as they like; those
/// beyond this share the label `other`.
const TOOLS_MAX: usize = 2_000;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    tool: Arc<str>,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ToolLabel {
    tool: Arc<str>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TransportLabel {
    transport: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LimitLabel {
    limit: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ServerLabel {
    server: String,
}

/// What the server counts itself, as it is when the page is asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServerNumbers {
    /// HTTP connections that are open.
    pub connections: usize,
    /// Tokens that were looked at and were not good.
    pub token_failures: u64,
    /// Sources of which no token is looked at now.
    pub sources_locked: usize,
}

/// The numbers of a hub. Cheap to clone; every clone is the same numbers.
#[derive(Clone)]
pub struct Metrics {
    inner: Arc<Inner>,
}

struct Inner {
    registry: Registry,
    calls: Family<CallLabels, Counter>,
    durations: Family<ToolLabel, Histogram, fn() -> Histogram>,
    in_flight: Gauge,
    rate_limited: Counter,
    redactions: Counter,
    sessions: Family<TransportLabel, Gauge>,
    limit_hits: Family<LimitLabel, Counter>,
    connections: Gauge,
    token_failures: Counter,
    sources_locked: Gauge,
    quarantined: Family<ServerLabel, Gauge>,
    /// By tool name. Copied when a tool is called for the first time, so that every other call reads without a lock.
    tools: ArcSwap<HashMap<String, Arc<Series>>>,
    growing: Mutex<()>,
    unknown: Arc<Series>,
    other: Arc<Series>,
    resource: Arc<Series>,
    prompt: Arc<Series>,
    completion: Arc<Series>,
    task: Arc<Series>,
}

/// The series of one tool, found once and kept.
struct Series {
    label: Arc<str>,
    duration: OnceLock<Histogram>,
    calls: [OnceLock<Counter>; Ending::COUNT],
}

impl Series {
    fn new(label: &str) -> Arc<Series> {
        Arc::new(Series {
            label: label.into(),
            duration: OnceLock::new(),
            calls: [const { OnceLock::new() }; Ending::COUNT],
        })
    }
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics::new()
    }
}

impl Metrics {
    pub fn new() -> Metrics {
        let mut registry = Registry::with_prefix("portcullis");
        let calls = Family::<CallLabels, Counter>::default();
        registry.register("calls", "Calls by tool and how they ended", calls.clone());
        let durations: Family<ToolLabel, Histogram, fn() -> Histogram> =
            Family::new_with_constructor(|| Histogram::new(DURATION_BUCKETS_SECONDS));
        registry.register("call_duration_seconds", "How long calls took, by tool", durations.clone());
        let in_flight = Gauge::default();
        registry.register("calls_in_flight", "Calls that have begun and not ended", in_flight.clone());
        let rate_limited = Counter::default();
        registry.register(
            "rate_limited",
            "Calls and lists refused for coming too fast",
            rate_limited.clone(),
        );
        let redactions = Counter::default();
        registry.register("redactions", "Secrets that were masked in what clients read", redactions.clone());
        let sessions = Family::<TransportLabel, Gauge>::default();
        registry.register("sessions", "Open sessions by transport", sessions.clone());
        let limit_hits = Family::<LimitLabel, Counter>::default();
        registry.register(
            "limit_hits",
            "What ran into a limit, by limit; see the table in docs/configuration.md",
            limit_hits.clone(),
        );
        let connections = Gauge::default();
        registry.register("connections", "Open HTTP connections", connections.clone());
        let token_failures = Counter::default();
        registry.register(
            "token_failures",
            "Tokens that were looked at and were not good",
            token_failures.clone(),
        );
        let sources_locked = Gauge::default();
        registry.register(
            "sources_locked",
            "Addresses of which no new token is looked at now, after too many that were not good",
            sources_locked.clone(),
        );
        let quarantined = Family::<ServerLabel, Gauge>::default();
        registry.register(
            "upstream_quarantined_tools",
            "Tools of other servers that wait until a person has looked, by server",
            quarantined.clone(),
        );
        registry.register(
            "build",
            "What is running",
            Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]),
        );
        Metrics {
            inner: Arc::new(Inner {
                registry,
                calls,
                durations,
                in_flight,
                rate_limited,
                redactions,
                sessions,
                limit_hits,
                connections,
                token_failures,
                sources_locked,
                quarantined,
                tools: ArcSwap::default(),
                growing: Mutex::default(),
                unknown: Series::new("unknown"),
                other: Series::new("other"),
                resource: Series::new("resource"),
                prompt: Series::new("prompt"),
                completion: Series::new("completion"),
                task: Series::new("task"),
            }),
        }
    }

    /// Returns the number of open sessions of a transport, to be set.
    pub fn sessions(&self, transport: &'static str) -> Gauge {
        self.inner.sessions.get_or_create_owned(&TransportLabel { transport })
    }

    /// Takes over what the server has counted.
    pub fn set_server(&self, numbers: ServerNumbers) {
        let gauge = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.inner.connections.set(gauge(numbers.connections));
        self.inner.sources_locked.set(gauge(numbers.sources_locked));
        self.inner.token_failures.inner().store(numbers.token_failures, Ordering::Relaxed);
    }

    /// Takes over how many tools of which server wait for a person. There are as many series as servers.
    pub fn set_quarantined(&self, servers: impl IntoIterator<Item = (String, usize)>) {
        self.inner.quarantined.clear();
        for (server, tools) in servers {
            let gauge = self.inner.quarantined.get_or_create_owned(&ServerLabel { server });
            gauge.set(i64::try_from(tools).unwrap_or(i64::MAX));
        }
    }

    /// Returns all numbers as OpenMetrics text, without what must not leave: others name their tools as they like.
    pub fn encode_without(&self, secrets: &dyn Scrub) -> String {
        let page = self.encode();
        if matches!(secrets.scrub(&page), Cow::Borrowed(_)) {
            return page;
        }
        // Only in names and labels: a number is nobody's secret, and a page with another number is wrong.
        let line = |line: &str| match line.rfind('}') {
            Some(end) if !line.starts_with('#') => {
                format!("{}{}\n", secrets.scrub(&line[..end]), &line[end..])
            }
            _ => format!("{line}\n"),
        };
        page.lines().map(line).collect()
    }

    /// Returns all numbers as OpenMetrics text.
    pub fn encode(&self) -> String {
        let mut page = String::new();
        // Limits that nobody ran into are shown too, so that a rule on them can be written beforehand.
        for limit in Limit::ALL {
            let counter = self.inner.limit_hits.get_or_create_owned(&LimitLabel { limit: limit.label() });
            counter.inner().store(limit.hits(), Ordering::Relaxed);
        }
        // Writing to a string fails only if a metric refuses to be written, and none of ours does.
        if text::encode(&mut page, &self.inner.registry).is_err() {
            tracing::error!("A metric could not be written; the page ends before it.");
        }
        page
    }

    pub(crate) fn count_rate_limited(&self) {
        Limit::Rate.hit();
        self.inner.rate_limited.inc();
    }

    fn series_of(&self, call: &Call) -> Arc<Series> {
        match (&call.target, call.tool()) {
            (Target::Tool(_), Some(tool)) => self.series_of_tool(&tool.name),
            (Target::Tool(_), None) => self.inner.unknown.clone(),
            (Target::Resource(_), _) => self.inner.resource.clone(),
            (Target::Prompt(_), _) => self.inner.prompt.clone(),
            (Target::Completion(_), _) => self.inner.completion.clone(),
            // Not the tool's: one call of it may be looked at a thousand times.
            (Target::Task(..), _) => self.inner.task.clone(),
        }
    }

    fn series_of_tool(&self, name: &str) -> Arc<Series> {
        if let Some(series) = self.inner.tools.load().get(name) {
            return series.clone();
        }
        let _growing = self.inner.growing.lock().unwrap_or_else(PoisonError::into_inner);
        let known = self.inner.tools.load();
        if let Some(series) = known.get(name) {
            return series.clone();
        }
        if known.len() >= TOOLS_MAX {
            return self.inner.other.clone();
        }
        let series = Series::new(name);
        let mut grown = HashMap::clone(&known);
        grown.insert(name.to_owned(), series.clone());
        self.inner.tools.store(Arc::new(grown));
        series
    }

    fn count(&self, series: &Series, ending: Ending, seconds: f64) {
        if let Some(slot) = series.calls.get(ending.index()) {
            let labels = || CallLabels { tool: series.label.clone(), outcome: ending.as_str() };
            slot.get_or_init(|| self.inner.calls.get_or_create_owned(&labels())).inc();
        }
        let label = || ToolLabel { tool: series.label.clone() };
        series.duration.get_or_init(|| self.inner.durations.get_or_create_owned(&label())).observe(seconds);
    }
}

/// A call that is counted as under way while this lives, and counted as ended when it goes, however it goes.
struct InFlight<'a> {
    metrics: &'a Metrics,
    series: Arc<Series>,
    started: Instant,
    ending: Option<Ending>,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.metrics.inner.in_flight.dec();
        let ending = self.ending.unwrap_or_else(Ending::without_outcome);
        self.metrics.count(&self.series, ending, self.started.elapsed().as_secs_f64());
    }
}

impl Layer for Metrics {
    fn call<'a>(&'a self, call: Box<Call>, next: Next<'a>) -> BoxFuture<'a, Outcome> {
        Box::pin(async move {
            self.inner.in_flight.inc();
            let (series, started) = (self.series_of(&call), Instant::now());
            let trail = call.trail.clone();
            let is_tool = matches!(call.target, Target::Tool(_));
            let mut under_way = InFlight { metrics: self, series, started, ending: None };
            let outcome = next.run(call).await;
            self.inner.redactions.inc_by(trail.masked.load(Ordering::Relaxed) as u64);
            under_way.ending = Some(Ending::of(&outcome));
            // Whoever may not know of a tool must not find its name here either.
            if is_tool && outcome.as_ref().is_err_and(|error| error.kind == ErrorKind::Unknown) {
                under_way.series = self.inner.unknown.clone();
            }
            outcome
        })
    }
}

#[cfg(test)]
#[path = "metrics_tests.rs"]
mod tests;
