//! What is different between two texts.

use portcullis_admin::desk::{DiffKind, DiffLine, TextChange};
use portcullis_core::json::visible_json;
use similar::{ChangeTag, TextDiff};

/// How many lines are told. More than anyone reads; a stranger may have written more.
const LINES_MAX: usize = 5_000;

/// Compares two texts line by line.
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

/// Returns JSON over several lines, with nothing hidden in it; another text as it is.
pub(super) fn pretty(text: &str) -> String {
    match serde_json::from_str::<serde_json::Value>(text) {
        Ok(value @ (serde_json::Value::Object(_) | serde_json::Value::Array(_))) => {
            visible_json(&format!("{value:#}")).into_owned()
        }
        _ => text.to_owned(),
    }
}
