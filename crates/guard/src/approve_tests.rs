use super::*;
use crate::authorize::ActivePolicy;
use crate::policy::Policy;
use crate::testing::{
    ClientBehavior, RecordingClient, StoppedClock, StubState, TestOwners, call, gate, kind_of, outcome_text,
};
use portcullis_core::{
    Arguments, Client, EffectSet, Gate, HubCall, InputRequired, LogMessage, Origin, OwnerId, Peer, Principal,
    Progress, Target,
};
use portcullis_store::database::{DatabaseError, OperationId, Topic};
use serde_json::Map;

struct Fixture {
    gate: Gate,
    policy: ActivePolicy,
    owners: Arc<TestOwners>,
    world: Arc<StubState>,
    desk: ApprovalDesk,
    dir: tempfile::TempDir,
}

impl Fixture {
    /// Calls wait this long.
    fn new(wait: Duration) -> Fixture {
        let dir = tempfile::tempdir().unwrap();
        let times = ApprovalTimes { wait, ..ApprovalTimes::default() };
        let desk = ApprovalDesk::open(
            &portcullis_store::open(dir.path(), &[]).unwrap(),
            times,
            Arc::new(StoppedClock),
        );
        let policy = ActivePolicy::new(Policy::default(), Arc::new(StoppedClock));
        let owners = Arc::new(TestOwners::default());
        let redactor = Redactor::new(&[]).unwrap();
        let approve = ApprovalLayer::new(desk.clone(), policy.clone(), owners.clone(), redactor);
        let (gate, world) = gate(vec![Box::new(policy.clone()), Box::new(approve)]);
        Fixture { gate: gate.with_owners(owners.clone()), policy, owners, world, desk, dir }
    }

    /// Another layer over the same state.
    fn layer(&self) -> ApprovalLayer {
        let redactor = Redactor::new(&[]).unwrap();
        ApprovalLayer::new(self.desk.clone(), self.policy.clone(), self.owners.clone(), redactor)
    }

    fn impatient() -> Fixture {
        Fixture::new(Duration::ZERO)
    }

    /// Calls a tool with a client that behaves as given. Returns the result and what the client received.
    async fn check(&self, mood: Option<ClientBehavior>, line: &str) -> (String, String) {
        self.check_with(RecordingClient::new(mood), line).await
    }

    async fn check_with(&self, listener: Arc<RecordingClient>, line: &str) -> (String, String) {
        let mut call = call(line);
        call.ctx.peer = listener.clone();
        let outcome = self.gate.call(call).await;
        (self.plain(&outcome_text(&outcome)), self.plain(&listener.received()))
    }

    /// Replaces the random ids by numbers, from 1.
    fn plain(&self, text: &str) -> String {
        let ids = self.desk.approvals().list().unwrap();
        let mut text = text.to_owned();
        for (at, approval) in ids.iter().enumerate() {
            text = text.replace(&approval.id, &format!("<{}>", at + 1));
        }
        text
    }

    fn id(&self, number: usize) -> String {
        self.desk.approvals().list().unwrap()[number - 1].id.clone()
    }

    async fn approve(&self, number: usize, span: ApprovalScope) {
        self.desk.decide(&self.id(number), ApprovalVerdict::Approve(span), "a test").await.unwrap();
    }
}

fn says(answer: Value) -> Option<ClientBehavior> {
    Some(ClientBehavior::Says(answer))
}

fn yes() -> Option<ClientBehavior> {
    says(json!({ "action": "accept", "content": { "approve": true } }))
}

/// Long enough for a form that is answered at once.
const A_WHILE: Duration = Duration::from_secs(20);

#[tokio::test]
async fn only_a_clear_yes_lets_the_call_act() {
    let fixture = Fixture::new(A_WHILE);
    let (outcome_text, received) = fixture.check(yes(), r#"stub_erase {"text":"all"}"#).await;
    assert_eq!((outcome_text.as_str(), fixture.world.acted()), ("ok: did all", 1));
    insta::assert_snapshot!(received, @r#"
    progress 0: waiting for a person; `portcullis approvals approve <1>` lets the call run
    portcullis_approval_<1>? Portcullis asks: client `ada` wants to run tool `stub_erase` (effect: destroy) with:
    {"text":"all"}
    "#);
    for no in [
        json!({ "action": "accept", "content": { "approve": false } }),
        json!({ "action": "decline", "content": { "approve": true } }),
        json!({ "action": "decline" }),
    ] {
        let fixture = Fixture::new(A_WHILE);
        let (outcome_text, _) = fixture.check(says(no.clone()), "stub_erase").await;
        assert!(
            outcome_text.starts_with("denied: tool `stub_erase` was not approved\nhint: "),
            "{no}: {outcome_text}"
        );
        let (again, received) = fixture.check(yes(), "stub_erase").await;
        assert!(again.starts_with("denied: ") && received.is_empty(), "not asked again at once: {again}");
        assert_eq!(fixture.world.acted(), 0, "{no}");
    }
    // Without the layer no approval is requested.
    let (bare, world) = gate(vec![Box::new(ActivePolicy::new(Policy::default(), Arc::new(StoppedClock)))]);
    assert!(bare.call(call("stub_erase")).await.is_ok());
    assert_eq!(world.acted(), 1);
}

#[tokio::test]
async fn what_is_allowed_is_not_asked_about() {
    let fixture = Fixture::impatient();
    let (outcome_text, received) = fixture.check(says(json!(null)), r#"stub_write {"text":"it"}"#).await;
    assert_eq!((outcome_text.as_str(), received.as_str()), ("ok: did it", ""));
    assert!(fixture.desk.approvals().list().unwrap().is_empty());
}

#[tokio::test]
async fn a_call_that_nobody_answers_is_told_to_come_back_and_runs_then() {
    let fixture = Fixture::impatient();
    let (outcome_text, _) = fixture.check(None, r#"stub_send {"text":"hello"}"#).await;
    insta::assert_snapshot!(outcome_text, @"
    needs_approval: tool `stub_send` is pending approval by a person; its id is <1>
    hint: a person decides with `portcullis approvals approve <1>`, or `reject`
    hint: once it is approved, make the same call again with the same arguments; anything else asks again
    ");
    assert_eq!(fixture.check(None, r#"stub_send {"text":"hello"}"#).await.0, outcome_text, "asked once");
    fixture.approve(1, ApprovalScope::Once).await;
    let (edited, _) = fixture.check(None, r#"stub_send {"text":"hello!"}"#).await;
    assert!(edited.contains("its id is <2>"), "{edited}");
    assert_eq!(fixture.world.acted(), 0);
    assert_eq!(fixture.check(None, r#"stub_send {"text":"hello"}"#).await.0, "ok: did hello");
    let (again, _) = fixture.check(None, r#"stub_send {"text":"hello"}"#).await;
    assert!(again.contains("its id is <3>"), "one yes, one call: {again}");
    assert_eq!(fixture.world.acted(), 1);
}

#[tokio::test]
async fn a_waiting_call_hears_of_its_answer_wherever_it_was_given() {
    let fixture = Arc::new(Fixture::new(A_WHILE));
    for elsewhere in [false, true] {
        let waiting = tokio::spawn({
            let fixture = fixture.clone();
            async move { fixture.check(None, "stub_send").await.0 }
        });
        while fixture.desk.approvals().pending().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        let id = fixture.desk.approvals().pending().unwrap()[0].id.clone();
        if elsewhere {
            // Another process, of which the hub is not told.
            let other = ApprovalDesk::open(
                &portcullis_store::open(fixture.dir.path(), &[]).unwrap(),
                ApprovalTimes::default(),
                Arc::new(StoppedClock),
            );
            other.decide(&id, ApprovalVerdict::Approve(ApprovalScope::Once), "a test").await.unwrap();
        } else {
            fixture.desk.decide(&id, ApprovalVerdict::Approve(ApprovalScope::Once), "a test").await.unwrap();
        }
        assert_eq!(waiting.await.unwrap(), "ok: did ");
    }
}

#[tokio::test]
async fn a_yes_for_the_session_covers_the_tool_there_and_is_offered_only_where_it_can_end() {
    let fixture = Fixture::new(A_WHILE);
    let for_session =
        || says(json!({ "action": "accept", "content": { "approve": true, "remember": "session" } }));
    let offers = |number: usize| {
        let approval = fixture.desk.approvals().get(&fixture.id(number)).unwrap();
        form(&approval)["properties"].get("remember").is_some()
    };
    let line = |n: usize| format!(r#"stub_send {{"text":"{n}"}}"#);
    let first = RecordingClient::in_session("s1", for_session());
    assert_eq!(fixture.check_with(first, &line(1)).await.0, "ok: did 1");
    assert!(offers(1));
    let (outcome_text, received) =
        fixture.check_with(RecordingClient::in_session("s1", None), &line(2)).await;
    assert_eq!((outcome_text.as_str(), received.as_str()), ("ok: did 2", ""));

    fixture.desk.configure(ApprovalTimes { wait: Duration::ZERO, ..ApprovalTimes::default() });
    let elsewhere = fixture.check_with(RecordingClient::in_session("s2", None), &line(2)).await.0;
    assert!(elsewhere.starts_with("needs_approval: "), "{elsewhere}");
    // Destructive calls are approved one at a time, and `session` needs a session.
    fixture.check_with(RecordingClient::in_session("s1", None), "stub_erase").await;
    assert!(!offers(3));
    fixture.desk.configure(ApprovalTimes { wait: A_WHILE, ..ApprovalTimes::default() });
    assert_eq!(fixture.check(for_session(), &line(4)).await.0, "ok: did 4");
    assert!(!offers(4));
    fixture.desk.configure(ApprovalTimes { wait: Duration::ZERO, ..ApprovalTimes::default() });
    assert!(fixture.check(None, &line(5)).await.0.starts_with("needs_approval: "));
}

/// A client whose form is answered when the test says so.
struct Slow {
    client: Arc<RecordingClient>,
    answers: tokio::sync::Notify,
}

impl Peer for Slow {
    fn behind(&self) -> Option<&dyn Peer> {
        Some(&*self.client)
    }

    fn progress(&self, _: Progress) {}

    fn log(&self, _: LogMessage) {}

    fn ask(&self, questions: Vec<KeyedInputRequest>) -> BoxFuture<'_, Result<InputResponses, InputRefusal>> {
        Box::pin(async move {
            self.answers.notified().await;
            self.client.ask(questions).await
        })
    }

    fn offers(&self, kind: InputRequestKind) -> bool {
        self.client.offers(kind)
    }
}

#[tokio::test]
async fn a_form_does_not_approve_for_longer_than_the_session_that_was_shown_it() {
    let fixture = Fixture::impatient();
    let line = |n: usize| format!(r#"stub_send {{"text":"{n}"}}"#);
    let for_session =
        says(json!({ "action": "accept", "content": { "approve": true, "remember": "session" } }));
    let slow = Arc::new(Slow {
        client: RecordingClient::in_session("s1", for_session),
        answers: tokio::sync::Notify::new(),
    });
    let mut shown = call(&line(1));
    shown.ctx.peer = slow.clone();
    assert_eq!(kind_of(&fixture.gate.call(shown).await), Some(ErrorKind::NeedsApproval));
    // The same call without a session, while the form is open.
    assert!(fixture.check(None, &line(1)).await.0.contains("its id is <1>"));
    let mut changed = fixture.desk.changed();
    slow.answers.notify_one();
    while !fixture.desk.approvals().pending().unwrap().is_empty() {
        changed.changed().await.unwrap();
    }
    assert_eq!(fixture.check(None, &line(1)).await.0, "ok: did 1");
    assert!(fixture.check(None, &line(2)).await.0.starts_with("needs_approval: "));
    assert_eq!(fixture.world.acted(), 1);
}

#[tokio::test]
async fn rules_that_change_while_a_person_thinks_count() {
    let fixture = Arc::new(Fixture::new(A_WHILE));
    let waiting = tokio::spawn({
        let fixture = fixture.clone();
        async move { fixture.check(None, "stub_send").await.0 }
    });
    while fixture.desk.approvals().pending().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    let rule = crate::policy::PolicyRule {
        name: "policy[0]".to_owned(),
        clients: portcullis_core::Pattern::any(),
        tools: portcullis_core::Pattern::any(),
        origins: None,
        effects: None,
        reach: None,
        labels: None,
        when: Default::default(),
        decision: crate::policy::RuleAction::Deny,
    };
    fixture.policy.replace(Policy { rules: vec![rule], ..Policy::default() });
    fixture.approve(1, ApprovalScope::Once).await;
    assert_eq!(waiting.await.unwrap(), "unknown: Unknown tool: stub_send");
    assert_eq!(fixture.world.acted(), 0);
}

/// A client with a scope, or of another token.
fn ada(allow: &str, token: Option<u64>) -> Client {
    Client { name: "ada".to_owned(), scope: crate::testing::scope(&[allow], EffectSet::ALL), token }
}

/// What becomes of the client while a person thinks, and whether the approved call still runs.
fn fates() -> [(&'static str, Option<Client>, bool); 4] {
    [
        ("as it was", Some(ada("*", None)), true),
        ("narrowed", Some(ada("stub_read", None)), false),
        ("revoked or expired", None, false),
        ("issued again", Some(ada("*", Some(2))), false),
    ]
}

#[tokio::test]
async fn a_client_that_changes_while_a_person_thinks_counts() {
    for (case, fate, runs) in fates() {
        let fixture = Arc::new(Fixture::new(A_WHILE));
        let waiting = tokio::spawn({
            let fixture = fixture.clone();
            async move { fixture.check(None, "stub_send").await.0 }
        });
        while fixture.desk.approvals().pending().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        fixture.owners.set("ada", fate);
        fixture.approve(1, ApprovalScope::Once).await;
        let told = if runs { "ok: did " } else { "unknown: Unknown tool: stub_send" };
        assert_eq!(waiting.await.unwrap(), told, "{case}");
        assert_eq!(fixture.world.acted(), usize::from(runs), "{case}");
    }
}

#[tokio::test]
async fn a_schedule_acts_for_its_owner_as_it_is_then() {
    // Before the call, and while a person decides about it.
    for waits in [false, true] {
        for (case, fate, runs) in fates() {
            let fixture = Arc::new(Fixture::new(A_WHILE));
            // As a schedule finds it in its table.
            let schedule = Principal::of(OwnerId { name: "ada".to_owned(), token: None });
            if !waits {
                fixture.owners.set("ada", fate.clone());
            }
            let running = tokio::spawn({
                let (fixture, schedule) = (fixture.clone(), schedule.clone());
                async move {
                    let target = Target::Tool("stub_send".to_owned());
                    let call = HubCall::new(target, Arguments::empty());
                    let outcome = fixture.gate.call_as(&schedule, Origin::Schedule, call).await;
                    outcome_text(&outcome)
                }
            });
            while fixture.desk.approvals().pending().unwrap().is_empty() && !running.is_finished() {
                tokio::task::yield_now().await;
            }
            if waits {
                fixture.owners.set("ada", fate);
            }
            if waits || runs {
                fixture.approve(1, ApprovalScope::Once).await;
            }
            let told = running.await.unwrap();
            assert_eq!(told == "ok: did ", runs, "{case}: {told}");
            assert_eq!(fixture.world.acted(), usize::from(runs), "{case}");
        }
    }
}

#[tokio::test]
async fn a_hub_that_ends_tells_who_waits_to_come_back() {
    let fixture = Arc::new(Fixture::new(Duration::from_secs(600)));
    let waiting = tokio::spawn({
        let fixture = fixture.clone();
        async move { fixture.check(None, "stub_send").await.0 }
    });
    while fixture.desk.approvals().pending().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    fixture.desk.close();
    assert!(waiting.await.unwrap().starts_with("needs_approval: "));
}

#[tokio::test]
async fn a_form_that_was_closed_leaves_the_question_open() {
    let fixture = Fixture::new(A_WHILE);
    for nothing in [
        json!({ "action": "cancel" }),
        json!({ "action": "accept", "content": { "approve": "true" } }),
        json!({ "action": "accept", "content": {} }),
        json!({ "action": "accept" }),
        json!({ "approve": true }),
        json!("accept"),
        json!(null),
    ] {
        let (outcome_text, _) = fixture.check(says(nothing), "stub_erase").await;
        assert!(
            outcome_text.starts_with("needs_approval: tool `stub_erase` is pending approval"),
            "{outcome_text}"
        );
    }
    assert_eq!(fixture.world.acted(), 0);
    fixture.approve(1, ApprovalScope::Once).await;
    assert_eq!(fixture.check(None, "stub_erase").await.0, "ok: did ");
}

#[tokio::test]
async fn an_answer_that_comes_after_the_call_still_counts() {
    let fixture = Fixture::impatient();
    let late = ClientBehavior::SaysAfter(
        Duration::from_millis(50),
        json!({ "action": "accept", "content": { "approve": true } }),
    );
    let (outcome_text, _) = fixture.check(Some(late), "stub_erase").await;
    assert!(outcome_text.starts_with("needs_approval: "), "{outcome_text}");
    let mut changed = fixture.desk.changed();
    while !fixture.desk.approvals().pending().unwrap().is_empty() {
        changed.changed().await.unwrap();
    }
    assert_eq!(fixture.check(None, "stub_erase").await.0, "ok: did ");
    let list = fixture.desk.approvals().list().unwrap();
    assert_eq!(list[0].decided.as_ref().unwrap().by, "client `ada`");
}

#[tokio::test]
async fn a_question_for_the_next_round_passes_as_it_is_and_its_answer_counts_once() {
    let fixture = Fixture::new(A_WHILE);
    let mut call = call("stub_send");
    call.ctx.peer = RecordingClient::new(Some(ClientBehavior::NextRound));
    let error = fixture.gate.call(call).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::NeedsInput);
    let input = error.input.unwrap();
    let key = format!("{QUESTION_KEY}{}", fixture.id(1));
    assert_eq!((input.questions[0].key.as_str(), input.state.as_deref()), (key.as_str(), Some("state")));
    assert_eq!(input.questions[0].ask.params["requestedSchema"]["required"], json!(["approve"]));
    assert_eq!(fixture.world.acted(), 0);
    // The next round, with the answer under that key; then a replay of that round.
    assert_eq!(fixture.check(yes(), "stub_send").await.0, "ok: did ");
    let mut call = crate::testing::call("stub_send");
    call.ctx.peer = RecordingClient::new(Some(ClientBehavior::NextRound));
    let again = fixture.gate.call(call).await.unwrap_err().input.unwrap();
    assert_ne!(again.questions[0].key, key, "an answer to the first question is none to the second");
}

/// Ends the round of a call without an approval token, as a server does that needs input from the client.
struct AsksOnce;

impl Layer for AsksOnce {
    fn call<'a>(&'a self, call: Box<Call>, next: Next<'a>) -> BoxFuture<'a, Outcome> {
        if call.ctx.peer.approved().is_some() {
            return next.run(call);
        }
        let input = InputRequired {
            questions: Vec::new(),
            state: Some("state".to_owned()),
            more: Map::new(),
            approved: None,
        };
        Box::pin(async { Err(ToolError::input_required(input)) })
    }
}

/// A client in a later round.
struct Later {
    client: Arc<RecordingClient>,
    approved: Option<String>,
}

impl Peer for Later {
    fn behind(&self) -> Option<&dyn Peer> {
        Some(&*self.client)
    }

    fn progress(&self, _: Progress) {}

    fn log(&self, _: LogMessage) {}

    fn ask(&self, questions: Vec<KeyedInputRequest>) -> BoxFuture<'_, Result<InputResponses, InputRefusal>> {
        self.client.ask(questions)
    }

    fn offers(&self, kind: InputRequestKind) -> bool {
        self.client.offers(kind)
    }

    fn approved(&self) -> Option<&str> {
        self.approved.as_deref()
    }
}

#[tokio::test]
async fn one_yes_covers_a_call_to_its_end_and_no_other() {
    let fixture = Fixture::new(A_WHILE);
    let approve = fixture.layer();
    let (gate, _) = gate(vec![Box::new(fixture.policy.clone()), Box::new(approve), Box::new(AsksOnce)]);
    let round = async |line: &str, approved: Option<&str>| {
        let client = RecordingClient::new(yes());
        let mut call = call(line);
        let approved = approved.map(str::to_owned);
        call.ctx.peer = Arc::new(Later { client: client.clone(), approved });
        (gate.call(call).await, client.received().contains(QUESTION_KEY))
    };
    let first = async || {
        let (outcome, asked) = round("stub_send", None).await;
        assert!(asked);
        outcome.unwrap_err().input.unwrap().approved.unwrap()
    };
    let mark = first().await;
    for (line, mark, expected, why) in [
        (r#"stub_send {"text":"b"}"#, mark.as_str(), true, "another call"),
        ("stub_send", "made up", true, "nothing that was handed out"),
        ("stub_send", mark.as_str(), false, "the call itself"),
        ("stub_send", mark.as_str(), true, "the same round again"),
    ] {
        let (outcome, asked) = round(line, Some(mark)).await;
        assert!(outcome_text(&outcome).starts_with("ok: did"), "{why}: {}", outcome_text(&outcome));
        assert_eq!(asked, expected, "{why}");
    }
    // A rejection while the client is asked ends the call.
    let mark = first().await;
    let mut second = call("stub_send");
    second.ctx.peer = RecordingClient::new(says(json!({ "action": "decline" })));
    assert_eq!(kind_of(&gate.call(second).await), Some(ErrorKind::Denied));
    assert_eq!(kind_of(&round("stub_send", Some(&mark)).await.0), Some(ErrorKind::Denied));
}

#[tokio::test]
async fn a_call_that_nobody_decided_about_does_not_act() {
    let fixture = Fixture::impatient();
    let approve = fixture.layer();
    let (gate, world) = gate(vec![Box::new(approve)]);
    assert_eq!(kind_of(&gate.call(call("stub_read")).await), Some(ErrorKind::Internal));
    assert_eq!(world.acted(), 0);
}

#[tokio::test]
async fn without_a_place_to_keep_questions_nothing_runs() {
    let fixture = Fixture::impatient();
    fixture.check(None, r#"stub_send {"text":"one"}"#).await;
    let database = portcullis_store::open(fixture.dir.path(), &[]).unwrap();
    let id = OperationId::random().unwrap();
    let edited: Result<usize, DatabaseError> = database
        .change(Topic::new("approvals"), id, |transaction| {
            Box::pin(async move { transaction.execute("UPDATE approvals SET record = '{'", &[]).await })
        })
        .await;
    assert_eq!(edited.unwrap(), 1);
    let outcome_text = outcome_text(&fixture.gate.call(call("stub_erase")).await);
    assert!(outcome_text.starts_with("unavailable: approvals cannot be stored"), "{outcome_text}");
    assert_eq!(fixture.world.acted(), 0);
}

#[tokio::test]
async fn too_many_questions_are_refused() {
    let fixture = Fixture::impatient();
    for number in 0..portcullis_store::approvals::PENDING_PER_CLIENT_MAX {
        fixture.check(None, &format!(r#"stub_send {{"text":"{number}"}}"#)).await;
    }
    let (outcome_text, _) = fixture.check(None, r#"stub_send {"text":"one more"}"#).await;
    assert!(outcome_text.starts_with("needs_approval: 200 calls are already pending"), "{outcome_text}");
}
