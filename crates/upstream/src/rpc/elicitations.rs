//! Elicitations of one connection: on whose behalf they are shown, and which peer was shown which URL.

use super::elicitation::{self, AskingServer};
use parking_lot::Mutex;
use portcullis_core::{InputRequest, Peer};
use portcullis_egress::Url;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

/// How many URL elicitations are remembered, and how long their ids may be.
const FOLLOWED_MAX: usize = 64;
const FOLLOWED_BYTES_MAX: usize = 1024;

#[derive(Default)]
pub(crate) struct Elicitations {
    /// The name and the URL of the server.
    asker: OnceLock<(String, Option<Url>)>,
    /// Which peer was asked to show which URL, by elicitation id, the latest last.
    shown: Mutex<VecDeque<(String, Arc<dyn Peer>)>>,
}

impl Elicitations {
    /// Sets the server that asks, before it can.
    pub(super) fn set_asker(&self, asker: AskingServer<'_>) {
        let _ = self.asker.set((asker.name.to_owned(), asker.url.cloned()));
    }

    /// Makes a question of the server fit to be shown, or says why it is not asked.
    pub(super) fn make_presentable(&self, ask: &mut InputRequest) -> Result<(), String> {
        let (name, url) = self.asker.get().ok_or("it is not known which server asks")?;
        elicitation::present(AskingServer { name, url: url.as_ref() }, ask)
    }

    /// Remembers which peer was asked to show a URL.
    pub(super) fn shown(&self, id: &Value, peer: &Arc<dyn Peer>) {
        let Some(id) = id.as_str().filter(|id| id.len() <= FOLLOWED_BYTES_MAX) else { return };
        let mut shown = self.shown.lock();
        if shown.len() >= FOLLOWED_MAX {
            shown.pop_front();
        }
        shown.push_back((id.to_owned(), peer.clone()));
    }

    /// The same, for the URLs in an error that wants them opened before the call.
    pub(super) fn shown_by_error(&self, error: &RawValue, peer: &Arc<dyn Peer>) {
        // Nearly all errors are passed on without being parsed.
        if !error.get().contains("elicitationId") {
            return;
        }
        let Ok(error) = serde_json::from_str::<Value>(error.get()) else { return };
        for elicitation in error["data"]["elicitations"].as_array().into_iter().flatten() {
            self.shown(&elicitation["elicitationId"], peer);
        }
    }

    /// Tells the peer that showed a URL that a person has completed it.
    pub(super) fn completed(&self, params: Map<String, Value>) {
        let Some(id) = params.get("elicitationId").and_then(Value::as_str) else { return };
        let mut shown = self.shown.lock();
        let found = shown.iter().position(|(known, _)| known == id).and_then(|at| shown.remove(at));
        drop(shown);
        if let Some((_, peer)) = found {
            peer.elicitation_completed(params);
        }
    }
}
