//! What one line of the audit log says.

use super::chain::{ChainKey, Mac};
use super::preview;
use crate::ending::Ending;
use crate::redact::Redactor;
use portcullis_core::{Call, CallId, Client, Effect, Origin, ToolDef, Trail};
use serde::Serialize;
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
            digest: call.digest(),
            concealed: OnceLock::new(),
            preview: preview::of(&call.arguments, redactor),
            begin_seq: AtomicU64::new(0),
            effect: call.effect(),
            trail: call.trail.clone(),
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

fn cut(text: &str) -> String {
    let kept = &text[..text.floor_char_boundary(TARGET_BYTES_MAX)];
    if kept.len() < text.len() { format!("{kept}…") } else { kept.to_owned() }
}

/// What happened.
pub(crate) enum Record {
    Begin { at: SystemTime, subject: Arc<Subject> },
    End { at: SystemTime, subject: Arc<Subject>, ending: Ending, bytes: usize, duration: Duration },
}

/// The written form. Its field names are what `audit search` and other people's tools rely on.
#[derive(Serialize)]
struct Line<'a> {
    seq: u64,
    time: &'a str,
    call: u64,
    phase: &'static str,
    client: &'a str,
    origin: &'static str,
    kind: &'static str,
    target: &'a str,
    digest: Mac,
    /// Only at the beginning: the same again would make the log half as large again.
    #[serde(skip_serializing_if = "Option::is_none")]
    args: Option<&'a str>,
    effect: &'static str,
    /// The call of the script that made this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    within: Option<u64>,
    #[serde(flatten)]
    end: Option<End<'a>>,
}

#[derive(Serialize)]
struct End<'a> {
    /// The number of the begin record. Missing if that one was lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    begin: Option<u64>,
    /// Missing if the call was refused before anyone decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    decision: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<&'a str>,
    /// Which approval let it run, for how long that counts, and whose it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    approval: Option<&'a str>,
    outcome: &'static str,
    bytes: usize,
    duration_us: u128,
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

    /// Adds the record to `lines` as an object. Its code is not in it yet.
    pub(crate) fn write(&self, seq: u64, key: &ChainKey, times: &mut Times, lines: &mut Vec<u8>) {
        let subject = self.subject();
        let (at, phase, args, end) = match self {
            Record::Begin { at, .. } => {
                subject.begin_seq.store(seq, Ordering::Relaxed);
                (at, "begin", Some(subject.preview.as_str()), None)
            }
            Record::End { at, ending, bytes, duration, .. } => {
                let decision = subject.decision();
                let end = End {
                    begin: Some(subject.begin_seq.load(Ordering::Relaxed)).filter(|seq| *seq > 0),
                    decision: decision.map(|(decision, _)| decision),
                    rule: decision.map(|(_, rule)| rule),
                    approval: subject.approval(),
                    outcome: ending.as_str(),
                    bytes: *bytes,
                    duration_us: duration.as_micros(),
                };
                (at, "end", None, Some(end))
            }
        };
        let line = Line {
            seq,
            time: times.text(*at),
            call: subject.call.get(),
            phase,
            client: subject.client(),
            origin: subject.origin(),
            kind: subject.kind,
            target: subject.target(),
            digest: *subject.concealed.get_or_init(|| key.conceal(&subject.digest)),
            args,
            effect: subject.effect.as_str(),
            within: subject.trail.within.map(CallId::get),
            end,
        };
        write_object(&line, lines);
    }
}

/// Adds an object to `lines`.
pub(crate) fn write_object(object: &impl Serialize, lines: &mut Vec<u8>) {
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
