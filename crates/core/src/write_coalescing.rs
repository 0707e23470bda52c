//! Coalescing of small vectored writes.

use std::io::IoSlice;

/// Larger writes are not worth a copy.
pub const TOGETHER_BYTES_MAX: usize = 1024;

/// Copies small parts into one buffer, for a plain `send`: that is faster than a vectored write of small parts. `None` if
/// there is nothing to coalesce, or too much.
pub fn coalesce<'b>(parts: &[IoSlice<'_>], place: &'b mut [u8; TOGETHER_BYTES_MAX]) -> Option<&'b [u8]> {
    let bytes = parts.iter().map(|part| part.len()).sum::<usize>();
    if parts.len() < 2 || bytes == 0 || bytes > place.len() {
        return None;
    }
    let mut at = 0;
    for part in parts {
        place[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    Some(&place[..bytes])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_small_comes_together_in_order() {
        let long = [b'x'; TOGETHER_BYTES_MAX];
        for (parts, expected) in [
            (&[&b"a"[..], b"", b"bc"][..], Some(&b"abc"[..])),
            (&[b"a"], None),
            (&[], None),
            (&[b"", b""], None),
            (&[&long[1..], b"y"], Some(&[&long[1..], b"y"].concat())),
            (&[&long, b"y"], None),
        ] {
            let parts: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
            assert_eq!(coalesce(&parts, &mut [0; TOGETHER_BYTES_MAX]), expected, "{parts:?}");
        }
    }
}
