//! One record of the audit log, and its JSON line.

use super::chain::{ChainKey, Mac};
use super::preview;
use crate::extra_params;
use crate::outcome_kind::OutcomeKind;
use crate::redact::Redactor;
use portcullis_core::hidden_chars::is_unseen;
use portcullis_core::{Call, CallId, Client, Effect, Event, Limit, Origin, ToolDef, Trail};
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

/// Bound on a URI or unknown name in a record. Longer than any name and most URIs.
pub(super) const TARGET_BYTES_MAX: usize = 512;

/// The common part of the begin and end record of a call.
pub(crate) struct AuditSubject {
    pub(crate) call: CallId,
    client: Arc<Client>,
    origin: Origin,
    kind: &'static str,
    target: TargetName,
    digest: [u8; 32],
    /// The keyed digest, computed on first use.
    concealed: OnceLock<Mac>,
    preview: String,
    /// What acts for the client, for a call of the hub's own. Redacted.
    via: Option<String>,
    effect: Effect,
    /// The sequence number of the begin record; zero until it is written.
    begin_seq: AtomicU64,
    /// Read when the end is written; by then the decision is set.
    trail: Arc<Trail>,
}

enum TargetName {
    Tool(Arc<ToolDef>),
    /// Untrusted text.
    Text(String),
}

impl AuditSubject {
    pub(crate) fn of(call: &Call, redactor: &Redactor) -> AuditSubject {
        let target = match call.tool() {
            Some(tool) => TargetName::Tool(tool.clone()),
            // Redacted before the cut, because a truncated secret is not recognized.
            None => TargetName::Text(cut(&redactor.scrub(call.target.name()))),
        };
        AuditSubject {
            call: call.id,
            client: call.caller().client.clone(),
            origin: call.caller().origin,
            kind: call.target.kind(),
            target,
            digest: digest(call),
            concealed: OnceLock::new(),
            preview: preview::of(call, redactor),
            via: call.trail.via().map(|via| cut(&redactor.scrub(via))),
            begin_seq: AtomicU64::new(0),
            effect: call.effect(),
            trail: call.trail.clone(),
        }
    }

    /// Returns the subject of an event, which is recorded like a call.
    pub(crate) fn of_event(event: &Event, redactor: &Redactor) -> AuditSubject {
        let digest = Sha256::new()
            .chain_update(event.kind)
            .chain_update([0])
            .chain_update(&event.target)
            .chain_update([0])
            .chain_update(event.details.to_string());
        AuditSubject {
            call: CallId::new(),
            client: event.caller.client.clone(),
            origin: event.caller.origin,
            kind: event.kind,
            target: TargetName::Text(cut(&redactor.scrub(&event.target))),
            digest: digest.finalize().into(),
            concealed: OnceLock::new(),
            preview: preview::of_details(&event.details, redactor),
            via: None,
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

    /// Returns the upstream server or native family of a known tool.
    pub(crate) fn server(&self) -> Option<&str> {
        match &self.target {
            TargetName::Tool(tool) => Some(tool.provider()),
            TargetName::Text(_) => None,
        }
    }

    pub(crate) fn effect(&self) -> &'static str {
        self.effect.as_str()
    }

    pub(crate) fn preview(&self) -> &str {
        &self.preview
    }

    /// Returns the decision so far, with its rule.
    pub(crate) fn decision(&self) -> Option<(&'static str, &str)> {
        self.trail.decision.get().map(|decision| (decision.as_str(), decision.rule()))
    }

    pub(crate) fn approval(&self) -> Option<&str> {
        self.trail.approval.get().map(String::as_str)
    }
}

/// Returns a digest of the call as it is forwarded, including extra parameters.
fn digest(call: &Call) -> [u8; 32] {
    let digest = call.digest();
    match extra_params::members(call) {
        None => digest,
        Some(members) => Sha256::new().chain_update(digest).chain_update(members).finalize().into(),
    }
}

fn cut(text: &str) -> String {
    let kept = &text[..text.floor_char_boundary(TARGET_BYTES_MAX)];
    if kept.len() < text.len() { format!("{kept}…") } else { kept.to_owned() }
}

/// One event of the journal.
pub(crate) enum JournalRecord {
    Begin { at: SystemTime, subject: Arc<AuditSubject> },
    End { at: SystemTime, subject: Arc<AuditSubject>, ending: OutcomeKind, bytes: usize, duration: Duration },
}

/// Marks records that were lost because they could be neither written nor buffered.
#[derive(Serialize)]
pub(crate) struct GapRecord {
    pub(crate) seq: u64,
    pub(crate) phase: &'static str,
    pub(crate) lost: u64,
}

/// The first record of every file but the first, and the record after a torn line.
#[derive(Default, Serialize, serde::Deserialize)]
pub(crate) struct OpeningRecord {
    pub(crate) seq: u64,
    pub(crate) time: String,
    /// `file`, or `torn` if the lines before it are not records.
    pub(crate) phase: String,
    /// The previous file, if this is the first record of its file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) previous: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) previous_mac: Option<Mac>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub(crate) torn: Option<TornTail>,
}

/// The size and digest of a line torn by a crash, including the newline that ends it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, serde::Deserialize)]
pub(crate) struct TornTail {
    pub(crate) torn_bytes: u64,
    pub(crate) torn_sha256: Mac,
}

impl JournalRecord {
    pub(crate) fn subject(&self) -> &Arc<AuditSubject> {
        match self {
            JournalRecord::Begin { subject, .. } | JournalRecord::End { subject, .. } => subject,
        }
    }

    /// Appends the record to `lines` as an object without its MAC. `audit search` and third-party tools rely on the field
    /// names.
    pub(crate) fn write(&self, seq: u64, key: &ChainKey, times: &mut TimestampCache, lines: &mut Vec<u8>) {
        let subject = self.subject();
        let (at, phase) = match self {
            JournalRecord::Begin { at, .. } => (at, "begin"),
            JournalRecord::End { at, .. } => (at, "end"),
        };
        let mut line = ObjectWriter::begin(lines, "seq", seq);
        line.word("time", times.text(*at));
        line.number("call", subject.call.get());
        line.word("phase", phase);
        line.text("client", subject.client());
        line.word("origin", subject.origin());
        line.word("kind", subject.kind);
        line.text("target", subject.target());
        line.code("digest", *subject.concealed.get_or_init(|| key.conceal(&subject.digest)));
        if let JournalRecord::Begin { .. } = self {
            subject.begin_seq.store(seq, Ordering::Relaxed);
            // Not repeated at the end, which would make the log half as large again.
            line.text("args", &subject.preview);
        }
        line.word("effect", subject.effect.as_str());
        // The schedule or the conversation that made the call.
        if let Some(via) = &subject.via {
            line.text("via", via);
        }
        // The parent call, for a call that another one made.
        if let Some(within) = subject.trail.within {
            line.number("within", within.get());
        }
        if let JournalRecord::End { ending, bytes, duration, .. } = self {
            // Missing if the begin record was lost.
            let begin = subject.begin_seq.load(Ordering::Relaxed);
            if begin > 0 {
                line.number("begin", begin);
            }
            // Absent if the call was refused before a decision.
            if let Some((decision, rule)) = subject.decision() {
                line.word("decision", decision);
                line.text("rule", rule);
            }
            // The approval, its scope, and who gave it.
            if let Some(approval) = subject.approval() {
                line.text("approval", approval);
            }
            line.word("outcome", ending.as_str());
            let masked = subject.trail.masked.load(Ordering::Relaxed);
            if masked > 0 {
                line.number("masked", masked as u64);
            }
            // The client's reads look like guesses at a weak secret.
            if subject.trail.guessing.load(Ordering::Relaxed) {
                line.word("alert", Limit::SecretGuesses.label());
            }
            line.number("bytes", *bytes as u64);
            line.number("duration_us", u64::try_from(duration.as_micros()).unwrap_or(u64::MAX));
        }
        line.end();
    }
}

/// Writes an object member by member, which is faster than `serde` for two records per call.
struct ObjectWriter<'l>(&'l mut Vec<u8>);

impl<'l> ObjectWriter<'l> {
    fn begin(lines: &'l mut Vec<u8>, key: &'static str, number: u64) -> ObjectWriter<'l> {
        lines.extend_from_slice(b"{\"");
        lines.extend_from_slice(key.as_bytes());
        lines.extend_from_slice(b"\":");
        write_object(&number, lines);
        ObjectWriter(lines)
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

    /// Untrusted text.
    fn text(&mut self, key: &'static str, text: &str) {
        self.key(key);
        write_text(text, self.0);
    }

    /// A word from the hub that needs no escapes.
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

/// Appends a JSON string with hidden characters escaped, so that no terminal or editor shows the log reordered or
/// incomplete. A parser reads the same string.
pub(crate) fn write_text(text: &str, lines: &mut Vec<u8>) {
    if !text.chars().any(is_unseen) {
        return write_object(text, lines);
    }
    lines.extend_from_slice(escaped(text).as_bytes());
}

/// Returns a text as a JSON string as in the log, with quotes.
pub(crate) fn escaped(text: &str) -> String {
    use std::fmt::Write;
    let mut escaped = String::with_capacity(text.len() + 2);
    // JSON's own escapes are ASCII by now, so any hidden character left can be escaped.
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

/// Appends a value.
pub(crate) fn write_object(object: &(impl Serialize + ?Sized), lines: &mut Vec<u8>) {
    if let Err(error) = serde_json::to_writer(&mut *lines, object) {
        // Numbers and strings into a buffer cannot fail. If they did, a broken line would be right.
        tracing::error!(%error, "audit record could not be serialized");
    }
}

/// Formats timestamps, and caches the last one, because many records share a millisecond.
#[derive(Default)]
pub(crate) struct TimestampCache {
    last: Option<u128>,
    text: String,
}

impl TimestampCache {
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
