//! Telling a server of the older era which resources are watched.

use crate::connection::{Connection, RequestError};
use crate::server::{Server, Subscribed};
use futures::future::{BoxFuture, FutureExt};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// How long a server may take to say that it heard whom to tell of what.
pub(crate) const SUBSCRIBE_WITHIN: Duration = Duration::from_secs(10);

/// Beside everything else: a server may leave each of these requests without an answer.
pub(crate) struct Subscribing {
    server: Arc<Server>,
    connection: Arc<Connection>,
    /// What the server knows to be watched.
    told: BTreeSet<String>,
    is_due: bool,
    running: Option<BoxFuture<'static, BTreeSet<String>>>,
}

impl Subscribing {
    /// Makes one for a new connection, on which nothing has been said yet.
    pub(crate) fn new(server: &Arc<Server>, connection: &Arc<Connection>) -> Subscribing {
        server.subscribed.send_replace(Subscribed::new());
        let (server, connection) = (server.clone(), connection.clone());
        Subscribing { server, connection, told: BTreeSet::new(), is_due: false, running: None }
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
            }
            match &mut self.running {
                Some(running) => self.told = running.await,
                None => std::future::pending().await,
            }
            self.running = None;
        }
    }
}

/// Tells a server what is watched now and was not before, and the other way round. Returns what it knows then.
async fn subscribe(
    server: Arc<Server>,
    connection: Arc<Connection>,
    mut told: BTreeSet<String>,
) -> BTreeSet<String> {
    let wanted = server.watched();
    server.subscribed.send_modify(|said| said.retain(|uri, _| wanted.contains(uri)));
    for uri in told.extract_if(.., |uri| !wanted.contains(uri)) {
        let _ = tell(&connection, "resources/unsubscribe", &uri).await;
    }
    for uri in wanted {
        let is_told = told.contains(&uri);
        let known = if is_told { Ok(()) } else { tell(&connection, "resources/subscribe", &uri).await };
        let known = match known {
            Err(RequestError::Refused(error)) => Err(error),
            // One that did not answer may have heard it all the same.
            Ok(()) | Err(_) => Ok(()),
        };
        if known.is_ok() {
            told.insert(uri.clone());
        }
        // At once: whoever asked for this one does not wait for the others.
        server.subscribed.send_modify(|said| drop(said.insert(uri, known)));
    }
    told
}

async fn tell(connection: &Connection, method: &str, uri: &str) -> Result<(), RequestError> {
    let params = format!(r#""uri":{}"#, Value::from(uri));
    let said = connection.own(method, params, SUBSCRIBE_WITHIN).await.map(drop);
    said.inspect_err(
        |error| tracing::debug!(target: "upstream", %error, method, "a server does not tell of a resource"),
    )
}
