use super::*;
use crate::policy::{PolicyRule, RuleAction, RuleSchedule};
use crate::testing::{
    ClientBehavior, RecordingClient, StoppedClock, StubState, TestOwners, call, call_by, caller, client,
    gate, outcome_text, registry, scope,
};
use portcullis_core::{Arguments, Call, CallCtx, Effect, EffectSet, Pattern, SystemClock};
use serde_json::{Value, json};
use std::num::NonZeroU32;
use std::path::Path;
use std::time::{Duration, Instant};

struct Hub {
    gate: Gate,
    handles: GuardHandles,
    world: Arc<StubState>,
    dir: tempfile::TempDir,
}

fn rate(burst: u32) -> RateSettings {
    let burst = NonZeroU32::new(burst).unwrap();
    RateSettings { per_second: NonZeroU32::MIN, burst, wait: Duration::ZERO }
}

/// No waiting.
fn times() -> ApprovalTimes {
    ApprovalTimes { wait: Duration::ZERO, ..ApprovalTimes::default() }
}

fn hidden(tools: &[&str]) -> Policy {
    let (name, decision) = ("policy[0]".to_owned(), RuleAction::Deny);
    let (clients, tools) = (Pattern::any(), Pattern::new(tools).unwrap());
    let when = RuleSchedule::default();
    let rule = PolicyRule {
        name,
        clients,
        tools,
        origins: None,
        effects: None,
        reach: None,
        labels: None,
        when,
        decision,
    };
    Policy { rules: vec![rule], ..Policy::default() }
}

fn hub(policy: Policy) -> Hub {
    let dir = tempfile::tempdir().unwrap();
    let (registry, world) = registry();
    let settings = GuardSettings {
        rate: rate(1_000),
        policy,
        secrets: vec![("KEY".to_owned(), Secret::new("hunter2-hunter2".to_owned()))],
        audit: AuditSettings::in_folder(dir.path()),
        database: portcullis_store::open(dir.path(), &[]).unwrap(),
        owners: Arc::new(TestOwners::default()),
        approval_times: times(),
        ceiling: CallLimits::CEILING,
    };
    let (gate, handles) = stack(registry, settings, Arc::new(StoppedClock)).unwrap_or_else(|e| panic!("{e}"));
    Hub { gate, handles, world, dir }
}

impl Hub {
    fn records(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.dir.path().join("audit/audit.jsonl")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Replaces the folder of the audit log by something that is not a folder.
    async fn break_audit(&self) {
        self.handles.audit.flush().await.unwrap();
        let path = self.dir.path().join("audit");
        std::fs::remove_dir_all(&path).unwrap();
        std::fs::write(&path, "").unwrap();
    }

    /// Makes calls and renders each: the result, what the client received meanwhile, and the end record.
    async fn transcript(&self, answer: Option<Value>, lines: &[&str]) -> String {
        let mut transcript = String::new();
        for line in lines {
            let listener = RecordingClient::new(answer.clone().map(ClientBehavior::Says));
            // A client that answers does so at once.
            let wait = Duration::from_secs(if answer.is_some() { 20 } else { 0 });
            self.handles.approvals.configure(ApprovalTimes { wait, ..times() });
            let mut call = call(line);
            call.ctx.peer = listener.clone();
            // Time is paused only for a call that hangs: the others wait for a real disk.
            let hangs = line.starts_with("stub_hang");
            hangs.then(tokio::time::pause);
            let outcome = outcome_text(&self.gate.call(call).await);
            hangs.then(tokio::time::resume);
            self.handles.audit.flush().await.unwrap();
            let record = self.records().pop().unwrap();
            let word = |key: &str| record[key].as_str().unwrap_or("-").to_owned();
            let [decision, rule, outcome_word] = ["decision", "rule", "outcome"].map(word);
            transcript.push_str(&format!("> {line}\n{outcome}\n"));
            for received in listener.received().lines() {
                transcript.push_str(&format!("received: {received}\n"));
            }
            let approval = record["approval"].as_str().map(|note| format!(", approved as {note}"));
            let approval = approval.unwrap_or_default();
            transcript.push_str(&format!("audit: {decision} by {rule}, {outcome_word}{approval}\n\n"));
        }
        for approval in self.handles.approvals.approvals().list().unwrap() {
            transcript = transcript.replace(&approval.id, "<id>");
        }
        transcript
    }
}

#[tokio::test]
async fn a_day_at_the_gate() {
    let hub = hub(hidden(&["stub_look", "stub://secret*"]));
    let transcript = hub
        .transcript(
            Some(json!({ "action": "accept", "content": { "approve": true } })),
            &[
                r#"stub_read {"text":"it"}"#,
                r#"stub_echo {"text":"key hunter2-hunter2"}"#,
                r#"stub_write {"text":"it"}"#,
                r#"stub_erase {"text":"hunter2-hunter2"}"#,
                r#"stub_look {"nonsense":1}"#,
                "none_such",
                r#"stub_erase {"limit":0,"txt":"hunter2-hunter2"}"#,
                r#"stub_refuse {"text":"x"}"#,
                "stub_panic",
                "stub_hang",
                "stub_flood",
                "resource stub://a",
                "resource stub://secret",
                "prompt stub_greet",
            ],
        )
        .await;
    insta::assert_snapshot!(transcript, @r#"
    > stub_read {"text":"it"}
    ok: did it
    audit: allow by default:read, ok

    > stub_echo {"text":"key hunter2-hunter2"}
    ok: {
      "text": "key [REDACTED:KEY]"
    } | text | key [REDACTED:KEY]
    received: progress 1: key [REDACTED:KEY]
    received: info stub: "key [REDACTED:KEY]"
    audit: allow by default:read, ok

    > stub_write {"text":"it"}
    ok: did it
    audit: allow by default:local-write, ok

    > stub_erase {"text":"hunter2-hunter2"}
    ok: did [REDACTED:KEY]
    received: progress 0: waiting for a person; `portcullis approvals approve <id>` lets the call run
    received: portcullis_approval_<id>? Portcullis asks: client `ada` wants to run tool `stub_erase` (effect: destroy) with:
    received: {"text":"[REDACTED:KEY]"}
    audit: ask by default:destroy, ok, approved as <id> once by client `ada`

    > stub_look {"nonsense":1}
    unknown: Unknown tool: stub_look
    audit: deny by policy[0], unknown

    > none_such
    unknown: Unknown tool: none_such
    audit: deny by unknown, unknown

    > stub_erase {"limit":0,"txt":"hunter2-hunter2"}
    invalid_args: invalid arguments: `limit` is 0, expected 1 to 100; `txt` is not an argument; did you mean `text`?
    hint: use `text` instead of `txt`
    hint: call it as `stub_erase(text?: string, limit?: integer)`; those with `?` may be left out
    audit: ask by default:destroy, invalid_args

    > stub_refuse {"text":"x"}
    not_found: thing `x` not found
    hint: not `x`
    audit: allow by default:read, not_found

    > stub_panic
    internal: something went wrong in the hub
    hint: the hub's log says what; try again, or report it
    audit: allow by default:read, internal

    > stub_hang
    timeout: no answer within 1000 ms
    hint: request less, or retry later; side effects may have happened
    audit: allow by default:read, timeout

    > stub_flood
    too_large: the result has 1001 bytes, at most 1000 are allowed
    hint: ask for less: a smaller part, a narrower search, a lower limit
    audit: allow by default:read, too_large

    > resource stub://a
    ok: stub://a | contents of stub://a
    audit: allow by default:read, ok

    > resource stub://secret
    unknown: Unknown resource: stub://secret
    audit: deny by policy[0], unknown

    > prompt stub_greet
    ok: hello from stub_greet
    audit: allow by default:read, ok
    "#);
    insta::assert_snapshot!(hub.transcript(None, &["stub_send", "stub_read"]).await, @"
    > stub_send
    needs_approval: tool `stub_send` is pending approval by a person; its id is <id>
    hint: a person decides with `portcullis approvals approve <id>`, or `reject`
    hint: once it is approved, make the same call again with the same arguments; anything else asks again
    received: progress 0: waiting for a person; `portcullis approvals approve <id>` lets the call run
    audit: ask by default:outside, needs_approval

    > stub_read
    ok: did 
    audit: allow by default:read, ok
    ");
}

#[tokio::test]
async fn the_order_holds() {
    // Metrics and audit see what every other layer refuses.
    let hub1 = hub(hidden(&["stub_look"]));
    hub1.transcript(None, &["none_such", r#"stub_read {"x":1}"#, "stub_send"]).await;
    let page = hub1.handles.metrics.encode();
    for line in [
        "{tool=\"unknown\",outcome=\"unknown\"} 1",
        "{tool=\"stub_read\",outcome=\"invalid_args\"} 1",
        "{tool=\"stub_send\",outcome=\"needs_approval\"} 1",
    ] {
        assert!(page.contains(line), "{page}");
    }
    assert_eq!(hub1.records().len(), 6);

    // Rate before authorize: a hidden, an unknown and an invalid call are all charged.
    hub1.handles.rate.configure(rate(1));
    assert!(hub1.gate.call(call("stub_read")).await.is_ok());
    for line in ["stub_read", "stub_look", "none_such", r#"stub_read {"x":1}"#] {
        assert!(outcome_text(&hub1.gate.call(call(line)).await).starts_with("rate_limited"), "{line}");
    }

    // Authorize before validate: the schema of a hidden tool is not revealed.
    let hub2 = hub(hidden(&["stub_look"]));
    assert_eq!(
        outcome_text(&hub2.gate.call(call(r#"stub_look {"x":1}"#)).await),
        "unknown: Unknown tool: stub_look"
    );

    // Validate and commit before approve: no approval for a call that cannot run.
    let asked = async |hub: &Hub, line: &str| {
        let listener = RecordingClient::new(Some(ClientBehavior::Says(
            json!({ "action": "accept", "content": { "approve": true } }),
        )));
        let mut call = call(line);
        call.ctx.peer = listener.clone();
        let outcome = outcome_text(&hub.gate.call(call).await);
        (outcome.split(':').next().unwrap().to_owned(), listener.received().lines().count())
    };
    hub2.handles.approvals.configure(ApprovalTimes { wait: Duration::from_secs(20), ..times() });
    assert_eq!(asked(&hub2, r#"stub_erase {"x":1}"#).await, ("invalid_args".to_owned(), 0));
    assert_eq!(asked(&hub2, "stub_erase").await, ("ok".to_owned(), 3));
    hub2.break_audit().await;
    assert_eq!(asked(&hub2, "stub_erase").await, ("unavailable".to_owned(), 0));
    assert_eq!(hub2.world.acted(), 1);
}

#[tokio::test]
async fn a_call_that_waits_its_turn_is_recorded_once() {
    let hub = hub(Policy::default());
    let per_second = NonZeroU32::new(1_000).unwrap();
    let wait = Duration::from_secs(10);
    hub.handles.rate.configure(RateSettings { per_second, burst: NonZeroU32::MIN, wait });
    let calls = (0..3).map(|_| hub.gate.call(call("stub_read")));
    assert!(futures::future::join_all(calls).await.iter().all(Result::is_ok));
    hub.handles.audit.flush().await.unwrap();
    assert_eq!((hub.records().len(), hub.world.acted()), (6, 3));
}

#[tokio::test]
async fn a_broken_disk_does_not_tell_a_hidden_tool_from_none() {
    let hub = hub(hidden(&["stub_write", "stub_erase"]));
    hub.break_audit().await;
    for (name, expected) in [
        ("stub_write", "unknown: Unknown tool: stub_write"),
        ("stub_erase", "unknown: Unknown tool: stub_erase"),
        ("none_write", "unknown: Unknown tool: none_write"),
        ("stub_read", "ok: did "),
    ] {
        assert_eq!(outcome_text(&hub.gate.call(call(name)).await), expected);
    }
    assert!(outcome_text(&hub.gate.call(call("stub_send")).await).starts_with("unavailable"));
    assert!(hub.handles.audit.health().is_err());
    assert_eq!(hub.world.acted(), 1);
}

#[tokio::test]
async fn each_guard_is_missed_when_it_is_gone() {
    // The same calls, with the whole stack and without it.
    let hub = hub(Policy::default());
    let (bare, _) = gate(vec![]);
    let reader = client("reader", scope(&["stub_read"], EffectSet::NONE.with(Effect::Read)));
    for (who, line, guarded) in [
        (caller("ada"), "stub_erase", "needs_approval"),
        (caller("ada"), r#"stub_read {"limit":101}"#, "invalid_args"),
        (caller("ada"), "stub_flood", "too_large"),
        (reader, "stub_write", "unknown"),
    ] {
        assert!(
            outcome_text(&hub.gate.call(call_by(who.clone(), line)).await).starts_with(guarded),
            "{line}"
        );
        assert!(bare.call(call_by(who, line)).await.is_ok(), "{line}");
    }
}

#[tokio::test]
async fn new_settings_apply_to_lists_and_calls() {
    let hub = hub(Policy::default());
    assert_eq!(hub.gate.tools(&caller("ada")).unwrap().len(), 11);
    hub.handles.apply(rate(2), hidden(&["stub_*"]), times());
    assert!(hub.gate.tools(&caller("ada")).unwrap().is_empty());
    assert!(outcome_text(&hub.gate.call(call("stub_read")).await).starts_with("unknown"));
    assert!(hub.gate.tools(&caller("ada")).is_err());
}

#[test]
fn a_secret_that_cannot_be_masked_stops_the_start() {
    let settings = GuardSettings {
        rate: rate(1),
        policy: Policy::default(),
        secrets: vec![("PIN".to_owned(), Secret::new("1234".to_owned()))],
        audit: AuditSettings::in_folder(Path::new("/nonexistent")),
        database: portcullis_store::open_in_memory(&[]).unwrap(),
        owners: Arc::new(TestOwners::default()),
        approval_times: times(),
        ceiling: CallLimits::CEILING,
    };
    let error = stack(registry().0, settings, Arc::new(StoppedClock)).err().unwrap();
    assert!(error.to_string().starts_with("secret `PIN` has 4 bytes"), "{error}");
}

/// Prints the overhead of the layers: `cargo test --release -p portcullis-guard -- --ignored --nocapture overhead`.
///
/// Shows the minimum and the median of many short batches: other load only adds.
#[tokio::test]
#[ignore = "a measurement"]
async fn overhead() {
    const BATCHES: usize = 201;
    let dir = tempfile::tempdir().unwrap();
    let very_fast = NonZeroU32::new(1_000_000_000).unwrap();
    let secret = |n| (format!("SECRET_{n}"), Secret::new(format!("a-secret-value-number-{n}")));
    let settings = GuardSettings {
        rate: RateSettings { per_second: very_fast, burst: very_fast, wait: Duration::ZERO },
        policy: hidden(&["other_*", "secret_*"]),
        secrets: (0..20).map(secret).collect(),
        audit: AuditSettings::in_folder(dir.path()),
        database: portcullis_store::open(dir.path(), &[]).unwrap(),
        owners: Arc::new(TestOwners::default()),
        approval_times: times(),
        ceiling: CallLimits::CEILING,
    };
    let (guarded, handles) =
        stack(registry().0, settings, Arc::new(SystemClock)).unwrap_or_else(|e| panic!("{e}"));
    let (bare, _) = gate(vec![]);
    let measure = async |gate: &Gate, line: &str, calls: u32| {
        let template = call(line);
        let mut batches = Vec::new();
        for _ in 0..BATCHES {
            let started = Instant::now();
            for _ in 0..calls {
                let (who, target) = (template.caller().client.clone(), template.target.clone());
                let arguments = Arguments::new(template.arguments.raw().to_owned());
                gate.call(Call::new(who, target, arguments, CallCtx::detached())).await.unwrap();
            }
            batches.push(started.elapsed().as_nanos() / u128::from(calls));
        }
        batches.sort_unstable();
        (batches[0], batches[BATCHES / 2])
    };
    for line in
        [r#"stub_read {"text":"it"}"#, r#"stub_echo {"text":"some longer text for two content parts"}"#]
    {
        let (without, without_mid) = measure(&bare, line, 1_000).await;
        let (with, with_mid) = measure(&guarded, line, 1_000).await;
        println!(
            "{line}\n  fastest: {without} ns without guards, {with} ns with, {} ns for them",
            with - without
        );
        println!("  middle:  {without_mid} ns without guards, {with_mid} ns with");
    }
    let (_, write) = measure(&guarded, r#"stub_write {"text":"it"}"#, 5).await;
    println!("stub_write, its record on disk first: {write} ns (middle)");
    handles.audit.flush().await.unwrap();
}
