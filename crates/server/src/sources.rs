//! Where connections come from: how many each source has open, and how often it guessed a token.
//!
//! A source is the address at the other end of the connection, never what a header says: a header costs its sender
//! nothing. Of an IPv6 address only the network counts, because whoever has one address there has 2⁶⁴ of them.

mod guesses;

pub(crate) use guesses::{Guesses, Refused};

use crate::hub::HubLimits;
use portcullis_core::{Clock, Limit};
use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The part of an IPv6 address that names the network.
const NETWORK: u128 = !0 << 64;

/// Who is at the other end, as far as an address tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Source(IpAddr);

impl Source {
    pub(crate) fn of(address: IpAddr) -> Source {
        match address.to_canonical() {
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

/// The connections that are open. As long as the table, each has a source.
#[derive(Default)]
struct Open {
    all: usize,
    by_source: HashMap<Source, usize>,
}

/// The other end of one connection, counted as open until this is dropped.
pub(crate) struct Peer {
    source: Source,
    /// The mark of the token that was good here last; zero before there was one.
    good: AtomicU64,
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

    /// Takes a connection in, or says which limit it ran into.
    pub(crate) fn connect(&self, address: IpAddr) -> Result<Peer, Limit> {
        let source = Source::of(address);
        let mut open = lock(&self.open);
        if open.all >= self.connections_max {
            return Err(Limit::Connections);
        }
        let own = open.by_source.entry(source).or_default();
        if *own >= self.connections_per_source_max {
            return Err(Limit::ConnectionsPerSource);
        }
        *own += 1;
        open.all += 1;
        Ok(Peer { source, good: AtomicU64::new(0), open: self.open.clone() })
    }

    pub(crate) fn connections(&self) -> usize {
        lock(&self.open).all
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
        self.good.load(Ordering::Relaxed) != 0
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let mut open = lock(&self.open);
        open.all -= 1;
        if let Some(own) = open.by_source.get_mut(&self.source) {
            *own -= 1;
            if *own == 0 {
                open.by_source.remove(&self.source);
            }
        }
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
            ("127.0.0.1", "127.0.0.2", false),
            ("127.0.0.1", "::ffff:127.0.0.1", true),
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
        let [greedy, other]: [IpAddr; 2] = ["127.0.0.1", "127.0.0.2"].map(|text| text.parse().unwrap());
        let mut held: Vec<Peer> = (0..3).map(|_| sources.connect(greedy).unwrap()).collect();
        assert_eq!(sources.connect(greedy).err(), Some(Limit::ConnectionsPerSource));
        held.extend((0..2).map(|_| sources.connect(other).unwrap()));
        assert_eq!(sources.connect(other).err(), Some(Limit::Connections));
        assert_eq!(sources.connections(), 5);
        drop(held);
        assert_eq!((sources.connections(), lock(&sources.open).by_source.len()), (0, 0));
        assert!(sources.connect(greedy).is_ok());
    }
}
