//! Elicitations of one connection: which questions of the server are admitted, on whose behalf they are shown, and which peer
//! was shown which URL.

use super::elicitation::{self, AskingServer};
use super::pending_request::{QUESTIONS_MAX, ServerQuestion};
use super::pending_requests::PendingRequests;
use parking_lot::Mutex;
use portcullis_core::{InputRequest, InputRequestKind, Peer};
use portcullis_egress::Url;
use portcullis_wire::rpc::{self, RpcError};
use portcullis_wire::{RequestId, era};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use tokio_util::sync::CancellationToken;

/// How many URL elicitations are remembered, and how long their ids may be.
const FOLLOWED_MAX: usize = 64;
const FOLLOWED_BYTES_MAX: usize = 1024;

/// What became of a question of the server.
pub(super) enum QuestionAdmission {
    /// The client of a call is asked.
    Asked,
    /// It asks for roots, and there is no client that it could mean.
    RootsOfNoClient,
}

#[derive(Default)]
pub(crate) struct Elicitations {
    /// The name and the URL of the server.
    asker: OnceLock<(String, Option<Url>)>,
    /// Which peer was asked to show which URL, by elicitation id, the latest last.
    shown: Mutex<VecDeque<(String, Arc<dyn Peer>)>>,
}

impl Elicitations {
    /// Sets the server that asks, before it can.
    pub(crate) fn set_asker(&self, asker: AskingServer<'_>) {
        let _ = self.asker.set((asker.name.to_owned(), asker.url.cloned()));
    }

    /// Makes a question of the server fit to be shown, or says why it is not asked.
    pub(crate) fn make_presentable(&self, ask: &mut InputRequest) -> Result<(), String> {
        let (name, url) = self.asker.get().ok_or("it is not known which server asks")?;
        elicitation::present(AskingServer { name, url: url.as_ref() }, ask)
    }

    /// Asks the client of the call that a question is about, or says why no client is asked.
    pub(super) fn admit(
        &self,
        pending: &PendingRequests,
        id: &RequestId,
        method: &str,
        params: Option<&RawValue>,
        about: Option<u64>,
    ) -> Result<QuestionAdmission, RpcError> {
        let kinds = [InputRequestKind::Elicit, InputRequestKind::Sample, InputRequestKind::Roots];
        let kind = kinds.into_iter().find(|kind| method == era::ask_method(*kind));
        let kind = kind.ok_or_else(|| RpcError::method_not_found(method))?;
        let mut params = match params {
            None => Value::Null,
            Some(raw) => serde_json::from_str(raw.get()).map_err(RpcError::invalid_params)?,
        };
        if !era::is_askable(kind, &params) {
            return Err(RpcError::invalid_params("they must be an object"));
        }
        let mut none = Map::new();
        let (task, owner) = pending.concerned(params.as_object_mut().unwrap_or(&mut none), about);
        let names_call = about.is_some() || task.is_some();
        let present = || if names_call { None } else { pending.only_present_owner() };
        let Some(owner) = owner.or_else(present) else {
            if kind == InputRequestKind::Roots {
                return Ok(QuestionAdmission::RootsOfNoClient);
            }
            return Err(RpcError::new(
                rpc::INVALID_REQUEST,
                "no client can be asked: no call is in flight, or calls of several clients are; \
                 `per_client = true` gives each client a server of its own",
            ));
        };
        let mut ask = InputRequest { kind, params };
        self.make_presentable(&mut ask).map_err(RpcError::invalid_params)?;
        if kind == InputRequestKind::Elicit {
            self.shown(&ask.params["elicitationId"], &owner.peer);
        }
        let question =
            ServerQuestion { id: id.clone(), ask, task, names_call, withdrawn: CancellationToken::new() };
        owner.slot.ask(question).map_err(|_| {
            let message = format!("at most {QUESTIONS_MAX} questions at once, while the call is under way");
            RpcError::new(rpc::INVALID_REQUEST, message)
        })?;
        Ok(QuestionAdmission::Asked)
    }

    /// Remembers which peer was asked to show a URL.
    fn shown(&self, id: &Value, peer: &Arc<dyn Peer>) {
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
