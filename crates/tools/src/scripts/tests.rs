use super::*;
use portcullis_core::{Provider, SystemClock};
use portcullis_script::{PoolSettings, SandboxStrictness};
use std::path::Path;

fn config(exec: ScriptPermissions) -> ScriptsConfig {
    let nowhere = Path::new("/nonexistent");
    ScriptsConfig {
        scripts: Arc::new(ScriptStore::open(
            nowhere,
            &portcullis_store::open_in_memory(&crate::tables()).unwrap(),
            Vec::new(),
            Arc::new(SystemClock),
        )),
        pool: WorkerPool::new(PoolSettings {
            program: "/nonexistent".into(),
            arguments: Vec::new(),
            memory_bytes_max: 1,
            strictness: SandboxStrictness::Required,
            warm: 0,
            running_max: 1,
            idle: Duration::from_secs(1),
        }),
        egress: Arc::new(|| Err(ToolError::unavailable("no network"))),
        has_secret: Arc::new(|_| false),
        timeout: Duration::from_secs(2),
        exec,
    }
}

fn effects(exec: ScriptPermissions) -> Vec<(String, Effect, Reach, DefaultDecision)> {
    let catalog = family(config(exec), GateHandle::default()).catalog();
    catalog
        .tools
        .iter()
        .map(|tool| (tool.name.clone(), tool.effect, tool.reach, tool.default_decision))
        .collect()
}

#[test]
fn what_code_may_do_is_said_of_it() {
    let plain = effects(ScriptPermissions::default());
    assert_eq!(plain[2], ("script_exec".to_owned(), Effect::Read, Reach::Local, DefaultDecision::ByEffect));
    assert_eq!(
        plain[1],
        ("script_run".to_owned(), Effect::Destroy, Reach::Outside, DefaultDecision::Reviewed)
    );
    let granted =
        effects(ScriptPermissions { tools: ["x".to_owned()].into(), ..ScriptPermissions::default() });
    assert_eq!(
        granted[2],
        ("script_exec".to_owned(), Effect::Destroy, Reach::Outside, DefaultDecision::ByEffect)
    );
}

#[test]
fn a_script_that_waits_is_told_in_the_words_of_the_contract() {
    let waits = |state| not_runnable(RunRefusal::Waits { name: "x".parse().unwrap(), state });
    let said = "Script 'x.star' is pending approval. An administrator must review and approve this script before it can be executed.";
    let pending = waits(ScriptState::Pending);
    assert_eq!(
        (pending.message.as_str(), pending.hints.as_slice(), pending.kind),
        (
            said,
            [
                "tell the user: `portcullis scripts show x.star` shows it, and `portcullis scripts approve x.star --hash HASH` approves it; run it again afterwards"
                    .to_owned()
            ]
            .as_slice(),
            ErrorKind::NeedsApproval
        )
    );
    let changed = waits(ScriptState::Changed);
    assert_eq!((changed.message.as_str(), changed.hints.len()), (said, 2));
    let rejected = not_runnable(RunRefusal::Rejected {
        name: "x".parse().unwrap(),
        by: "somebody".to_owned(),
        reason: Some("no\u{202e}".to_owned()),
    });
    assert_eq!(rejected.message, "Script 'x.star' was rejected by an administrator: no\\u{202e}");
}

#[test]
fn a_fault_is_told_with_its_place() {
    let fault = ScriptDiagnostic {
        message: "boom".to_owned(),
        line: Some(3),
        column: Some(5),
        excerpt: Some("   3 |     x".to_owned()),
        code: None,
    };
    let error =
        failed("script `x.star`", ErrorKind::Upstream, ScriptFailure::Script(fault, "seen\n".to_owned()));
    assert_eq!(error.message, "script `x.star` failed at line 3, column 5: boom\n   3 |     x");
    assert_eq!(
        error.hints,
        [
            "check what it was called with; otherwise tell the user to correct the script",
            "it printed before: seen\n"
        ]
    );
    let late = failed("the code", ErrorKind::InvalidArgs, ScriptFailure::Time(Duration::from_secs(2)));
    assert_eq!(
        (late.kind, late.message.as_str()),
        (ErrorKind::Timeout, "the script timed out after 2000 ms")
    );
}

#[test]
fn the_text_of_a_run_is_its_value_and_what_it_printed() {
    let text = |value: Value, printed: &str| {
        let ran = ScriptRunResult { value: value.clone(), printed: printed.to_owned(), duration_ms: 1 };
        let output = ran.into_output();
        let structured = serde_json::json!({ "value": value, "printed": printed, "duration_ms": 1 });
        assert_eq!(output.structured, Some(structured));
        match <[_; 1]>::try_from(output.content).unwrap() {
            [portcullis_core::Content { body: portcullis_core::ContentBody::Text(text), .. }] => text,
            [other] => panic!("{other:?}"),
        }
    };
    assert_eq!(text("two\nlines".into(), ""), "two\nlines");
    assert_eq!(text("".into(), ""), "The value is an empty text.");
    assert_eq!(text(serde_json::json!([1, 2]), "seen\n"), "[\n  1,\n  2\n]\n\nPrinted:\nseen\n");
    assert_eq!(text(Value::Null, "seen\n"), "Printed:\nseen\n");
    assert_eq!(text(Value::Null, ""), "null");
}
