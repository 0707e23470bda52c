//! Messages from upstream servers to clients outside of a call: `roots/list`, logs, resource updates.

use crate::dispatch::caller;
use crate::hub::Hub;
use crate::peer::SessionPeer;
use crate::session::McpSession;
use portcullis_core::{
    BoxFuture, ConnectedClients, InputRequest, InputRequestKind, InputResponse, KeyedInputRequest,
    LogMessage, Peer,
};
use portcullis_wire::era::RequestMeta;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Timeout of `roots/list`. No person is involved.
const ROOTS_WITHIN: Duration = Duration::from_secs(10);

impl Hub {
    /// Returns the session to ask for roots. Without a client name, an upstream's request is ambiguous if several
    /// sessions qualify; with one, the newest session is taken.
    fn with_roots(&self, provider: &str, of: Option<&str>) -> Option<Arc<McpSession>> {
        let all = self.sessions.all().into_iter();
        let mut offering: Vec<_> = all
            .filter(|session| session.offers().roots && session.is_reached())
            .filter(|session| of.is_none_or(|name| session.client().name == name))
            // The upstream uses the roots for all of its clients, so only clients that see it count.
            .filter(|session| self.gate.sees_server(&caller(&session.client()), provider))
            .collect();
        offering.sort_by_key(|session| session.began());
        if of.is_none() && offering.len() > 1 { None } else { offering.pop() }
    }
}

impl ConnectedClients for Hub {
    fn roots<'a>(&'a self, provider: &'a str, of: Option<&'a str>) -> BoxFuture<'a, Option<InputResponse>> {
        Box::pin(async move {
            let session = self.with_roots(provider, of)?;
            let peer = SessionPeer::new(Some(session.clone()), session.home.clone(), &RequestMeta::default());
            let ask = InputRequest { kind: InputRequestKind::Roots, params: Value::Null };
            let asked = peer.ask(vec![KeyedInputRequest { key: String::new(), ask }]);
            let answers = tokio::time::timeout(ROOTS_WITHIN, asked).await.ok()?.ok()?;
            answers.into_values().find(|answer| InputRequestKind::Roots.is_answer(answer))
        })
    }

    fn log(&self, provider: &str, to: Option<&str>, message: &LogMessage) {
        let said = Value::Object(message.said.clone());
        let notification = self.outgoing.notification("notifications/message", said, None);
        let mut sees = BTreeMap::new();
        for session in self.sessions.all() {
            let client = session.client();
            let wants = session.is_initialized() && session.wants_log(message.level);
            if !wants || to.is_some_and(|name| client.name != name) {
                continue;
            }
            let sees = sees.entry(client.name.clone());
            if *sees.or_insert_with(|| self.gate.sees_server(&caller(&client), provider)) {
                session.home.notify(notification.clone());
            }
        }
    }

    fn updated(&self, to: Option<&str>, uri: &str, watched: Vec<String>, said: Map<String, Value>) {
        self.tell_updated(to, uri, watched, said);
    }
}
