//! What one line of the audit log says.

use crate::ending::Ending;
use crate::redact::Redactor;
use portcullis_core::{Call, CallId, Client, Effect, Origin, ToolDef, Trail};
use serde::Serialize;
use std::sync::Arc;
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
    effect: Effect,
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
            effect: call.effect(),
            trail: call.trail.clone(),
        }
    }

    pub(crate) fn has_side_effects(&self) -> bool {
        self.effect.has_side_effects()
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
    time: String,
    call: u64,
    phase: &'static str,
    client: &'a str,
    origin: &'static str,
    kind: &'static str,
    target: &'a str,
    digest: String,
    effect: &'static str,
    #[serde(flatten)]
    end: Option<End<'a>>,
}

#[derive(Serialize)]
struct End<'a> {
    /// Missing if the call was refused before anyone decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    decision: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<&'a str>,
    outcome: &'static str,
    bytes: usize,
    duration_us: u128,
}

/// Stands where records would stand that could be neither written nor kept.
#[derive(Serialize)]
struct Gap {
    seq: u64,
    phase: &'static str,
    lost: u64,
}

impl Record {
    pub(crate) fn subject(&self) -> &Arc<Subject> {
        match self {
            Record::Begin { subject, .. } | Record::End { subject, .. } => subject,
        }
    }

    /// Adds the record to `lines` as one line.
    pub(crate) fn write(&self, seq: u64, lines: &mut Vec<u8>) {
        let (at, phase, end) = match self {
            Record::Begin { at, .. } => (at, "begin", None),
            Record::End { at, subject, ending, bytes, duration } => {
                let decision = subject.trail.decision.get();
                let end = End {
                    decision: decision.map(|decision| decision.as_str()),
                    rule: decision.map(|decision| decision.rule()),
                    outcome: ending.as_str(),
                    bytes: *bytes,
                    duration_us: duration.as_micros(),
                };
                (at, "end", Some(end))
            }
        };
        let subject = self.subject();
        let target = match &subject.target {
            TargetName::Tool(tool) => &tool.name,
            TargetName::Text(text) => text,
        };
        write_line(
            lines,
            &Line {
                seq,
                time: time_text(*at),
                call: subject.call.get(),
                phase,
                client: &subject.client.name,
                origin: subject.origin.as_str(),
                kind: subject.kind,
                target,
                digest: hex(&subject.digest),
                effect: subject.effect.as_str(),
                end,
            },
        );
    }
}

/// Adds a line that says how many records are missing here.
pub(crate) fn write_gap(seq: u64, lost: u64, lines: &mut Vec<u8>) {
    write_line(lines, &Gap { seq, phase: "gap", lost });
}

/// Returns the number of a line, if it is one of ours.
pub(crate) fn seq_of(line: &[u8]) -> Option<u64> {
    #[derive(serde::Deserialize)]
    struct Numbered {
        seq: u64,
    }
    serde_json::from_slice::<Numbered>(line).ok().map(|line| line.seq)
}

fn write_line(lines: &mut Vec<u8>, line: &impl Serialize) {
    let before = lines.len();
    match serde_json::to_writer(&mut *lines, line) {
        Ok(()) => lines.push(b'\n'),
        // Numbers and texts in a growing buffer: there is nothing that could fail, and half a line must not stay.
        Err(error) => {
            tracing::error!(%error, "An audit record could not be put into words.");
            lines.truncate(before);
        }
    }
}

fn time_text(at: SystemTime) -> String {
    jiff::Timestamp::try_from(at).map_or_else(|_| "unknown".to_owned(), |time| format!("{time:.3}"))
}

fn hex(bytes: &[u8]) -> String {
    // Twice in every call's life: by hand, which is much faster than by format.
    let digit = |value: u8| char::from(if value < 10 { b'0' + value } else { b'a' + value - 10 });
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}
