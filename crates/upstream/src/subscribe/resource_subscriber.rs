//! Subscriptions at a server of the older era: `resources/subscribe` for each resource, retried with backoff.

use super::subscription_listener::is_for_good;
use super::subscriptions::{ResourceSubscriptions, SubscriptionResults};
use crate::backoff::{RETRY_FIRST, RETRY_MAX, jittered, sleep_until};
use crate::rpc::Connection;
use crate::transport::{LinkError, RequestError};
use futures::future::{BoxFuture, FutureExt};
use portcullis_core::ForeignError;
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The timeout of one subscription.
pub(crate) const SUBSCRIBE_WITHIN: Duration = Duration::from_secs(10);

/// What the server knows.
#[derive(Clone)]
struct SubscriptionState {
    /// The URIs that it is subscribed to.
    known: BTreeSet<String>,
    /// Those that did not reach it, so that changes go unnoticed until they do.
    missed: BTreeSet<String>,
}

/// The result of one subscription.
enum SubscribeOutcome {
    Subscribed,
    Refused(ForeignError),
    /// It did not reach the server, for a reason that may pass.
    NotSent,
}

/// Runs concurrently with everything else: a server may leave each of these requests without a response.
pub(crate) struct ResourceSubscriber {
    subscriptions: Arc<ResourceSubscriptions>,
    connection: Arc<Connection>,
    state: SubscriptionState,
    is_due: bool,
    running: Option<BoxFuture<'static, SubscriptionState>>,
    /// When the rest is retried.
    again_at: Option<Instant>,
    pause: Duration,
}

impl ResourceSubscriber {
    /// Makes one for a new connection, without subscriptions. What was watched on the previous one is `missed`
    /// until it is subscribed.
    pub(crate) fn new(
        subscriptions: &Arc<ResourceSubscriptions>,
        connection: &Arc<Connection>,
        missed: BTreeSet<String>,
    ) -> ResourceSubscriber {
        subscriptions.results.send_replace(SubscriptionResults::new());
        ResourceSubscriber {
            subscriptions: subscriptions.clone(),
            connection: connection.clone(),
            state: SubscriptionState { known: BTreeSet::new(), missed },
            is_due: false,
            running: None,
            again_at: None,
            pause: RETRY_FIRST,
        }
    }

    /// Takes note that something else is watched than before.
    pub(crate) fn is_due(&mut self) {
        self.is_due = true;
    }

    /// Subscribes whenever there is something to do. Cancel-safe.
    pub(crate) async fn run(&mut self) {
        loop {
            if self.running.is_none() && std::mem::take(&mut self.is_due) {
                let (subscriptions, connection) = (self.subscriptions.clone(), self.connection.clone());
                self.running = Some(subscribe(subscriptions, connection, self.state.clone()).boxed());
                self.again_at = None;
            }
            match &mut self.running {
                Some(running) => {
                    let state = running.await;
                    self.running = None;
                    self.applied(state);
                }
                None => {
                    sleep_until(self.again_at).await;
                    self.is_due = true;
                }
            }
        }
    }

    fn applied(&mut self, state: SubscriptionState) {
        self.state = state;
        if self.state.missed.is_empty() {
            self.pause = RETRY_FIRST;
        } else {
            self.again_at = Some(Instant::now() + jittered(self.pause));
            self.pause = (self.pause * 2).min(RETRY_MAX);
        }
    }
}

/// Subscribes to what is newly watched, and unsubscribes from the rest. Returns what the server knows then.
async fn subscribe(
    subscriptions: Arc<ResourceSubscriptions>,
    connection: Arc<Connection>,
    mut state: SubscriptionState,
) -> SubscriptionState {
    let wanted = subscriptions.uris();
    state.missed.retain(|uri| wanted.contains(uri));
    subscriptions.results.send_modify(|said| said.retain(|uri, _| wanted.contains(uri)));
    for uri in state.known.extract_if(.., |uri| !wanted.contains(uri)) {
        let _ = send(&connection, "resources/unsubscribe", &uri).await;
    }
    for uri in wanted {
        let outcome = match state.known.contains(&uri) {
            true => SubscribeOutcome::Subscribed,
            false => outcome(send(&connection, "resources/subscribe", &uri).await),
        };
        let said = match outcome {
            SubscribeOutcome::Refused(error) => {
                state.missed.remove(&uri);
                Err(error)
            }
            SubscribeOutcome::Subscribed => {
                state.known.insert(uri.clone());
                // It may have changed before the subscription.
                if state.missed.remove(&uri) {
                    subscriptions.announce(uri.clone());
                }
                Ok(())
            }
            // The client does not wait: it is retried until it succeeds.
            SubscribeOutcome::NotSent => {
                state.missed.insert(uri.clone());
                Ok(())
            }
        };
        // At once: the client of this one does not wait for the others.
        subscriptions.results.send_modify(|all| drop(all.insert(uri, said)));
    }
    state
}

/// Returns whether the server is subscribed. One that did not respond may be.
fn outcome(said: Result<(), RequestError>) -> SubscribeOutcome {
    match said {
        Ok(()) | Err(RequestError::Timeout(_) | RequestError::Closed | RequestError::TooLong(_)) => {
            SubscribeOutcome::Subscribed
        }
        Err(RequestError::Refused(error)) => SubscribeOutcome::Refused(error),
        Err(RequestError::Link(error)) => match error {
            LinkError::Failed { sent: true, .. } => SubscribeOutcome::Subscribed,
            // It would refuse again; everything else may work.
            LinkError::Unsuitable { status, .. } if is_for_good(status) => SubscribeOutcome::Subscribed,
            LinkError::NeedsAuth(_)
            | LinkError::NeedsRegistration(_)
            | LinkError::NoCredentials(_)
            | LinkError::SessionLost
            | LinkError::Unsuitable { .. }
            | LinkError::Failed { sent: false, .. } => SubscribeOutcome::NotSent,
        },
    }
}

async fn send(connection: &Connection, method: &str, uri: &str) -> Result<(), RequestError> {
    let params = format!(r#""uri":{}"#, Value::from(uri));
    let said = connection.hub_request(method, params, SUBSCRIBE_WITHIN).await.map(drop);
    said.inspect_err(|error| tracing::debug!(target: "upstream", %error, method, "subscription failed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_certainly_did_not_arrive_is_said_again() {
        let why = || "why".to_owned();
        let unsuitable = |status| LinkError::Unsuitable { status, why: why() };
        for (error, expected) in [
            (unsuitable(429), true),
            (unsuitable(408), true),
            (unsuitable(503), true),
            (unsuitable(500), true),
            (unsuitable(400), false),
            (unsuitable(404), false),
            (LinkError::NoCredentials(why()), true),
            (LinkError::NeedsAuth(why()), true),
            (LinkError::NeedsRegistration(why()), true),
            (LinkError::SessionLost, true),
            (LinkError::Failed { why: why(), sent: false }, true),
            (LinkError::Failed { why: why(), sent: true }, false),
        ] {
            let is_said_again =
                matches!(outcome(Err(RequestError::Link(error.clone()))), SubscribeOutcome::NotSent);
            assert_eq!(is_said_again, expected, "{error:?}");
        }
        assert!(matches!(
            outcome(Err(RequestError::Timeout(SUBSCRIBE_WITHIN))),
            SubscribeOutcome::Subscribed
        ));
    }
}
