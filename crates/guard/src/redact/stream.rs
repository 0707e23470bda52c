//! Scrubs what arrives in pieces.

use super::Redactor;
use super::scan::WITHHELD;

/// How much longer a secret can get by being encoded: each byte as `\u0041`, and that in Base64.
const ENCODED_TIMES: usize = 8;
/// Held back even if all secrets are short: the longest token, and most private keys.
const HELD_BYTES_MIN: usize = 8 * 1024;
/// So much is gathered before it is looked through, so that little is looked through twice.
const GATHERED_BYTES: usize = 32 * 1024;

/// What is found at the very end may go on, and is kept until it is complete. No token is nearly as long.
const HELD_BYTES_MAX: usize = 1 << 20;

/// Scrubs a stream. It holds back as much as a secret could need to be complete.
pub struct Scrubber {
    redactor: Redactor,
    held: Vec<u8>,
    /// Something was withheld. What follows may be the rest of it, so nothing leaves any more.
    stopped: bool,
}

impl Scrubber {
    pub(super) fn new(redactor: Redactor) -> Scrubber {
        Scrubber { redactor, held: Vec::new(), stopped: false }
    }

    /// Takes the next piece, cut anywhere, and returns what may leave by now.
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

    /// Returns what was held back.
    pub fn finish(mut self) -> Vec<u8> {
        let mut out = Vec::new();
        self.release(self.held.len(), &mut out);
        out
    }

    /// Lets go of what is held up to `limit`, or to where something begins that is not complete.
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
