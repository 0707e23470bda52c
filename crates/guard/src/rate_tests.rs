use super::*;
use crate::contain::ContainmentLayer;
use crate::testing::{call, call_by, caller, gate, outcome_text};
use futures::future::join_all;
use portcullis_core::{CallLimits, ErrorKind, Gate};
use tokio::time::advance;

fn number(n: u32) -> NonZeroU32 {
    NonZeroU32::new(n).unwrap()
}

/// Without waiting.
fn settings(per_second: u32, burst: u32) -> RateSettings {
    RateSettings { per_second: number(per_second), burst: number(burst), wait: Duration::ZERO }
}

fn patient(per_second: u32, burst: u32, wait_ms: u64) -> RateSettings {
    RateSettings { wait: Duration::from_millis(wait_ms), ..settings(per_second, burst) }
}

fn limited_by(settings: RateSettings) -> (Arc<Gate>, ClientRateLimiter, Metrics) {
    let metrics = Metrics::new();
    let rate = ClientRateLimiter::new(settings, metrics.clone());
    (Arc::new(gate(vec![Box::new(rate.clone())]).0), rate, metrics)
}

fn limited(per_second: u32, burst: u32) -> (Arc<Gate>, ClientRateLimiter, Metrics) {
    limited_by(settings(per_second, burst))
}

async fn calls_until_refused(gate: &Gate, line: &str) -> usize {
    for count in 0..100 {
        if gate.call(call(line)).await.is_err_and(|error| error.kind == ErrorKind::RateLimited) {
            return count;
        }
    }
    panic!("never refused");
}

#[tokio::test(start_paused = true)]
async fn a_burst_is_allowed_and_then_the_rate() {
    let (gate, ..) = limited(10, 20);
    assert_eq!(calls_until_refused(&gate, "stub_read").await, 20);
    advance(Duration::from_millis(300)).await;
    assert_eq!(calls_until_refused(&gate, "stub_read").await, 3);
    advance(Duration::from_secs(3600)).await;
    assert_eq!(calls_until_refused(&gate, "stub_read").await, 20);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_says_when_to_come_back() {
    let (gate, _, metrics) = limited(10, 1);
    gate.call(call("stub_read")).await.unwrap();
    advance(Duration::from_millis(40)).await;
    let error = gate.call(call("stub_read")).await.unwrap_err();
    assert_eq!(error.to_string(), "rate_limited: Rate limit exceeded. Please try again later.");
    assert_eq!(error.retry_after, Some(Duration::from_millis(60)));
    assert!(metrics.encode().contains("portcullis_rate_limited_total 1\n"));
}

/// How each of these calls ended, made at once: after how many milliseconds it ran, or the time to retry, negative.
async fn at_once(gate: &Arc<Gate>, calls: usize) -> Vec<i64> {
    let started = Instant::now();
    let calls = (0..calls).map(|_| async move {
        match gate.call(call("stub_read")).await {
            Ok(_) => started.elapsed().as_millis() as i64,
            Err(error) => -(error.retry_after.unwrap().as_millis() as i64),
        }
    });
    join_all(calls).await
}

#[tokio::test(start_paused = true)]
async fn of_40_calls_at_once_those_that_fit_into_the_wait_run_in_order_and_the_rest_are_refused() {
    let (gate, _, metrics) = limited_by(patient(10, 20, 1_000));
    let mut expected = vec![0; 20];
    expected.extend((1..=10).map(|n| n * 100));
    expected.extend([-1_100; 10]);
    assert_eq!(at_once(&gate, 40).await, expected);
    assert!(metrics.encode().contains("portcullis_rate_limited_total 10\n"));
    // Without waiting, as many are refused as there are too many.
    let mut expected = vec![0; 20];
    expected.extend([-100; 20]);
    assert_eq!(at_once(&limited(10, 20).0, 40).await, expected);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_call_leaves_its_place_and_gives_back_its_token() {
    let (gate, rate, _) = limited_by(patient(10, 1, 200));
    assert_eq!(at_once(&gate, 1).await, [0]);
    let waiting = || rate.inner.current.load().buckets.lock()["ada"].waiting;
    let mut first = Box::pin(gate.call(call("stub_read")));
    let mut second = Box::pin(gate.call(call("stub_read")));
    assert!(futures::poll!(&mut first).is_pending() && futures::poll!(&mut second).is_pending());
    assert_eq!((waiting(), at_once(&gate, 1).await), (2, vec![-300]));
    drop(second);
    assert_eq!(waiting(), 1);
    // Its turn is taken by the next.
    assert_eq!(at_once(&gate, 2).await, [200, -300]);
    assert_eq!(outcome_text(&first.await), "ok: did ");
    assert_eq!(waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_wait_ends_with_the_clients_cancellation_and_does_not_count_towards_the_deadline() {
    let rate = ClientRateLimiter::new(patient(1, 1, 1_000), Metrics::new());
    let contain = ContainmentLayer::new(CallLimits::CEILING);
    let (gate, world) = gate(vec![Box::new(contain), Box::new(rate)]);
    gate.call(call("stub_read")).await.unwrap();
    let started = Instant::now();
    let cancelled = call("stub_read");
    let cancel = cancelled.ctx.cancel.clone();
    let (outcome, ()) = tokio::join!(gate.call(cancelled), async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        cancel.cancel();
    });
    assert_eq!(outcome.unwrap_err().kind, ErrorKind::Cancelled);
    assert_eq!((started.elapsed().as_millis(), world.acted()), (100, 1));
    // The stub hangs until its deadline of a second, after waiting for nearly one.
    let error = gate.call(call("stub_hang")).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Timeout);
    assert_eq!(started.elapsed().as_millis(), 2_000);
}

#[tokio::test(start_paused = true)]
async fn the_number_of_waiting_calls_has_a_bound_for_each_client() {
    let metrics = Metrics::new();
    let rate = ClientRateLimiter::bounded(patient(10, 1, 1_000), metrics, CLIENTS_MAX, 2);
    let gate = Arc::new(gate(vec![Box::new(rate)]).0);
    let before = Limit::RateWaiting.hits();
    assert_eq!(at_once(&gate, 5).await, [0, 100, 200, -300, -300]);
    assert_eq!(Limit::RateWaiting.hits(), before + 2);
    assert!(gate.call(call_by(caller("bob"), "stub_read")).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_list_never_waits_and_does_not_overtake() {
    let (gate, ..) = limited_by(patient(10, 1, 1_000));
    assert!(gate.tools(&caller("ada")).is_ok());
    let mut waiting = Box::pin(gate.call(call("stub_read")));
    assert!(futures::poll!(&mut waiting).is_pending());
    assert_eq!(gate.tools(&caller("ada")).err().unwrap().retry_after, Some(Duration::from_millis(200)));
    assert!(waiting.await.is_ok());
    assert!(gate.tools(&caller("ada")).is_err());
}

#[tokio::test(start_paused = true)]
async fn unknown_names_resources_and_lists_cost_too() {
    for line in
        ["none_such", "resource stub://a", "resource none://a", "prompt stub_greet", "completion stub_greet"]
    {
        assert_eq!(calls_until_refused(&limited(1, 5).0, line).await, 5, "{line}");
    }
    let (gate, _, metrics) = limited(1, 2);
    assert!(gate.tools(&caller("ada")).is_ok());
    assert!(gate.resources(&caller("ada")).await.is_ok());
    assert!(gate.prompts(&caller("ada")).is_err());
    assert!(outcome_text(&gate.call(call("stub_read")).await).starts_with("rate_limited"));
    assert!(metrics.encode().contains("portcullis_rate_limited_total 2\n"));
}

#[tokio::test(start_paused = true)]
async fn clients_do_not_share_a_bucket() {
    let (gate, ..) = limited(1, 2);
    assert_eq!(calls_until_refused(&gate, "stub_read").await, 2);
    assert!(gate.call(call_by(caller("bob"), "stub_read")).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_new_limit_holds_at_once_and_the_same_one_refills_nothing() {
    let (gate, rate, _) = limited(1, 2);
    assert_eq!(calls_until_refused(&gate, "stub_read").await, 2);
    rate.configure(settings(1, 2));
    assert_eq!(calls_until_refused(&gate, "stub_read").await, 0);
    rate.configure(settings(1, 7));
    assert_eq!(calls_until_refused(&gate, "stub_read").await, 7);
}

#[tokio::test(start_paused = true)]
async fn the_number_of_buckets_has_a_bound() {
    let rate = ClientRateLimiter::bounded(settings(1, 5), Metrics::new(), 10, 1);
    let visit = |from: u32, clients: u32| {
        for n in from..from + clients {
            assert!(rate.draw(&caller(&format!("client-{n}")), Duration::ZERO).is_ok());
        }
    };
    let buckets = || rate.inner.current.load().buckets.lock().len();
    // Idle buckets go first.
    visit(0, 10);
    assert_eq!(buckets(), 10);
    advance(Duration::from_secs(60)).await;
    visit(100, 3);
    assert_eq!(buckets(), 3);
    // If most are in use, all go.
    visit(200, 1_000);
    assert!(buckets() <= 10, "{}", buckets());
}
