//! Telling a server of the older era which resources are watched.

use crate::connection::{Connection, LinkError, RequestError};
use crate::listen::is_for_good;
use crate::server::{Server, Subscribed};
use crate::supervise::{RETRY_FIRST, RETRY_MAX, jittered, sleep_until};
use futures::future::{BoxFuture, FutureExt};
use portcullis_core::ForeignError;
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long a server may take to say that it heard whom to tell of what.
pub(crate) const SUBSCRIBE_WITHIN: Duration = Duration::from_secs(10);

/// What a server was told.
#[derive(Clone)]
struct Told {
    /// What it knows to be watched.
    known: BTreeSet<String>,
    /// What it did not hear in time, so that nobody hears of changes until it does.
    unheard: BTreeSet<String>,
}

/// What came of saying one.
enum Heard {
    Yes,
    Refused(ForeignError),
    /// It did not come to the server, for a reason that may pass.
    No,
}

/// Beside everything else: a server may leave each of these requests without an answer.
pub(crate) struct Subscribing {
    server: Arc<Server>,
    connection: Arc<Connection>,
    told: Told,
    is_due: bool,
    running: Option<BoxFuture<'static, Told>>,
    /// When it is said again what the server did not hear.
    again_at: Option<Instant>,
    pause: Duration,
}

impl Subscribing {
    /// Makes one for a new connection, on which nothing has been said yet. What was watched on the one before is `unheard`
    /// until it has.
    pub(crate) fn new(
        server: &Arc<Server>,
        connection: &Arc<Connection>,
        unheard: BTreeSet<String>,
    ) -> Subscribing {
        server.subscribed.send_replace(Subscribed::new());
        Subscribing {
            server: server.clone(),
            connection: connection.clone(),
            told: Told { known: BTreeSet::new(), unheard },
            is_due: false,
            running: None,
            again_at: None,
            pause: RETRY_FIRST,
        }
    }

    /// Says that something else is watched than before.
    pub(crate) fn is_due(&mut self) {
        self.is_due = true;
    }

    /// Tells the server, whenever there is something to tell. Nothing is lost where this is not waited for.
    pub(crate) async fn run(&mut self) {
        loop {
            if self.running.is_none() && std::mem::take(&mut self.is_due) {
                let (server, connection) = (self.server.clone(), self.connection.clone());
                self.running = Some(subscribe(server, connection, self.told.clone()).boxed());
                self.again_at = None;
            }
            match &mut self.running {
                Some(running) => {
                    let told = running.await;
                    self.running = None;
                    self.was_said(told);
                }
                None => {
                    sleep_until(self.again_at).await;
                    self.is_due = true;
                }
            }
        }
    }

    fn was_said(&mut self, told: Told) {
        self.told = told;
        if self.told.unheard.is_empty() {
            self.pause = RETRY_FIRST;
        } else {
            self.again_at = Some(Instant::now() + jittered(self.pause));
            self.pause = (self.pause * 2).min(RETRY_MAX);
        }
    }
}

/// Tells a server what is watched now and was not before, and the other way round. Returns what it knows then.
async fn subscribe(server: Arc<Server>, connection: Arc<Connection>, mut told: Told) -> Told {
    let wanted = server.watched();
    told.unheard.retain(|uri| wanted.contains(uri));
    server.subscribed.send_modify(|said| said.retain(|uri, _| wanted.contains(uri)));
    for uri in told.known.extract_if(.., |uri| !wanted.contains(uri)) {
        let _ = tell(&connection, "resources/unsubscribe", &uri).await;
    }
    for uri in wanted {
        let heard = match told.known.contains(&uri) {
            true => Heard::Yes,
            false => heard(tell(&connection, "resources/subscribe", &uri).await),
        };
        let said = match heard {
            Heard::Refused(error) => {
                told.unheard.remove(&uri);
                Err(error)
            }
            Heard::Yes => {
                told.known.insert(uri.clone());
                // It may have changed before the server knew whom to tell.
                if told.unheard.remove(&uri) {
                    server.tell_updated(uri.clone());
                }
                Ok(())
            }
            // Whoever asked for it does not wait: it is said again until it is heard.
            Heard::No => {
                told.unheard.insert(uri.clone());
                Ok(())
            }
        };
        // At once: whoever asked for this one does not wait for the others.
        server.subscribed.send_modify(|all| drop(all.insert(uri, said)));
    }
    told
}

/// Returns whether the server heard it. One that did not answer may have heard it all the same.
fn heard(said: Result<(), RequestError>) -> Heard {
    match said {
        Ok(()) | Err(RequestError::Timeout(_) | RequestError::Closed | RequestError::TooLong { .. }) => {
            Heard::Yes
        }
        Err(RequestError::Refused(error)) => Heard::Refused(error),
        Err(RequestError::Link(error)) => match error {
            LinkError::Failed { sent: true, .. } => Heard::Yes,
            // It would say the same again; what else it does it may do well.
            LinkError::Unsuitable { status, .. } if is_for_good(status) => Heard::Yes,
            LinkError::NeedsAuth(_)
            | LinkError::NeedsRegistration(_)
            | LinkError::NoCredentials(_)
            | LinkError::SessionLost
            | LinkError::Unsuitable { .. }
            | LinkError::Failed { sent: false, .. } => Heard::No,
        },
    }
}

async fn tell(connection: &Connection, method: &str, uri: &str) -> Result<(), RequestError> {
    let params = format!(r#""uri":{}"#, Value::from(uri));
    let said = connection.own(method, params, SUBSCRIBE_WITHIN).await.map(drop);
    said.inspect_err(
        |error| tracing::debug!(target: "upstream", %error, method, "a server does not tell of a resource"),
    )
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
            let is_said_again = matches!(heard(Err(RequestError::Link(error.clone()))), Heard::No);
            assert_eq!(is_said_again, expected, "{error:?}");
        }
        assert!(matches!(heard(Err(RequestError::Timeout(SUBSCRIBE_WITHIN))), Heard::Yes));
    }
}
