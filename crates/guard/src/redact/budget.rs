//! The budget of one scan for secrets.
//!
//! The author of a text chooses how costly it is to check. Text over the budget is withheld, never sent unchecked.

use std::time::{Duration, Instant};

/// Larger than any result that the gate allows.
const BYTES_MAX: usize = 64 << 20;
/// Bytes compared per byte of text. Ordinary text takes less than one.
const COMPARED_PER_BYTE: usize = 64;
/// Bytes decoded per byte of text. Base64 of Base64 takes about four.
const DECODED_PER_BYTE: usize = 12;
/// Allowance of both kinds for the shortest text.
const BYTES_FREE: usize = 256 << 10;
/// Bound on decoded runs. A mebibyte of nothing but the shortest runs has fewer.
const DECODES_MAX: usize = 200_000;
/// Time limit of a scan; a mebibyte of ordinary text takes a hundredth of a second.
const TIME_MAX: Duration = Duration::from_secs(2);
/// Decodes between two reads of the clock.
const DECODES_PER_CLOCK_READ: usize = 64;
/// A larger decode is always followed by a read of the clock.
const BYTES_PER_CLOCK_READ: usize = 256 << 10;

/// The scan would exceed its budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OverBudget;

pub(super) struct ScanBudget {
    seen: usize,
    compared: usize,
    decoded: usize,
    decodes: usize,
    /// Set by the first decode; most texts have none.
    started: Option<Instant>,
    spent: bool,
}

impl ScanBudget {
    /// The initial budget.
    pub(super) fn new() -> ScanBudget {
        ScanBudget {
            seen: 0,
            compared: BYTES_FREE,
            decoded: BYTES_FREE,
            decodes: DECODES_MAX,
            started: None,
            spent: false,
        }
    }

    /// Adds the budget for a text of this size.
    pub(super) fn admit(&mut self, bytes: usize) -> Result<(), OverBudget> {
        self.seen = self.seen.saturating_add(bytes);
        self.compared = self.compared.saturating_add(bytes.saturating_mul(COMPARED_PER_BYTE));
        self.decoded = self.decoded.saturating_add(bytes.saturating_mul(DECODED_PER_BYTE));
        self.spent |= self.seen > BYTES_MAX;
        self.check()
    }

    /// Fails forever once exceeded.
    fn check(&self) -> Result<(), OverBudget> {
        if self.spent { Err(OverBudget) } else { Ok(()) }
    }

    pub(super) fn compare(&mut self, bytes: usize) -> Result<(), OverBudget> {
        let left = self.compared.checked_sub(bytes);
        self.spent |= left.is_none();
        self.compared = left.unwrap_or_default();
        self.check()
    }

    /// Returns how many bytes may still be decoded.
    pub(super) fn left_to_decode(&self) -> usize {
        self.decoded
    }

    pub(super) fn decode(&mut self, bytes: usize) -> Result<(), OverBudget> {
        let (decodes, decoded) = (self.decodes.checked_sub(1), self.decoded.checked_sub(bytes));
        self.spent |= decodes.is_none() || decoded.is_none();
        (self.decodes, self.decoded) = (decodes.unwrap_or_default(), decoded.unwrap_or_default());
        if self.decodes.is_multiple_of(DECODES_PER_CLOCK_READ) || bytes > BYTES_PER_CLOCK_READ {
            let started = *self.started.get_or_insert_with(Instant::now);
            self.spent |= started.elapsed() > TIME_MAX;
        }
        self.check()
    }

    /// Returns how many bytes were decoded, if within the budget.
    #[cfg(test)]
    pub(super) fn decoded(&self) -> Result<usize, OverBudget> {
        self.check().map(|()| BYTES_FREE + self.seen * DECODED_PER_BYTE - self.decoded)
    }
}
