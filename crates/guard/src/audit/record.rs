//! What one line of the audit log says.

use super::chain::{ChainKey, Mac};
use super::preview;
use crate::beside;
use crate::ending::Ending;
use crate::redact::Redactor;
use portcullis_core::text::is_unseen;
use portcullis_core::{Call, CallId, Client, Effect, Event, Limit, Origin, ToolDef, Trail};
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

/// How much of an address or of an unknown name is written. Longer than any name, and than most addresses.
pub(super) const TARGET_BYTES_MAX: usize = 512;

/// What begin and end of a call have in common.
pub(crate) struct Subject {
    pub(crate) call: CallId,
    client: Arc<Client>,
    origin: Origin,
    kind: &'static str,
    target: TargetName,
    digest: [u8; 32],
    /// The same as it is written, once it was.
    concealed: OnceLock<Mac>,
    preview: String,
    effect: Effect,
    /// The number of the begin record, once it is written; zero until then.
    begin_seq: AtomicU64,
    /// Read when the end is written: by then it is decided.
    trail: Arc<Trail>,
}

enum TargetName {
    Tool(Arc<ToolDef>),
    /// Something that a stranger wrote.
    Text(String),
}

impl Subject {
    pub(crate) fn of(call: &Call, redactor: &Redactor) -> Subject {
        let target = match call.tool() {
            Some(tool) => TargetName::Tool(tool.clone()),
            // First scrubbed, then cut: half a secret is not recognised.
            None => TargetName::Text(cut(&redactor.scrub(call.target.name()))),
        };
        Subject {
            call: call.id,
            client: call.caller.client.clone(),
            origin: call.caller.origin,
            kind: call.target.kind(),
            target,
            digest: digest(call),
            concealed: OnceLock::new(),
            preview: preview::of(call, redactor),
            begin_seq: AtomicU64::new(0),
            effect: call.effect(),
            trail: call.trail.clone(),
        }
    }

    /// Returns the subject of an event, which is recorded like a call.
    pub(crate) fn of_event(event: &Event, redactor: &Redactor) -> Subject {
        let digest = Sha256::new()
            .chain_update(event.kind)
            .chain_update([0])
            .chain_update(&event.target)
            .chain_update([0])
            .chain_update(event.details.to_string());
        Subject {
            call: CallId::new(),
            client: event.caller.client.clone(),
            origin: event.caller.origin,
            kind: event.kind,
            target: TargetName::Text(cut(&redactor.scrub(&event.target))),
            digest: digest.finalize().into(),
            concealed: OnceLock::new(),
            preview: preview::of_details(&event.details, redactor),
            begin_seq: AtomicU64::new(0),
            effect: event.effect,
            trail: Arc::default(),
        }
    }

    pub(crate) fn has_side_effects(&self) -> bool {
        self.effect.has_side_effects()
    }

    pub(crate) fn client(&self) -> &str {
        &self.client.name
    }

    pub(crate) fn origin(&self) -> &'static str {
        self.origin.as_str()
    }

    pub(crate) fn kind(&self) -> &'static str {
        self.kind
    }

    pub(crate) fn target(&self) -> &str {
        match &self.target {
            TargetName::Tool(tool) => &tool.name,
            TargetName::Text(text) => text,
        }
    }

    pub(crate) fn effect(&self) -> &'static str {
        self.effect.as_str()
    }

    pub(crate) fn preview(&self) -> &str {
        &self.preview
    }

    /// What was decided by now, and by which rule.
    pub(crate) fn decision(&self) -> Option<(&'static str, &str)> {
        self.trail.decision.get().map(|decision| (decision.as_str(), decision.rule()))
    }

    pub(crate) fn approval(&self) -> Option<&str> {
        self.trail.approval.get().map(String::as_str)
    }
}

/// Returns a digest of the call as it is sent on, with what stands beside its arguments.
fn digest(call: &Call) -> [u8; 32] {
    let digest = call.digest();
    match beside::members(call) {
        None => digest,
        Some(members) => Sha256::new().chain_update(digest).chain_update(members).finalize().into(),
    }
}

fn cut(text: &str) -> String {
    let kept = &text[..text.floor_char_boundary(TARGET_BYTES_MAX)];
    if kept.len() < text.len() { format!("{kept}…") } else { kept.to_owned() }
}

/// What happened.
pub(crate) enum Record {
    Begin { at: SystemTime, subject: Arc<Subject> },
    End { at: SystemTime, subject: Arc<Subject>, ending: Ending, bytes: usize, duration: Duration },
}

/// Stands where records would stand that could be neither written nor kept.
#[derive(Serialize)]
pub(crate) struct Gap {
    pub(crate) seq: u64,
    pub(crate) phase: &'static str,
    pub(crate) lost: u64,
}

/// Stands at the beginning of a file that is not the first, and after a line that was cut off.
#[derive(Default, Serialize, serde::Deserialize)]
pub(crate) struct Opening {
    pub(crate) seq: u64,
    pub(crate) time: String,
    /// `file`, or `torn` if there is something before this line that is no record.
    pub(crate) phase: String,
    /// The file before this one, if this is the first record of its file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) previous: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) previous_mac: Option<Mac>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub(crate) torn: Option<Torn>,
}

/// What was left of lines that were being written when the machine went down, with the line end that closes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, serde::Deserialize)]
pub(crate) struct Torn {
    pub(crate) torn_bytes: u64,
    pub(crate) torn_sha256: Mac,
}

impl Record {
    pub(crate) fn subject(&self) -> &Arc<Subject> {
        match self {
            Record::Begin { subject, .. } | Record::End { subject, .. } => subject,
        }
    }

    /// Adds the record to `lines` as an object. Its code is not in it yet. The names in it are what `audit search` and other
    /// people's tools rely on.
    pub(crate) fn write(&self, seq: u64, key: &ChainKey, times: &mut Times, lines: &mut Vec<u8>) {
        let subject = self.subject();
        let (at, phase) = match self {
            Record::Begin { at, .. } => (at, "begin"),
            Record::End { at, .. } => (at, "end"),
        };
        let mut line = Object::begin(lines, "seq", seq);
        line.word("time", times.text(*at));
        line.number("call", subject.call.get());
        line.word("phase", phase);
        line.text("client", subject.client());
        line.word("origin", subject.origin());
        line.word("kind", subject.kind);
        line.text("target", subject.target());
        line.code("digest", *subject.concealed.get_or_init(|| key.conceal(&subject.digest)));
        if let Record::Begin { .. } = self {
            subject.begin_seq.store(seq, Ordering::Relaxed);
            // Only here: the same again at the end would make the log half as large again.
            line.text("args", &subject.preview);
        }
        line.word("effect", subject.effect.as_str());
        // The call of the script that made this one.
        if let Some(within) = subject.trail.within {
            line.number("within", within.get());
        }
        if let Record::End { ending, bytes, duration, .. } = self {
            // Missing if the begin record was lost.
            let begin = subject.begin_seq.load(Ordering::Relaxed);
            if begin > 0 {
                line.number("begin", begin);
            }
            // Missing if the call was refused before anyone decided.
            if let Some((decision, rule)) = subject.decision() {
                line.word("decision", decision);
                line.text("rule", rule);
            }
            // Which approval let it run, for how long that counts, and whose it was.
            if let Some(approval) = subject.approval() {
                line.text("approval", approval);
            }
            line.word("outcome", ending.as_str());
            let masked = subject.trail.masked.load(Ordering::Relaxed);
            if masked > 0 {
                line.number("masked", masked as u64);
            }
            // The client reads as if it guessed a weak secret.
            if subject.trail.guessing.load(Ordering::Relaxed) {
                line.word("alert", Limit::SecretGuesses.label());
            }
            line.number("bytes", *bytes as u64);
            line.number("duration_us", u64::try_from(duration.as_micros()).unwrap_or(u64::MAX));
        }
        line.end();
    }
}

/// An object that is written member by member. There are two for every call, and most of each is known beforehand.
struct Object<'l>(&'l mut Vec<u8>);

impl<'l> Object<'l> {
    fn begin(lines: &'l mut Vec<u8>, key: &'static str, number: u64) -> Object<'l> {
        lines.extend_from_slice(b"{\"");
        lines.extend_from_slice(key.as_bytes());
        lines.extend_from_slice(b"\":");
        write_object(&number, lines);
        Object(lines)
    }

    fn key(&mut self, key: &'static str) {
        self.0.extend_from_slice(b",\"");
        self.0.extend_from_slice(key.as_bytes());
        self.0.extend_from_slice(b"\":");
    }

    fn number(&mut self, key: &'static str, number: u64) {
        self.key(key);
        write_object(&number, self.0);
    }

    /// What others wrote.
    fn text(&mut self, key: &'static str, text: &str) {
        self.key(key);
        write_text(text, self.0);
    }

    /// A word of the hub's own, with nothing in it that JSON would write in another way.
    fn word(&mut self, key: &'static str, word: &str) {
        debug_assert!(word.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\'));
        self.plain(key, word.as_bytes());
    }

    fn code(&mut self, key: &'static str, code: Mac) {
        self.plain(key, &code.digits());
    }

    fn plain(&mut self, key: &'static str, bytes: &[u8]) {
        self.key(key);
        self.0.push(b'"');
        self.0.extend_from_slice(bytes);
        self.0.push(b'"');
    }

    fn end(self) {
        self.0.push(b'}');
    }
}

/// Adds a text to `lines` as a JSON string, with everything in it that is not seen as an escape: a terminal or an editor that
/// shows the log shows nothing hidden or reordered. It is the same string to a parser.
pub(crate) fn write_text(text: &str, lines: &mut Vec<u8>) {
    if !text.chars().any(is_unseen) {
        return write_object(text, lines);
    }
    lines.extend_from_slice(escaped(text).as_bytes());
}

/// Returns a text as it stands in the log, with its quotes.
pub(crate) fn escaped(text: &str) -> String {
    use std::fmt::Write;
    let mut escaped = String::with_capacity(text.len() + 2);
    // What JSON itself must escape is ASCII by now; of the rest any character may be.
    for c in serde_json::Value::from(text).to_string().chars() {
        if is_unseen(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing to a string cannot fail.
                let _ = write!(escaped, "\\u{unit:04x}");
            }
        } else {
            escaped.push(c);
        }
    }
    escaped
}

/// Adds a value to `lines`.
pub(crate) fn write_object(object: &(impl Serialize + ?Sized), lines: &mut Vec<u8>) {
    if let Err(error) = serde_json::to_writer(&mut *lines, object) {
        // Numbers and texts in a growing buffer: there is nothing that could fail. If it does, a broken line in the
        // log is right.
        tracing::error!(%error, "An audit record could not be put into words.");
    }
}

/// Times in words. Many records are of the same millisecond, which is said once.
#[derive(Default)]
pub(crate) struct Times {
    last: Option<u128>,
    text: String,
}

impl Times {
    fn text(&mut self, at: SystemTime) -> &str {
        let millisecond = at.duration_since(SystemTime::UNIX_EPOCH).ok().map(|since| since.as_millis());
        if millisecond.is_none() || millisecond != self.last {
            (self.last, self.text) = (millisecond, time_text(at));
        }
        &self.text
    }
}

pub(crate) fn time_text(at: SystemTime) -> String {
    jiff::Timestamp::try_from(at).map_or_else(|_| "unknown".to_owned(), |time| format!("{time:.3}"))
}
