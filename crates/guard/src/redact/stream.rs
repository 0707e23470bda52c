//! Incremental redaction of a stream.

use super::Redactor;
use super::scan::WITHHELD;

/// How much longer a secret can get by encoding: each byte as `\u0041`, and that in Base64.
const ENCODED_TIMES: usize = 8;
/// Minimum held back: the longest token, and most private keys.
const HELD_BYTES_MIN: usize = 8 * 1024;
/// Batch size, so that little is scanned twice.
const GATHERED_BYTES: usize = 32 * 1024;

/// Bound on a match at the end of the buffer, which may continue. No token is nearly as long.
const HELD_BYTES_MAX: usize = 1 << 20;

/// Redacts a stream. Holds back enough for a secret to be complete.
pub struct StreamRedactor {
    redactor: Redactor,
    held: Vec<u8>,
    /// Something was withheld. The rest of the stream may belong to it, so nothing more is released.
    stopped: bool,
}

impl StreamRedactor {
    pub(super) fn new(redactor: Redactor) -> StreamRedactor {
        StreamRedactor { redactor, held: Vec::new(), stopped: false }
    }

    /// Takes the next chunk, cut anywhere, and returns what may be released.
    pub fn push(&mut self, piece: &[u8]) -> Vec<u8> {
        let kept = self.redactor.known.masks.load().value_bytes_max * ENCODED_TIMES;
        let kept = kept.max(HELD_BYTES_MIN);
        let mut out = Vec::new();
        for piece in piece.chunks(GATHERED_BYTES) {
            if !self.stopped {
                self.held.extend_from_slice(piece);
            }
            if self.held.len() >= kept + GATHERED_BYTES {
                self.release(self.held.len() - kept, &mut out);
            }
        }
        out
    }

    /// Returns the rest.
    pub fn finish(mut self) -> Vec<u8> {
        let mut out = Vec::new();
        self.release(self.held.len(), &mut out);
        out
    }

    /// Releases the buffer up to `limit`, or to the start of an incomplete match.
    fn release(&mut self, mut limit: usize, out: &mut Vec<u8>) {
        let last = limit == self.held.len();
        let masks = self.redactor.known.masks.load();
        let regions = self.redactor.scan(&masks).regions(&self.held);
        let Ok(regions) = regions else { return self.stop(out) };
        let mut copied = 0;
        for hit in regions {
            if !last && hit.end == self.held.len() {
                limit = limit.min(hit.start);
            }
            if hit.start >= limit {
                break;
            }
            out.extend_from_slice(&self.held[copied..hit.start]);
            out.extend_from_slice(masks.label(hit).as_bytes());
            copied = hit.end;
        }
        let limit = limit.max(copied);
        out.extend_from_slice(&self.held[copied..limit]);
        self.held.drain(..limit);
        if self.held.len() > HELD_BYTES_MAX {
            self.stop(out);
        }
    }

    fn stop(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(WITHHELD.as_bytes());
        self.held.clear();
        self.stopped = true;
    }
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
