//! What a server of the older era says by itself: one stream that stays open.

use super::stream::{Ended, LAST_EVENT, Mark, RETRY, RETRY_MAX, RETRY_MIN, events_of_messages};
use super::{Kind, Way, kind};
use crate::connection::{LinkError, RequestError};
use portcullis_egress::own::Method;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How often a server may not be reached before it counts as gone.
const UNREACHED_MAX: u32 = 3;

/// What one attempt came to.
enum Heard {
    /// The stream was open, and has ended after so many events.
    Stream(usize),
    /// There is no such stream, and there will be none.
    Nothing,
    /// The server is there, but this it cannot do now. Some say so while they still hold the stream that has broken.
    NotNow,
    Unreached,
}

impl Way {
    /// Begins to listen, once.
    pub(super) fn listen(self: &Arc<Self>) {
        if self.listening.swap(true, Ordering::Relaxed) {
            return;
        }
        let way = self.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = way.keep_listening() => {}
                () = way.end.cancelled() => {}
                () = way.inbox.retired.cancelled() => {}
            }
        });
    }

    async fn keep_listening(&self) {
        let (mut mark, mut opened, mut unreached, mut empty) = (Mark::default(), false, 0, 0_u32);
        loop {
            match self.hear(&mut mark, opened).await {
                Heard::Nothing => return,
                Heard::Stream(events) => {
                    (opened, unreached) = (true, 0);
                    empty = if events > 0 { 0 } else { empty + 1 };
                }
                // What else the server does it may do well.
                Heard::NotNow => (unreached, empty) = (0, empty + 1),
                Heard::Unreached => {
                    unreached += 1;
                    if unreached >= UNREACHED_MAX {
                        // What is under way on other connections may still end well.
                        self.inbox.retire();
                        return;
                    }
                }
            }
            // A server that only ever hangs up or refuses is asked less and less often.
            let longer = RETRY * 2_u32.saturating_pow(empty.min(10)).saturating_sub(1);
            tokio::time::sleep((mark.retry + longer).clamp(RETRY_MIN, RETRY_MAX)).await;
        }
    }

    async fn hear(&self, mark: &mut Mark, opened: bool) -> Heard {
        let mut headers = self.headers(None).into_owned();
        headers.extend(mark.last.clone().map(|last| (LAST_EVENT, last)));
        let reply = match self.exchanges.make(Method::GET, None, &headers, bytes::Bytes::new()).await {
            Ok(reply) => reply,
            // Never heard, it is missed by nobody.
            Err(RequestError::Link(LinkError::Failed { sent: true, .. })) if !opened => return Heard::NotNow,
            Err(RequestError::Link(LinkError::Failed { .. })) => return Heard::Unreached,
            // Not let in: that may be otherwise before long.
            Err(_) => return Heard::NotNow,
        };
        match reply.status {
            200 if matches!(kind(&reply), Kind::Events) => {}
            // Something else stands in its place, for now or for ever.
            200 if opened => return Heard::NotNow,
            400 | 404 if opened && self.session.get().is_some() => {
                // Where the session is over, everybody hears of it now.
                let _ = self.refused(reply, None).await;
                return Heard::NotNow;
            }
            // The server says nothing by itself.
            200 | 404 | 405 | 501 => return Heard::Nothing,
            _ => return Heard::NotNow,
        }
        if opened && mark.last.is_none() {
            // Only a server that numbers what it says says again what was missed.
            self.inbox.heard_again();
        }
        match self.read(reply, events_of_messages(), mark, None).await {
            Ended::Over { events, .. } => Heard::Stream(events),
            Ended::Answered | Ended::Older => Heard::Stream(1),
            Ended::TooLong(why) => {
                tracing::warn!(target: "upstream", %why, "What a server says by itself is too long; it is listened to anew.");
                // It would say the same again to whoever asks for what came after the last.
                mark.last = None;
                Heard::Stream(0)
            }
        }
    }
}
