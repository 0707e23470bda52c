use super::*;
use crate::testing;
use parking_lot::Mutex;
use std::time::{Duration, SystemTime};

struct SetClock(Mutex<SystemTime>);

impl SetClock {
    fn at(secs: u64) -> Arc<SetClock> {
        Arc::new(SetClock(Mutex::new(SystemTime::UNIX_EPOCH + Duration::from_secs(secs))))
    }

    fn pass(&self, secs: i64) {
        let mut now = self.0.lock();
        let by = Duration::from_secs(secs.unsigned_abs());
        *now = if secs < 0 { *now - by } else { *now + by };
    }
}

impl Clock for SetClock {
    fn now(&self) -> SystemTime {
        *self.0.lock()
    }
}

fn secret(text: &str) -> Secret<Zeroizing<String>> {
    Secret::new(Zeroizing::new(text.to_owned()))
}

const GOOD: &str = "correct horse battery";

fn password() -> NewPassword {
    NewPassword::new(&secret(GOOD)).unwrap()
}

fn open() -> (tempfile::TempDir, Arc<SetClock>, AdminStore) {
    let dir = tempfile::tempdir().unwrap();
    let clock = SetClock::at(1_800_000_000);
    let admins = AdminStore::open(&testing::open(dir.path()), clock.clone());
    (dir, clock, admins)
}

fn signed_in() -> (tempfile::TempDir, Arc<SetClock>, AdminStore, Secret<String>) {
    let (dir, clock, admins) = open();
    let link = admins.make_link().unwrap();
    admins.redeem_link(link.expose(), "ann", password()).unwrap();
    let (session, _) = admins.open_session("ann", &SessionOrigin::default()).unwrap();
    (dir, clock, admins, session)
}

#[test]
fn a_link_lets_one_person_in_once_and_for_an_hour() {
    let (_dir, clock, admins) = open();
    let link = admins.make_link().unwrap();
    assert!(admins.is_link_valid(link.expose()).unwrap());
    assert!(!admins.is_link_valid(&"A".repeat(43)).unwrap() && !admins.is_link_valid("").unwrap());
    admins.redeem_link(link.expose(), "ann", password()).unwrap();
    let again = admins.redeem_link(link.expose(), "bob", password());
    assert!(matches!(again, Err(AdminError::Link)), "used already");
    let link = admins.make_link().unwrap();
    clock.pass(3_600);
    assert!(matches!(admins.redeem_link(link.expose(), "bob", password()), Err(AdminError::Link)), "too old");
    assert_eq!(admins.list().unwrap().len(), 1);
}

#[test]
fn a_bad_name_or_password_does_not_use_a_link_up() {
    let (_dir, _clock, admins) = open();
    let link = admins.make_link().unwrap();
    assert!(matches!(admins.redeem_link(link.expose(), "../x", password()), Err(AdminError::Name(_))));
    for (bad, expected) in [("short", "at least 12"), (&"x".repeat(1_025), "more than 1024")] {
        let error = NewPassword::new(&secret(bad)).err().unwrap().to_string();
        assert!(error.contains(expected), "{error}");
    }
    assert!(admins.redeem_link(link.expose(), "ann", password()).is_ok());
}

#[test]
fn only_the_right_password_of_the_right_name_is_right() {
    let (_dir, _clock, admins, _) = signed_in();
    for (name, password, right) in [
        ("ann", GOOD, true),
        ("ann", "correct horse batterz", false),
        ("ann", "", false),
        ("bob", GOOD, false),
        ("ann", &"x".repeat(10_000), false),
    ] {
        assert_eq!(admins.verify(name, &secret(password)).unwrap(), right, "{name} {password}");
    }
}

#[test]
fn a_session_ends_when_nobody_uses_it_and_after_half_a_day() {
    let (_dir, clock, admins, session) = signed_in();
    let found = || admins.session(session.expose());
    clock.pass(29 * 60);
    let info = found().expect("still good");
    assert!(admins.needs_touch(&info));
    admins.touch_session(&info.id).unwrap();
    clock.pass(29 * 60);
    assert!(found().is_some(), "it was used in between");
    clock.pass(60);
    assert_eq!(found(), None, "idle for half an hour");

    let (session, info) = admins.open_session("ann", &SessionOrigin::default()).unwrap();
    for _ in 0..60 {
        admins.touch_session(&info.id).unwrap();
        clock.pass(720);
    }
    assert_eq!(admins.session(session.expose()), None, "half a day");
}

#[test]
fn a_clock_that_is_set_back_revives_nothing() {
    let (_dir, clock, admins, session) = signed_in();
    clock.pass(-3_600);
    assert_eq!(admins.session(session.expose()), None);
}

#[test]
fn sessions_end_one_by_one_and_all_at_once() {
    let (_dir, _clock, admins, first) = signed_in();
    let (second, info) = admins.open_session("ann", &SessionOrigin::default()).unwrap();
    admins.end_session(&info.id).unwrap();
    assert_eq!((admins.session(second.expose()), admins.session(first.expose()).is_some()), (None, true));
    assert!(matches!(admins.end_session(&info.id), Err(AdminError::UnknownSession(_))));
    assert_eq!((admins.end_sessions(Some("bob")).unwrap(), admins.end_sessions(None).unwrap()), (0, 1));
    assert_eq!(admins.session(first.expose()), None);
}

#[test]
fn a_new_password_ends_the_other_sessions() {
    let (_dir, _clock, admins, first) = signed_in();
    let (second, info) = admins.open_session("ann", &SessionOrigin::default()).unwrap();
    admins.change_password("ann", password(), &info.id).unwrap();
    assert_eq!((admins.session(first.expose()), admins.session(second.expose()).is_some()), (None, true));
    let link = admins.make_link().unwrap();
    admins.redeem_link(link.expose(), "ann", password()).unwrap();
    assert_eq!(admins.session(second.expose()), None, "a link resets everything");
    admins.remove("ann").unwrap();
    assert!(matches!(admins.open_session("ann", &SessionOrigin::default()), Err(AdminError::Unknown(_))));
}

#[test]
fn the_rows_open_nothing() {
    let (dir, _clock, admins, session) = signed_in();
    let link = admins.make_link().unwrap();
    let text = testing::export(dir.path());
    for secret in [GOOD, session.expose(), link.expose()] {
        assert!(!text.contains(secret));
    }
    // The database holds digests, not tokens.
    let (_, session) = text.split_once("sha256\\\":\\\"").unwrap();
    assert_eq!(admins.session(&session[..43]), None);
}

#[test]
fn damaged_rows_let_nobody_in_and_are_left_alone() {
    let (dir, _clock, admins, session) = signed_in();
    testing::edit(dir.path(), "admins", "UPDATE admins SET record = '{'");
    let damaged = testing::export(dir.path());
    assert_eq!(admins.session(session.expose()), None);
    assert!(admins.health().is_err() && admins.verify("ann", &secret(GOOD)).is_err());
    assert!(matches!(admins.make_link(), Err(AdminError::Database(_))));
    assert_eq!(testing::export(dir.path()), damaged);
}

#[test]
fn there_is_a_bound_on_everything() {
    let (_dir, _clock, admins, first) = signed_in();
    let links: Vec<_> = (0..=LINKS_MAX).map(|_| admins.make_link().unwrap()).collect();
    let good = links.iter().filter(|link| admins.is_link_valid(link.expose()).unwrap()).count();
    assert_eq!(good, LINKS_MAX);
    for _ in 0..SESSIONS_MAX {
        admins
            .open_session("ann", &SessionOrigin { browser: "x".repeat(10_000), ..SessionOrigin::default() })
            .unwrap();
    }
    assert_eq!(admins.sessions().unwrap().len(), SESSIONS_MAX);
    assert_eq!(admins.session(first.expose()), None, "the oldest made room");
}
