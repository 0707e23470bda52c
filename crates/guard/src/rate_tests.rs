use super::*;
use crate::testing::{call, call_by, caller, gate, outcome_text};
use governor::clock::FakeRelativeClock;
use portcullis_core::{ErrorKind, Gate};
use std::time::Duration;

fn settings(per_second: u32, burst: u32) -> RateSettings {
    let number = |n| NonZeroU32::new(n).unwrap();
    RateSettings { per_second: number(per_second), burst: number(burst) }
}

fn limited(
    per_second: u32,
    burst: u32,
) -> (Gate, ClientRateLimiter<FakeRelativeClock>, FakeRelativeClock, Metrics) {
    let (clock, metrics) = (FakeRelativeClock::default(), Metrics::new());
    let rate = ClientRateLimiter::with_clock(settings(per_second, burst), metrics.clone(), clock.clone());
    (gate(vec![Box::new(rate.clone())]).0, rate, clock, metrics)
}

async fn calls_until_refused(gate: &Gate, line: &str) -> usize {
    for count in 0..100 {
        if gate.call(call(line)).await.is_err_and(|error| error.kind == ErrorKind::RateLimited) {
            return count;
        }
    }
    panic!("never refused");
}

#[tokio::test]
async fn a_burst_is_allowed_and_then_the_rate() {
    let (gate, _, clock, _) = limited(10, 20);
    assert_eq!(calls_until_refused(&gate, "stub_read").await, 20);
    clock.advance(Duration::from_millis(300));
    assert_eq!(calls_until_refused(&gate, "stub_read").await, 3);
    clock.advance(Duration::from_secs(3600));
    assert_eq!(calls_until_refused(&gate, "stub_read").await, 20);
}

#[tokio::test]
async fn a_refusal_says_when_to_come_back() {
    let (gate, _, clock, metrics) = limited(10, 1);
    gate.call(call("stub_read")).await.unwrap();
    clock.advance(Duration::from_millis(40));
    let error = gate.call(call("stub_read")).await.unwrap_err();
    assert_eq!(error.to_string(), "rate_limited: Rate limit exceeded. Please try again later.");
    assert_eq!(error.retry_after, Some(Duration::from_millis(60)));
    assert!(metrics.encode().contains("portcullis_rate_limited_total 1\n"));
}

#[tokio::test]
async fn unknown_names_resources_and_lists_cost_too() {
    for line in
        ["none_such", "resource stub://a", "resource none://a", "prompt stub_greet", "completion stub_greet"]
    {
        assert_eq!(calls_until_refused(&limited(1, 5).0, line).await, 5, "{line}");
    }
    let (gate, _, _, metrics) = limited(1, 2);
    assert!(gate.tools(&caller("ada")).is_ok());
    assert!(gate.resources(&caller("ada")).await.is_ok());
    assert!(gate.prompts(&caller("ada")).is_err());
    assert!(outcome_text(&gate.call(call("stub_read")).await).starts_with("rate_limited"));
    assert!(metrics.encode().contains("portcullis_rate_limited_total 2\n"));
}

#[tokio::test]
async fn clients_do_not_share_a_bucket() {
    let (gate, ..) = limited(1, 2);
    assert_eq!(calls_until_refused(&gate, "stub_read").await, 2);
    assert!(gate.call(call_by(caller("bob"), "stub_read")).await.is_ok());
}

#[tokio::test]
async fn a_new_limit_holds_at_once_and_the_same_one_refills_nothing() {
    let (gate, rate, ..) = limited(1, 2);
    assert_eq!(calls_until_refused(&gate, "stub_read").await, 2);
    rate.configure(settings(1, 2));
    assert_eq!(calls_until_refused(&gate, "stub_read").await, 0);
    rate.configure(settings(1, 7));
    assert_eq!(calls_until_refused(&gate, "stub_read").await, 7);
}

#[test]
fn the_number_of_buckets_has_a_bound() {
    let clock = FakeRelativeClock::default();
    let rate = ClientRateLimiter::bounded(settings(1, 5), Metrics::new(), clock.clone(), 10);
    let visit = |from: u32, clients: u32| {
        for n in from..from + clients {
            rate.check(&caller(&format!("client-{n}"))).unwrap();
        }
    };
    let buckets = || rate.inner.current.load().limiter.len();
    // Idle buckets go first.
    visit(0, CHECKS_BETWEEN_COUNTS);
    assert_eq!(buckets(), CHECKS_BETWEEN_COUNTS as usize);
    clock.advance(Duration::from_secs(60));
    visit(10_000, 1);
    assert_eq!(buckets(), 1);
    // If all are in use, all go.
    visit(20_000, CHECKS_BETWEEN_COUNTS);
    assert!(buckets() <= 10 + 1, "{}", buckets());
}
