//! A quota of guesses per client, against redaction as an oracle for weak secrets.
//!
//! A client that reads back a look-alike learns from the mask whether it guessed right. Each distinct look-alike counts as one
//! guess or more. Beyond the daily quota all look-alikes are masked like the secret itself, so the client learns nothing.
//! Texts that the client has read before reveal nothing new and stay readable. The first one masked raises an alert.

use super::look_alikes::LookAlike;
use parking_lot::Mutex;
use portcullis_core::{Client, Limit, Trail};
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;

/// Guesses per client and [`PERIOD`]. Eight digits are 10^8 values and last 27 years. A plain number counts as two, because
/// it is also matched backwards.
pub(super) const GUESSES_MAX: usize = 10_000;
const PERIOD: Duration = Duration::from_secs(24 * 60 * 60);
/// Bound on client accounts: 20 MB at most.
const ACCOUNTS_MAX: usize = 256;

/// The reader of the redacted text, and the call.
pub(super) struct Reader {
    pub(super) client: Arc<Client>,
    pub(super) trail: Arc<Trail>,
}

/// The accounts of all clients.
pub(super) struct Guesses {
    accounts: Mutex<HashMap<String, Account>>,
    /// Keyed, so that no client can construct collisions.
    hasher: RandomState,
    max: usize,
}

struct Account {
    since: Instant,
    /// Digests of look-alikes read. Some in a million collide, which adds as many guesses.
    read: HashSet<u32>,
    guesses: usize,
    /// Whether the quota is exhausted, and look-alikes are masked.
    spent: bool,
}

/// A client over its quota of look-alikes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuessAlert {
    pub client: String,
    /// How long look-alikes stay masked for it.
    pub ends_in: Duration,
}

impl Default for Guesses {
    fn default() -> Guesses {
        Guesses::new(GUESSES_MAX)
    }
}

impl Guesses {
    pub(super) fn new(max: usize) -> Guesses {
        Guesses { accounts: Mutex::default(), hasher: RandomState::new(), max }
    }

    /// Counts a look-alike that a client is about to read. Returns whether it may read it.
    pub(super) fn admit(&self, reader: &Reader, one: &LookAlike<'_>) -> bool {
        let client = &reader.client.name;
        let digest = self.hasher.hash_one(one.said) as u32;
        let mut accounts = self.accounts.lock();
        let now = Instant::now();
        if !accounts.contains_key(client) {
            if accounts.len() >= ACCOUNTS_MAX {
                drop_one(&mut accounts);
            }
            accounts.insert(client.clone(), Account::new(now));
        }
        let Some(account) = accounts.get_mut(client) else { return false };
        if now.duration_since(account.since) >= PERIOD {
            *account = Account::new(now);
        }
        if account.read.contains(&digest) {
            return true;
        }
        if !account.spent && account.guesses + one.guesses <= self.max {
            account.guesses += one.guesses;
            account.read.insert(digest);
            return true;
        }
        reader.trail.guessing.store(true, Ordering::Relaxed);
        if !std::mem::replace(&mut account.spent, true) {
            drop(accounts);
            Limit::SecretGuesses.hit();
            tracing::error!(
                target: "redaction", client = %client, guesses = self.max,
                "client exceeded its quota of values that look like a weak secret, as when guessing it; \
                 they are masked for the rest of the day"
            );
        }
        false
    }

    /// Returns whether look-alikes are masked for the client.
    pub(super) fn is_spent(&self, reader: &Reader) -> bool {
        let accounts = self.accounts.lock();
        accounts.get(&reader.client.name).is_some_and(|account| account.spent)
    }

    /// Returns the clients over their quota, by name.
    pub(super) fn alerts(&self) -> Vec<GuessAlert> {
        let (now, accounts) = (Instant::now(), self.accounts.lock());
        let alert = |(client, account): (&String, &Account)| {
            let ends_in = (account.since + PERIOD).saturating_duration_since(now);
            (account.spent && !ends_in.is_zero()).then(|| GuessAlert { client: client.clone(), ends_in })
        };
        let mut alerts: Vec<GuessAlert> = accounts.iter().filter_map(alert).collect();
        alerts.sort_by(|a, b| a.client.cmp(&b.client));
        alerts
    }
}

impl Account {
    fn new(now: Instant) -> Account {
        Account { since: now, read: HashSet::new(), guesses: 0, spent: false }
    }
}

/// Evicts the client with the fewest reads.
fn drop_one(accounts: &mut HashMap<String, Account>) {
    let least = accounts.iter().min_by_key(|(_, account)| account.read.len());
    if let Some(name) = least.map(|(name, _)| name.clone()) {
        accounts.remove(&name);
    }
}
