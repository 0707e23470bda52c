//! Connection limits and token lockout per source address.
//!
//! A source is the peer address of the TCP connection, never a header, which its sender can forge. An IPv6 address
//! counts by its /64 network, because one host has 2⁶⁴ addresses there. Loopback is one source: every program on
//! this machine has all of 127.0.0.0/8.

mod token_lockout;

pub(crate) use token_lockout::{TokenLockout, TokenRefusal};

use crate::hub::HubLimits;
use parking_lot::Mutex;
use portcullis_core::{Clock, Limit};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use tokio::task::AbortHandle;

/// The /64 network prefix of an IPv6 address.
const NETWORK: u128 = !0 << 64;

/// The network of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct SourceNetwork(IpAddr);

impl SourceNetwork {
    pub(crate) fn of(address: IpAddr) -> SourceNetwork {
        match address.to_canonical() {
            address if address.is_loopback() => SourceNetwork(Ipv4Addr::LOCALHOST.into()),
            IpAddr::V4(address) => SourceNetwork(address.into()),
            IpAddr::V6(address) => SourceNetwork(Ipv6Addr::from_bits(address.to_bits() & NETWORK).into()),
        }
    }
}

impl fmt::Display for SourceNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            IpAddr::V4(address) => write!(f, "{address}"),
            IpAddr::V6(network) => write!(f, "{network}/64"),
        }
    }
}

/// All sources of a hub.
pub(crate) struct Sources {
    open: Arc<Mutex<OpenConnections>>,
    connections_max: usize,
    connections_per_source_max: usize,
    pub(crate) guesses: TokenLockout,
}

/// Open connections, oldest first.
#[derive(Default)]
struct OpenConnections {
    next: u64,
    places: BTreeMap<u64, Arc<Place>>,
    by_source: HashMap<SourceNetwork, usize>,
}

/// The state of one connection.
struct Place {
    source: SourceNetwork,
    /// Fingerprint of the last valid token on this connection; zero before the first.
    good: AtomicU64,
    /// Whether it waits for the headers of a request.
    is_idle: AtomicBool,
    /// The task that serves it, once started.
    task: OnceLock<AbortHandle>,
}

impl Place {
    /// Returns whether it may be evicted: it never authenticated, and no request is in flight.
    fn is_idle_stranger(&self) -> bool {
        self.is_idle.load(Ordering::Relaxed) && self.good.load(Ordering::Relaxed) == 0
    }
}

impl OpenConnections {
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

    /// Closes the oldest idle connection that never authenticated, of this source or of any. Returns whether there
    /// was one.
    fn evict(&mut self, source: Option<SourceNetwork>) -> bool {
        let is_of = |place: &Place| source.is_none_or(|source| source == place.source);
        let evicted = self.places.iter().find(|(_, place)| is_of(place) && place.is_idle_stranger());
        let Some(id) = evicted.map(|(id, _)| *id) else { return false };
        if let Some(task) = self.remove(id).as_ref().and_then(|place| place.task.get()) {
            task.abort();
        }
        true
    }
}

/// One connection, counted as open until this is dropped or evicted.
pub(crate) struct PeerConnection {
    id: u64,
    place: Arc<Place>,
    open: Arc<Mutex<OpenConnections>>,
}

impl Sources {
    pub(crate) fn new(limits: &HubLimits, clock: Arc<dyn Clock>) -> Sources {
        Sources {
            open: Arc::default(),
            connections_max: limits.connections_max,
            connections_per_source_max: limits.connections_per_source_max,
            guesses: TokenLockout::new(limits.token_failures_max, limits.token_lockout, clock),
        }
    }

    /// Admits a connection, or returns the limit that it hit. At a limit, an idle connection that never
    /// authenticated is evicted, so a source that opens many silent connections closes its own.
    pub(crate) fn connect(&self, address: IpAddr) -> Result<PeerConnection, Limit> {
        let source = SourceNetwork::of(address);
        let mut open = self.open.lock();
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
        Ok(PeerConnection { id, place, open: self.open.clone() })
    }

    pub(crate) fn connections(&self) -> usize {
        self.open.lock().places.len()
    }

    pub(crate) fn token_failures(&self) -> u64 {
        self.guesses.failures()
    }

    pub(crate) fn locked(&self) -> usize {
        self.guesses.locked()
    }
}

impl PeerConnection {
    /// Returns whether this connection has authenticated.
    pub(crate) fn is_known(&self) -> bool {
        self.place.good.load(Ordering::Relaxed) != 0
    }

    /// Sets whether it waits for the headers of a request.
    pub(crate) fn set_idle(&self, is_idle: bool) {
        self.place.is_idle.store(is_idle, Ordering::Relaxed);
    }

    /// Returns a setter for the task that serves the connection.
    pub(crate) fn served_by(&self) -> impl FnOnce(AbortHandle) + use<> {
        let place = self.place.clone();
        move |task| {
            // Set once.
            let _ = place.task.set(task);
        }
    }
}

impl Drop for PeerConnection {
    fn drop(&mut self) {
        self.open.lock().remove(self.id);
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
            let [a, b] = [a, b].map(|text| SourceNetwork::of(text.parse().unwrap()));
            assert_eq!(a == b, same, "{a} {b}");
        }
        assert_eq!(SourceNetwork::of("2001:db8:0:1::7".parse().unwrap()).to_string(), "2001:db8:0:1::/64");
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
        let mut held: Vec<PeerConnection> = (0..3).map(|_| busy(greedy)).collect();
        assert_eq!(sources.connect(greedy).err(), Some(Limit::ConnectionsPerSource));
        held.extend((0..2).map(|_| busy(other)));
        assert_eq!(sources.connect(other).err(), Some(Limit::Connections));
        assert_eq!(sources.connections(), 5);
        drop(held);
        assert_eq!((sources.connections(), sources.open.lock().by_source.len()), (0, 0));
        assert!(sources.connect(greedy).is_ok());
    }

    /// Authenticated and busy connections stay; of the others the oldest is evicted, first of the source over its
    /// limit.
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
