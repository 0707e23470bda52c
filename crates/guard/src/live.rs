//! Live view of calls: the recent ones, a stream of begin and end events, and statistics by period.
//!
//! All in memory and of fixed size. Events hold the same data as the audit record, redacted the same way. Without listeners
//! nothing is sent.

mod call_stats;

pub use call_stats::{EndedCall, PeriodStats, RangeStats, StatsRange, StatsSnapshot};

use crate::audit::AuditSubject;
use crate::outcome_kind::OutcomeKind;
use call_stats::{Arrival, CallStats};
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};
use tokio::sync::broadcast;

/// Bound on recent calls: as many as the page shows.
const RECENT_MAX: usize = 200;
/// Bound on clients with a known last call: as many as there may be.
const CLIENTS_MAX: usize = 10_000;
/// Broadcast capacity for a slow listener: two seconds of a busy hub.
const EVENTS_MAX: usize = 2_048;

/// A call in progress or ended.
pub struct LiveCall {
    pub at: SystemTime,
    subject: Arc<AuditSubject>,
    end: OnceLock<LiveEnd>,
}

/// The end of a call.
#[derive(Debug, Clone, Copy)]
pub struct LiveEnd {
    ending: OutcomeKind,
    pub bytes: usize,
    pub duration: Duration,
}

impl LiveEnd {
    pub fn outcome(&self) -> &'static str {
        self.ending.as_str()
    }
}

/// An event of the live stream.
#[derive(Clone)]
pub enum LiveEvent {
    Opened(Arc<LiveCall>),
    Closed(Arc<LiveCall>),
}

impl LiveCall {
    pub fn id(&self) -> u64 {
        self.subject.call.get()
    }

    pub fn client(&self) -> &str {
        self.subject.client()
    }

    pub fn origin(&self) -> &'static str {
        self.subject.origin()
    }

    pub fn kind(&self) -> &'static str {
        self.subject.kind()
    }

    /// The upstream server or native family of a known tool.
    pub fn server(&self) -> Option<&str> {
        self.subject.server()
    }

    pub fn target(&self) -> &str {
        self.subject.target()
    }

    pub fn effect(&self) -> &'static str {
        self.subject.effect()
    }

    /// The redacted start of the arguments.
    pub fn arguments(&self) -> &str {
        self.subject.preview()
    }

    /// The decision so far, with its rule.
    pub fn decision(&self) -> Option<(&'static str, &str)> {
        self.subject.decision()
    }

    pub fn approval(&self) -> Option<&str> {
        self.subject.approval()
    }

    pub fn end(&self) -> Option<&LiveEnd> {
        self.end.get()
    }
}

/// The calls of a hub. Clones share state.
#[derive(Clone)]
pub struct LiveCalls {
    inner: Arc<Inner>,
}

struct Inner {
    /// Created by the first listener.
    events: OnceLock<broadcast::Sender<LiveEvent>>,
    open: AtomicUsize,
    seen: Mutex<RecentActivity>,
    stats: Mutex<CallStats>,
    /// When the first call of this run began. Calls that ended before are from earlier runs.
    first: OnceLock<SystemTime>,
}

#[derive(Default)]
struct RecentActivity {
    /// Newest last.
    recent: VecDeque<Arc<LiveCall>>,
    /// The last call of each client.
    last: HashMap<String, SystemTime>,
}

impl RecentActivity {
    fn called(&mut self, client: &str, at: SystemTime) {
        if let Some(last) = self.last.get_mut(client) {
            *last = at;
            return;
        }
        // Only if clients come and go by the thousand: evicts the one that has not called for longest.
        if self.last.len() >= CLIENTS_MAX
            && let Some(oldest) = self.last.iter().min_by_key(|(_, at)| **at).map(|(name, _)| name.clone())
        {
            self.last.remove(&oldest);
        }
        self.last.insert(client.to_owned(), at);
    }
}

impl Default for LiveCalls {
    fn default() -> LiveCalls {
        let inner = Inner {
            events: OnceLock::new(),
            open: AtomicUsize::new(0),
            seen: Mutex::default(),
            stats: Mutex::default(),
            first: OnceLock::new(),
        };
        LiveCalls { inner: Arc::new(inner) }
    }
}

impl LiveCalls {
    /// Subscribes to events from now on. A slow listener loses the oldest, and learns how many.
    pub fn listen(&self) -> broadcast::Receiver<LiveEvent> {
        self.inner.events.get_or_init(|| broadcast::Sender::new(EVENTS_MAX)).subscribe()
    }

    /// Returns the last calls, newest first.
    pub fn recent(&self) -> Vec<Arc<LiveCall>> {
        self.inner.seen.lock().recent.iter().rev().cloned().collect()
    }

    /// Returns a client's last call since this hub started.
    pub fn last_call(&self, client: &str) -> Option<SystemTime> {
        self.inner.seen.lock().last.get(client).copied()
    }

    /// Returns the number of open calls.
    pub fn open(&self) -> usize {
        self.inner.open.load(Ordering::Relaxed)
    }

    /// Returns the statistics of the last 60 minutes, oldest first, without empty ones.
    pub fn minutes(&self, now: SystemTime) -> Vec<PeriodStats> {
        self.inner.stats.lock().all(StatsRange::Hour, now).periods
    }

    /// Returns the statistics of all calls, of each client and of each server.
    pub fn stats(&self, range: StatsRange, now: SystemTime) -> StatsSnapshot {
        self.inner.stats.lock().snapshot(range, now)
    }

    /// Returns when the first call of this run began.
    pub fn first_call(&self) -> Option<SystemTime> {
        self.inner.first.get().copied()
    }

    /// Counts a call of an earlier run of the hub, which ended before [`LiveCalls::first_call`].
    pub fn count_past(&self, call: &EndedCall<'_>) {
        self.inner.stats.lock().count(call, Arrival::Past);
    }

    pub(crate) fn opened(&self, at: SystemTime, subject: Arc<AuditSubject>) -> Arc<LiveCall> {
        let call = Arc::new(LiveCall { at, subject, end: OnceLock::new() });
        self.inner.open.fetch_add(1, Ordering::Relaxed);
        self.inner.first.get_or_init(|| at);
        {
            let mut seen = self.inner.seen.lock();
            if seen.recent.len() >= RECENT_MAX {
                seen.recent.pop_front();
            }
            seen.recent.push_back(call.clone());
            seen.called(call.client(), at);
        }
        self.send(|| LiveEvent::Opened(call.clone()));
        call
    }

    pub(crate) fn closed(
        &self,
        call: &Arc<LiveCall>,
        now: SystemTime,
        ending: OutcomeKind,
        bytes: usize,
        duration: Duration,
    ) {
        self.inner.open.fetch_sub(1, Ordering::Relaxed);
        // Set once; a second end is ignored.
        let _ = call.end.set(LiveEnd { ending, bytes, duration });
        let ended = EndedCall {
            at: now,
            client: call.client(),
            server: call.server(),
            failed: ending != OutcomeKind::Ok,
            duration,
        };
        self.inner.stats.lock().count(&ended, Arrival::Live);
        self.send(|| LiveEvent::Closed(call.clone()));
    }

    fn send(&self, event: impl FnOnce() -> LiveEvent) {
        if let Some(events) = self.inner.events.get().filter(|events| events.receiver_count() > 0) {
            // All listeners may be gone meanwhile.
            let _ = events.send(event());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redact::Redactor;
    use crate::testing::call;

    fn made(live: &LiveCalls, line: &str) -> Arc<LiveCall> {
        let redactor = Redactor::new(&[]).ok().unwrap();
        live.opened(SystemTime::UNIX_EPOCH, Arc::new(AuditSubject::of(&call(line), &redactor)))
    }

    fn ended(live: &LiveCalls, call: &Arc<LiveCall>) {
        live.closed(call, SystemTime::UNIX_EPOCH, OutcomeKind::Ok, 1, Duration::from_micros(5));
    }

    #[tokio::test]
    async fn what_begins_and_ends_is_told_to_who_listens() {
        let live = LiveCalls::default();
        ended(&live, &made(&live, r#"a_b {"x":1}"#));
        let mut listener = live.listen();
        let open = made(&live, r#"c_d {"x":2}"#);
        assert_eq!((live.open(), live.recent().len()), (1, 2));
        assert_eq!((live.recent()[0].target(), live.recent()[0].arguments()), ("c_d", r#"{"x":2}"#));
        ended(&live, &open);
        assert!(matches!(listener.recv().await, Ok(LiveEvent::Opened(call)) if call.target() == "c_d"));
        assert!(matches!(listener.recv().await, Ok(LiveEvent::Closed(call)) if call.end().is_some()));
        assert_eq!(live.open(), 0);
    }

    /// Drops the oldest, blocks nothing, and does not grow.
    #[tokio::test]
    async fn a_slow_listener_loses_the_oldest_and_is_told_how_many() {
        let live = LiveCalls::default();
        let mut listener = live.listen();
        for _ in 0..EVENTS_MAX {
            ended(&live, &made(&live, "a_b"));
        }
        let missed = match listener.recv().await {
            Err(broadcast::error::RecvError::Lagged(missed)) => missed,
            other => panic!("{:?}", other.is_ok()),
        };
        assert_eq!(
            (missed, listener.len(), live.recent().len()),
            (EVENTS_MAX as u64, EVENTS_MAX, RECENT_MAX)
        );
    }

    /// Also for a client whose last call is no longer among the recent ones.
    #[test]
    fn it_is_known_when_each_client_last_called_and_of_how_many_is_bounded() {
        let (mut seen, at) =
            (RecentActivity::default(), |n: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(n));
        seen.called("first", at(1));
        seen.called("quiet", at(2));
        seen.called("first", at(3));
        (0..CLIENTS_MAX as u64 - 2).for_each(|n| seen.called(&format!("c{n}"), at(n + 4)));
        assert_eq!((seen.last.get("first"), seen.last.get("quiet")), (Some(&at(3)), Some(&at(2))));
        seen.called("one more", at(99_999));
        assert_eq!((seen.last.len(), seen.last.get("quiet")), (CLIENTS_MAX, None));
    }
}
