//! Undoes compression: gzip, zlib and deflate without a frame.
//!
//! What comes out can be a thousand times as long as what goes in. No more is unpacked than may still be decoded, and what
//! does not end there costs more than its budget.

use flate2::bufread::{DeflateDecoder, GzDecoder, ZlibDecoder};
use std::io::Read;

/// What is unpacked without a frame must be whole, unless there is so much of it that it has to be paid for.
const FREE_BYTES_MAX: usize = 1024;
/// Only a long text is worth a table of its own codes.
const OWN_CODES_BYTES_MIN: usize = 72;
/// How many characters must be text at the beginning of what has no frame.
const FIRST_CHARACTERS: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Packing {
    Gzip,
    Zlib,
    Deflate,
}

impl Packing {
    /// Returns what the first bytes say.
    pub(super) fn framed(head: &[u8]) -> Option<Packing> {
        match *head {
            [0x1F, 0x8B, 8, ..] => Some(Packing::Gzip),
            [0x78, flags, ..] if (0x78 * 256 + u16::from(flags)).is_multiple_of(31) => Some(Packing::Zlib),
            _ => None,
        }
    }

    /// Whether it is worth while to read on after these.
    pub(super) fn may_begin(head: &[u8], unframed: bool) -> bool {
        match *head {
            [0x1F] | [0x1F, 0x8B] | [0x78] => true,
            [first, ..] => unframed && matches!(first & 7, 3 | 5),
            [] => true,
        }
    }

    /// Returns what the first bytes may be of so many.
    pub(super) fn of(bytes: &[u8], length: usize) -> Option<Packing> {
        let unframed = match bytes.first()? & 7 {
            // One block, with the codes that all know: it begins with characters as they are.
            3 => begins_with_text(bytes),
            5 => {
                length >= OWN_CODES_BYTES_MIN && bytes.len() > 1 && bytes[0] >> 3 <= 29 && bytes[1] & 31 <= 29
            }
            _ => false,
        };
        Packing::framed(bytes).or(unframed.then_some(Packing::Deflate))
    }

    /// Returns what was packed: all of it, or a byte more than allowed, or as much as comes before a fault.
    pub(super) fn unpack(self, bytes: &[u8], most: usize) -> Vec<u8> {
        let most = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
        let mut out = Vec::new();
        let whole = match self {
            Packing::Gzip => GzDecoder::new(bytes).take(most).read_to_end(&mut out),
            Packing::Zlib => ZlibDecoder::new(bytes).take(most).read_to_end(&mut out),
            Packing::Deflate => DeflateDecoder::new(bytes).take(most).read_to_end(&mut out),
        };
        if self == Packing::Deflate && whole.is_err() && out.len() <= FREE_BYTES_MAX {
            out.clear();
        }
        out
    }
}

/// Whether a block with the usual codes begins with characters of a text.
fn begins_with_text(bytes: &[u8]) -> bool {
    let head = bytes.iter().take(8).rev().fold(0_u64, |bits, byte| bits << 8 | u64::from(*byte));
    // Codes are written from their highest bit on. Those of eight bits from 0x30 on are ASCII.
    (0..FIRST_CHARACTERS).all(|place| {
        let code = ((head >> (3 + 8 * place)) as u8).reverse_bits();
        code.checked_sub(0x30).is_some_and(is_text)
    })
}

pub(super) fn is_text(byte: u8) -> bool {
    matches!(byte, b' '..=b'~' | b'\t' | b'\n' | b'\r')
}
