//! Keeps secrets out of everything that leaves.
//!
//! Everything below this layer may hold secrets; nothing above may. Outputs, errors, and what a call says while it
//! runs (progress, logs, questions) all pass here. A value is known in any case, escaped, encoded or packed, and that up
//! to three times, and split by separators; the tokens of well-known providers are known by their shape. What cannot be
//! checked within its budget is withheld. A secret of which parts are missing, or enciphered, is not recognised.
//!
//! `forms` writes a secret in the ways it travels, `index` and `split` find them, `view`, `runs`, `base58` and `packed`
//! undo escapes, encodings and compression, `shapes` knows tokens, those of `providers`, `scan` puts it all together within a
//! `budget`, and `stream` does it piece by piece. What is large is scrubbed by the `scrub_pool`, not on an async worker.
//! `look_alikes` and `guesses` keep a client from finding a weak secret by reading back guesses.

mod base58;
mod budget;
mod forms;
mod guesses;
mod index;
mod look_alikes;
mod packed;
mod providers;
mod runs;
mod scan;
mod scrub_pool;
mod shapes;
mod split;
mod stream;
mod view;

pub use guesses::GuessAlert;
pub use scan::MASK_BEGINS;
pub use stream::Scrubber;

use crate::contain;
use arc_swap::ArcSwap;
use budget::{Budget, OverBudget};
use guesses::{Guesses, Reader};
use portcullis_core::{
    Answers, AskKind, AskRefused, BoxFuture, Call, Client, InputRequired, Layer, Limits, LogMessage, Next,
    Outcome, Output, Peer, Progress, Question, Scope, Scrub, Secret, ToolError, Trail, scrub_off_worker,
    value_size,
};
use scan::{Masks, Scan};
use scrub_pool::{ScrubPool, Waiter};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::time::Instant;

/// A shorter value stands in ordinary text by chance, and masking it would spoil replies and hide nothing.
const VALUE_BYTES_MIN: usize = 8;
/// How many secrets there may be. The index grows with them.
const SECRETS_MAX: usize = 10_000;
/// Who reads what the hub says outside of calls. No client can have such a name.
const MESSAGES: &str = "(messages outside of calls)";

/// Why a secret cannot be masked.
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

/// What becomes of tokens that nobody told us about, but whose shape says what they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TokenShapes {
    #[default]
    Mask,
    Leave,
}

/// Knows what must not leave. Cheap to clone; every clone knows the same.
#[derive(Clone)]
pub struct Redactor {
    known: Arc<Knowledge>,
    /// Who reads what is scrubbed, if a client does.
    reader: Option<Arc<Reader>>,
}

struct Knowledge {
    masks: ArcSwap<Masks>,
    leaves_shapes: AtomicBool,
    /// Grows after every change.
    generation: AtomicU64,
    guesses: Guesses,
}

impl Redactor {
    /// Knows the given values by name, and tokens by their shape.
    pub fn new(secrets: &[(String, Secret<String>)]) -> Result<Redactor, RedactError> {
        let masks = ArcSwap::from_pointee(Masks::new(secrets)?);
        let known = Knowledge {
            masks,
            leaves_shapes: AtomicBool::new(false),
            generation: AtomicU64::new(0),
            guesses: Guesses::default(),
        };
        Ok(Redactor { known: Arc::new(known), reader: None })
    }

    /// Returns one that knows the same and counts what the caller reads.
    pub(crate) fn for_call(&self, call: &Call) -> Redactor {
        self.read_by(Reader { client: call.caller.client.clone(), trail: call.trail.clone() })
    }

    /// Returns one that knows the same, for what the hub says to clients outside of calls. All of them count together.
    pub fn for_messages(&self) -> Redactor {
        let (name, scope) = (MESSAGES.to_owned(), Scope::everything());
        let client = Arc::new(Client { name, scope, token: None });
        self.read_by(Reader { client, trail: Arc::new(Trail::default()) })
    }

    fn read_by(&self, reader: Reader) -> Redactor {
        Redactor { known: self.known.clone(), reader: Some(Arc::new(reader)) }
    }

    /// Returns which clients read as if they guessed a secret.
    pub fn alerts(&self) -> Vec<GuessAlert> {
        self.known.guesses.alerts()
    }

    /// Says what becomes of the tokens of others from now on. Portcullis' own are masked in any case.
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

    /// Last, so that whoever sees the new number scrubs with what is new.
    fn changed(&self) {
        self.known.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// Knows other values from now on. If one of them is refused, nothing changes.
    pub fn replace(&self, secrets: &[(String, Secret<String>)]) -> Result<(), RedactError> {
        self.known.masks.store(Arc::new(Masks::new(secrets)?));
        self.changed();
        Ok(())
    }

    /// Returns the text without secrets; the same text, if there are none.
    pub fn scrub<'t>(&self, text: &'t str) -> Cow<'t, str> {
        scrub_off_worker(text.len(), || self.scan(&self.known.masks.load()).scrub(text))
    }

    /// Returns something that scrubs a text which arrives in pieces.
    pub fn scrubber(&self) -> Scrubber {
        Scrubber::new(self.clone())
    }

    /// Replaces every secret in the error that its caller would read. The source goes to the log, not to the caller.
    pub fn scrub_error(&self, error: &mut ToolError) {
        let masks = self.known.masks.load();
        let mut scan = self.scan(&masks);
        scan.scrub_in_place(&mut error.message);
        error.hints.iter_mut().for_each(|hint| scan.scrub_in_place(hint));
        if let Some(foreign) = &mut error.foreign {
            scan.scrub_in_place(&mut foreign.message);
            foreign.data = foreign.data.take().and_then(|data| scan.scrubbed_raw(data));
        }
        // Under another name an answer could not come back.
        let is_unclean = error.input.as_deref().is_some_and(|input| {
            input.questions.iter().any(|question| scan.scrub(&question.key) != question.key)
        });
        if is_unclean {
            *error = ToolError::unavailable("the server asks something under a name that holds a secret")
                .hint("an administrator can report this to whoever offers the server");
        }
        if let Some(input) = &mut error.input {
            // What the hub made up itself holds no secret.
            let InputRequired { questions, state, more, approved: _ } = &mut **input;
            questions.iter_mut().for_each(|question| scan.scrub_value(&mut question.ask.params));
            state.iter_mut().for_each(|state| scan.scrub_in_place(state));
            scan.scrub_members(more);
        }
    }

    pub fn scrub_output(&self, output: &mut Output) {
        let masks = self.known.masks.load();
        let mut scan = self.scan(&masks);
        // Texts are visited as copies here, and a result that is only passed on may be large.
        if let Output::Raw(raw) = output {
            match scan.regions(raw.get().as_bytes()) {
                Ok(regions) if regions.is_empty() => return,
                Ok(_) => scan = self.scan(&masks),
                // What is spent stays spent: everything below is withheld without another look.
                Err(OverBudget) => {}
            }
        }
        // Core rebuilds every object that it visits; ours are rebuilt only where a key changes.
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
        Scan { masks, shapes, budget: Budget::new(), counted }
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

/// The layer: scrubs what comes back, and what is said on the way.
pub(crate) struct Redact {
    redactor: Redactor,
    pool: ScrubPool,
    /// What no call may go beyond, whatever its tool declares.
    ceiling: Limits,
}

impl Redact {
    pub(crate) fn new(redactor: Redactor, ceiling: Limits) -> Redact {
        Redact { redactor, pool: ScrubPool::default(), ceiling }
    }

    /// Errors quote arguments and upstream text, so they are scrubbed too.
    async fn scrubbed(&self, redactor: Redactor, mut outcome: Outcome, waiter: &Waiter) -> Outcome {
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

/// Returns about how many bytes of an error its caller would read.
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

impl Layer for Redact {
    fn call<'a>(&'a self, mut call: Box<Call>, next: Next<'a>) -> BoxFuture<'a, Outcome> {
        let redactor = self.redactor.for_call(&call);
        let peer = RedactedPeer { peer: call.ctx.peer, redactor: redactor.clone() };
        call.ctx.peer = Arc::new(peer);
        // The deadline is kept further in; here it bounds how long a large outcome waits to be scrubbed.
        let deadline = contain::declared(&call).at_most(self.ceiling).deadline();
        let (client, cancel) = (call.caller.client.clone(), call.ctx.cancel.clone());
        let (trail, started) = (call.trail.clone(), Instant::now());
        Box::pin(async move {
            let outcome = next.run(call).await;
            let due = started + deadline + trail.waits.total();
            let waiter = Waiter { client, deadline, due, cancel };
            self.scrubbed(redactor, outcome, &waiter).await
        })
    }
}

/// The other end of the call, to which no secret is told.
struct RedactedPeer {
    peer: Arc<dyn Peer>,
    redactor: Redactor,
}

impl RedactedPeer {
    /// What is said on the way keeps its order, so it is scrubbed where it is said.
    fn scrub_said(&self, said: &mut Map<String, Value>) {
        scrub_off_worker(members_size(said), || {
            self.redactor.scan(&self.redactor.known.masks.load()).scrub_members(said);
        });
    }
}

impl Peer for RedactedPeer {
    fn behind(&self) -> Option<&dyn Peer> {
        Some(&*self.peer)
    }

    fn progress(&self, mut progress: Progress) {
        self.scrub_said(&mut progress.said);
        self.peer.progress(progress);
    }

    fn log(&self, mut message: LogMessage) {
        self.scrub_said(&mut message.said);
        self.peer.log(message);
    }

    fn elicited(&self, mut said: Map<String, Value>) {
        self.scrub_said(&mut said);
        self.peer.elicited(said);
    }

    fn ask(&self, mut questions: Vec<Question>) -> BoxFuture<'_, Result<Answers, AskRefused>> {
        let bytes = questions.iter().map(|question| value_size(&question.ask.params)).sum();
        scrub_off_worker(bytes, || {
            let masks = self.redactor.known.masks.load();
            let mut scan = self.redactor.scan(&masks);
            questions.iter_mut().for_each(|question| scan.scrub_value(&mut question.ask.params));
        });
        self.peer.ask(questions)
    }

    fn offers(&self, kind: AskKind) -> bool {
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
