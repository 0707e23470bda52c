//! List pagination with stable cursors.
//!
//! A cursor identifies the last item of its page, not a position, so items that are added or removed in between
//! cause no repetition and no gap. It contains a keyed hash, not the name, which the client may not be allowed to
//! see. The number next to it is a hint where to look first, because a hash costs more than rendering an item.

use portcullis_wire::RpcError;

/// Items of a page. Most hubs fit on one page, and a page stays well under a megabyte.
const PAGE_ITEMS: usize = 250;

/// Separates the hash from the position hint.
const HINT: char = '.';

/// One page, and the cursor of the next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ListPage<'a, T> {
    pub(crate) items: &'a [T],
    pub(crate) next: Option<String>,
}

/// Returns the page after `cursor`. `name` identifies an item; `mark` hashes a name for a cursor.
pub(crate) fn page<'a, T>(
    items: &'a [T],
    cursor: Option<&str>,
    name: impl Fn(&T) -> &str,
    mark: impl Fn(&str) -> String,
) -> Result<ListPage<'a, T>, RpcError> {
    let start = match cursor {
        None => 0,
        Some(cursor) => {
            let stale = || RpcError::invalid_params("`cursor` is no longer valid; list again without it");
            let (wanted, hint) = cursor.rsplit_once(HINT).ok_or_else(stale)?;
            let is_it = |item: &T| mark(name(item)) == wanted;
            let hinted = hint.parse().ok().filter(|at| items.get(*at).is_some_and(is_it));
            hinted.or_else(|| items.iter().position(is_it)).ok_or_else(stale)? + 1
        }
    };
    let end = (start + PAGE_ITEMS).min(items.len());
    let next = (end < items.len()).then(|| format!("{}{HINT}{}", mark(name(&items[end - 1])), end - 1));
    Ok(ListPage { items: &items[start..end], next })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(name: &str) -> String {
        name.chars().rev().collect()
    }

    #[test]
    fn pages_join_to_the_whole_list() {
        let items: Vec<String> = (0..PAGE_ITEMS * 2 + 7).map(|n| format!("item {n}")).collect();
        let (mut seen, mut cursor) = (Vec::new(), None);
        loop {
            let page = page(&items, cursor.as_deref(), String::as_str, mark).unwrap();
            seen.extend_from_slice(page.items);
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(seen, items);
    }

    #[test]
    fn what_comes_and_goes_in_between_repeats_nothing_and_hides_nothing() {
        let mut items: Vec<String> = (0..PAGE_ITEMS * 2).map(|n| format!("item {n}")).collect();
        let next = page(&items, None, String::as_str, mark).unwrap().next.unwrap();
        let second = items[PAGE_ITEMS..].to_vec();
        for (at, name) in [(0, "new at the front"), (PAGE_ITEMS / 2, "new in the middle")] {
            items.insert(at, name.to_owned());
            assert_eq!(page(&items, Some(&next), String::as_str, mark).unwrap().items, second);
        }
        items.drain(..PAGE_ITEMS / 2);
        assert_eq!(page(&items, Some(&next), String::as_str, mark).unwrap().items, second);
    }

    #[test]
    fn only_the_last_item_of_the_page_before_is_looked_at() {
        let items: Vec<String> = (0..PAGE_ITEMS * 4).map(|n| format!("item {n}")).collect();
        let made = std::cell::Cell::new(0);
        let counted = |name: &str| {
            made.set(made.get() + 1);
            mark(name)
        };
        let first = page(&items, None, String::as_str, counted).unwrap();
        let second = page(&items, first.next.as_deref(), String::as_str, counted).unwrap();
        let third = page(&items, second.next.as_deref(), String::as_str, counted).unwrap();
        assert_eq!((third.items.len(), made.get()), (PAGE_ITEMS, 5));
    }

    #[test]
    fn a_cursor_of_nobody_is_refused() {
        let items = ["a".to_owned()];
        for cursor in ["", "!!!", "b", "b.0", ".", "b.x", "b.99999999999999999999"] {
            assert!(page(&items, Some(cursor), String::as_str, mark).is_err(), "{cursor}");
        }
    }
}
