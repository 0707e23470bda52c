use super::*;
use crate::contain::ContainmentLayer;
use crate::testing::{call, gate};
use futures::poll;
use portcullis_core::CallLimits;
use std::time::Duration;

/// Returns the lines of the page with this prefix, without buckets.
fn lines(metrics: &Metrics, prefix: &str) -> String {
    let page = metrics.encode();
    let mut lines: Vec<_> =
        page.lines().filter(|l| l.starts_with(prefix) && !l.contains("_bucket")).collect();
    lines.sort_unstable();
    lines.join("\n")
}

#[tokio::test(start_paused = true)]
async fn every_ending_is_counted_under_a_bounded_label() {
    let metrics = Metrics::new();
    let (gate, _) =
        gate(vec![Box::new(metrics.clone()), Box::new(ContainmentLayer::new(CallLimits::CEILING))]);
    for line in [
        "stub_read",
        "stub_read",
        "stub_refuse",
        "stub_hang",
        "stub_panic",
        "none_such",
        "none_other",
        "resource stub://a",
        "resource none://a",
        "prompt stub_greet",
        "completion none",
    ] {
        let _ = gate.call(call(line)).await;
    }
    insta::assert_snapshot!(lines(&metrics, "portcullis_call"), @r#"
    portcullis_call_duration_seconds_count{tool="completion"} 1
    portcullis_call_duration_seconds_count{tool="prompt"} 1
    portcullis_call_duration_seconds_count{tool="resource"} 2
    portcullis_call_duration_seconds_count{tool="stub_hang"} 1
    portcullis_call_duration_seconds_count{tool="stub_panic"} 1
    portcullis_call_duration_seconds_count{tool="stub_read"} 2
    portcullis_call_duration_seconds_count{tool="stub_refuse"} 1
    portcullis_call_duration_seconds_count{tool="unknown"} 2
    portcullis_call_duration_seconds_sum{tool="completion"} 0.0
    portcullis_call_duration_seconds_sum{tool="prompt"} 0.0
    portcullis_call_duration_seconds_sum{tool="resource"} 0.0
    portcullis_call_duration_seconds_sum{tool="stub_hang"} 1.0
    portcullis_call_duration_seconds_sum{tool="stub_panic"} 0.0
    portcullis_call_duration_seconds_sum{tool="stub_read"} 0.0
    portcullis_call_duration_seconds_sum{tool="stub_refuse"} 0.0
    portcullis_call_duration_seconds_sum{tool="unknown"} 0.0
    portcullis_calls_in_flight 0
    portcullis_calls_total{tool="completion",outcome="unknown"} 1
    portcullis_calls_total{tool="prompt",outcome="ok"} 1
    portcullis_calls_total{tool="resource",outcome="ok"} 1
    portcullis_calls_total{tool="resource",outcome="unknown"} 1
    portcullis_calls_total{tool="stub_hang",outcome="timeout"} 1
    portcullis_calls_total{tool="stub_panic",outcome="internal"} 1
    portcullis_calls_total{tool="stub_read",outcome="ok"} 2
    portcullis_calls_total{tool="stub_refuse",outcome="not_found"} 1
    portcullis_calls_total{tool="unknown",outcome="unknown"} 2
    "#);
    insta::assert_snapshot!(lines(&metrics, "portcullis_build"), @r#"portcullis_build_info{version="0.1.0"} 1"#);
}

#[tokio::test(start_paused = true)]
async fn calls_under_way_are_counted_down_however_they_end() {
    let metrics = Metrics::new();
    let in_flight = |expected: i64| assert_eq!(metrics.inner.in_flight.get(), expected);
    let (gate, _) = gate(vec![Box::new(metrics.clone())]);
    // Dropped.
    let mut answer = gate.call(call("stub_hang"));
    in_flight(0);
    assert!(poll!(&mut answer).is_pending());
    in_flight(1);
    tokio::time::advance(Duration::from_millis(250)).await;
    drop(answer);
    in_flight(0);
    // Panicked.
    let gate = Arc::new(gate);
    let task = gate.clone();
    assert!(tokio::spawn(async move { task.call(call("stub_panic")).await }).await.is_err());
    in_flight(0);
    insta::assert_snapshot!(lines(&metrics, "portcullis_call"), @r#"
    portcullis_call_duration_seconds_count{tool="stub_hang"} 1
    portcullis_call_duration_seconds_count{tool="stub_panic"} 1
    portcullis_call_duration_seconds_sum{tool="stub_hang"} 0.25
    portcullis_call_duration_seconds_sum{tool="stub_panic"} 0.0
    portcullis_calls_in_flight 0
    portcullis_calls_total{tool="stub_hang",outcome="cancelled"} 1
    portcullis_calls_total{tool="stub_panic",outcome="internal"} 1
    "#);
}

#[test]
fn numbers_of_the_server_and_its_limits() {
    let metrics = Metrics::new();
    metrics.sessions("http").set(1);
    metrics.sessions("stdio").set(2);
    metrics.set_server(ServerStats { connections: 3, token_failures: 4, sources_locked: 5 });
    Limit::Tasks.hit();
    insta::assert_snapshot!(lines(&metrics, "portcullis_s"), @r#"
    portcullis_sessions{transport="http"} 1
    portcullis_sessions{transport="stdio"} 2
    portcullis_sources_locked 5
    "#);
    let page = metrics.encode();
    for line in ["portcullis_connections 3", "portcullis_token_failures_total 4"] {
        assert!(page.lines().any(|own| own == line), "{line}");
    }
    // Each limit has a line, also without hits.
    for limit in Limit::ALL {
        // Other tests may hit a limit at the same time, so the count does not matter.
        let line = format!("portcullis_limit_hits_total{{limit=\"{}\"}} ", limit.label());
        assert!(page.lines().any(|own| own.starts_with(&line)), "{line}");
    }
    assert!(Limit::Tasks.hits() > 0);
}

#[test]
fn the_number_of_series_has_a_bound() {
    let metrics = Metrics::new();
    for n in 0..TOOLS_MAX + 10 {
        metrics.count(&metrics.series_of_tool(&format!("tool_{n}")), OutcomeKind::Ok, 0.0);
    }
    assert_eq!(lines(&metrics, "portcullis_calls_total").lines().count(), TOOLS_MAX + 1);
    assert!(metrics.encode().contains("portcullis_calls_total{tool=\"other\",outcome=\"ok\"} 10\n"));
}

#[tokio::test]
async fn a_label_tells_no_secret_and_numbers_stay_what_they_are() {
    let metrics = Metrics::new();
    let (gate, _) = gate(vec![Box::new(metrics.clone())]);
    let _ = gate.call(call("stub_read")).await;
    let secret = |value: &str| ("KEY".to_owned(), portcullis_core::Secret::new(value.to_owned()));
    let redactor = crate::Redactor::new(&[secret("stub_read")]).unwrap();
    let page = metrics.encode_redacted(&redactor);
    assert!(page.contains("portcullis_calls_total{tool=\"[REDACTED:KEY]\",outcome=\"ok\"} 1\n"), "{page}");
    assert!(!page.contains("stub_read") && page.ends_with("# EOF\n"), "{page}");
    assert!(metrics.encode().contains("stub_read"), "the weak page tells it");
    redactor.replace(&[secret("none of this")]).unwrap();
    assert_eq!(metrics.encode_redacted(&redactor), metrics.encode());
}
