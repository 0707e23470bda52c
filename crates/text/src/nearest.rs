//! Names that a mistyped one was probably meant to be.

/// Names returned.
const NEAREST_MAX: usize = 3;
/// Names compared. More are those of a client that searches for tools.
const COMPARED_MAX: usize = 2_000;
/// A longer name cannot be a typo of a tool's.
const NAME_BYTES_MAX: usize = 128;

/// Returns the names that are up to two edits away, or one in five letters, nearest first.
///
/// They depend on the name and on `among` alone. So for a caller who may see only part of the names, pass that part: a
/// hidden name is then not told apart from one that nothing has.
pub fn nearest_names<'n>(name: &str, among: impl IntoIterator<Item = &'n str>) -> Vec<&'n str> {
    if name.len() > NAME_BYTES_MAX {
        return Vec::new();
    }
    let lower = name.to_lowercase();
    let distance = |known: &'n str| {
        let most = 2.max(known.len() / 5);
        // The lengths alone are further apart than that.
        if known.len() > NAME_BYTES_MAX || known.len().abs_diff(name.len()) > most {
            return None;
        }
        let distance = strsim::damerau_levenshtein(&lower, &known.to_lowercase());
        (distance <= most && distance < known.len()).then_some((distance, known))
    };
    let mut near: Vec<(usize, &str)> = among.into_iter().take(COMPARED_MAX).filter_map(distance).collect();
    near.sort_unstable();
    near.truncate(NEAREST_MAX);
    near.into_iter().map(|(_, known)| known).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typo_is_told_from_another_name() {
        let names = ["workspace_read", "workspace_write", "memory_read", "git_log", "git_tag"];
        for (name, near) in [
            ("workspace_raed", &["workspace_read"][..]),
            ("Workspace_Read", &["workspace_read"]),
            ("workspacewrite", &["workspace_write"]),
            ("git_lag", &["git_log", "git_tag"]),
            ("workspace_delete", &[]),
            ("no_such", &[]),
            ("", &[]),
        ] {
            assert_eq!(nearest_names(name, names), near, "{name}");
        }
        assert_eq!(nearest_names("ab", ["a", "b", "xy"]), Vec::<&str>::new(), "not every letter may differ");
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        assert_eq!(nearest_names(&long, [long.as_str()]), Vec::<&str>::new());
    }
}
