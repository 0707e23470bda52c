//! Decompression: gzip, zlib and raw deflate.
//!
//! The output can be a thousand times as long as the input (decompression bomb). At most the remaining budget is decompressed,
//! and a stream that does not end there exceeds the budget.

use flate2::bufread::{DeflateDecoder, GzDecoder, ZlibDecoder};
use std::io::Read;

/// Raw deflate must be complete, unless the output is so long that it counts against the budget.
const FREE_BYTES_MAX: usize = 1024;
/// Only a long text is worth dynamic Huffman codes.
const OWN_CODES_BYTES_MIN: usize = 72;
/// How many characters must be text at the start of raw deflate.
const FIRST_CHARACTERS: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Packing {
    Gzip,
    Zlib,
    Deflate,
}

impl Packing {
    /// Recognizes framed formats by their first bytes.
    pub(super) fn framed(head: &[u8]) -> Option<Packing> {
        match *head {
            [0x1F, 0x8B, 8, ..] => Some(Packing::Gzip),
            [0x78, flags, ..] if (0x78 * 256 + u16::from(flags)).is_multiple_of(31) => Some(Packing::Zlib),
            _ => None,
        }
    }

    /// Returns whether more bytes are worth reading after these.
    pub(super) fn may_begin(head: &[u8], unframed: bool) -> bool {
        match *head {
            [0x1F] | [0x1F, 0x8B] | [0x78] => true,
            [first, ..] => unframed && matches!(first & 7, 3 | 5),
            [] => true,
        }
    }

    /// Recognizes any format by its first bytes and its length.
    pub(super) fn of(bytes: &[u8], length: usize) -> Option<Packing> {
        let unframed = match bytes.first()? & 7 {
            // One block with fixed Huffman codes: it begins with literal characters.
            3 => begins_with_text(bytes),
            5 => {
                length >= OWN_CODES_BYTES_MIN && bytes.len() > 1 && bytes[0] >> 3 <= 29 && bytes[1] & 31 <= 29
            }
            _ => false,
        };
        Packing::framed(bytes).or(unframed.then_some(Packing::Deflate))
    }

    /// Decompresses: all of it, or one byte more than allowed, or up to the first error.
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

/// Returns whether a block with fixed codes begins with text.
fn begins_with_text(bytes: &[u8]) -> bool {
    let head = bytes.iter().take(8).rev().fold(0_u64, |bits, byte| bits << 8 | u64::from(*byte));
    // Huffman codes are written from the highest bit on. Eight-bit codes from 0x30 on are ASCII.
    (0..FIRST_CHARACTERS).all(|place| {
        let code = ((head >> (3 + 8 * place)) as u8).reverse_bits();
        code.checked_sub(0x30).is_some_and(is_text)
    })
}

pub(super) fn is_text(byte: u8) -> bool {
    matches!(byte, b' '..=b'~' | b'\t' | b'\n' | b'\r')
}
