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
        (pending.message.as_str(), pending.hints.len(), pending.kind),
        (said, 0, ErrorKind::NeedsApproval)
    );
    assert_eq!(waits(ScriptState::Changed).message, said);
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
    assert_eq!(error.hints, ["it printed before: seen\n"]);
    let late = failed("the code", ErrorKind::InvalidArgs, ScriptFailure::Time(Duration::from_secs(2)));
    assert_eq!(
        (late.kind, late.message.as_str()),
        (ErrorKind::Timeout, "the script timed out after 2000 ms")
    );
}
