//! Property: hostile lines are split and parsed as JSON-RPC without ambiguity.

use crate::{PropertyResult, hold};
use portcullis_wire::frame::{BYTE_ORDER_MARK, LineFrame, LineReader};
use portcullis_wire::message::{self, IncomingFrame, MalformedMessage, Message};
use portcullis_wire::{RequestId, rpc};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, ReadBuf};

pub const WORDS: &[&str] = &[
    "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n",
    "\r\n",
    "\n",
    "\"id\":",
    "null",
    "\"params\":{}",
    "[",
    "]",
    "{",
    "}",
    "\"result\":",
    "\"error\":",
    "\\u0000",
    "\\ud800",
    "1e999",
    "-0",
    "18446744073709551616",
    "\u{feff}",
    "\"id\":\"a\"",
    ",",
];
/// The line bounds to try: smaller than any line, about as large, and larger than all.
const BOUNDS: [usize; 4] = [1, 16, 64, 8192];

/// Reads lines. The system under test; tests substitute a weak one.
pub type ReadLinesFn = fn(&[u8], usize, usize) -> Vec<LineFrame>;

pub fn check(input: &[u8]) -> PropertyResult {
    check_with(input, read)
}

/// The first byte selects the chunk size of the rest, and the line bound.
pub fn check_with(input: &[u8], read: ReadLinesFn) -> PropertyResult {
    let (first, text) = input.split_first().unwrap_or((&0, &[]));
    let bound = BOUNDS[usize::from(first & 3)];
    let lines = read(text, 1 + usize::from(first >> 2), bound);
    hold!(
        lines == expected(text, bound),
        "in pieces of {}: {lines:?}, expected {:?}",
        1 + (first >> 2),
        expected(text, bound)
    );
    for line in &lines {
        if let LineFrame::Text(line) = line {
            check_message(line)?;
        }
    }
    Ok(())
}

/// Reference implementation of line splitting.
fn expected(text: &[u8], bound: usize) -> Vec<LineFrame> {
    let mut lines = Vec::new();
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let whole = line.strip_suffix(b"\n").map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        let line = whole.unwrap_or(line);
        if line.len() > bound {
            lines.push(LineFrame::TooLong { bytes: line.len() as u64 });
        } else if !line.iter().all(u8::is_ascii_whitespace) {
            lines.push(LineFrame::Text(line.to_vec().into()));
        }
    }
    lines.push(LineFrame::End);
    lines
}

/// Returns its bytes in chunks.
struct ChunkedReader<'b> {
    left: &'b [u8],
    size: usize,
}

impl AsyncRead for ChunkedReader<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (piece, left) = self.left.split_at(self.left.len().min(self.size).min(into.remaining()));
        into.put_slice(piece);
        self.left = left;
        Poll::Ready(Ok(()))
    }
}

fn read(text: &[u8], size: usize, bound: usize) -> Vec<LineFrame> {
    let mut reader = LineReader::new(ChunkedReader { left: text, size }, bound);
    let mut context = Context::from_waker(std::task::Waker::noop());
    let mut lines = Vec::new();
    // At most one line per byte, and the end.
    while lines.len() <= text.len() {
        let next = std::pin::pin!(reader.next());
        // The chunks are always ready and never fail.
        let Poll::Ready(Ok(line)) = next.poll(&mut context) else { break };
        match line {
            LineFrame::Blank | LineFrame::Longer { .. } => continue,
            LineFrame::End => {
                lines.push(line);
                break;
            }
            line => lines.push(line),
        }
    }
    lines
}

fn check_message(line: &[u8]) -> PropertyResult {
    match message::parse(line) {
        Ok(IncomingFrame::One(message)) => check_understood(&message),
        Ok(IncomingFrame::Batch(batch)) => batch.0.iter().try_for_each(|one| match one {
            Ok(message) => check_understood(message),
            Err(malformed) => check_refused(malformed),
        }),
        Err(malformed) => check_refused(&malformed),
    }
}

/// Serialized again, the message is equal.
fn check_understood(message: &Message<'_>) -> PropertyResult {
    let text = serde_json::to_string(&match message {
        Message::Request(request) => (Some(written(&request.id)), Some(&request.method), request.params),
        Message::Notification(notification) => (None, Some(&notification.method), notification.params),
        Message::Response(response) => (Some(written(&response.id)), None, response.outcome.ok()),
    });
    hold!(text.is_ok(), "a part of {message:?} is not JSON");
    let (Message::Request(_) | Message::Notification(_)) = message else { return Ok(()) };
    let (id, method, params) = match message {
        Message::Request(request) => (Some(&request.id), &request.method, request.params),
        Message::Notification(notification) => (None, &notification.method, notification.params),
        Message::Response(_) => return Ok(()),
    };
    let id = id.map(|id| format!("\"id\":{},", written(id))).unwrap_or_default();
    let params = params.map(|params| format!(",\"params\":{}", params.get())).unwrap_or_default();
    let method = serde_json::Value::from(method.as_ref());
    let again = format!("{{\"jsonrpc\":\"2.0\",{id}\"method\":{method}{params}}}");
    let same = match message::parse(again.as_bytes()) {
        Ok(IncomingFrame::One(second)) => parts(&second) == parts(message),
        Ok(IncomingFrame::Batch(_)) | Err(_) => false,
    };
    hold!(same, "`{again}` is not understood as {message:?}");
    Ok(())
}

fn parts(message: &Message<'_>) -> (Option<RequestId>, String, Option<String>) {
    let text = |params: &Option<&serde_json::value::RawValue>| params.map(|params| params.get().to_owned());
    match message {
        Message::Request(request) => {
            (Some(request.id.clone()), request.method.to_string(), text(&request.params))
        }
        Message::Notification(note) => (None, note.method.to_string(), text(&note.params)),
        Message::Response(response) => {
            (Some(response.id.clone()), String::new(), text(&response.outcome.ok()))
        }
    }
}

fn written(id: &RequestId) -> String {
    let mut bytes = Vec::new();
    id.write(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The error response to a malformed message is itself a message, on one line and short.
fn check_refused(malformed: &MalformedMessage) -> PropertyResult {
    let answer = rpc::response(malformed.id.as_ref(), Err(malformed.error.clone()));
    hold!(!answer.contains(&b'\n'), "the answer has a line break: {answer:?}");
    hold!(answer.len() <= 2048, "the answer has {} bytes", answer.len());
    let value: Result<serde_json::Value, _> = serde_json::from_slice(&answer);
    let code = value.ok().and_then(|value| value["error"]["code"].as_i64());
    hold!(matches!(code, Some(-32700 | -32600)), "the answer is {answer:?}");
    Ok(())
}
