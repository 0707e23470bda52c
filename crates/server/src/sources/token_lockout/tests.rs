use super::super::Sources;
use super::*;
use crate::hub::HubLimits;
use std::net::{IpAddr, Ipv4Addr};
use std::time::SystemTime;

/// A manual clock.
#[derive(Default)]
struct Hand(Mutex<Duration>);

impl Hand {
    fn forward(&self, by: Duration) {
        *self.0.lock() += by;
    }
}

impl Clock for Hand {
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000) + *self.0.lock()
    }
}

const GOOD: &str = "the good one";
const HOUR: Duration = Duration::from_secs(3_600);

struct World {
    clock: Arc<Hand>,
    sources: Sources,
    looked: std::cell::Cell<usize>,
}

impl World {
    fn new(limits: HubLimits) -> World {
        let clock = Arc::new(Hand::default());
        World { sources: Sources::new(&limits, clock.clone()), clock, looked: 0.into() }
    }

    fn peer(&self, last: u32) -> PeerConnection {
        let address = Ipv4Addr::from_bits(0x0a00_0000 + last);
        self.sources.connect(IpAddr::from(address)).unwrap()
    }

    fn shows(&self, peer: &PeerConnection, token: &str) -> Result<(), TokenRefusal> {
        self.sources.guesses.check(peer, token, || {
            self.looked.set(self.looked.get() + 1);
            Ok((token == GOOD).then_some(()))
        })
    }

    /// Returns how many of `count` different wrong tokens were checked.
    fn guess(&self, peer: &PeerConnection, count: usize) -> usize {
        let before = self.looked.get();
        for n in 0..count {
            assert!(self.shows(peer, &format!("guess {before} {n}")).is_err());
        }
        self.looked.get() - before
    }
}

#[test]
fn waits_double_and_then_there_is_a_lock() {
    let world = World::new(HubLimits::default());
    let peer = world.peer(1);
    let mut waits = Vec::new();
    for n in 0..12 {
        assert_eq!(world.shows(&peer, &format!("wrong {n}")), Err(TokenRefusal::Wrong));
        let wait = match world.shows(&peer, &format!("early {n}")) {
            Err(TokenRefusal::Wait(wait)) => wait,
            // Checked, so it counts as well.
            _ => Duration::ZERO,
        };
        waits.push(wait.as_secs());
        world.clock.forward(wait);
    }
    // The first three go in pairs: there is no wait before the fifth.
    assert_eq!(waits, [0, 0, 1, 2, 4, 8, 16, 900, 900, 900, 900, 900]);
    assert_eq!(world.sources.token_failures(), 14);
}

#[test]
fn ten_thousand_guesses_are_looked_at_a_few_times_only() {
    let world = World::new(HubLimits::default());
    let (guesser, honest) = (world.peer(1), world.peer(2));
    assert!(world.guess(&guesser, 10_000) <= 10);
    assert_eq!(world.shows(&honest, GOOD), Ok(()), "another source");
    // An attacker that waits until its record expires has five guesses each quarter of an hour.
    let mut looked = 0;
    for _ in 0..24 {
        world.clock.forward(Duration::from_secs(901));
        looked += world.guess(&guesser, 1_000);
    }
    assert!(looked <= 24 * 5, "{looked} in six hours");
    // An attacker that retries as soon as allowed is locked out.
    for _ in 0..10 {
        world.guess(&guesser, 1);
        world.clock.forward(Duration::from_secs(17));
    }
    assert_eq!(world.sources.locked(), 1);
    world.clock.forward(HOUR);
    assert_eq!(world.sources.locked(), 0);
    assert_eq!(world.shows(&guesser, GOOD), Ok(()), "no lock is forever");
}

/// Control: without the limit every guess is checked.
#[test]
fn without_the_limit_all_are_looked_at() {
    let world = World::new(HubLimits { token_failures_max: u32::MAX, ..HubLimits::default() });
    assert_eq!(world.guess(&world.peer(1), 10_000), 10_000);
}

#[test]
fn who_was_let_in_before_is_not_held_up() {
    let world = World::new(HubLimits::default());
    let known = world.peer(1);
    assert_eq!(world.shows(&known, GOOD), Ok(()));
    world.guess(&world.peer(1), 100);
    assert_eq!(world.shows(&known, GOOD), Ok(()), "on the same connection");
    assert_eq!(world.shows(&world.peer(1), GOOD), Ok(()), "on a new one");
    // The same address without a token that was valid there.
    assert!(matches!(world.shows(&known, "other"), Err(TokenRefusal::Wait(_))));
    // A valid token that was never used there is not checked: it could be a guess.
    world.guess(&world.peer(2), 100);
    assert!(matches!(world.shows(&world.peer(2), GOOD), Err(TokenRefusal::Wait(_))));
}

#[test]
fn a_token_that_keeps_coming_is_one_guess() {
    let world = World::new(HubLimits::default());
    let (stale, fresh) = (world.peer(1), world.peer(1));
    let mut looked = 0;
    for _ in 0..10_000 {
        let before = world.looked.get();
        assert!(world.shows(&stale, "revoked last week").is_err());
        looked += world.looked.get() - before;
        world.clock.forward(Duration::from_millis(100));
    }
    assert!(looked <= 60, "{looked} in a quarter of an hour");
    assert!(matches!(world.shows(&stale, "revoked last week"), Err(TokenRefusal::Wait(_))));
    assert_eq!(world.shows(&fresh, GOOD), Ok(()), "its neighbours are not held up");
    // A few tokens in turn are treated like many.
    let world = World::new(HubLimits::default());
    let peer = world.peer(1);
    for n in 0..10_000 {
        let _ = world.shows(&peer, &format!("wrong {}", n % 9));
    }
    assert!(world.looked.get() <= 60, "{}", world.looked.get());
}

#[test]
fn a_token_that_was_revoked_is_no_guess() {
    let world = World::new(HubLimits::default());
    let peer = world.peer(1);
    assert_eq!(world.shows(&peer, GOOD), Ok(()));
    for _ in 0..100 {
        let refused = world.sources.guesses.check(&peer, GOOD, || Ok(None::<()>));
        assert_eq!(refused, Err(TokenRefusal::Wrong));
    }
    assert_eq!(world.shows(&peer, "new"), Err(TokenRefusal::Wrong), "no wait");
}

#[test]
fn a_token_that_could_not_be_checked_is_no_guess() {
    let world = World::new(HubLimits::default());
    let peer = world.peer(1);
    for n in 0..100 {
        let unread = || Err::<Option<()>, _>(ClientsUnavailable);
        let refused = world.sources.guesses.check(&peer, &format!("token {n}"), unread);
        assert_eq!(refused, Err(TokenRefusal::Unchecked));
    }
    assert_eq!((world.sources.guesses.failures(), world.shows(&peer, GOOD)), (0, Ok(())));
}

#[test]
fn the_table_has_a_bound_and_keeps_the_worst() {
    let mut world = World::new(HubLimits::default());
    world.sources.guesses.sources_max = 100;
    let worst = world.peer(0);
    world.guess(&worst, 100);
    for n in 1..1_000 {
        world.guess(&world.peer(n), 1 + n as usize % 4);
    }
    assert!(world.sources.guesses.table.lock().by_source.len() <= 100);
    assert_eq!(world.guess(&worst, 100), 0, "still locked");
}

#[test]
fn a_clock_that_is_set_back_locks_nobody_for_years() {
    let world = World::new(HubLimits::default());
    let peer = world.peer(1);
    world.clock.forward(10_000 * HOUR);
    world.guess(&peer, 100);
    *world.clock.0.lock() = Duration::ZERO;
    assert_eq!(world.shows(&peer, GOOD), Ok(()));
}
