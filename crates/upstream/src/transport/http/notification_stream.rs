//! Notification stream of a server of the older era: one GET that stays open.

use super::response_stream::{
    LAST_EVENT, RETRY, RETRY_MAX, RETRY_MIN, StreamCursor, StreamEnd, events_of_messages,
};
use super::{HttpTransport, ResponseFormat, kind};
use crate::transport::{LinkError, RequestError};
use portcullis_egress::configured_client::Method;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How often a server may be unreachable before it counts as gone.
const UNREACHED_MAX: u32 = 3;

/// The result of one attempt.
enum ListenAttempt {
    /// The stream was open, and has ended after so many events.
    Stream(usize),
    /// The server has no such stream, for good.
    Nothing,
    /// Not now. Some servers refuse while they still hold the broken stream.
    NotNow,
    Unreached,
}

impl HttpTransport {
    /// Begins to listen, once.
    pub(super) fn listen(self: &Arc<Self>) {
        if self.listening.swap(true, Ordering::Relaxed) {
            return;
        }
        let transport = self.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = transport.keep_listening() => {}
                () = transport.end.cancelled() => {}
                () = transport.inbound.lifecycle().retired.cancelled() => {}
            }
        });
    }

    async fn keep_listening(&self) {
        let (mut mark, mut opened, mut unreached, mut empty) = (StreamCursor::default(), false, 0, 0_u32);
        loop {
            match self.hear(&mut mark, opened).await {
                ListenAttempt::Nothing => return,
                ListenAttempt::Stream(events) => {
                    (opened, unreached) = (true, 0);
                    empty = if events > 0 { 0 } else { empty + 1 };
                }
                // Everything else may work.
                ListenAttempt::NotNow => (unreached, empty) = (0, empty + 1),
                ListenAttempt::Unreached => {
                    unreached += 1;
                    if unreached >= UNREACHED_MAX {
                        // Requests in flight on other connections may still succeed.
                        self.inbound.lifecycle().retire();
                        return;
                    }
                }
            }
            // Backoff for a server that only ever hangs up or refuses.
            let longer = RETRY * 2_u32.saturating_pow(empty.min(10)).saturating_sub(1);
            tokio::time::sleep((mark.retry + longer).clamp(RETRY_MIN, RETRY_MAX)).await;
        }
    }

    async fn hear(&self, mark: &mut StreamCursor, opened: bool) -> ListenAttempt {
        let mut headers = self.headers(None).into_owned();
        headers.extend(mark.last.clone().map(|last| (LAST_EVENT, last)));
        let reply = match self.exchanges.make(Method::GET, None, &headers, bytes::Bytes::new()).await {
            Ok(reply) => reply,
            // No notification was ever received, so none is missed.
            Err(RequestError::Link(LinkError::Failed { sent: true, .. })) if !opened => {
                return ListenAttempt::NotNow;
            }
            Err(RequestError::Link(LinkError::Failed { .. })) => return ListenAttempt::Unreached,
            // Credentials may change before long.
            Err(_) => return ListenAttempt::NotNow,
        };
        match reply.status {
            200 if matches!(kind(&reply), ResponseFormat::Events) => {}
            // Something else answers in its place, for now or for good.
            200 if opened => return ListenAttempt::NotNow,
            400 | 404 if opened && self.session.get().is_some() => {
                // Notices a lost session.
                let _ = self.refused(reply, None).await;
                return ListenAttempt::NotNow;
            }
            // The server sends no notifications.
            200 | 404 | 405 | 501 => return ListenAttempt::Nothing,
            _ => return ListenAttempt::NotNow,
        }
        if opened && mark.last.is_none() {
            // Only a server with event ids repeats what was missed.
            self.inbound.listening_resumed();
        }
        match self.read(reply, events_of_messages(), mark, None).await {
            StreamEnd::Over { events, .. } => ListenAttempt::Stream(events),
            StreamEnd::Answered | StreamEnd::Older => ListenAttempt::Stream(1),
            StreamEnd::TooLong(why) => {
                tracing::warn!(target: "upstream", %why, "oversized notification; reopening the stream");
                // It would repeat the same event forever.
                mark.last = None;
                ListenAttempt::Stream(0)
            }
        }
    }
}
