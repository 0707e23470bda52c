//! Keeps secrets out of everything that leaves.
//!
//! Everything below this layer may hold secrets; nothing above may. Outputs, errors, and what a call says while it
//! runs (progress, logs, questions) all pass here. A value is known in its plain form and in the forms in which
//! it usually travels: inside a JSON string, percent-encoded, and in Base64 at any alignment. A secret that is
//! cut into pieces is not recognised.

use aho_corasick::{AhoCorasick, Input, MatchKind, PatternID};
use arc_swap::ArcSwap;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use portcullis_core::{
    Answers, AskKind, AskRefused, BoxFuture, Call, InputRequired, Layer, LogMessage, Next, Outcome, Output,
    Peer, Progress, Question, Secret, ToolError,
};
use serde_json::Value;
use std::borrow::Cow;
use std::fmt::Write;
use std::sync::Arc;

/// A shorter value stands in ordinary text by chance, and masking it would spoil replies and hide nothing.
const VALUE_BYTES_MIN: usize = 8;
/// How many secrets there may be. The automaton grows with them.
const SECRETS_MAX: usize = 10_000;

/// What Portcullis' own client tokens begin with.
const TOKEN_PREFIX: &str = "pcl_";
/// How many Base64 characters follow: 32 random bytes.
const TOKEN_CHARS: usize = 43;
const TOKEN_MASK: &str = "[REDACTED:CLIENT_TOKEN]";
/// The prefix is the first pattern of the automaton.
const TOKEN_PATTERN: PatternID = PatternID::ZERO;

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
    #[error("the secrets cannot be searched for: {0}")]
    Automaton(#[from] aho_corasick::BuildError),
}

/// Knows what must not leave. Cheap to clone; every clone knows the same.
#[derive(Clone)]
pub struct Redactor {
    masks: Arc<ArcSwap<Masks>>,
}

struct Masks {
    finder: AhoCorasick,
    /// What stands in place of each pattern.
    labels: Vec<Arc<str>>,
}

impl Redactor {
    /// Knows the given values by name, and client tokens by their shape.
    pub fn new(secrets: &[(String, Secret<String>)]) -> Result<Redactor, RedactError> {
        Ok(Redactor { masks: Arc::new(ArcSwap::from_pointee(Masks::new(secrets)?)) })
    }

    /// Knows other values from now on. If one of them is refused, nothing changes.
    pub fn replace(&self, secrets: &[(String, Secret<String>)]) -> Result<(), RedactError> {
        self.masks.store(Arc::new(Masks::new(secrets)?));
        Ok(())
    }

    /// Returns the text without secrets; the same text, if there are none.
    pub fn scrub<'t>(&self, text: &'t str) -> Cow<'t, str> {
        self.masks.load().scrub(text)
    }

    /// Replaces every secret in the error that its caller would read. The source goes to the log, not to the caller.
    pub fn scrub_error(&self, error: &mut ToolError) {
        let masks = self.masks.load();
        masks.scrub_in_place(&mut error.message);
        error.hints.iter_mut().for_each(|hint| masks.scrub_in_place(hint));
        if let Some(input) = &mut error.input {
            let InputRequired { questions, state } = &mut **input;
            questions.iter_mut().for_each(|question| masks.scrub_question(question));
            state.iter_mut().for_each(|state| masks.scrub_in_place(state));
        }
    }

    pub fn scrub_output(&self, output: &mut Output) {
        let masks = self.masks.load();
        // Texts are visited as copies here, and a result that is only passed on may be large.
        if let Output::Raw(raw) = output
            && masks.is_clean(raw.get())
        {
            return;
        }
        // Core rebuilds every object that it visits; ours are rebuilt only where a key changes.
        let mut structured = None;
        if let Output::Tool(tool) = output {
            structured = tool.structured.take();
        }
        output.visit_texts(&mut |text| masks.scrub_in_place(text));
        if let (Output::Tool(tool), Some(mut value)) = (output, structured) {
            masks.scrub_value(&mut value);
            tool.structured = Some(value);
        }
    }
}

impl Masks {
    fn new(secrets: &[(String, Secret<String>)]) -> Result<Masks, RedactError> {
        if secrets.len() > SECRETS_MAX {
            return Err(RedactError::TooMany { count: secrets.len() });
        }
        let (mut patterns, mut labels) = (vec![TOKEN_PREFIX.to_owned()], vec![Arc::from(TOKEN_MASK)]);
        for (name, value) in secrets {
            let value = value.expose();
            // The name is written into JSON that is already escaped.
            let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
            if name.is_empty() || !name.chars().all(fits) {
                return Err(RedactError::BadName { name: portcullis_core::json::printable(name) });
            }
            if value.len() < VALUE_BYTES_MIN {
                return Err(RedactError::TooShort { name: name.clone(), bytes: value.len() });
            }
            let label: Arc<str> = format!("[REDACTED:{name}]").into();
            let forms = forms_of(value);
            labels.extend(std::iter::repeat_n(label, forms.len()));
            patterns.extend(forms);
        }
        let finder = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(patterns)?;
        Ok(Masks { finder, labels })
    }

    fn scrub<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let (mut scrubbed, mut copied_to, mut at) = (String::new(), 0, 0);
        while let Some((start, end, label)) = self.find(text, at) {
            scrubbed.push_str(&text[copied_to..start]);
            scrubbed.push_str(label);
            (copied_to, at) = (end, end);
        }
        if copied_to == 0 {
            return Cow::Borrowed(text);
        }
        scrubbed.push_str(&text[copied_to..]);
        Cow::Owned(scrubbed)
    }

    /// Returns the next secret from `at` on: where it starts, where it ends, and what to show instead.
    fn find(&self, text: &str, mut at: usize) -> Option<(usize, usize, &str)> {
        loop {
            let found = self.finder.find(Input::new(text).range(at..))?;
            let end = match found.pattern() {
                TOKEN_PATTERN => token_end(text, found.end()),
                _ => Some(found.end()),
            };
            let label = self.labels.get(found.pattern().as_usize());
            match (end, label) {
                (Some(end), Some(label)) => return Some((found.start(), end, label)),
                // Only the prefix of a token. Another secret may begin within it.
                _ => at = found.start() + 1,
            }
        }
    }

    fn is_clean(&self, text: &str) -> bool {
        self.find(text, 0).is_none()
    }

    fn scrub_in_place(&self, text: &mut String) {
        if let Cow::Owned(scrubbed) = self.scrub(text) {
            *text = scrubbed;
        }
    }

    fn scrub_value(&self, value: &mut Value) {
        match value {
            Value::String(text) => self.scrub_in_place(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.scrub_value(item)),
            Value::Object(object) if object.keys().all(|key| self.is_clean(key)) => {
                object.values_mut().for_each(|value| self.scrub_value(value));
            }
            Value::Object(object) => {
                for (key, mut value) in std::mem::take(object) {
                    self.scrub_value(&mut value);
                    object.insert(self.scrub(&key).into_owned(), value);
                }
            }
            // A secret of digits can be sent as a number.
            Value::Number(number) => {
                if let Cow::Owned(scrubbed) = self.scrub(&number.to_string()) {
                    *value = Value::String(scrubbed);
                }
            }
            Value::Null | Value::Bool(_) => {}
        }
    }

    fn scrub_question(&self, question: &mut Question) {
        self.scrub_value(&mut question.ask.params);
    }
}

fn token_end(text: &str, from: usize) -> Option<usize> {
    let rest = text.as_bytes().get(from..from + TOKEN_CHARS)?;
    let fits = rest.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
    fits.then_some(from + TOKEN_CHARS)
}

/// Returns the value as it is, and as it looks where it usually travels.
fn forms_of(value: &str) -> Vec<String> {
    let mut forms = vec![value.to_owned()];
    let quoted = Value::String(value.to_owned()).to_string();
    forms.push(quoted[1..quoted.len() - 1].to_owned());
    forms.push(quoted[1..quoted.len() - 1].replace('/', "\\/"));
    forms.push(percent_encoded(value));
    for engine in [STANDARD_NO_PAD, URL_SAFE_NO_PAD] {
        for offset in 0..3 {
            forms.push(base64_inner(&engine, value.as_bytes(), offset));
        }
    }
    forms.sort_unstable();
    forms.dedup();
    forms
}

/// Returns the Base64 characters that stand for `value` alone, where `offset` other bytes come before it.
fn base64_inner(engine: &impl Engine, value: &[u8], offset: usize) -> String {
    let bytes = [&[0; 2][..offset], value].concat();
    let encoded = engine.encode(&bytes);
    // The first characters mix in what comes before, the last one what comes after.
    let skipped = [0, 2, 3][offset];
    let kept_to = if bytes.len().is_multiple_of(3) { encoded.len() } else { encoded.len() - 1 };
    encoded[skipped..kept_to].to_owned()
}

fn percent_encoded(value: &str) -> String {
    let mut encoded = String::new();
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            encoded.push(byte.into());
        } else {
            // Writing to a string cannot fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

/// The layer: scrubs what comes back, and what is said on the way.
pub(crate) struct Redact {
    redactor: Redactor,
}

impl Redact {
    pub(crate) fn new(redactor: Redactor) -> Redact {
        Redact { redactor }
    }
}

impl Layer for Redact {
    fn call<'a>(&'a self, mut call: Call, next: Next<'a>) -> BoxFuture<'a, Outcome> {
        let peer = RedactedPeer { peer: call.ctx.peer, redactor: self.redactor.clone() };
        call.ctx.peer = Arc::new(peer);
        Box::pin(async move {
            let mut outcome = next.run(call).await;
            // Errors quote arguments and upstream text, so they are scrubbed too.
            match &mut outcome {
                Ok(output) => self.redactor.scrub_output(output),
                Err(error) => self.redactor.scrub_error(error),
            }
            outcome
        })
    }
}

/// The other end of the call, to which no secret is told.
struct RedactedPeer {
    peer: Arc<dyn Peer>,
    redactor: Redactor,
}

impl Peer for RedactedPeer {
    fn progress(&self, mut progress: Progress) {
        let masks = self.redactor.masks.load();
        progress.message.iter_mut().for_each(|message| masks.scrub_in_place(message));
        self.peer.progress(progress);
    }

    fn log(&self, mut message: LogMessage) {
        let masks = self.redactor.masks.load();
        masks.scrub_in_place(&mut message.logger);
        masks.scrub_value(&mut message.data);
        self.peer.log(message);
    }

    fn ask(&self, mut questions: Vec<Question>) -> BoxFuture<'_, Result<Answers, AskRefused>> {
        let masks = self.redactor.masks.load();
        questions.iter_mut().for_each(|question| masks.scrub_question(question));
        self.peer.ask(questions)
    }

    fn offers(&self, kind: AskKind) -> bool {
        self.peer.offers(kind)
    }

    fn state(&self) -> Option<&str> {
        self.peer.state()
    }

    fn let_go(&self) {
        self.peer.let_go();
    }
}

#[cfg(test)]
#[path = "redact_tests.rs"]
mod tests;
