//! What servers tell and ask clients while no call is under way.

use crate::dispatch::caller;
use crate::hub::Hub;
use crate::peer::SessionPeer;
use crate::session::Session;
use portcullis_core::{Answer, Ask, AskKind, BoxFuture, Clients, LogMessage, Peer, Question};
use portcullis_wire::era::RequestMeta;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How long a client may take to name its folders. No person has to be asked for that.
const ROOTS_WITHIN: Duration = Duration::from_secs(10);

impl Hub {
    /// Returns the session that is asked for folders. Whose a server's question is cannot be told where several could be
    /// meant; of a client that is named it is the newest.
    fn with_roots(&self, provider: &str, of: Option<&str>) -> Option<Arc<Session>> {
        let all = self.sessions.all().into_iter();
        let mut offering: Vec<_> = all
            .filter(|session| session.offers().roots && session.is_reached())
            .filter(|session| of.is_none_or(|name| session.client().name == name))
            // Servers go by the answer, for all of their clients.
            .filter(|session| self.gate.sees_server(&caller(&session.client()), provider))
            .collect();
        offering.sort_by_key(|session| session.began());
        if of.is_none() && offering.len() > 1 { None } else { offering.pop() }
    }
}

impl Clients for Hub {
    fn roots<'a>(&'a self, provider: &'a str, of: Option<&'a str>) -> BoxFuture<'a, Option<Answer>> {
        Box::pin(async move {
            let session = self.with_roots(provider, of)?;
            let peer = SessionPeer::new(Some(session.clone()), session.home.clone(), &RequestMeta::default());
            let ask = Ask { kind: AskKind::Roots, params: Value::Null };
            let asked = peer.ask(vec![Question { key: String::new(), ask }]);
            let answers = tokio::time::timeout(ROOTS_WITHIN, asked).await.ok()?.ok()?;
            answers.into_values().find(|answer| AskKind::Roots.is_answer(answer))
        })
    }

    fn log(&self, provider: &str, to: Option<&str>, message: &LogMessage) {
        let said = Value::Object(message.said.clone());
        let told = self.outgoing.notification("notifications/message", said, None);
        let mut sees = BTreeMap::new();
        for session in self.sessions.all() {
            let client = session.client();
            let wants = session.is_initialized() && session.wants_log(message.level);
            if !wants || to.is_some_and(|name| client.name != name) {
                continue;
            }
            let sees = sees.entry(client.name.clone());
            if *sees.or_insert_with(|| self.gate.sees_server(&caller(&client), provider)) {
                session.home.notify(told.clone());
            }
        }
    }

    fn updated(&self, to: Option<&str>, uri: &str, watched: Vec<String>, said: Map<String, Value>) {
        self.tell_updated(to, uri, watched, said);
    }
}
