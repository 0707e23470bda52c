//! Redaction: removes secrets from everything that leaves the hub.
//!
//! Below this layer data may hold secrets; above it must not. Outputs, errors, and messages during a call (progress, logs,
//! requests to the client) all pass it. A known value is found in any case, escaped, encoded or compressed up to three
//! levels deep, and split by separators; tokens of well-known providers are found by their shape. Text that cannot be checked
//! within the budget is withheld. Limits: a secret with parts missing, or encrypted, is not recognized.
//!
//! `encoded_forms` writes a secret in its usual encodings; `literal_index` and `split_values` find those; `decoded_view`,
//! `encoded_runs`, `base58` and `decompression` undo escapes, encodings and compression; `token_shapes` and `providers` know tokens;
//! `scan` combines all within a `budget`; `stream` works incrementally. Large texts go to the `scrub_pool`, not an async
//! worker. `look_alikes` and `guesses` keep a client from using redaction as an oracle for a weak secret.

mod base58;
mod budget;
mod decoded_view;
mod decompression;
mod encoded_forms;
mod encoded_runs;
mod guesses;
mod literal_index;
mod look_alikes;
mod providers;
mod scan;
mod scrub_pool;
mod split_values;
mod stream;
mod token_shapes;

pub use guesses::GuessAlert;
pub use scan::MASK_BEGINS;
pub use stream::StreamRedactor;

use crate::contain;
use arc_swap::ArcSwap;
use budget::{OverBudget, ScanBudget};
use guesses::{Guesses, Reader};
use portcullis_core::{
    BoxFuture, Call, CallLimits, Client, InputRefusal, InputRequestKind, InputRequired, InputResponses,
    KeyedInputRequest, Layer, LogMessage, Next, Outcome, Output, Peer, Progress, Scope, Scrub, Secret,
    ToolError, Trail, scrub_off_worker, value_size,
};
use scan::{Masks, Scan};
use scrub_pool::{ScrubPool, ScrubRequester};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::time::Instant;

/// A shorter value occurs in ordinary text by chance; masking it would damage results and hide nothing.
const VALUE_BYTES_MIN: usize = 8;
/// Bound on secrets. The index grows with them.
const SECRETS_MAX: usize = 10_000;
/// The reader of messages outside calls. Not a valid client name.
const MESSAGES: &str = "(messages outside of calls)";

/// Why a secret cannot be redacted.
#[derive(Debug, thiserror::Error)]
pub enum RedactError {
    #[error(
        "secret `{name}` has {bytes} bytes, at least {VALUE_BYTES_MIN} are needed to tell it from ordinary text"
    )]
    TooShort { name: String, bytes: usize },
    #[error("`{name}` is not a name for a secret; expected letters, digits, `_`, `-` and `.`")]
    BadName { name: String },
    #[error("{count} secrets given, at most {SECRETS_MAX} are allowed")]
    TooMany { count: usize },
}

/// What to do with unknown tokens that are recognized by shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TokenShapes {
    #[default]
    Mask,
    Leave,
}

/// Redacts known secrets and tokens. Clones share state.
#[derive(Clone)]
pub struct Redactor {
    known: Arc<RedactorState>,
    /// The client that reads the redacted text, if any.
    reader: Option<Arc<Reader>>,
}

struct RedactorState {
    masks: ArcSwap<Masks>,
    leaves_shapes: AtomicBool,
    /// Incremented after every change.
    generation: AtomicU64,
    guesses: Guesses,
}

impl Redactor {
    /// Redacts the given values by name, and tokens by shape.
    pub fn new(secrets: &[(String, Secret<String>)]) -> Result<Redactor, RedactError> {
        let masks = ArcSwap::from_pointee(Masks::new(secrets)?);
        let known = RedactorState {
            masks,
            leaves_shapes: AtomicBool::new(false),
            generation: AtomicU64::new(0),
            guesses: Guesses::default(),
        };
        Ok(Redactor { known: Arc::new(known), reader: None })
    }

    /// Returns a redactor that counts what the caller reads.
    pub(crate) fn for_call(&self, call: &Call) -> Redactor {
        self.read_by(Reader { client: call.caller().client.clone(), trail: call.trail.clone() })
    }

    /// Returns a redactor for messages outside calls, which are counted together.
    pub fn for_messages(&self) -> Redactor {
        let (name, scope) = (MESSAGES.to_owned(), Scope::everything());
        let client = Arc::new(Client { name, scope, token: None });
        self.read_by(Reader { client, trail: Arc::new(Trail::default()) })
    }

    fn read_by(&self, reader: Reader) -> Redactor {
        Redactor { known: self.known.clone(), reader: Some(Arc::new(reader)) }
    }

    /// Returns the clients that read as if they guessed a secret.
    pub fn alerts(&self) -> Vec<GuessAlert> {
        self.known.guesses.alerts()
    }

    /// Sets whether tokens of other services are masked. Portcullis' own always are.
    pub fn set_shapes(&self, shapes: TokenShapes) {
        let leaves = shapes == TokenShapes::Leave;
        if self.known.leaves_shapes.swap(leaves, Ordering::AcqRel) != leaves {
            self.changed();
        }
    }

    #[cfg(test)]
    pub(crate) fn with_shapes(self, shapes: TokenShapes) -> Redactor {
        self.set_shapes(shapes);
        self
    }

    /// Called after a change, so that a reader of the new generation uses the new state.
    fn changed(&self) {
        self.known.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// Replaces the known values. If one is refused, nothing changes.
    pub fn replace(&self, secrets: &[(String, Secret<String>)]) -> Result<(), RedactError> {
        self.known.masks.store(Arc::new(Masks::new(secrets)?));
        self.changed();
        Ok(())
    }

    /// Returns the redacted text; borrowed if there are no secrets.
    pub fn scrub<'t>(&self, text: &'t str) -> Cow<'t, str> {
        scrub_off_worker(text.len(), || self.scan(&self.known.masks.load()).scrub(text))
    }

    /// Returns a redactor for text that arrives in chunks.
    pub fn scrubber(&self) -> StreamRedactor {
        StreamRedactor::new(self.clone())
    }

    /// Redacts the parts of an error that the caller reads. The source goes only to the log.
    pub fn scrub_error(&self, error: &mut ToolError) {
        let masks = self.known.masks.load();
        let mut scan = self.scan(&masks);
        scan.scrub_in_place(&mut error.message);
        error.hints.iter_mut().for_each(|hint| scan.scrub_in_place(hint));
        if let Some(foreign) = &mut error.foreign {
            scan.scrub_in_place(&mut foreign.message);
            foreign.data = foreign.data.take().and_then(|data| scan.scrubbed_raw(data));
        }
        // A redacted key could not be matched with its response.
        let is_unclean = error.input.as_deref().is_some_and(|input| {
            input.questions.iter().any(|question| scan.scrub(&question.key) != question.key)
        });
        if is_unclean {
            *error = ToolError::unavailable("the server sent an input request whose key holds a secret")
                .hint("an administrator can report this to the author of the server");
        }
        if let Some(input) = &mut error.input {
            // `approved` is from the hub and holds no secret.
            let InputRequired { questions, state, more, approved: _ } = &mut **input;
            questions.iter_mut().for_each(|question| scan.scrub_value(&mut question.ask.params));
            state.iter_mut().for_each(|state| scan.scrub_in_place(state));
            scan.scrub_members(more);
        }
    }

    pub fn scrub_output(&self, output: &mut Output) {
        let masks = self.known.masks.load();
        let mut scan = self.scan(&masks);
        // `visit_texts` copies; a forwarded result may be large and rarely holds a secret.
        if let Output::Raw(raw) = output {
            match scan.regions(raw.get().as_bytes()) {
                Ok(regions) if regions.is_empty() => return,
                Ok(_) => scan = self.scan(&masks),
                // The spent budget is kept, so everything below is withheld without a second scan.
                Err(OverBudget) => {}
            }
        }
        // `visit_texts` rebuilds every object; `scrub_value` only those with a changed key.
        let mut structured = None;
        if let Output::Tool(tool) = output {
            structured = tool.structured.take();
        }
        output.visit_texts(&mut |text| scan.scrub_in_place(text));
        if let (Output::Tool(tool), Some(mut value)) = (output, structured) {
            scan.scrub_value(&mut value);
            tool.structured = Some(value);
        }
    }

    fn scan<'m>(&'m self, masks: &'m Masks) -> Scan<'m> {
        let leaves = self.known.leaves_shapes.load(Ordering::Acquire);
        let shapes = if leaves { TokenShapes::Leave } else { TokenShapes::Mask };
        let counted = self.reader.as_deref().map(|reader| (reader, &self.known.guesses));
        Scan { masks, shapes, budget: ScanBudget::new(), counted }
    }
}

impl Scrub for Redactor {
    fn scrub<'t>(&self, text: &'t str) -> Cow<'t, str> {
        Redactor::scrub(self, text)
    }

    fn scrub_value(&self, value: &mut Value) {
        scrub_off_worker(value_size(value), || self.scan(&self.known.masks.load()).scrub_value(value));
    }

    fn generation(&self) -> u64 {
        self.known.generation.load(Ordering::Acquire)
    }
}

/// The redaction layer: outcomes, and messages during the call.
pub(crate) struct RedactionLayer {
    redactor: Redactor,
    pool: ScrubPool,
    /// The upper bound on all calls, whatever their tools declare.
    ceiling: CallLimits,
}

impl RedactionLayer {
    pub(crate) fn new(redactor: Redactor, ceiling: CallLimits) -> RedactionLayer {
        RedactionLayer { redactor, pool: ScrubPool::default(), ceiling }
    }

    /// Redacts the outcome. Errors quote arguments and upstream text, so they are redacted too.
    async fn scrubbed(&self, redactor: Redactor, mut outcome: Outcome, waiter: &ScrubRequester) -> Outcome {
        let bytes = match &outcome {
            Ok(output) => output.size(),
            Err(error) => error_size(error),
        };
        let scrub = move || {
            match &mut outcome {
                Ok(output) => redactor.scrub_output(output),
                Err(error) => redactor.scrub_error(error),
            }
            outcome
        };
        self.pool.run(bytes, waiter, scrub).await?
    }
}

/// Returns the approximate size of the parts of an error that the caller reads.
fn error_size(error: &ToolError) -> usize {
    let own = error.message.len() + error.hints.iter().map(String::len).sum::<usize>();
    let foreign = error.foreign.as_ref().map_or(0, |foreign| {
        foreign.message.len() + foreign.data.as_ref().map_or(0, |data| data.get().len())
    });
    let asked = error.input.as_ref().map_or(0, |input| {
        let questions = input.questions.iter().map(|question| value_size(&question.ask.params));
        questions.sum::<usize>() + input.state.as_ref().map_or(0, String::len) + members_size(&input.more)
    });
    own + foreign + asked
}

fn members_size(members: &Map<String, Value>) -> usize {
    members.iter().map(|(key, value)| key.len() + value_size(value)).sum()
}

impl Layer for RedactionLayer {
    fn call<'a>(&'a self, mut call: Box<Call>, next: Next<'a>) -> BoxFuture<'a, Outcome> {
        let redactor = self.redactor.for_call(&call);
        let peer = RedactedPeer { peer: call.ctx.peer, redactor: redactor.clone() };
        call.ctx.peer = Arc::new(peer);
        // An inner layer enforces the deadline; here it bounds the wait for redaction of a large outcome.
        let deadline = contain::declared(&call).at_most(self.ceiling).deadline();
        let (client, cancel) = (call.caller().client.clone(), call.ctx.cancel.clone());
        let (trail, started) = (call.trail.clone(), Instant::now());
        Box::pin(async move {
            let outcome = next.run(call).await;
            let due = started + deadline + trail.waits.total();
            let waiter = ScrubRequester { client, deadline, due, cancel };
            self.scrubbed(redactor, outcome, &waiter).await
        })
    }
}

/// The client end of the call, redacted.
struct RedactedPeer {
    peer: Arc<dyn Peer>,
    redactor: Redactor,
}

impl RedactedPeer {
    /// Redacts in place, because messages must keep their order.
    fn scrub_params(&self, params: &mut Map<String, Value>) {
        scrub_off_worker(members_size(params), || {
            self.redactor.scan(&self.redactor.known.masks.load()).scrub_members(params);
        });
    }
}

impl Peer for RedactedPeer {
    fn behind(&self) -> Option<&dyn Peer> {
        Some(&*self.peer)
    }

    fn progress(&self, mut progress: Progress) {
        self.scrub_params(&mut progress.said);
        self.peer.progress(progress);
    }

    fn log(&self, mut message: LogMessage) {
        self.scrub_params(&mut message.said);
        self.peer.log(message);
    }

    fn elicitation_completed(&self, mut params: Map<String, Value>) {
        self.scrub_params(&mut params);
        self.peer.elicitation_completed(params);
    }

    fn ask(
        &self,
        mut questions: Vec<KeyedInputRequest>,
    ) -> BoxFuture<'_, Result<InputResponses, InputRefusal>> {
        let bytes = questions.iter().map(|question| value_size(&question.ask.params)).sum();
        scrub_off_worker(bytes, || {
            let masks = self.redactor.known.masks.load();
            let mut scan = self.redactor.scan(&masks);
            questions.iter_mut().for_each(|question| scan.scrub_value(&mut question.ask.params));
        });
        self.peer.ask(questions)
    }

    fn offers(&self, kind: InputRequestKind) -> bool {
        self.peer.offers(kind)
    }
}

#[cfg(test)]
mod chosen_redaction_tests;
#[cfg(test)]
mod corpus_tests;
#[cfg(test)]
mod leak_tests;
#[cfg(test)]
mod offset_leak_tests;
#[cfg(test)]
mod redaction_oracle_tests;
#[cfg(test)]
mod scan_starvation_tests;
#[cfg(test)]
mod shape_tests;
#[cfg(test)]
mod speed_tests;
#[cfg(test)]
#[path = "redact_tests.rs"]
mod tests;
#[cfg(test)]
mod unknown_token_tests;
