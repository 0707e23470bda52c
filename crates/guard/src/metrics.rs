//! Prometheus metrics of calls.
//!
//! Invariant: the cardinality is bounded. Unregistered names share one label, and other targets are counted by kind, so
//! client input never adds a series.

use crate::outcome_kind::OutcomeKind;
use arc_swap::ArcSwap;
use parking_lot::Mutex;
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
use std::sync::{Arc, OnceLock};
use tokio::time::Instant;

/// From a lookup to the longest usual deadline.
const DURATION_BUCKETS_SECONDS: [f64; 17] = [
    0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    10.0, 30.0,
];

/// Bound on tools with their own series. Upstream servers may change their tools at will; further ones share the label
/// `other`.
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

/// Counts of the HTTP server at the time of the scrape.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServerStats {
    /// Open HTTP connections.
    pub connections: usize,
    /// Failed token checks.
    pub token_failures: u64,
    /// Source addresses locked out after too many failed tokens.
    pub sources_locked: usize,
}

/// The metrics of a hub. Clones share state.
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
    /// By tool name. Copy-on-write, so that calls read without a lock.
    tools: ArcSwap<HashMap<String, Arc<Series>>>,
    growing: Mutex<()>,
    unknown: Arc<Series>,
    other: Arc<Series>,
    resource: Arc<Series>,
    prompt: Arc<Series>,
    completion: Arc<Series>,
    task: Arc<Series>,
}

/// The series of one tool, looked up once.
struct Series {
    label: Arc<str>,
    duration: OnceLock<Histogram>,
    calls: [OnceLock<Counter>; OutcomeKind::COUNT],
}

impl Series {
    fn new(label: &str) -> Arc<Series> {
        Arc::new(Series {
            label: label.into(),
            duration: OnceLock::new(),
            calls: [const { OnceLock::new() }; OutcomeKind::COUNT],
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
        registry.register("calls", "Calls by tool and outcome", calls.clone());
        let durations: Family<ToolLabel, Histogram, fn() -> Histogram> =
            Family::new_with_constructor(|| Histogram::new(DURATION_BUCKETS_SECONDS));
        registry.register("call_duration_seconds", "Duration of calls by tool", durations.clone());
        let in_flight = Gauge::default();
        registry.register("calls_in_flight", "Calls in flight", in_flight.clone());
        let rate_limited = Counter::default();
        registry.register("rate_limited", "Calls and lists refused by the rate limit", rate_limited.clone());
        let redactions = Counter::default();
        registry.register("redactions", "Secrets redacted from responses to clients", redactions.clone());
        let sessions = Family::<TransportLabel, Gauge>::default();
        registry.register("sessions", "Open sessions by transport", sessions.clone());
        let limit_hits = Family::<LimitLabel, Counter>::default();
        registry.register(
            "limit_hits",
            "Hits of limits, by limit; see the table in docs/configuration.md",
            limit_hits.clone(),
        );
        let connections = Gauge::default();
        registry.register("connections", "Open HTTP connections", connections.clone());
        let token_failures = Counter::default();
        registry.register("token_failures", "Failed token checks", token_failures.clone());
        let sources_locked = Gauge::default();
        registry.register(
            "sources_locked",
            "Source addresses locked out after too many failed tokens",
            sources_locked.clone(),
        );
        let quarantined = Family::<ServerLabel, Gauge>::default();
        registry.register(
            "upstream_quarantined_tools",
            "Upstream tools that need review, by server",
            quarantined.clone(),
        );
        registry.register(
            "build",
            "Build information",
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

    /// Returns the gauge of open sessions of a transport.
    pub fn sessions(&self, transport: &'static str) -> Gauge {
        self.inner.sessions.get_or_create_owned(&TransportLabel { transport })
    }

    /// Sets the counts of the HTTP server.
    pub fn set_server(&self, numbers: ServerStats) {
        let gauge = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.inner.connections.set(gauge(numbers.connections));
        self.inner.sources_locked.set(gauge(numbers.sources_locked));
        self.inner.token_failures.inner().store(numbers.token_failures, Ordering::Relaxed);
    }

    /// Sets the number of quarantined tools per server. There are as many series as servers.
    pub fn set_quarantined(&self, servers: impl IntoIterator<Item = (String, usize)>) {
        self.inner.quarantined.clear();
        for (server, tools) in servers {
            let gauge = self.inner.quarantined.get_or_create_owned(&ServerLabel { server });
            gauge.set(i64::try_from(tools).unwrap_or(i64::MAX));
        }
    }

    /// Returns all metrics as OpenMetrics text, redacted: tool names of upstream servers are untrusted.
    pub fn encode_redacted(&self, secrets: &dyn Scrub) -> String {
        let page = self.encode();
        if matches!(secrets.scrub(&page), Cow::Borrowed(_)) {
            return page;
        }
        // Only names and labels: numbers are not secret, and must not change.
        let line = |line: &str| match line.rfind('}') {
            Some(end) if !line.starts_with('#') => {
                format!("{}{}\n", secrets.scrub(&line[..end]), &line[end..])
            }
            _ => format!("{line}\n"),
        };
        page.lines().map(line).collect()
    }

    /// Returns all metrics as OpenMetrics text.
    pub fn encode(&self) -> String {
        let mut page = String::new();
        // Limits without hits are included, so that alerts can be written beforehand.
        for limit in Limit::ALL {
            let counter = self.inner.limit_hits.get_or_create_owned(&LimitLabel { limit: limit.label() });
            counter.inner().store(limit.hits(), Ordering::Relaxed);
        }
        // Writing to a string fails only if a metric refuses, and none does.
        if text::encode(&mut page, &self.inner.registry).is_err() {
            tracing::error!("metric could not be encoded; the page is truncated");
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
            // Not the tool's series: one task may be polled a thousand times.
            (Target::Task(..), _) => self.inner.task.clone(),
        }
    }

    fn series_of_tool(&self, name: &str) -> Arc<Series> {
        if let Some(series) = self.inner.tools.load().get(name) {
            return series.clone();
        }
        let _growing = self.inner.growing.lock();
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

    fn count(&self, series: &Series, ending: OutcomeKind, seconds: f64) {
        if let Some(slot) = series.calls.get(ending.index()) {
            let labels = || CallLabels { tool: series.label.clone(), outcome: ending.as_str() };
            slot.get_or_init(|| self.inner.calls.get_or_create_owned(&labels())).inc();
        }
        let label = || ToolLabel { tool: series.label.clone() };
        series.duration.get_or_init(|| self.inner.durations.get_or_create_owned(&label())).observe(seconds);
    }
}

/// Counts a call as in flight while alive, and as ended when dropped.
struct InFlightCall<'a> {
    metrics: &'a Metrics,
    series: Arc<Series>,
    started: Instant,
    ending: Option<OutcomeKind>,
}

impl Drop for InFlightCall<'_> {
    fn drop(&mut self) {
        self.metrics.inner.in_flight.dec();
        let ending = self.ending.unwrap_or_else(OutcomeKind::without_outcome);
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
            let mut in_flight = InFlightCall { metrics: self, series, started, ending: None };
            let outcome = next.run(call).await;
            self.inner.redactions.inc_by(trail.masked.load(Ordering::Relaxed) as u64);
            in_flight.ending = Some(OutcomeKind::of(&outcome));
            // A hidden tool must not appear by name here either.
            if is_tool && outcome.as_ref().is_err_and(|error| error.kind == ErrorKind::Unknown) {
                in_flight.series = self.inner.unknown.clone();
            }
            outcome
        })
    }
}

#[cfg(test)]
#[path = "metrics_tests.rs"]
mod tests;
