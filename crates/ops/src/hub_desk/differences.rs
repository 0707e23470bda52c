//! Bounded line diffs.

use crate::desk::{DiffKind, DiffLine, TextChange};
use portcullis_core::json::visible_json;
use similar::{ChangeTag, TextDiff};

/// Lines of a diff. The texts are untrusted and may be longer.
const LINES_MAX: usize = 5_000;

/// Diffs two texts by line.
pub(super) fn change(before: Option<String>, after: Option<String>) -> TextChange {
    let (old, new) = (before.as_deref().unwrap_or_default(), after.as_deref().unwrap_or_default());
    let diff = TextDiff::configure().timeout(std::time::Duration::from_millis(200)).diff_lines(old, new);
    let line = |change: similar::Change<&str>| DiffLine {
        how: match change.tag() {
            ChangeTag::Equal => DiffKind::Same,
            ChangeTag::Insert => DiffKind::Added,
            ChangeTag::Delete => DiffKind::Removed,
        },
        text: change.value().trim_end_matches('\n').to_owned(),
    };
    let lines = diff.iter_all_changes().take(LINES_MAX).map(line).collect();
    TextChange { before, after, lines }
}

/// Returns indented JSON with hidden characters escaped; other text unchanged.
pub(super) fn pretty(text: &str) -> String {
    match serde_json::from_str::<serde_json::Value>(text) {
        Ok(value @ (serde_json::Value::Object(_) | serde_json::Value::Array(_))) => {
            visible_json(&format!("{value:#}")).into_owned()
        }
        _ => text.to_owned(),
    }
}
