//! A slice of a long text, cut at paragraph, line or word boundaries.

/// A slice. Positions are in characters, which a model can handle.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TextSlice<'a> {
    pub(super) text: &'a str,
    pub(super) start: usize,
    /// Where the next slice begins, if any.
    pub(super) next: Option<usize>,
    pub(super) total: usize,
}

/// Returns the slice of at most `max` characters from `start`; `None` if the text ends before.
pub(super) fn part(text: &str, start: usize, max: usize) -> Option<TextSlice<'_>> {
    let total = text.chars().count();
    if start > 0 && start >= total {
        return None;
    }
    let from = offset(text, start);
    let rest = &text[from..];
    let window = &rest[..offset(rest, max)];
    if window.len() == rest.len() {
        return Some(TextSlice { text: rest, start, next: None, total });
    }
    // Cuts only in the second half, so that most of the requested length is returned.
    let back = window.len() / 2;
    let end = ["\n\n", "\n", " "]
        .iter()
        .find_map(|at| window.rfind(at).map(|found| found + at.len()).filter(|end| *end > back))
        .unwrap_or(window.len());
    let shown = &window[..end];
    Some(TextSlice { text: shown.trim_end(), start, next: Some(start + shown.chars().count()), total })
}

/// Returns the byte offset of a character.
fn offset(text: &str, chars: usize) -> usize {
    text.char_indices().nth(chars).map_or(text.len(), |(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_end_at_a_paragraph_and_together_are_the_whole() {
        let text = "# Title\n\nFirst paragraph, short.\n\nSecond paragraph, which is a little longer.\n\nÜnïcödé end.";
        let first = part(text, 0, 45).unwrap();
        assert_eq!(first.text, "# Title\n\nFirst paragraph, short.");
        assert_eq!((first.next, first.total), (Some(34), 91));
        for max in 1..100 {
            let (mut at, mut pieces) = (0, String::new());
            loop {
                let part = part(text, at, max).unwrap();
                assert!(part.text.chars().count() <= max);
                let next = part.next.unwrap_or(part.total);
                assert!(next > at, "{max}: it goes on");
                pieces.extend(text.chars().skip(at).take(next - at));
                at = next;
                if part.next.is_none() {
                    break;
                }
            }
            assert_eq!(pieces, text, "{max}");
        }
    }

    #[test]
    fn the_ends_are_right() {
        assert_eq!(part("", 0, 10), Some(TextSlice { text: "", start: 0, next: None, total: 0 }));
        assert_eq!(part("abc", 3, 10), None);
        assert_eq!(part("abc", 0, 3), Some(TextSlice { text: "abc", start: 0, next: None, total: 3 }));
        assert_eq!(part("äöü", 1, 1), Some(TextSlice { text: "ö", start: 1, next: Some(2), total: 3 }));
        assert_eq!(part("abc", usize::MAX, usize::MAX), None);
    }
}
