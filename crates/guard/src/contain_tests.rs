use super::*;
use crate::testing::{ClientBehavior, RecordingClient, call, gate, kind_of, outcome_text};
use futures::poll;
use portcullis_core::{Catalog, ErrorKind, Permit, Provider, ResourceClaim};
use serde_json::json;

fn contained() -> (portcullis_core::Gate, Arc<crate::testing::StubState>) {
    gate(vec![Box::new(ContainmentLayer::new(CallLimits::CEILING))])
}

#[tokio::test(start_paused = true)]
async fn each_trouble_has_its_own_error() {
    let (gate, _) = contained();
    for (line, expected) in [
        (r#"stub_read {"text":"it"}"#, "ok: did it"),
        ("none_such", "unknown: Unknown tool: none_such"),
        (
            "stub_panic",
            "internal: something went wrong in the hub\nhint: the hub's log says what; try again, or report it",
        ),
        (
            "stub_hang",
            "timeout: no answer within 1000 ms\nhint: request less, or retry later; side effects may have \
             happened",
        ),
        (
            "stub_flood",
            "too_large: the result has 1001 bytes, at most 1000 are allowed\nhint: ask for less: a smaller part, a \
             narrower search, a lower limit",
        ),
    ] {
        assert_eq!(outcome_text(&gate.call(call(line)).await), expected);
    }
}

#[tokio::test]
async fn the_panic_text_goes_to_the_log_only() {
    let error = contained().0.call(call(r#"stub_panic {"text":"a secret stone"}"#)).await.unwrap_err();
    assert_eq!(error.source.unwrap().to_string(), "panicked: fell over a secret stone");
    assert!(!error.message.contains("stone"));
}

#[tokio::test]
async fn without_the_layer_a_panic_takes_the_task_down() {
    let (bare, _) = gate(vec![]);
    assert!(tokio::spawn(async move { bare.call(call("stub_panic")).await }).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn at_the_deadline_the_tool_is_told_to_stop_and_the_callers_token_is_not_touched() {
    let (gate, world) = contained();
    let call = call("stub_hang");
    let caller = call.ctx.cancel.clone();
    assert_eq!(kind_of(&gate.call(call).await), Some(ErrorKind::Timeout));
    assert!(world.hanging.lock().take().unwrap().is_cancelled());
    assert!(!caller.is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_gives_up_is_answered_at_once() {
    let (gate, world) = contained();
    let call = call("stub_hang");
    let cancel = call.ctx.cancel.clone();
    let mut answer = gate.call(call);
    assert!(poll!(&mut answer).is_pending());
    cancel.cancel();
    let before = Instant::now();
    assert_eq!(outcome_text(&answer.await), "cancelled: cancelled by the caller");
    assert_eq!(before.elapsed(), Duration::ZERO);
    assert!(world.hanging.lock().take().unwrap().is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_goes_away_stops_the_tool() {
    let (gate, world) = contained();
    let mut answer = gate.call(call("stub_hang"));
    assert!(poll!(&mut answer).is_pending());
    drop(answer);
    assert!(world.hanging.lock().take().unwrap().is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn time_for_an_answer_does_not_count_but_has_its_own_bound() {
    let outcome = async |mood| {
        let (gate, _) = contained();
        let mut call = call("stub_question");
        call.ctx.peer = RecordingClient::new(Some(mood));
        let started = Instant::now();
        (outcome_text(&gate.call(call).await), started.elapsed())
    };
    let minute = Duration::from_secs(60);
    let (outcome_text, after) = outcome(ClientBehavior::SaysAfter(minute, json!({}))).await;
    assert_eq!((outcome_text.as_str(), after), ("ok: answered", minute));
    let (outcome_text, after) = outcome(ClientBehavior::Silent).await;
    assert!(outcome_text.starts_with("timeout"), "{outcome_text}");
    assert!(after > CLIENT_WAIT_MAX && after < CLIENT_WAIT_MAX + 2 * Duration::from_secs(1), "{after:?}");
}

/// An upstream server that never responds.
struct Elsewhere;

impl Provider for Elsewhere {
    fn name(&self) -> &str {
        "elsewhere"
    }

    fn catalog(&self) -> Catalog {
        Catalog::default()
    }

    fn owns_resource(&self, uri: &str, _: &str) -> ResourceClaim {
        if uri.starts_with("elsewhere://") { ResourceClaim::Listed } else { ResourceClaim::Not }
    }

    fn default_decision(&self) -> DefaultDecision {
        DefaultDecision::Allow
    }

    fn call(&self, _: Permit, _: Box<Call>) -> BoxFuture<'_, Outcome> {
        Box::pin(std::future::pending())
    }
}

/// The timeout of a server is its own setting, for resources as for tools.
#[tokio::test(start_paused = true)]
async fn what_another_server_lets_read_has_its_time_from_that_server() {
    let (registry, _) = crate::testing::registry();
    registry.add(Elsewhere).unwrap();
    let gate =
        portcullis_core::Gate::new(registry, vec![Box::new(ContainmentLayer::new(CallLimits::CEILING))]);
    let started = Instant::now();
    let outcome = gate.call(call("resource elsewhere://a")).await;
    assert_eq!(kind_of(&outcome), Some(ErrorKind::Timeout));
    assert_eq!(started.elapsed(), CallLimits::CEILING.deadline());
}

/// The ceiling applies where a tool declares more; both limits are counted.
#[tokio::test(start_paused = true)]
async fn no_tool_goes_beyond_the_ceiling() {
    let ceiling = CallLimits { deadline_ms: 100, output_bytes_max: 10, ..CallLimits::DEFAULT };
    let (gate, _) = gate(vec![Box::new(ContainmentLayer::new(ceiling))]);
    let before = (Limit::CallTime.hits(), Limit::ResultBytes.hits());
    let outcome = gate.call(call("stub_hang")).await;
    assert!(
        outcome_text(&outcome).starts_with("timeout: no answer within 100 ms"),
        "{}",
        outcome_text(&outcome)
    );
    let outcome = gate.call(call("stub_flood")).await;
    assert!(outcome_text(&outcome).contains("at most 10 are allowed"), "{}", outcome_text(&outcome));
    let after = (Limit::CallTime.hits(), Limit::ResultBytes.hits());
    assert!(after.0 > before.0 && after.1 > before.1, "{before:?} {after:?}");
}
