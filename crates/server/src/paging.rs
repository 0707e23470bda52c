//! Pages of a list.
//!
//! A cursor stands for the last item of its page, not for a number, so that items which come and go in between
//! neither repeat others nor hide them. It does not hold the item's name, which may be more than a client is told.

use portcullis_wire::RpcError;

/// How many items one page holds. Most hubs fit on one page, and a page stays well under a megabyte.
const PAGE_ITEMS: usize = 250;

/// One page, and the cursor of the next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Page<'a, T> {
    pub(crate) items: &'a [T],
    pub(crate) next: Option<String>,
}

/// Cuts the page after `cursor` out of a list whose items `name` tells apart; `mark` makes cursors of names.
pub(crate) fn page<'a, T>(
    items: &'a [T],
    cursor: Option<&str>,
    name: impl Fn(&T) -> &str,
    mark: impl Fn(&str) -> String,
) -> Result<Page<'a, T>, RpcError> {
    let start = match cursor {
        None => 0,
        Some(cursor) => {
            let stale = || RpcError::invalid_params("`cursor` is not valid any more; list again without it");
            items.iter().position(|item| mark(name(item)) == cursor).ok_or_else(stale)? + 1
        }
    };
    let end = (start + PAGE_ITEMS).min(items.len());
    let next = (end < items.len()).then(|| mark(name(&items[end - 1])));
    Ok(Page { items: &items[start..end], next })
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
    fn a_cursor_of_nobody_is_refused() {
        let items = ["a".to_owned()];
        for cursor in ["", "!!!", "b"] {
            assert!(page(&items, Some(cursor), String::as_str, mark).is_err(), "{cursor}");
        }
    }
}
