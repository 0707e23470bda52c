//! Subscriptions at a server of the newer era: one `subscriptions/listen` request that stays open.
//!
//! When it ends it is sent again, with backoff. When other resources are watched, the next one is open before the
//! last is closed, so that no notification is lost.

use crate::backoff::{GOOD_AFTER, RETRY_FIRST, RETRY_MAX, jittered, sleep_until};
use crate::rpc::RequestResult;
use crate::rpc::handshake::HandshakeResult;
use crate::rpc::{Connection, RequestSpec};
use crate::transport::{LinkError, RequestError};
use futures::future::{BoxFuture, FutureExt};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The timeout of a listen request. It ends with the connection.
const LISTEN_FOR: Duration = Duration::from_secs(365 * 24 * 3600);
/// How often in a row a server may be unreachable before it counts as gone.
const UNREACHED_MAX: u32 = 3;

/// An event for the supervisor.
pub(crate) enum ListenEvent {
    /// The stream is open. These were watched on an earlier connection, and may have changed meanwhile.
    Opened(BTreeSet<String>),
    /// The stream is open again after a gap: anything may have changed.
    Reopened,
    /// The server is unreachable.
    Gone(RequestError),
}

/// One listen request.
struct ListenStream {
    id: u64,
    began: Instant,
    /// Whether the server has acknowledged it.
    is_open: bool,
    ends: BoxFuture<'static, RequestResult>,
}

pub(crate) struct SubscriptionListener {
    connection: Arc<Connection>,
    /// The lists that the server notifies of.
    lists: Map<String, Value>,
    watched: BTreeSet<String>,
    /// What may have changed before this connection, and was not announced yet.
    missed_before: BTreeSet<String>,
    now: Option<ListenStream>,
    /// What replaces it as soon as it is open.
    next: Option<ListenStream>,
    /// The end of the backoff.
    again_at: Option<Instant>,
    pause: Duration,
    unreached: u32,
    /// Whether a stream was ever open.
    was_open: bool,
    /// Whether notifications may have been lost.
    missed: bool,
}

impl SubscriptionListener {
    /// Makes one that does not listen yet.
    pub(crate) fn new(
        connection: &Arc<Connection>,
        server_info: &HandshakeResult,
        missed_before: BTreeSet<String>,
    ) -> SubscriptionListener {
        let tells = |capability: &str| {
            server_info.capabilities.get(capability).is_some_and(|said| said["listChanged"] == true)
        };
        let lists = [
            ("tools", "toolsListChanged"),
            ("prompts", "promptsListChanged"),
            ("resources", "resourcesListChanged"),
        ];
        let lists = lists.into_iter().filter(|(capability, _)| tells(capability));
        SubscriptionListener {
            connection: connection.clone(),
            lists: lists.map(|(_, key)| (key.to_owned(), true.into())).collect(),
            watched: BTreeSet::new(),
            missed_before,
            now: None,
            next: None,
            again_at: None,
            pause: RETRY_FIRST,
            unreached: 0,
            was_open: false,
            missed: false,
        }
    }

    /// Listens to these resources from now on, and to no others.
    pub(crate) fn watch(&mut self, watched: BTreeSet<String>) {
        self.watched = watched;
        if self.lists.is_empty() && self.watched.is_empty() {
            (self.now, self.next, self.again_at) = (None, None, None);
        } else if self.now.as_ref().is_some_and(|now| now.is_open) {
            self.next = Some(self.open());
        } else if self.again_at.is_none() {
            self.now = Some(self.open());
        }
    }

    fn open(&self) -> ListenStream {
        let mut wanted = self.lists.clone();
        if !self.watched.is_empty() {
            wanted.insert("resourceSubscriptions".to_owned(), json!(self.watched));
        }
        let (connection, id) = (self.connection.clone(), self.connection.next_id());
        let params = format!(r#""notifications":{}"#, Value::Object(wanted));
        let ends = async move {
            let (params, meta, headers) = ([&*params, "", ""], "", &[]);
            let (method, timeout, silence) = ("subscriptions/listen", LISTEN_FOR, LISTEN_FOR);
            let ask =
                RequestSpec { method, params, meta, name: None, headers, caller: None, timeout, silence };
            connection.request_by(id, ask).await
        };
        ListenStream { id, began: Instant::now(), is_open: false, ends: ends.boxed() }
    }

    /// Listens. Cancel-safe.
    pub(crate) async fn news(&mut self) -> ListenEvent {
        let mut acknowledged = self.connection.demux.acknowledged.subscribe();
        loop {
            let newest = self.next.as_ref().or(self.now.as_ref()).filter(|stream| !stream.is_open);
            let newest = newest.map(|stream| stream.id);
            let opens = async {
                match newest {
                    Some(id) => drop(acknowledged.wait_for(|last| *last >= id).await),
                    None => std::future::pending().await,
                }
            };
            let news = tokio::select! {
                biased;
                () = opens => self.opened(),
                ended = end(&mut self.now) => self.ended(ended),
                ended = end(&mut self.next) => self.next_ended(ended),
                () = sleep_until(self.again_at) => {
                    self.again_at = None;
                    self.now = Some(self.open());
                    None
                }
            };
            if let Some(news) = news {
                return news;
            }
        }
    }

    fn opened(&mut self) -> Option<ListenEvent> {
        // The last one is closed only now, so that no notification is lost.
        self.now = self.next.take().or(self.now.take());
        if let Some(now) = &mut self.now {
            now.is_open = true;
        }
        (self.was_open, self.unreached) = (true, 0);
        let missed_before = std::mem::take(&mut self.missed_before);
        match std::mem::take(&mut self.missed) {
            true => Some(ListenEvent::Reopened),
            false => (!missed_before.is_empty()).then_some(ListenEvent::Opened(missed_before)),
        }
    }

    fn ended(&mut self, ended: RequestResult) -> Option<ListenEvent> {
        let lasted = self.now.take().is_some_and(|now| now.is_open && now.began.elapsed() >= GOOD_AFTER);
        self.missed = true;
        if let Some(next) = self.next.take() {
            self.now = Some(next);
            return None;
        }
        // A server that acknowledged before may have a reason that passes.
        if !self.was_open && is_final(&ended) {
            return None;
        }
        self.unreached = match &ended {
            Err(RequestError::Link(LinkError::Failed { sent: false, .. })) => self.unreached + 1,
            _ => 0,
        };
        if let (UNREACHED_MAX.., Err(error)) = (self.unreached, ended) {
            return Some(ListenEvent::Gone(error));
        }
        if lasted {
            self.pause = RETRY_FIRST;
        }
        self.again_at = Some(Instant::now() + jittered(self.pause));
        self.pause = (self.pause * 2).min(RETRY_MAX);
        None
    }

    fn next_ended(&mut self, ended: RequestResult) -> Option<ListenEvent> {
        self.next = None;
        if is_final(&ended) {
            // The current one goes on.
            return None;
        }
        self.ended(ended)
    }
}

/// Returns whether a retry is pointless: the server does not support it.
fn is_final(ended: &RequestResult) -> bool {
    match ended {
        Err(RequestError::Refused(_)) => true,
        Err(RequestError::Link(LinkError::Unsuitable { status, .. })) => is_for_good(*status),
        _ => false,
    }
}

/// Returns whether a status is a permanent refusal.
pub(crate) fn is_for_good(status: u16) -> bool {
    // Those two are temporary.
    (400..500).contains(&status) && !matches!(status, 408 | 429)
}

/// Waits for the end of a listen request, if there is one.
async fn end(stream: &mut Option<ListenStream>) -> RequestResult {
    match stream {
        Some(stream) => (&mut stream.ends).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::Demux;
    use crate::transport::Inbound;
    use crate::transport::{OutboundMessage, TransportLink};
    use portcullis_core::ForeignError;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Longer than any backoff.
    const LONG: Duration = Duration::from_secs(3600);

    /// What a server does about a listen request.
    #[derive(Clone, Copy)]
    enum Does {
        Tells,
        /// Acknowledges, and ends.
        Ends,
        Refuses,
        Answers(u16),
        IsAway,
        IsSilent,
    }

    /// A server that does these things in turn, and the last of them forever.
    struct Scripted {
        demux: Arc<Demux>,
        does: Vec<Does>,
        asked: AtomicUsize,
        under_way: Arc<AtomicUsize>,
    }

    /// Counts as in flight until it is dropped.
    struct UnderWay(Arc<AtomicUsize>);

    impl Drop for UnderWay {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }

    impl TransportLink for Scripted {
        fn send<'a>(&'a self, message: OutboundMessage<'a>) -> BoxFuture<'a, Result<(), RequestError>> {
            let asked = self.asked.fetch_add(1, Ordering::Relaxed);
            self.under_way.fetch_add(1, Ordering::Relaxed);
            let under_way = UnderWay(self.under_way.clone());
            let does = self.does[asked.min(self.does.len() - 1)];
            let failed = |sent| LinkError::Failed { why: "gone".to_owned(), sent };
            Box::pin(async move {
                let _under_way = under_way;
                if matches!(does, Does::Tells | Does::Ends) {
                    let said = br#"{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged"}"#;
                    self.demux.receive(said, message.id);
                }
                let error = match does {
                    Does::Tells | Does::IsSilent => return std::future::pending().await,
                    Does::Ends => failed(true),
                    Does::IsAway => failed(false),
                    Does::Answers(status) => LinkError::Unsuitable { status, why: "no".to_owned() },
                    Does::Refuses => {
                        let error = ForeignError { code: -32601, message: "no".to_owned(), data: None };
                        return Err(RequestError::Refused(error));
                    }
                };
                // Not at once, so that the acknowledgement is handled first.
                tokio::task::yield_now().await;
                Err(RequestError::Link(error))
            })
        }

        fn cancels_on_drop(&self) -> bool {
            true
        }
    }

    struct World {
        link: Arc<Scripted>,
        listening: SubscriptionListener,
    }

    fn begins(does: &[Does]) -> World {
        let (demux, _) = Demux::new();
        let (asked, under_way) = Default::default();
        let link = Arc::new(Scripted { demux: demux.clone(), does: does.to_vec(), asked, under_way });
        let connection = Arc::new(Connection::new(link.clone(), demux));
        let mut listening =
            SubscriptionListener::new(&connection, &HandshakeResult::default(), BTreeSet::new());
        listening.watch(BTreeSet::from(["x://a".to_owned()]));
        World { link, listening }
    }

    impl World {
        /// The next event, if there is one within a long time.
        async fn news(&mut self) -> Option<ListenEvent> {
            tokio::time::timeout(LONG, self.listening.news()).await.ok()
        }

        fn asked(&self) -> usize {
            self.link.asked.load(Ordering::Relaxed)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_does_not_tell_is_asked_once() {
        for does in [Does::Refuses, Does::Answers(404), Does::Answers(400), Does::Answers(403)] {
            let mut world = begins(&[does]);
            assert!(world.news().await.is_none());
            assert_eq!(world.asked(), 1);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_never_tells_for_long_is_asked_seldom() {
        for does in [Does::Answers(503), Does::Answers(429), Does::Answers(200)] {
            let mut world = begins(&[does]);
            assert!(world.news().await.is_none());
            // Once a minute, and some more at the beginning.
            assert!((50..100).contains(&world.asked()), "{}", world.asked());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_cannot_be_reached_is_gone() {
        for (does, asked) in [
            (vec![Does::IsAway], 3),
            (vec![Does::Tells, Does::IsAway], 1),
            (vec![Does::Ends, Does::IsAway], 4),
            // Not in a row.
            (vec![Does::IsAway, Does::IsAway, Does::Answers(502), Does::IsAway], 6),
        ] {
            let mut world = begins(&does);
            let gone = matches!(world.news().await, Some(ListenEvent::Gone(_)));
            assert_eq!((gone, world.asked()), (asked > 1, asked));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_heard_again_may_have_said_something_meanwhile() {
        for meanwhile in [Does::Ends, Does::Refuses, Does::Answers(404), Does::IsAway] {
            let mut world = begins(&[Does::Ends, meanwhile, Does::Tells]);
            assert!(matches!(world.news().await, Some(ListenEvent::Reopened)));
        }
        let mut world = begins(&[Does::Tells]);
        assert!(world.news().await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_one_is_open_before_the_last_is_let_go() {
        for (next, stays) in [(Does::Tells, 1), (Does::IsSilent, 2), (Does::Refuses, 1)] {
            let mut world = begins(&[Does::Tells, next]);
            assert!(world.news().await.is_none());
            world.listening.watch(BTreeSet::from(["x://b".to_owned()]));
            assert!(world.news().await.is_none(), "nothing was missed");
            assert_eq!((world.asked(), world.link.under_way.load(Ordering::Relaxed)), (2, stays));
        }
        // Nothing is watched, and the server notifies of no list.
        let mut world = begins(&[Does::Tells]);
        assert!(world.news().await.is_none());
        world.listening.watch(BTreeSet::new());
        assert!(world.news().await.is_none());
        assert_eq!((world.asked(), world.link.under_way.load(Ordering::Relaxed)), (1, 0));
    }
}
