//! Where connections come from: how many each source has open, and how often it guessed a token.
//!
//! A source is the address at the other end of the connection, never what a header says: a header costs its sender
//! nothing. Of an IPv6 address only the network counts, because whoever has one address there has 2⁶⁴ of them. Loopback is
//! one source: every program of this machine has all of 127.0.0.0/8.

mod guesses;

pub(crate) use guesses::{Guesses, Refused};

use crate::hub::HubLimits;
use portcullis_core::{Clock, Limit};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tokio::task::AbortHandle;

/// The part of an IPv6 address that names the network.
const NETWORK: u128 = !0 << 64;

/// Who is at the other end, as far as an address tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Source(IpAddr);

impl Source {
    pub(crate) fn of(address: IpAddr) -> Source {
        match address.to_canonical() {
            address if address.is_loopback() => Source(Ipv4Addr::LOCALHOST.into()),
            IpAddr::V4(address) => Source(address.into()),
            IpAddr::V6(address) => Source(Ipv6Addr::from_bits(address.to_bits() & NETWORK).into()),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            IpAddr::V4(address) => write!(f, "{address}"),
            IpAddr::V6(network) => write!(f, "{network}/64"),
        }
    }
}

/// All sources of a hub.
pub(crate) struct Sources {
    open: Arc<Mutex<Open>>,
    connections_max: usize,
    connections_per_source_max: usize,
    pub(crate) guesses: Guesses,
}

/// The connections that are open, oldest first. As long as the table, each has a source.
#[derive(Default)]
struct Open {
    next: u64,
    places: BTreeMap<u64, Arc<Place>>,
    by_source: HashMap<Source, usize>,
}

/// What one connection takes.
struct Place {
    source: Source,
    /// The mark of the token that was good here last; zero before there was one.
    good: AtomicU64,
    /// Whether it waits for the headers of a request.
    is_idle: AtomicBool,
    /// Who serves it, once somebody does.
    task: OnceLock<AbortHandle>,
}

impl Place {
    /// Returns whether it may be closed for another: nobody showed a good token here, and no request is under way.
    fn is_idle_stranger(&self) -> bool {
        self.is_idle.load(Ordering::Relaxed) && self.good.load(Ordering::Relaxed) == 0
    }
}

impl Open {
    fn remove(&mut self, id: u64) -> Option<Arc<Place>> {
        let place = self.places.remove(&id)?;
        if let Some(own) = self.by_source.get_mut(&place.source) {
            *own -= 1;
            if *own == 0 {
                self.by_source.remove(&place.source);
            }
        }
        Some(place)
    }

    /// Closes the connection that has been idle longest without a good token, of this source or of any. Returns whether there
    /// was one.
    fn evict(&mut self, source: Option<Source>) -> bool {
        let is_of = |place: &Place| source.is_none_or(|source| source == place.source);
        let evicted = self.places.iter().find(|(_, place)| is_of(place) && place.is_idle_stranger());
        let Some(id) = evicted.map(|(id, _)| *id) else { return false };
        if let Some(task) = self.remove(id).as_ref().and_then(|place| place.task.get()) {
            task.abort();
        }
        true
    }
}

/// The other end of one connection, counted as open until this is dropped or evicted.
pub(crate) struct Peer {
    id: u64,
    place: Arc<Place>,
    open: Arc<Mutex<Open>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sources {
    pub(crate) fn new(limits: &HubLimits, clock: Arc<dyn Clock>) -> Sources {
        Sources {
            open: Arc::default(),
            connections_max: limits.connections_max,
            connections_per_source_max: limits.connections_per_source_max,
            guesses: Guesses::new(limits.token_failures_max, limits.token_lockout, clock),
        }
    }

    /// Takes a connection in, or says which limit it ran into. At a limit, a connection that is idle and nobody's makes room:
    /// whoever opens many and says nothing closes its own.
    pub(crate) fn connect(&self, address: IpAddr) -> Result<Peer, Limit> {
        let source = Source::of(address);
        let mut open = lock(&self.open);
        if open.places.len() >= self.connections_max {
            Limit::Connections.hit();
            if !open.evict(None) {
                return Err(Limit::Connections);
            }
        }
        if open.by_source.get(&source).is_some_and(|own| *own >= self.connections_per_source_max) {
            Limit::ConnectionsPerSource.hit();
            if !open.evict(Some(source)) {
                return Err(Limit::ConnectionsPerSource);
            }
        }
        *open.by_source.entry(source).or_default() += 1;
        let (good, is_idle) = (AtomicU64::new(0), AtomicBool::new(true));
        let place = Arc::new(Place { source, good, is_idle, task: OnceLock::new() });
        let id = open.next;
        open.next += 1;
        open.places.insert(id, place.clone());
        Ok(Peer { id, place, open: self.open.clone() })
    }

    pub(crate) fn connections(&self) -> usize {
        lock(&self.open).places.len()
    }

    pub(crate) fn token_failures(&self) -> u64 {
        self.guesses.failures()
    }

    pub(crate) fn locked(&self) -> usize {
        self.guesses.locked()
    }
}

impl Peer {
    /// Returns whether a good token was shown here.
    pub(crate) fn is_known(&self) -> bool {
        self.place.good.load(Ordering::Relaxed) != 0
    }

    /// Says that it waits for the headers of a request, or that they are there.
    pub(crate) fn set_idle(&self, is_idle: bool) {
        self.place.is_idle.store(is_idle, Ordering::Relaxed);
    }

    /// Says how the connection can be closed.
    pub(crate) fn served_by(&self) -> impl FnOnce(AbortHandle) + use<> {
        let place = self.place.clone();
        move |task| {
            // It is served once.
            let _ = place.task.set(task);
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        lock(&self.open).remove(self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_core::SystemClock;

    #[test]
    fn a_source_is_an_address_or_a_network() {
        for (a, b, same) in [
            ("127.0.0.1", "127.0.0.1", true),
            ("192.0.2.1", "192.0.2.2", false),
            ("192.0.2.1", "::ffff:192.0.2.1", true),
            ("127.0.0.1", "127.255.255.254", true),
            ("127.0.0.1", "::ffff:127.0.0.2", true),
            ("127.0.0.1", "::1", true),
            ("127.0.0.1", "128.0.0.1", false),
            ("2001:db8:0:1::1", "2001:db8:0:1:ffff:ffff:ffff:ffff", true),
            ("2001:db8:0:1::1", "2001:db8:0:2::1", false),
        ] {
            let [a, b] = [a, b].map(|text| Source::of(text.parse().unwrap()));
            assert_eq!(a == b, same, "{a} {b}");
        }
        assert_eq!(Source::of("2001:db8:0:1::7".parse().unwrap()).to_string(), "2001:db8:0:1::/64");
    }

    #[test]
    fn one_source_cannot_take_all_connections() {
        let limits = HubLimits { connections_max: 5, connections_per_source_max: 3, ..HubLimits::default() };
        let sources = Sources::new(&limits, Arc::new(SystemClock));
        let [greedy, other]: [IpAddr; 2] = ["192.0.2.1", "192.0.2.2"].map(|text| text.parse().unwrap());
        let busy = |source| {
            let peer = sources.connect(source).unwrap();
            peer.set_idle(false);
            peer
        };
        let mut held: Vec<Peer> = (0..3).map(|_| busy(greedy)).collect();
        assert_eq!(sources.connect(greedy).err(), Some(Limit::ConnectionsPerSource));
        held.extend((0..2).map(|_| busy(other)));
        assert_eq!(sources.connect(other).err(), Some(Limit::Connections));
        assert_eq!(sources.connections(), 5);
        drop(held);
        assert_eq!((sources.connections(), lock(&sources.open).by_source.len()), (0, 0));
        assert!(sources.connect(greedy).is_ok());
    }

    /// Who is known or has a request under way is left alone; of the others the oldest goes, and of the source that is too many.
    #[tokio::test]
    async fn an_idle_stranger_makes_room() {
        let limits = HubLimits { connections_max: 5, connections_per_source_max: 3, ..HubLimits::default() };
        let sources = Sources::new(&limits, Arc::new(SystemClock));
        let [greedy, other]: [IpAddr; 2] = ["192.0.2.1", "192.0.2.2"].map(|text| text.parse().unwrap());
        let served = |source| {
            let peer = sources.connect(source).unwrap();
            let task = tokio::spawn(std::future::pending::<()>());
            peer.served_by()(task.abort_handle());
            (peer, task)
        };
        let (elder, elder_task) = served(other);
        let (known, known_task) = served(greedy);
        known.place.good.store(1, Ordering::Relaxed);
        let (busy, busy_task) = served(greedy);
        busy.set_idle(false);
        let (idle, idle_task) = served(greedy);
        let (next, next_task) = served(greedy);
        assert!(idle_task.await.unwrap_err().is_cancelled(), "its own, though another's is older");
        drop(idle);
        assert_eq!(sources.connections(), 4, "counted once");
        let (_fifth, _) = served(other);
        let (_sixth, _) = served(other);
        assert!(elder_task.await.unwrap_err().is_cancelled(), "of all, the oldest");
        assert!([known_task, busy_task, next_task].iter().all(|task| !task.is_finished()));
        drop((elder, known, busy, next));
    }
}
