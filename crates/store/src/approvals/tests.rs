use super::*;
use crate::testing;
use parking_lot::Mutex;
use std::time::SystemTime;

const LIVES: ApprovalLifetimes =
    ApprovalLifetimes { pending: Duration::from_secs(1_000), approved: Duration::from_secs(100) };

/// A clock that is moved by hand.
struct HandClock(Mutex<Duration>);

impl Clock for HandClock {
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + *self.0.lock()
    }
}

struct Fixture {
    dir: tempfile::TempDir,
    clock: Arc<HandClock>,
    store: ApprovalStore,
}

impl Fixture {
    fn new() -> Fixture {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(HandClock(Mutex::new(Duration::from_secs(1_790_000_000))));
        let store = ApprovalStore::open(&testing::open(dir.path()), clock.clone());
        Fixture { dir, clock, store }
    }

    /// The same database, opened by another process.
    fn elsewhere(&self) -> ApprovalStore {
        ApprovalStore::open(&testing::open(self.dir.path()), self.clock.clone())
    }

    fn wait(&self, seconds: u64) {
        *self.clock.0.lock() += Duration::from_secs(seconds);
    }

    fn ask(&self, call: &ApprovalRequest) -> String {
        match self.store.ask(call, LIVES) {
            Ok(ApprovalOutcome::Approved(approval)) => format!("approved {}", approval.id),
            Ok(ApprovalOutcome::Rejected(approval)) => format!("rejected {}", approval.id),
            Ok(ApprovalOutcome::Pending(approval)) => format!("pending {}", approval.id),
            Err(error) => error.to_string(),
        }
    }

    fn pending_id(&self, call: &ApprovalRequest) -> String {
        self.ask(call).strip_prefix("pending ").unwrap().to_owned()
    }

    fn approve(&self, id: &str, span: ApprovalScope) -> Result<Approval, ApprovalError> {
        self.elsewhere().decide(id, ApprovalVerdict::Approve(span), "a test", LIVES)
    }
}

fn call(arguments: &str, effect: &str) -> ApprovalRequest {
    ApprovalRequest {
        digest: format!("digest of {arguments}"),
        client: "ada".to_owned(),
        holder: Some("h1".to_owned()),
        origin: "client".to_owned(),
        ancestors: Vec::new(),
        kind: "tool".to_owned(),
        target: "stub_send".to_owned(),
        effect: effect.to_owned(),
        reach: "outside".to_owned(),
        rule: "default:outside".to_owned(),
        definition: "d1".to_owned(),
        session: Some("s1".to_owned()),
        arguments: arguments.to_owned(),
        more: 0,
    }
}

#[test]
fn a_yes_counts_for_the_exact_call_and_for_one_time() {
    let fixture = Fixture::new();
    let (one, two) = (call("1", "create"), call("2", "create"));
    let id = fixture.pending_id(&one);
    assert_eq!(fixture.ask(&one), format!("pending {id}"), "asked once");
    fixture.approve(&id[..4], ApprovalScope::Once).unwrap();
    assert!(fixture.ask(&two).starts_with("pending "), "an edited call asks again");
    assert_eq!(fixture.ask(&one), format!("approved {id}"));
    let again = fixture.ask(&one);
    assert!(again.starts_with("pending ") && !again.ends_with(&id), "{again}");
    assert_eq!(fixture.store.get(&id).unwrap().state, ApprovalState::Used);
}

#[test]
fn a_crash_loses_no_question_and_gives_no_answer() {
    let fixture = Fixture::new();
    let id = fixture.pending_id(&call("1", "create"));
    let after = fixture.elsewhere();
    assert_eq!(after.pending().unwrap().iter().map(|a| a.id.as_str()).collect::<Vec<_>>(), [id.as_str()]);
    assert_eq!(after.get(&id).unwrap().state, ApprovalState::Pending);
    after.decide(&id, ApprovalVerdict::Approve(ApprovalScope::Once), "a test", LIVES).unwrap();
    // Consumed before the call acts: if the hub dies now, the call needs a new approval.
    assert_eq!(fixture.ask(&call("1", "create")), format!("approved {id}"));
    assert!(matches!(fixture.elsewhere().ask(&call("1", "create"), LIVES), Ok(ApprovalOutcome::Pending(_))));
}

#[test]
fn a_yes_for_a_session_ends_with_it_and_never_covers_what_destroys() {
    let fixture = Fixture::new();
    let first = call("1", "create");
    let id = fixture.pending_id(&first);
    fixture.approve(&id, ApprovalScope::Session).unwrap();
    for arguments in ["1", "2", "1"] {
        assert_eq!(fixture.ask(&call(arguments, "create")), format!("approved {id}"));
    }
    for edit in [
        (|call: &mut ApprovalRequest| call.session = Some("s2".to_owned())) as fn(&mut ApprovalRequest),
        |call| call.session = None,
        |call| call.definition = "d2".to_owned(),
        |call| call.client = "bob".to_owned(),
        |call| call.holder = Some("h2".to_owned()),
        |call| call.holder = None,
        |call| call.target = "stub_other".to_owned(),
        |call| call.origin = "script".to_owned(),
    ] {
        let mut other = call("1", "create");
        edit(&mut other);
        other.digest = format!("{other:?}");
        assert!(fixture.ask(&other).starts_with("pending "), "{other:?}");
    }
    let id = fixture.pending_id(&call("all", "destroy"));
    let refused = fixture.approve(&id, ApprovalScope::Session).unwrap_err();
    assert!(matches!(refused, ApprovalError::SingleUse(_)), "{refused}");
    fixture.approve(&id, ApprovalScope::Once).unwrap();
    assert_eq!(fixture.ask(&call("all", "destroy")), format!("approved {id}"));
    assert!(fixture.ask(&call("all", "destroy")).starts_with("pending "));
}

#[test]
fn a_yes_can_be_taken_back() {
    let fixture = Fixture::new();
    let id = fixture.pending_id(&call("1", "create"));
    fixture.approve(&id, ApprovalScope::Session).unwrap();
    assert!(fixture.ask(&call("2", "create")).starts_with("approved "));
    fixture.store.decide(&id, ApprovalVerdict::Reject { reason: None }, "a test", LIVES).unwrap();
    assert!(fixture.ask(&call("1", "create")).starts_with("rejected "));
    assert!(fixture.ask(&call("2", "create")).starts_with("pending "));
}

#[test]
fn a_session_that_is_gone_does_not_cost_the_approval() {
    let fixture = Fixture::new();
    let (mut again, mut other) = (call("1", "create"), call("2", "create"));
    let id = fixture.pending_id(&again);
    fixture.approve(&id, ApprovalScope::Session).unwrap();
    // The client retries the shown call in another session; its further calls are covered there.
    (again.session, other.session) = (Some("s2".to_owned()), Some("s2".to_owned()));
    assert_eq!(fixture.ask(&again), format!("approved {id}"));
    assert_eq!(fixture.ask(&other), format!("approved {id}"));
    assert!(fixture.ask(&call("3", "create")).starts_with("pending "), "the first session is over");
    // A third one does not get it as well.
    again.session = Some("s3".to_owned());
    assert!(fixture.ask(&again).starts_with("pending "));
}

#[test]
fn a_yes_for_a_session_is_for_one_call_where_there_is_none() {
    let fixture = Fixture::new();
    let without = |arguments: &str| ApprovalRequest { session: None, ..call(arguments, "create") };
    let id = fixture.pending_id(&call("1", "create"));
    fixture.approve(&id, ApprovalScope::Session).unwrap();
    assert_eq!(fixture.ask(&without("1")), format!("approved {id}"));
    assert_eq!(fixture.store.get(&id).unwrap().state, ApprovalState::Used);
    for other in [without("2"), without("1"), call("2", "create")] {
        assert!(fixture.ask(&other).starts_with("pending "), "{other:?}");
    }
    // Without a session from the start, it is valid for a time.
    let id = fixture.pending_id(&without("3"));
    fixture.approve(&id, ApprovalScope::Session).unwrap();
    assert_eq!(fixture.ask(&without("4")), format!("approved {id}"));
    fixture.wait(101);
    assert!(fixture.ask(&without("4")).starts_with("pending "));
}

#[test]
fn a_yes_for_a_session_that_waits_no_more_is_for_one_call() {
    let yes = |fixture: &Fixture, id: &str, session: Option<&str>| {
        let seen = ApprovalSnapshot { decided: None, session: session.map(str::to_owned) };
        let answered = fixture
            .store
            .answer(id, ApprovalVerdict::Approve(ApprovalScope::Session), "a form", &seen, LIVES)
            .unwrap();
        answered.decided.unwrap().span.unwrap()
    };
    for (shown_to, waits, expected) in [
        (Some("s1"), Some("s1"), ApprovalScope::Session),
        (Some("s1"), Some("s2"), ApprovalScope::Once),
        (Some("s1"), None, ApprovalScope::Once),
        (None, Some("s1"), ApprovalScope::Once),
        (None, None, ApprovalScope::Session),
    ] {
        let fixture = Fixture::new();
        let asks = |arguments: &str, session: Option<&str>| ApprovalRequest {
            session: session.map(str::to_owned),
            ..call(arguments, "create")
        };
        let id = fixture.pending_id(&asks("1", shown_to));
        assert_eq!(fixture.pending_id(&asks("1", waits)), id);
        assert_eq!(yes(&fixture, &id, shown_to), expected, "{shown_to:?} {waits:?}");
        assert_eq!(fixture.ask(&asks("1", waits)), format!("approved {id}"));
        let covers_more = fixture.ask(&asks("2", waits)).starts_with("approved ");
        assert_eq!(covers_more, expected == ApprovalScope::Session, "{shown_to:?} {waits:?}");
    }
}

#[test]
fn a_yes_for_the_session_releases_what_waits_there() {
    let fixture = Fixture::new();
    let (one, two) = (call("1", "create"), call("2", "create"));
    fixture.pending_id(&one);
    let second = fixture.pending_id(&two);
    fixture.approve(&second, ApprovalScope::Session).unwrap();
    assert_eq!(fixture.ask(&one), format!("approved {second}"));
}

#[test]
fn rejections_do_not_fill_the_table() {
    let fixture = Fixture::new();
    rows::change(&fixture.store.topic, fixture.store.now(), |approvals| {
        approvals.extend((0..5_000).map(|number| Approval {
            id: format!("r{number:04}"),
            state: ApprovalState::Rejected,
            asked: fixture.store.now(),
            expires: after(fixture.store.now(), REJECTED_FOR),
            decided: None,
            taken: false,
            call: ApprovalRequest {
                digest: format!("{number}"),
                ..call(&"\"".repeat(ARGUMENTS_BYTES_MAX), "create")
            },
        }));
        Ok(())
    })
    .unwrap();
    assert_eq!(fixture.store.list().unwrap().len(), REJECTED_MAX);
    let bytes = testing::export(fixture.dir.path()).len();
    assert!(bytes < 1024 * 1024, "{bytes}");
}

#[test]
fn a_clock_that_was_set_back_revives_nothing() {
    let fixture = Fixture::new();
    let one = call("1", "create");
    fixture.wait(100_000);
    let id = fixture.pending_id(&one);
    fixture.approve(&id, ApprovalScope::Once).unwrap();
    *fixture.clock.0.lock() -= Duration::from_secs(90_000);
    assert!(fixture.ask(&one).starts_with("pending "));
}

#[test]
fn questions_and_answers_expire() {
    let fixture = Fixture::new();
    let one = call("1", "create");
    let id = fixture.pending_id(&one);
    fixture.wait(1_001);
    let late = fixture.approve(&id, ApprovalScope::Once).unwrap_err();
    assert!(matches!(late, ApprovalError::Expired(_)), "{late}");
    assert_eq!(fixture.store.get(&id).unwrap().stage(fixture.store.now()), ApprovalStage::Expired);
    let id = fixture.pending_id(&one);
    fixture.approve(&id, ApprovalScope::Once).unwrap();
    fixture.wait(101);
    assert!(fixture.ask(&one).starts_with("pending "), "an unused approval expires");
}

#[test]
fn a_no_holds_for_a_while_and_can_become_a_yes() {
    let fixture = Fixture::new();
    let one = call("1", "create");
    let id = fixture.pending_id(&one);
    let no = ApprovalVerdict::Reject { reason: Some("not today".to_owned()) };
    fixture.store.decide(&id, no.clone(), "a test", LIVES).unwrap();
    assert_eq!(fixture.ask(&one), format!("rejected {id}"));
    assert!(fixture.store.decide(&id, no.clone(), "a test", LIVES).is_err());
    // A form that is answered later changes nothing.
    assert!(
        fixture
            .store
            .answer(
                &id,
                ApprovalVerdict::Approve(ApprovalScope::Once),
                "a form",
                &ApprovalSnapshot::default(),
                LIVES
            )
            .is_err()
    );
    assert_eq!(fixture.ask(&one), format!("rejected {id}"));
    fixture.approve(&id, ApprovalScope::Once).unwrap();
    assert_eq!(fixture.ask(&one), format!("approved {id}"));
    let used = fixture.approve(&id, ApprovalScope::Once).unwrap_err();
    assert_eq!(used.to_string(), format!("`{id}` is used already"));

    let id = fixture.pending_id(&one);
    fixture.store.decide(&id, ApprovalVerdict::Reject { reason: None }, "a test", LIVES).unwrap();
    fixture.wait(10 * 60 + 1);
    assert!(fixture.ask(&one).starts_with("pending "));
}

#[test]
fn many_questions_have_a_bound_and_old_ones_are_forgotten() {
    let fixture = Fixture::new();
    for number in 0..PENDING_PER_CLIENT_MAX {
        fixture.pending_id(&call(&number.to_string(), "create"));
    }
    assert!(matches!(fixture.store.ask(&call("more", "create"), LIVES), Err(ApprovalError::Full)));
    let mut of_another = call("more", "create");
    (of_another.client, of_another.digest) = ("bob".to_owned(), "bob's".to_owned());
    assert!(fixture.ask(&of_another).starts_with("pending "), "others still can");
    // The rest in one write: one each would take long.
    rows::change(&fixture.store.topic, fixture.store.now(), |approvals| {
        let used = approvals[0].clone();
        approvals.extend((0..2 * OVER_MAX).map(|number| Approval {
            id: format!("used{number:04}"),
            state: ApprovalState::Used,
            ..used.clone()
        }));
        Ok(())
    })
    .unwrap();
    let list = fixture.store.list().unwrap();
    assert_eq!(list.len(), PENDING_PER_CLIENT_MAX + 1 + OVER_MAX);
    assert_eq!(list.last().unwrap().id, "used0999");
}

#[test]
fn damaged_rows_approve_nothing_and_are_left_alone() {
    let fixture = Fixture::new();
    let one = call("1", "create");
    let id = fixture.pending_id(&one);
    fixture.approve(&id, ApprovalScope::Once).unwrap();
    testing::edit(fixture.dir.path(), "approvals", "UPDATE approvals SET record = record || ' '");
    for damage in ["UPDATE approvals SET record = substr(record, 2)", "UPDATE approvals SET key = 'other'"] {
        testing::edit(fixture.dir.path(), "approvals", damage);
        let damaged = testing::export(fixture.dir.path());
        assert!(matches!(fixture.store.ask(&one, LIVES), Err(ApprovalError::Damaged(_))));
        assert!(fixture.store.health().is_err());
        assert_eq!(testing::export(fixture.dir.path()), damaged);
    }
    let repair = "UPDATE approvals SET record = '{' || record, key = json_extract('{' || record, '$.id')";
    testing::edit(fixture.dir.path(), "approvals", repair);
    assert_eq!(fixture.ask(&one), format!("approved {id}"));
}

/// A file from before approvals knew the token of a client.
#[test]
fn a_yes_that_does_not_say_who_holds_the_name_is_for_who_shows_no_token() {
    let fixture = Fixture::new();
    let held = |arguments: &str, holder: Option<&str>| ApprovalRequest {
        holder: holder.map(str::to_owned),
        session: None,
        ..call(arguments, "create")
    };
    let id = fixture.pending_id(&held("1", None));
    fixture.approve(&id, ApprovalScope::Session).unwrap();
    let written = testing::export(fixture.dir.path());
    assert!(!written.contains("holder"), "{written}");
    assert!(fixture.ask(&held("2", Some("h1"))).starts_with("pending "));
    assert_eq!(fixture.ask(&held("2", None)), format!("approved {id}"));
}

#[test]
fn two_that_want_the_same_yes_do_not_both_get_it() {
    let fixture = Fixture::new();
    let one = call("1", "create");
    let id = fixture.pending_id(&one);
    fixture.approve(&id, ApprovalScope::Once).unwrap();
    let took = std::thread::scope(|scope| {
        let takers: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    matches!(fixture.elsewhere().ask(&one, LIVES), Ok(ApprovalOutcome::Approved(_)))
                })
            })
            .collect();
        takers.into_iter().map(|taker| usize::from(taker.join().unwrap())).sum::<usize>()
    });
    assert_eq!(took, 1);
}

#[test]
fn ids_are_found_by_their_beginning() {
    let fixture = Fixture::new();
    let ids: Vec<String> =
        (0..40).map(|number| fixture.pending_id(&call(&number.to_string(), "create"))).collect();
    // Forty ids over thirty-two first letters: two begin alike.
    let twice = ids.iter().find(|id| ids.iter().filter(|other| other[..1] == id[..1]).count() > 1).unwrap();
    assert!(matches!(fixture.store.get(&twice[..1]), Err(ApprovalError::Ambiguous(_))));
    assert_eq!(fixture.store.get(twice).unwrap().id, *twice);
    for unknown in ["", "nope", "../x", "\u{202e}"] {
        assert!(matches!(fixture.store.get(unknown), Err(ApprovalError::Unknown(_))), "{unknown:?}");
    }
}
