//! Small parts, written as one.

use std::io::IoSlice;

/// What is larger is not worth copying.
pub const TOGETHER_BYTES_MAX: usize = 1024;

/// Copies small parts to one place, where they can be written with a plain `send`. The kernel takes longer to gather them.
/// `None` where there is nothing to gather, or too much.
pub fn together<'b>(parts: &[IoSlice<'_>], place: &'b mut [u8; TOGETHER_BYTES_MAX]) -> Option<&'b [u8]> {
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
            assert_eq!(together(&parts, &mut [0; TOGETHER_BYTES_MAX]), expected, "{parts:?}");
        }
    }
}
