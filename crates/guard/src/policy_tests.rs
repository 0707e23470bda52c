use super::*;
use crate::authorize::ActivePolicy;
use crate::testing::{call, caller, client, gate, kind_of, registry, scope};
use jiff::civil::date;
use jiff::{SignedDuration, ToSpan};
use parking_lot::Mutex;
use portcullis_core::{CatalogChange, Clock, DefaultDecision, ErrorKind, Gate, OriginSet};
use proptest::prelude::*;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

fn vienna() -> TimeZone {
    TimeZone::get("Europe/Vienna").unwrap()
}

/// Returns a local time in Vienna.
fn at(text: &str) -> Timestamp {
    let local: jiff::civil::DateTime = text.parse().unwrap();
    vienna().to_timestamp(local).unwrap()
}

fn when(hours: &str, days: &[&str], until: Option<&str>) -> RuleSchedule {
    RuleSchedule {
        hours: (!hours.is_empty()).then(|| Hours::parse(hours).unwrap()),
        days: (!days.is_empty())
            .then(|| days.iter().fold(Days::NONE, |all, day| all.with(Days::parse(day).unwrap()))),
        until: until.map(|text| text.parse().unwrap()),
    }
}

fn rule(name: &str, when: RuleSchedule, decision: RuleAction) -> PolicyRule {
    PolicyRule {
        name: name.to_owned(),
        clients: Pattern::any(),
        tools: Pattern::any(),
        origins: None,
        effects: None,
        reach: None,
        labels: None,
        when,
        decision,
    }
}

fn policy(when: RuleSchedule) -> Policy {
    Policy { rules: vec![rule("policy[0]", when, RuleAction::Deny)], zone: vienna() }
}

const READ: PolicySubject<'static> = PolicySubject {
    kind: "tool",
    name: "x_y",
    also: None,
    effect: Effect::Read,
    reach: Reach::Local,
    labels: Labels::NONE,
    default_decision: DefaultDecision::ByEffect,
    in_every_scope: false,
};

/// Hours, days and end of a rule, a time, and the condition that fails then.
type Row = (&'static str, &'static [&'static str], &'static str, &'static str, Option<RuleCondition>);

/// 2026-11-13 is a Friday; the clock goes back on 2026-10-25 and forward on 2026-03-29.
const TABLE: [Row; 33] = [
    // The first minute is in, the last is not.
    ("09:00-17:00", &[], "", "2026-11-13T08:59:59", Some(RuleCondition::Hours)),
    ("09:00-17:00", &[], "", "2026-11-13T09:00", None),
    ("09:00-17:00", &[], "", "2026-11-13T16:59:59.999", None),
    ("09:00-17:00", &[], "", "2026-11-13T17:00", Some(RuleCondition::Hours)),
    // Across midnight.
    ("22:00-06:00", &[], "", "2026-11-13T21:59", Some(RuleCondition::Hours)),
    ("22:00-06:00", &[], "", "2026-11-13T22:00", None),
    ("22:00-06:00", &[], "", "2026-11-14T00:00", None),
    ("22:00-06:00", &[], "", "2026-11-14T05:59", None),
    ("22:00-06:00", &[], "", "2026-11-14T06:00", Some(RuleCondition::Hours)),
    // To midnight, in both spellings.
    ("22:00-24:00", &[], "", "2026-11-13T23:59", None),
    ("22:00-24:00", &[], "", "2026-11-14T00:00", Some(RuleCondition::Hours)),
    ("22:00-00:00", &[], "", "2026-11-13T23:59", None),
    ("22:00-00:00", &[], "", "2026-11-14T00:00", Some(RuleCondition::Hours)),
    ("00:00-24:00", &[], "", "2026-11-14T00:00", None),
    // Days.
    ("", &["mon-fri"], "", "2026-11-13T23:59", None),
    ("", &["mon-fri"], "", "2026-11-14T00:00", Some(RuleCondition::Days)),
    ("", &["sat-mon"], "", "2026-11-16T12:00", None),
    ("", &["sat-mon"], "", "2026-11-17T12:00", Some(RuleCondition::Days)),
    ("", &["fri"], "", "2026-11-12T12:00", Some(RuleCondition::Days)),
    ("09:00-17:00", &["mon", "fri"], "", "2026-11-13T12:00", None),
    ("09:00-17:00", &["mon", "fri"], "", "2026-11-12T12:00", Some(RuleCondition::Days)),
    ("09:00-17:00", &["mon", "fri"], "", "2026-11-13T18:00", Some(RuleCondition::Hours)),
    // A window belongs to the day on which it began.
    ("22:00-06:00", &["fri"], "", "2026-11-13T23:00", None),
    ("22:00-06:00", &["fri"], "", "2026-11-14T05:00", None),
    ("22:00-06:00", &["fri"], "", "2026-11-13T05:00", Some(RuleCondition::Days)),
    ("22:00-06:00", &["fri"], "", "2026-11-14T23:00", Some(RuleCondition::Days)),
    ("22:00-06:00", &["mon"], "", "2026-11-16T05:00", Some(RuleCondition::Days)),
    // An end.
    ("", &[], "2026-11-13T12:00:00+01:00", "2026-11-13T11:59:59", None),
    ("", &[], "2026-11-13T12:00:00+01:00", "2026-11-13T12:00", Some(RuleCondition::Until)),
    ("09:00-17:00", &["fri"], "2026-11-13T12:00:00+01:00", "2026-11-13T13:00", Some(RuleCondition::Until)),
    // Summer time.
    ("09:00-17:00", &[], "", "2026-07-13T09:00", None),
    ("09:00-17:00", &[], "", "2026-07-13T08:59", Some(RuleCondition::Hours)),
    ("02:00-03:00", &[], "", "2026-10-25T02:30", None),
];

/// Returns the rows that an implementation gets wrong.
fn wrong_rows(mismatch: impl Fn(&RuleSchedule, Timestamp) -> Option<RuleCondition>) -> Vec<usize> {
    let is_wrong = |row: &usize| {
        let (hours, days, until, time, expected) = TABLE[*row];
        let when = when(hours, days, (!until.is_empty()).then_some(until));
        mismatch(&when, at(time)) != expected
    };
    (0..TABLE.len()).filter(is_wrong).collect()
}

#[test]
fn a_rule_holds_at_its_time() {
    let matching = |when: &RuleSchedule, now: Timestamp| {
        let policy = policy(*when);
        let (_, mismatch) = policy.explain(&caller("ada"), &READ, now).considered[0];
        let denied = matches!(policy.decide(&caller("ada"), &READ, now), Decision::Deny { .. });
        assert_eq!(denied, mismatch.is_none());
        mismatch
    };
    assert_eq!(wrong_rows(matching), [0; 0]);
    // Control: the table detects wrong implementations.
    let zone = vienna();
    let real = |when: &RuleSchedule, now: Timestamp| when.mismatch(&DecisionTime::new(now, &zone));
    let no_days = |when: &RuleSchedule, now| real(&RuleSchedule { days: None, ..*when }, now);
    assert_eq!(wrong_rows(no_days), [15, 17, 18, 20, 24, 25, 26]);
    let no_hours = |when: &RuleSchedule, now| real(&RuleSchedule { hours: None, ..*when }, now);
    assert!(wrong_rows(no_hours).len() >= 10);
    let no_until = |when: &RuleSchedule, now| real(&RuleSchedule { until: None, ..*when }, now);
    assert_eq!(wrong_rows(no_until), [28, 29]);
    let elsewhere =
        |when: &RuleSchedule, now: Timestamp| when.mismatch(&DecisionTime::new(now, &TimeZone::UTC));
    assert!(!wrong_rows(elsewhere).is_empty());
    // The current day instead of the day on which the window began.
    let naive = |when: &RuleSchedule, now: Timestamp| {
        real(&RuleSchedule { days: None, ..*when }, now)
            .or_else(|| real(&RuleSchedule { hours: None, ..*when }, now))
    };
    assert!(wrong_rows(naive).contains(&23));
}

#[test]
fn times_are_read_strictly() {
    for good in ["22:00-06:00", "9:00-17:30", "00:00-24:00", " 08:00 - 09:00 "] {
        assert!(Hours::parse(good).is_some(), "{good}");
    }
    for bad in [
        "",
        "22:00",
        "22-06",
        "24:00-06:00",
        "08:00-08:00",
        "08:60-09:00",
        "08:00-24:01",
        "8:0-9:0",
        "+8:00-9:00",
        "a:00-b:00",
        "22:00-06:00-07:00",
        "08:00:00-09:00:00",
        "99:00-01:00",
    ] {
        assert!(Hours::parse(bad).is_none(), "{bad}");
    }
    assert_eq!(Hours::parse("9:05-24:00").unwrap().to_string(), "09:05-24:00");
    for (text, expected) in [
        ("mon", "mon"),
        ("mon-fri", "mon,tue,wed,thu,fri"),
        ("sat-mon", "mon,sat,sun"),
        ("sun-sun", "sun"),
        ("tue-mon", "mon,tue,wed,thu,fri,sat,sun"),
    ] {
        assert_eq!(Days::parse(text).unwrap().to_string(), expected);
    }
    for bad in ["", "Mon", "monday", "mon-", "-fri", "mon-fri-sun", "mon,tue", "1"] {
        assert!(Days::parse(bad).is_none(), "{bad}");
    }
}

#[test]
fn the_next_change_is_found() {
    let next = |when: RuleSchedule, now: &str| {
        policy(when).next_change(at(now)).map(|next| vienna().to_datetime(next).to_string())
    };
    for (hours, days, until, now, expected) in [
        ("09:00-17:00", &[][..], None, "2026-11-13T08:00", Some("2026-11-13T09:00:00")),
        ("09:00-17:00", &[], None, "2026-11-13T09:00", Some("2026-11-13T17:00:00")),
        ("09:00-17:00", &[], None, "2026-11-13T17:00", Some("2026-11-14T09:00:00")),
        ("22:00-06:00", &["fri"], None, "2026-11-13T23:00", Some("2026-11-14T06:00:00")),
        ("22:00-06:00", &["fri"], None, "2026-11-14T06:00", Some("2026-11-20T22:00:00")),
        ("", &["mon-fri"], None, "2026-11-13T12:00", Some("2026-11-14T00:00:00")),
        ("", &["mon-fri"], None, "2026-11-14T12:00", Some("2026-11-16T00:00:00")),
        ("", &["mon-sun"], None, "2026-11-14T12:00", None),
        ("00:00-24:00", &[], None, "2026-11-14T12:00", None),
        ("", &[], Some("2027-11-13T11:00:00Z"), "2026-11-13T12:00", Some("2027-11-13T12:00:00")),
        ("", &[], Some("2026-11-13T11:00:00Z"), "2026-11-13T12:00", None),
        ("09:00-17:00", &[], Some("2026-11-13T11:00:00Z"), "2026-11-13T10:00", Some("2026-11-13T12:00:00")),
        ("09:00-17:00", &[], Some("2026-11-13T07:00:00Z"), "2026-11-13T07:30", None),
        // The clock skips from two to three: a window that would begin in between begins at three.
        ("02:30-04:00", &[], None, "2026-03-29T00:00", Some("2026-03-29T03:00:00")),
        // And one that lies within the gap does not occur that day.
        ("02:10-02:50", &[], None, "2026-03-29T00:00", Some("2026-03-30T02:10:00")),
        ("", &[], None, "2026-11-13T12:00", None),
    ] {
        assert_eq!(
            next(when(hours, days, until), now).as_deref(),
            expected,
            "{hours} {days:?} {until:?} {now}"
        );
    }
    // A repeated hour occurs twice.
    let twice = policy(when("02:00-03:00", &[], None));
    let first = at("2026-10-25T02:00");
    let hour = SignedDuration::from_hours(1);
    assert_eq!(twice.in_force(first), [true]);
    assert_eq!(twice.in_force(first + hour), [true]);
    assert_eq!(twice.next_change(first), Some(first + hour + hour));
    // The earliest of several rules.
    let mut both = policy(when("09:00-17:00", &[], None));
    both.rules.push(rule("policy[1]", when("12:00-13:00", &[], None), RuleAction::Ask));
    assert_eq!(both.next_change(at("2026-11-13T10:00")), Some(at("2026-11-13T12:00")));
    assert_eq!(Policy::default().next_change(Timestamp::MIN), None);
    assert_eq!(policy(when("09:00-17:00", &["mon"], None)).next_change(Timestamp::MAX), None);
}

#[test]
fn an_explanation_names_what_did_not_match() {
    let only = |tools: &str, clients: &str| PolicyRule {
        tools: Pattern::new(&[tools]).unwrap(),
        clients: Pattern::new(&[clients]).unwrap(),
        ..rule("r", RuleSchedule::default(), RuleAction::Ask)
    };
    let policy = Policy {
        rules: vec![
            only("a_*", "*"),
            only("*", "bob"),
            PolicyRule { origins: Some(vec![Origin::Chat]), ..only("*", "*") },
            PolicyRule { effects: Some(EffectSet::NONE.with(Effect::Write)), ..only("*", "*") },
            PolicyRule { reach: Some(Reach::Outside), ..only("*", "*") },
            PolicyRule { labels: Some(Labels::FOREIGN), ..only("*", "*") },
            rule("r", when("", &[], Some("2026-01-01T00:00:00Z")), RuleAction::Ask),
            rule("r", when("09:00-10:00", &[], None), RuleAction::Ask),
            rule("r", when("", &["sun"], None), RuleAction::Ask),
            rule("last", RuleSchedule::default(), RuleAction::Deny),
            rule("never", RuleSchedule::default(), RuleAction::Allow),
        ],
        zone: vienna(),
    };
    let now = at("2026-11-13T12:00");
    let explained = policy.explain(&caller("ada"), &READ, now);
    let parts: Vec<Option<&str>> =
        explained.considered.iter().map(|(_, part)| part.map(RuleCondition::as_str)).collect();
    let expected = ["tools", "clients", "origins", "effects", "reach", "labels", "until", "hours", "days"];
    assert_eq!(parts, expected.into_iter().map(Some).chain([None]).collect::<Vec<_>>());
    assert_eq!(explained.decision, Decision::Deny { rule: "last".to_owned() });
    for (who, part) in [
        (client("r", scope(&["x_*"], EffectSet::NONE.with(Effect::Write))), RuleCondition::Effects),
        (client("r", scope(&["a_*"], EffectSet::ALL)), RuleCondition::Tools),
    ] {
        let explained = policy.explain(&who, &READ, now);
        assert_eq!((explained.out_of_scope, explained.considered.len()), (Some(part), 0));
        assert_eq!(explained.decision, Decision::Deny { rule: "scope".to_owned() });
    }
}

/// A schedule cannot launder its calls through a script, and is not trusted with what a script is allowed.
#[test]
fn a_restriction_reaches_what_is_nested_and_an_allow_does_not() {
    let now = at("2026-11-13T12:00");
    let nested =
        Caller { origin: Origin::Script, ancestors: OriginSet::NONE.with(Origin::Schedule), ..caller("ada") };
    for (action, origin, decided) in [
        (RuleAction::Deny, Origin::Schedule, "deny by r"),
        (RuleAction::Ask, Origin::Schedule, "ask by r"),
        (RuleAction::Allow, Origin::Schedule, "allow by default:read"),
        (RuleAction::Deny, Origin::Script, "deny by r"),
        (RuleAction::Allow, Origin::Script, "allow by r"),
        (RuleAction::Deny, Origin::Client, "allow by default:read"),
    ] {
        let one = PolicyRule { origins: Some(vec![origin]), ..rule("r", RuleSchedule::default(), action) };
        let decision = Policy { rules: vec![one], zone: vienna() }.decide(&nested, &READ, now);
        assert_eq!(format!("{} by {}", decision.as_str(), decision.rule()), decided);
    }
}

#[test]
fn the_way_to_other_tools_is_in_every_scope_that_does_not_deny_it() {
    let way = PolicySubject { in_every_scope: true, ..READ };
    let narrow = scope(&["a_*"], EffectSet::NONE.with(Effect::Write));
    let denying = portcullis_core::Scope { deny: Some(Pattern::new(&["x_*"]).unwrap()), ..narrow.clone() };
    for (scope, out_of_scope) in [(narrow, None), (denying, Some(RuleCondition::Tools))] {
        let explained =
            Policy::default().explain(&client("ada", scope), &way, at("2026-11-13T12:00")).out_of_scope;
        assert_eq!(explained, out_of_scope);
    }
}

/// Clients differ in whether they encode the slashes of a URI segment.
#[test]
fn a_rule_against_an_address_counts_for_its_other_spelling() {
    let now = at("2026-11-13T12:00");
    let escaped = PolicySubject { kind: "resource", name: "file:///secret%2Fk", ..READ };
    let deny = Some(Pattern::new(&["file:///secret/*"]).unwrap());
    let denying = portcullis_core::Scope { deny, ..scope(&["*"], EffectSet::ALL) };
    let denied = Policy::default().explain(&client("ada", denying), &escaped, now).out_of_scope;
    assert_eq!(denied, Some(RuleCondition::Tools));
    let one = PolicyRule {
        tools: Pattern::new(&["file:///secret/*"]).unwrap(),
        ..rule("r", RuleSchedule::default(), RuleAction::Deny)
    };
    let policy = Policy { rules: vec![one], ..Policy::default() };
    let decided = policy.decide(&client("ada", scope(&["*"], EffectSet::ALL)), &escaped, now);
    assert_eq!(format!("{} by {}", decided.as_str(), decided.rule()), "deny by r");
}

/// A fallback name neither evades a deny for the original name nor gains from an allow for it.
#[test]
fn a_rule_against_a_name_counts_for_whoever_had_to_make_way_for_it() {
    let now = at("2026-11-13T12:00");
    let moved = PolicySubject { name: "shop_delete", also: Some("delete"), ..READ };
    let everybody = client("ada", scope(&["*"], EffectSet::ALL));
    for (decision, expected) in
        [(RuleAction::Deny, "deny by r"), (RuleAction::Ask, "ask by r"), (RuleAction::Allow, "deny by rest")]
    {
        let one = PolicyRule {
            tools: Pattern::new(&["delete"]).unwrap(),
            ..rule("r", RuleSchedule::default(), decision)
        };
        let rest = rule("rest", RuleSchedule::default(), RuleAction::Deny);
        let policy = Policy { rules: vec![one, rest], ..Policy::default() };
        let decided = policy.decide(&everybody, &moved, now);
        assert_eq!(format!("{} by {}", decided.as_str(), decided.rule()), expected);
    }
    let denying = portcullis_core::Scope {
        deny: Some(Pattern::new(&["del*"]).unwrap()),
        ..scope(&["*"], EffectSet::ALL)
    };
    let denied = Policy::default().explain(&client("ada", denying), &moved, now).out_of_scope;
    assert_eq!(denied, Some(RuleCondition::Tools));
    let only = client("ada", scope(&["delete"], EffectSet::ALL));
    assert_eq!(Policy::default().explain(&only, &moved, now).out_of_scope, Some(RuleCondition::Tools));
}

/// A clock that a test sets.
struct SetClock(Mutex<SystemTime>);

impl SetClock {
    fn at(time: Timestamp) -> Arc<SetClock> {
        Arc::new(SetClock(Mutex::new(time.into())))
    }

    fn set(&self, time: Timestamp) {
        *self.0.lock() = time.into();
    }
}

impl Clock for SetClock {
    fn now(&self) -> SystemTime {
        *self.0.lock()
    }
}

#[tokio::test]
async fn lists_and_calls_follow_the_clock() {
    let clock = SetClock::at(at("2026-11-13T08:59"));
    let nights = Policy {
        rules: vec![PolicyRule {
            tools: Pattern::new(&["stub_read", "stub://a"]).unwrap(),
            ..rule("policy[0]", when("09:00-17:00", &[], None), RuleAction::Deny)
        }],
        zone: vienna(),
    };
    let (gate, _) = gate(vec![Box::new(ActivePolicy::new(nights, clock.clone()))]);
    for (time, hidden) in
        [("2026-11-13T08:59", false), ("2026-11-13T09:00", true), ("2026-11-13T17:00", false)]
    {
        clock.set(at(time));
        let listed = gate.tools(&caller("ada")).unwrap().iter().any(|tool| tool.name == "stub_read");
        let (resources, _) = gate.resources(&caller("ada")).await.unwrap();
        let unknown = kind_of(&gate.call(call("stub_read")).await) == Some(ErrorKind::Unknown);
        assert_eq!(
            (listed, resources.len(), unknown),
            (!hidden, if hidden { 1 } else { 2 }, hidden),
            "{time}"
        );
    }
}

/// One list is decided at one time, however long it takes.
#[tokio::test]
async fn a_list_is_of_one_moment() {
    /// Advances by a minute with every read.
    struct Hurried(Mutex<SystemTime>);
    impl Clock for Hurried {
        fn now(&self) -> SystemTime {
            let mut now = self.0.lock();
            *now += Duration::from_secs(60);
            *now
        }
    }
    let clock = Arc::new(Hurried(Mutex::new(at("2026-11-13T08:56").into())));
    let (gate, _) = gate(vec![Box::new(ActivePolicy::new(policy(when("09:00-17:00", &[], None)), clock))]);
    let counts: Vec<usize> = (0..6).map(|_| gate.tools(&caller("ada")).unwrap().len()).collect();
    assert_eq!(counts, [11, 11, 11, 0, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn clients_hear_when_a_window_opens_or_closes() {
    let clock = SetClock::at(at("2026-11-13T08:59:30"));
    let (registry, _) = registry();
    let (changes, mut received) = (registry.changes(), registry.subscribe());
    let authorize = ActivePolicy::new(policy(when("09:00-17:00", &[], None)), clock.clone());
    let _gate = Gate::new(registry, vec![Box::new(authorize.clone())]);
    let watching = tokio::spawn(announce_windows(authorize.clone(), changes));
    let pass = async |seconds: u64| {
        // Both clocks advance together.
        let now = Timestamp::try_from(clock.now()).unwrap();
        clock.set(now + SignedDuration::from_secs(seconds.cast_signed()));
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        settle().await;
    };
    let mut announced = move || std::iter::from_fn(|| received.try_recv().ok()).collect::<Vec<_>>();
    let all = [CatalogChange::Tools, CatalogChange::Prompts, CatalogChange::Resources];
    settle().await;
    pass(29).await;
    assert_eq!(announced(), []);
    pass(2).await;
    assert_eq!(announced(), all, "the window has opened");
    pass(600).await;
    assert_eq!(announced(), [], "nothing happens in it");
    // The clock is set: detected within a minute.
    clock.set(at("2026-11-13T18:00"));
    pass(61).await;
    assert_eq!(announced(), all);
    // A new policy whose next change is before the next poll.
    authorize.replace(policy(when("", &[], Some("2026-11-13T17:01:41Z"))));
    settle().await;
    pass(30).await;
    assert_eq!(announced(), []);
    pass(11).await;
    assert_eq!(announced(), all, "the rule has ended");
    pass(100_000).await;
    assert_eq!(announced(), []);
    watching.abort();
}

/// Lets the other task run.
async fn settle() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

fn some_when() -> impl Strategy<Value = RuleSchedule> {
    let hours =
        prop::option::of((0u16..24, 0u16..4, 0u16..=24).prop_filter_map("no time", |(from, quarter, to)| {
            Hours::parse(&format!("{from:02}:{:02}-{to:02}:00", quarter * 15))
        }));
    let day = prop::sample::select(Days::NAMES.to_vec()).prop_map(|day| Days::parse(day).unwrap());
    let days = prop::option::of(
        prop::collection::vec(day, 1..4).prop_map(|days| days.into_iter().fold(Days::NONE, Days::with)),
    );
    let until =
        prop::option::of((0i64..20 * 24).prop_map(|hours| start() + SignedDuration::from_hours(hours)));
    (hours, days, until).prop_map(|(hours, days, until)| RuleSchedule { hours, days, until })
}

fn start() -> Timestamp {
    // Near both clock changes: 25 October in Vienna, 1 November in New York.
    "2026-10-20T00:00:00Z".parse().unwrap()
}

fn some_zone() -> impl Strategy<Value = TimeZone> {
    let names = vec!["UTC", "Europe/Vienna", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe"];
    prop::sample::select(names).prop_map(|name| TimeZone::get(name).unwrap())
}

fn some_pattern(words: &'static [&'static str]) -> impl Strategy<Value = Pattern> {
    prop::collection::vec(prop::sample::select(words.to_vec()), 1..3)
        .prop_map(|globs| Pattern::new(&globs).unwrap())
}

fn some_effects() -> impl Strategy<Value = EffectSet> {
    prop::collection::vec(prop::sample::select(Effect::ALL.to_vec()), 1..4)
        .prop_map(|all| all.into_iter().collect())
}

const TOOLS: &[&str] = &["*", "a_*", "*_b", "a_b", "c_d", "{a,c}_?"];
const CLIENTS: &[&str] = &["*", "ada", "bob", "a*"];

prop_compose! {
    fn some_rule()(
        clients in some_pattern(CLIENTS),
        tools in some_pattern(TOOLS),
        origins in prop::option::of(prop::collection::vec(prop::sample::select(Origin::ALL.to_vec()), 1..3)),
        effects in prop::option::of(some_effects()),
        reach in prop::option::of(prop::sample::select(vec![Reach::Local, Reach::Outside])),
        labels in prop::option::of(prop::sample::select(vec![Labels::NONE, Labels::FOREIGN])),
        when in some_when(),
        decision in prop::sample::select(vec![RuleAction::Allow, RuleAction::Ask, RuleAction::Deny]),
    ) -> PolicyRule {
        PolicyRule { name: String::new(), clients, tools, origins, effects, reach, labels, when, decision }
    }
}

prop_compose! {
    fn some_policy()(rules in prop::collection::vec(some_rule(), 0..8), zone in some_zone()) -> Policy {
        let named = rules.into_iter().enumerate().map(|(at, rule)| PolicyRule { name: format!("policy[{at}]"), ..rule });
        Policy { rules: named.collect(), zone }
    }
}

/// A reference implementation from the documentation, without regard to cost.
fn reference_decision(policy: &Policy, who: &Caller, listing: &PolicySubject<'_>, now: Timestamp) -> String {
    let scope = &who.client.scope;
    if !scope.allow.matches(listing.name) || !scope.effects.contains(listing.effect) {
        return "deny by scope".to_owned();
    }
    let matching = policy.rules.iter().find(|rule| {
        let local = now.to_zoned(policy.zone.clone());
        let minute = i32::from(local.hour()) * 60 + i32::from(local.minute());
        let day_of = |zoned: &jiff::Zoned| {
            Days::NAMES[usize::try_from(zoned.weekday().to_monday_zero_offset()).unwrap()]
        };
        let yesterday = local.checked_sub(1.day()).unwrap();
        let hours = rule.when.hours.map(|hours| hours.to_string()).unwrap_or("00:00-24:00".to_owned());
        let clock = |text: &str| {
            let (hour, minute) = text.split_once(':').unwrap();
            hour.parse::<i32>().unwrap() * 60 + minute.parse::<i32>().unwrap()
        };
        let (from, to) = hours.split_once('-').map(|(from, to)| (clock(from), clock(to))).unwrap();
        let days = rule.when.days.map_or("mon,tue,wed,thu,fri,sat,sun".to_owned(), |days| days.to_string());
        let (today_fits, yesterday_fits) = (days.contains(day_of(&local)), days.contains(day_of(&yesterday)));
        let in_time = if from < to {
            today_fits && from <= minute && minute < to
        } else {
            today_fits && minute >= from || yesterday_fits && minute < to
        };
        in_time
            && rule.when.until.is_none_or(|until| now < until)
            && rule.tools.matches(listing.name)
            && rule.clients.matches(&who.client.name)
            && rule.origins.as_ref().is_none_or(|origins| {
                let restricts = rule.decision != RuleAction::Allow;
                let nested = |origin: &Origin| {
                    restricts && *origin != Origin::Client && who.ancestors.contains(*origin)
                };
                origins.iter().any(|origin| *origin == who.origin || nested(origin))
            })
            && rule.effects.is_none_or(|effects| effects.contains(listing.effect))
            && rule.reach.is_none_or(|reach| reach == listing.reach)
            && rule.labels.is_none_or(|labels| labels.meets(listing.labels))
    });
    match matching {
        Some(rule) => format!("{} by {}", rule.decision.as_str(), rule.name),
        None => {
            let (verdict, name) = default_action(listing.effect, listing.reach, listing.default_decision);
            format!("{} by {name}", verdict.as_str())
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn deciding_and_explaining_are_one(
        policy in some_policy(),
        allow in some_pattern(TOOLS),
        effects in some_effects(),
        name in prop::sample::select(vec!["ada", "bob", "eve"]),
        origin in prop::sample::select(Origin::ALL.to_vec()),
        ancestors in prop::collection::vec(prop::sample::select(Origin::ALL.to_vec()), 0..3),
        tool in prop::sample::select(vec!["a_b", "c_d", "e_f"]),
        effect in prop::sample::select(Effect::ALL.to_vec()),
        reach in prop::sample::select(vec![Reach::Local, Reach::Outside]),
        labels in prop::sample::select(vec![Labels::NONE, Labels::FOREIGN]),
        minutes in 0i64..20 * 24 * 60,
    ) {
        let now = start() + SignedDuration::from_mins(minutes);
        let scope = portcullis_core::Scope { allow, effects, ..portcullis_core::Scope::everything() };
        let ancestors = ancestors.into_iter().fold(OriginSet::NONE, OriginSet::with);
        let who = Caller { origin, ancestors, ..client(name, scope) };
        let listing = PolicySubject { name: tool, effect, reach, labels, ..READ };
        let decided = policy.decide(&who, &listing, now);
        let explained = policy.explain(&who, &listing, now);
        prop_assert_eq!(&decided, &explained.decision);
        let decision_text = format!("{} by {}", decided.as_str(), decided.rule());
        prop_assert_eq!(&decision_text, &reference_decision(&policy, &who, &listing, now));
        // The named rule is the last evaluated one, and the only match.
        let matched: Vec<&str> =
            explained.considered.iter().filter(|(_, part)| part.is_none()).map(|(rule, _)| rule.name.as_str()).collect();
        if decision_text.contains("policy[") {
            prop_assert_eq!(matched, [decided.rule()]);
        } else {
            prop_assert!(matched.is_empty());
            prop_assert_eq!(explained.out_of_scope.is_some(), decided.rule() == "scope");
        }
    }

    /// Nothing changes before the next change, and then something does.
    #[test]
    fn between_changes_nothing_changes(policy in some_policy(), seconds in 0i64..18 * 86_400) {
        let now = start() + SignedDuration::from_secs(seconds);
        let in_force = policy.in_force(now);
        let next = policy.next_change(now);
        let end = next.unwrap_or(now + SignedDuration::from_hours(16 * 24));
        // Clock changes, windows and ends fall on quarter hours.
        let quarter = 900 - now.as_second().rem_euclid(900);
        let mut moment = now + SignedDuration::from_secs(quarter);
        while moment < end {
            prop_assert_eq!(&policy.in_force(moment), &in_force, "{}", moment);
            moment += SignedDuration::from_mins(15);
        }
        if let Some(next) = next {
            prop_assert!(next > now);
            prop_assert_ne!(policy.in_force(next), in_force, "{}", next);
        }
    }
}

#[test]
fn the_table_is_about_the_days_it_says() {
    assert_eq!(date(2026, 11, 13).weekday(), jiff::civil::Weekday::Friday);
    assert_eq!(at("2026-10-25T03:00").duration_since(at("2026-10-25T01:59")).as_mins(), 121);
}
