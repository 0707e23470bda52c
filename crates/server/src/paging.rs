//! Pages of a list.
//!
//! A cursor names the last item of its page, not a number, so that items which come and go in between
//! neither repeat others nor hide them.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use portcullis_wire::RpcError;

/// How many items one page holds. Most hubs fit on one page, and a page stays well under a megabyte.
const PAGE_ITEMS: usize = 250;

/// One page, and the cursor of the next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Page<'a, T> {
    pub(crate) items: &'a [T],
    pub(crate) next: Option<String>,
}

/// Cuts the page after `cursor` out of a list whose items `name` tells apart.
pub(crate) fn page<'a, T>(
    items: &'a [T],
    cursor: Option<&str>,
    name: impl Fn(&T) -> &str,
) -> Result<Page<'a, T>, RpcError> {
    let start = match cursor {
        None => 0,
        Some(cursor) => {
            let stale = || RpcError::invalid_params("`cursor` is not valid any more; list again without it");
            let last = URL_SAFE_NO_PAD.decode(cursor).map_err(|_| stale())?;
            let last = String::from_utf8(last).map_err(|_| stale())?;
            items.iter().position(|item| name(item) == last).ok_or_else(stale)? + 1
        }
    };
    let end = (start + PAGE_ITEMS).min(items.len());
    let next = (end < items.len()).then(|| URL_SAFE_NO_PAD.encode(name(&items[end - 1])));
    Ok(Page { items: &items[start..end], next })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_join_to_the_whole_list() {
        let items: Vec<String> = (0..PAGE_ITEMS * 2 + 7).map(|n| format!("item {n}")).collect();
        let (mut seen, mut cursor) = (Vec::new(), None);
        loop {
            let page = page(&items, cursor.as_deref(), String::as_str).unwrap();
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
        for cursor in ["", "!!!", "Yg"] {
            assert!(page(&items, Some(cursor), String::as_str).is_err(), "{cursor}");
        }
    }
}
