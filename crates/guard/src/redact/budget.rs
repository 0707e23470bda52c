//! What may be spent on looking for secrets in one thing that leaves.
//!
//! Whoever writes a text chooses how hard it is to check. What costs more than this is withheld: it does not leave
//! unchecked.

use std::time::{Duration, Instant};

/// Larger than any result that the gate lets through.
const BYTES_MAX: usize = 64 << 20;
/// Bytes compared for each byte of text. Ordinary text takes less than one.
const COMPARED_PER_BYTE: usize = 64;
/// Bytes decoded for each byte of text. One that is Base64 of Base64 takes about four.
const DECODED_PER_BYTE: usize = 12;
/// What even the shortest text may cost, of either kind.
const BYTES_FREE: usize = 256 << 10;
/// How many pieces are decoded. A text of nothing but the shortest runs of a mebibyte has fewer.
const DECODES_MAX: usize = 200_000;
/// No check takes longer, whatever it is busy with; a mebibyte of ordinary text takes a hundredth of a second.
const TIME_MAX: Duration = Duration::from_secs(2);
/// How many decodes pass between two looks at the clock.
const DECODES_PER_LOOK: usize = 64;
/// One that decodes more than this is always followed by a look at it.
const BYTES_PER_LOOK: usize = 256 << 10;

/// The check would cost too much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OverBudget;

pub(super) struct Budget {
    seen: usize,
    compared: usize,
    decoded: usize,
    decodes: usize,
    /// Taken when there is something to decode; most texts have nothing.
    started: Option<Instant>,
    spent: bool,
}

impl Budget {
    /// What there is to spend before anything was seen.
    pub(super) fn new() -> Budget {
        Budget {
            seen: 0,
            compared: BYTES_FREE,
            decoded: BYTES_FREE,
            decodes: DECODES_MAX,
            started: None,
            spent: false,
        }
    }

    /// Adds what a text of this size may cost.
    pub(super) fn admit(&mut self, bytes: usize) -> Result<(), OverBudget> {
        self.seen = self.seen.saturating_add(bytes);
        self.compared = self.compared.saturating_add(bytes.saturating_mul(COMPARED_PER_BYTE));
        self.decoded = self.decoded.saturating_add(bytes.saturating_mul(DECODED_PER_BYTE));
        self.spent |= self.seen > BYTES_MAX;
        self.check()
    }

    /// Refuses everything, once something was refused.
    fn check(&self) -> Result<(), OverBudget> {
        if self.spent { Err(OverBudget) } else { Ok(()) }
    }

    pub(super) fn compare(&mut self, bytes: usize) -> Result<(), OverBudget> {
        let left = self.compared.checked_sub(bytes);
        self.spent |= left.is_none();
        self.compared = left.unwrap_or_default();
        self.check()
    }

    /// How many bytes may still be decoded.
    pub(super) fn left_to_decode(&self) -> usize {
        self.decoded
    }

    pub(super) fn decode(&mut self, bytes: usize) -> Result<(), OverBudget> {
        let (decodes, decoded) = (self.decodes.checked_sub(1), self.decoded.checked_sub(bytes));
        self.spent |= decodes.is_none() || decoded.is_none();
        (self.decodes, self.decoded) = (decodes.unwrap_or_default(), decoded.unwrap_or_default());
        if self.decodes.is_multiple_of(DECODES_PER_LOOK) || bytes > BYTES_PER_LOOK {
            let started = *self.started.get_or_insert_with(Instant::now);
            self.spent |= started.elapsed() > TIME_MAX;
        }
        self.check()
    }

    /// Returns how many bytes were decoded, unless more were wanted than there is budget for.
    #[cfg(test)]
    pub(super) fn decoded(&self) -> Result<usize, OverBudget> {
        self.check().map(|()| BYTES_FREE + self.seen * DECODED_PER_BYTE - self.decoded)
    }
}
