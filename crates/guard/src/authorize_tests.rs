use super::*;
use crate::policy::{PolicyRule, RuleAction, RuleSchedule};
use crate::testing::{StoppedClock, call, call_by, caller, client, gate, kind_of, outcome_text, scope};
use portcullis_core::{DefaultDecision, Effect, EffectSet, ErrorKind, Labels, Origin, Pattern, Reach};

fn rule(name: &str, tools: &[&str], decision: RuleAction) -> PolicyRule {
    PolicyRule {
        name: name.to_owned(),
        clients: Pattern::any(),
        tools: Pattern::new(tools).unwrap(),
        origins: None,
        effects: None,
        reach: None,
        labels: None,
        when: RuleSchedule::default(),
        decision,
    }
}

fn decided(policy: &Policy, caller: &Caller, name: &str, effect: Effect, reach: Reach) -> String {
    let decision = policy.decide(
        caller,
        &PolicySubject {
            kind: "tool",
            name,
            also: None,
            effect,
            reach,
            labels: Labels::NONE,
            default_decision: DefaultDecision::ByEffect,
            in_every_scope: false,
        },
        Timestamp::UNIX_EPOCH,
    );
    format!("{} by {}", decision.as_str(), decision.rule())
}

#[test]
fn defaults_follow_from_what_a_tool_does() {
    for (effect, reach, expected) in [
        (Effect::Read, Reach::Local, "allow by default:read"),
        (Effect::Read, Reach::Outside, "allow by default:read"),
        (Effect::Create, Reach::Local, "allow by default:local-write"),
        (Effect::Write, Reach::Local, "allow by default:local-write"),
        (Effect::Create, Reach::Outside, "ask by default:outside"),
        (Effect::Write, Reach::Outside, "ask by default:outside"),
        (Effect::Destroy, Reach::Local, "ask by default:destroy"),
        (Effect::Destroy, Reach::Outside, "ask by default:destroy"),
    ] {
        assert_eq!(decided(&Policy::default(), &caller("ada"), "x_y", effect, reach), expected);
    }
}

#[test]
fn the_first_rule_that_matches_wins() {
    let policy = Policy {
        rules: vec![
            PolicyRule {
                clients: Pattern::new(&["bob"]).unwrap(),
                ..rule("policy[0]", &["a_*"], RuleAction::Deny)
            },
            PolicyRule {
                origins: Some(vec![Origin::Schedule]),
                ..rule("policy[1]", &["a_*"], RuleAction::Deny)
            },
            PolicyRule {
                effects: Some([Effect::Write].into_iter().collect()),
                ..rule("policy[2]", &["*"], RuleAction::Ask)
            },
            PolicyRule { reach: Some(Reach::Outside), ..rule("policy[3]", &["*"], RuleAction::Deny) },
            rule("policy[4]", &["a_b"], RuleAction::Allow),
            rule("policy[5]", &["a_b"], RuleAction::Deny),
        ],
        ..Policy::default()
    };
    let schedule = Caller { origin: Origin::Schedule, ..caller("ada") };
    for (who, name, effect, reach, expected) in [
        (&caller("ada"), "a_b", Effect::Destroy, Reach::Local, "allow by policy[4]"),
        (&caller("bob"), "a_b", Effect::Destroy, Reach::Local, "deny by policy[0]"),
        (&schedule, "a_b", Effect::Destroy, Reach::Local, "deny by policy[1]"),
        (&caller("ada"), "a_b", Effect::Write, Reach::Local, "ask by policy[2]"),
        (&caller("ada"), "a_b", Effect::Read, Reach::Outside, "deny by policy[3]"),
        (&caller("ada"), "c_d", Effect::Read, Reach::Local, "allow by default:read"),
    ] {
        assert_eq!(decided(&policy, who, name, effect, reach), expected);
    }
}

#[test]
fn no_rule_widens_a_clients_scope() {
    let policy = Policy { rules: vec![rule("policy[0]", &["*"], RuleAction::Allow)], ..Policy::default() };
    let reader = client("r", scope(&["a_*"], EffectSet::NONE.with(Effect::Read)));
    for (name, effect, expected) in [
        ("a_b", Effect::Read, "allow by policy[0]"),
        ("a_b", Effect::Write, "deny by scope"),
        ("c_d", Effect::Read, "deny by scope"),
    ] {
        assert_eq!(decided(&policy, &reader, name, effect, Reach::Local), expected);
    }
}

/// Every part of an error that a client or a transport could observe.
fn anatomy(outcome: &Outcome) -> String {
    let error = outcome.as_ref().unwrap_err();
    let ToolError { kind, message, hints, fault, retry_after, input, capability, source, foreign } = error;
    format!(
        "{kind:?} {message} {hints:?} {fault:?} {retry_after:?} {input:?} {capability:?} {foreign:?} {}",
        source.is_some()
    )
}

#[tokio::test]
async fn what_is_hidden_looks_like_what_does_not_exist() {
    let policy = Policy {
        rules: vec![rule("policy[0]", &["stub_*", "stub://*"], RuleAction::Deny)],
        ..Policy::default()
    };
    let (guarded, world) = gate(vec![Box::new(ActivePolicy::new(policy, Arc::new(StoppedClock)))]);
    for (hidden, unknown) in [
        ("stub_read", "none_read"),
        ("stub_erase", "none_erase"),
        ("resource stub://a", "resource none://a"),
        ("prompt stub_greet", "prompt none_greet"),
        ("completion stub_greet", "completion none_greet"),
    ] {
        let answer = anatomy(&guarded.call(call(hidden)).await);
        assert_eq!(answer.replace("stub", "none"), anatomy(&guarded.call(call(unknown)).await));
        // The registry responds the same to an unregistered name, without any layer.
        let (bare, _) = gate(vec![]);
        assert_eq!(answer.replace("stub", "none"), anatomy(&bare.call(call(unknown)).await));
    }
    assert_eq!(world.acted(), 0);
    // Without the layer the hidden tool runs.
    let (bare, world) = gate(vec![]);
    assert!(bare.call(call("stub_erase")).await.is_ok());
    assert_eq!(world.acted(), 1);
}

#[tokio::test]
async fn lists_and_calls_agree() {
    let policy = Policy {
        rules: vec![
            rule("policy[0]", &["stub_read", "stub://a", "stub_greet"], RuleAction::Deny),
            rule("policy[1]", &["stub_write"], RuleAction::Ask),
        ],
        ..Policy::default()
    };
    let (gate, _) = gate(vec![Box::new(ActivePolicy::new(policy, Arc::new(StoppedClock)))]);
    let narrow = client("narrow", scope(&["stub_l*", "stub://b"], EffectSet::NONE.with(Effect::Read)));
    for who in [caller("ada"), narrow] {
        let listed: Vec<_> = gate.tools(&who).unwrap().iter().map(|tool| tool.name.clone()).collect();
        for name in ["stub_read", "stub_look", "stub_echo", "stub_write", "stub_send", "stub_erase"] {
            let is_unknown =
                kind_of(&gate.call(call_by(who.clone(), name)).await) == Some(ErrorKind::Unknown);
            assert_eq!(listed.iter().any(|listed| listed == name), !is_unknown, "{name}");
        }
        let (resources, _) = gate.resources(&who).await.unwrap();
        assert_eq!(resources.iter().map(|resource| resource.uri.as_str()).collect::<Vec<_>>(), ["stub://b"]);
        assert!(gate.prompts(&who).unwrap().is_empty());
    }
}

#[tokio::test]
async fn a_new_policy_is_in_force_at_once() {
    let policy = ActivePolicy::new(Policy::default(), Arc::new(StoppedClock));
    let (gate, _) = gate(vec![Box::new(policy.clone())]);
    assert_eq!(outcome_text(&gate.call(call("stub_read")).await), "ok: did ");
    policy.replace(Policy { rules: vec![rule("policy[0]", &["*"], RuleAction::Deny)], ..Policy::default() });
    assert_eq!(outcome_text(&gate.call(call("stub_read")).await), "unknown: Unknown tool: stub_read");
    assert!(gate.tools(&caller("ada")).unwrap().is_empty());
}

#[tokio::test]
async fn a_decision_is_left_for_others_and_cannot_be_brought_along() {
    let (gate, world) = gate(vec![Box::new(ActivePolicy::new(Policy::default(), Arc::new(StoppedClock)))]);
    let erase = call("stub_erase");
    let trail = erase.trail.clone();
    gate.call(erase).await.unwrap();
    assert_eq!(trail.decision.get(), Some(&Decision::Ask { rule: "default:destroy".to_owned() }));

    let forged = call("stub_erase");
    forged.trail.decision.set(Decision::Allow { rule: "mine".to_owned() }).unwrap();
    assert_eq!(kind_of(&gate.call(forged).await), Some(ErrorKind::Internal));
    assert_eq!(world.acted(), 1);
}
