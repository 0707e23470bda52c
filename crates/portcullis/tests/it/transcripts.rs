//! Calls through the gate: what the client gets, what is recorded, what is counted.

use portcullis_core::{Effect, EffectSet, Pattern, Scope};
use portcullis_guard::{Policy, PolicyRule, RateSettings, RuleAction, RuleSchedule};
use portcullis_testkit::BoxedRules;
use portcullis_testkit::transcript::check;
use std::num::NonZeroU32;
use std::time::Duration;

fn rule(tools: &str, decision: RuleAction) -> BoxedRules {
    let rule = PolicyRule {
        name: "policy[0]".to_owned(),
        clients: Pattern::any(),
        tools: Pattern::new(&[tools]).unwrap(),
        origins: None,
        effects: None,
        reach: None,
        labels: None,
        when: RuleSchedule::default(),
        decision,
    };
    BoxedRules { policy: Policy { rules: vec![rule], ..Policy::default() }, ..BoxedRules::default() }
}

#[tokio::test]
async fn a_read_and_a_write() {
    let calls = [
        r#"workspace_read {"path": "hello.md"}"#,
        r#"workspace_write {"path": "new/note.md", "content": "x"}"#,
        r#"memory_read {}"#,
    ];
    insta::assert_snapshot!(check(BoxedRules::default(), &calls).await, @r#"
    > workspace_read {"path": "hello.md"}
    ok: # Hello
    audit: phase=begin effect=read
    audit: phase=end effect=read decision=allow rule=default:read outcome=ok bytes=8
    metric: +1 portcullis_calls_total{tool="workspace_read",outcome="ok"}

    > workspace_write {"path": "new/note.md", "content": "x"}
    ok: Wrote 1 bytes to new/note.md
    data: {"path":"new/note.md","bytes":1,"created":true}
    audit: phase=begin effect=write
    audit: phase=end effect=write decision=allow rule=default:local-write outcome=ok bytes=85
    metric: +1 portcullis_calls_total{tool="workspace_write",outcome="ok"}

    > memory_read {}
    ok: MEMORY.md does not exist yet, so it is empty.
    audit: phase=begin effect=read
    audit: phase=end effect=read decision=allow rule=default:read outcome=ok bytes=45
    metric: +1 portcullis_calls_total{tool="memory_read",outcome="ok"}
    "#);
}

#[tokio::test]
async fn a_missing_file_says_what_to_do() {
    insta::assert_snapshot!(check(BoxedRules::default(), &[r#"workspace_read {"path": "gone.md"}"#]).await, @r#"
    > workspace_read {"path": "gone.md"}
    refused: Error: file `gone.md` not found
    refused: `workspace_list` shows what exists
    data: {"code":"not_found","message":"file `gone.md` not found","suggestions":["`workspace_list` shows what exists"]}
    audit: phase=begin effect=read
    audit: phase=end effect=read decision=allow rule=default:read outcome=not_found bytes=58
    metric: +1 portcullis_calls_total{tool="workspace_read",outcome="not_found"}
    "#);
}

#[tokio::test]
async fn arguments_that_do_not_fit_are_told_together() {
    let call = r#"workspace_write {"pth": "a.md", "content": 7}"#;
    insta::assert_snapshot!(check(BoxedRules::default(), &[call]).await, @r#"
    > workspace_write {"pth": "a.md", "content": 7}
    refused: Error: invalid arguments: `path` is missing; `content` is 7, expected a string; `pth` is not an argument; did you mean `path`?
    refused: use `path` instead of `pth`; call it as `workspace_write(path: string, content: string)`; those with `?` may be left out
    data: {"code":"invalid_args","message":"invalid arguments: `path` is missing; `content` is 7, expected a string; `pth` is not an argument; did you mean `path`?","suggestions":["use `path` instead of `pth`","call it as `workspace_write(path: string, content: string)`; those with `?` may be left out"]}
    audit: phase=begin effect=write
    audit: phase=end effect=write decision=allow rule=default:local-write outcome=invalid_args bytes=237
    metric: +1 portcullis_calls_total{tool="workspace_write",outcome="invalid_args"}
    "#);
}

#[tokio::test]
async fn an_unknown_tool_and_a_hidden_one_look_the_same() {
    let scope = Scope {
        allow: Pattern::new(&["workspace_*"]).unwrap(),
        effects: [Effect::Read].into_iter().collect::<EffectSet>(),
        ..Scope::everything()
    };
    let rules = BoxedRules { scope, ..BoxedRules::default() };
    let calls = ["no_such {}", r#"workspace_write {"path": "a.md", "content": "x"}"#, "memory_read {}"];
    insta::assert_snapshot!(check(rules, &calls).await, @r#"
    > no_such {}
    error: {"code":-32602,"message":"Unknown tool: no_such"}
    audit: phase=begin effect=destroy
    audit: phase=end effect=destroy decision=deny rule=unknown outcome=unknown bytes=21
    metric: +1 portcullis_calls_total{tool="unknown",outcome="unknown"}

    > workspace_write {"path": "a.md", "content": "x"}
    error: {"code":-32602,"message":"Unknown tool: workspace_write"}
    audit: phase=begin effect=write
    audit: phase=end effect=write decision=deny rule=scope outcome=unknown bytes=29
    metric: +1 portcullis_calls_total{tool="unknown",outcome="unknown"}

    > memory_read {}
    error: {"code":-32602,"message":"Unknown tool: memory_read"}
    audit: phase=begin effect=read
    audit: phase=end effect=read decision=deny rule=scope outcome=unknown bytes=25
    metric: +1 portcullis_calls_total{tool="unknown",outcome="unknown"}
    "#);
}

#[tokio::test]
async fn a_rule_hides_a_tool() {
    insta::assert_snapshot!(check(rule("memory_*", RuleAction::Deny), &["memory_read {}"]).await, @r#"
    > memory_read {}
    error: {"code":-32602,"message":"Unknown tool: memory_read"}
    audit: phase=begin effect=read
    audit: phase=end effect=read decision=deny rule=policy[0] outcome=unknown bytes=25
    metric: +1 portcullis_calls_total{tool="unknown",outcome="unknown"}
    "#);
}

#[tokio::test]
async fn too_many_calls_are_told_to_wait() {
    let call = r#"workspace_read {"path": "hello.md"}"#;
    let mut transcript = String::new();
    // A machine that stands still for a second between two calls has earned the second one; then once more.
    while !transcript.contains("rate_limited") {
        // `initialize` draws from the burst too.
        let burst = NonZeroU32::MIN.saturating_add(1);
        let once = RateSettings { per_second: NonZeroU32::MIN, burst, wait: Duration::ZERO };
        transcript = check(BoxedRules { rate: once, ..BoxedRules::default() }, &[call, call]).await;
    }
    insta::assert_snapshot!(transcript, @r#"
    > workspace_read {"path": "hello.md"}
    ok: # Hello
    audit: phase=begin effect=read
    audit: phase=end effect=read decision=allow rule=default:read outcome=ok bytes=8
    metric: +1 portcullis_calls_total{tool="workspace_read",outcome="ok"}

    > workspace_read {"path": "hello.md"}
    error: {"code":-32000,"message":"Rate limit exceeded. Please try again later.","data":{"retry_after_ms":"…"}}
    audit: phase=begin effect=read
    audit: phase=end effect=read outcome=rate_limited bytes=44
    metric: +1 portcullis_calls_total{tool="workspace_read",outcome="rate_limited"}
    metric: +1 portcullis_rate_limited_total
    "#);
}

#[tokio::test]
async fn who_cannot_be_asked_is_told_so() {
    let call = r#"workspace_write {"path": "a.md", "content": "x"}"#;
    let mut rules = rule("workspace_write", RuleAction::Ask);
    rules.approval_times.wait = Duration::ZERO;
    insta::assert_snapshot!(check(rules, &[call]).await, @r#"
    > workspace_write {"path": "a.md", "content": "x"}
    refused: Error: tool `workspace_write` is pending approval by a person; its id is <id>
    refused: a person decides with `portcullis approvals approve <id>`, or `reject`; once it is approved, make the same call again with the same arguments; anything else asks again
    data: {"code":"needs_approval","message":"tool `workspace_write` is pending approval by a person; its id is <id>","suggestions":["a person decides with `portcullis approvals approve <id>`, or `reject`","once it is approved, make the same call again with the same arguments; anything else asks again"]}
    audit: phase=begin effect=write
    audit: phase=end effect=write decision=ask rule=policy[0] outcome=needs_approval bytes=243
    metric: +1 portcullis_calls_total{tool="workspace_write",outcome="needs_approval"}
    "#);
}

#[tokio::test]
async fn a_panic_is_the_trouble_of_one_call() {
    let calls = ["test_panic {}", r#"workspace_read {"path": "hello.md"}"#];
    insta::assert_snapshot!(check(BoxedRules::default(), &calls).await, @r#"
    > test_panic {}
    error: {"code":-32603,"message":"something went wrong in the hub","data":{"code":"internal","suggestions":["the hub's log says what; try again, or report it"]}}
    audit: phase=begin effect=read
    audit: phase=end effect=read decision=allow rule=default:read outcome=internal bytes=79
    metric: +1 portcullis_calls_total{tool="test_panic",outcome="internal"}

    > workspace_read {"path": "hello.md"}
    ok: # Hello
    audit: phase=begin effect=read
    audit: phase=end effect=read decision=allow rule=default:read outcome=ok bytes=8
    metric: +1 portcullis_calls_total{tool="workspace_read",outcome="ok"}
    "#);
}

#[tokio::test]
async fn a_call_that_hangs_is_ended() {
    insta::assert_snapshot!(check(BoxedRules::default(), &["test_hang {}"]).await, @r#"
    > test_hang {}
    refused: Error: no answer within 20 ms
    refused: request less, or retry later; side effects may have happened
    data: {"code":"timeout","message":"no answer within 20 ms","suggestions":["request less, or retry later; side effects may have happened"]}
    audit: phase=begin effect=read
    audit: phase=end effect=read decision=allow rule=default:read outcome=timeout bytes=82
    metric: +1 portcullis_calls_total{tool="test_hang",outcome="timeout"}
    "#);
}
