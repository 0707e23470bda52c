//! Prefixes of tool names that belong to the hub's own families.
//!
//! A server named `memory` would have tools named `memory_*`, which rules, scopes and people take for the hub's own. A family
//! that is not configured counts too: it may be one day.

use portcullis_family::Families;

/// Prefixes that the contract reserves, and that no family of the list has by its name.
const MORE: [&str; 7] = ["script", "schedule", "chat", "model", "assistant", "tachyon", "opencode"];

/// Returns the reserved prefix, without its `_`, that the tools of a server with this name or prefix would have.
pub(crate) fn reserved_prefix(families: Families, name: &str) -> Option<&str> {
    let name = name.trim_end_matches('_');
    // A longer prefix, as `memory_bank`, merges with `memory_*` all the same.
    let first = name.split('_').next().unwrap_or(name);
    let is_family = families.iter().any(|family| family.name.eq_ignore_ascii_case(first));
    let is_reserved = is_family || MORE.iter().any(|more| more.eq_ignore_ascii_case(first));
    is_reserved.then_some(first)
}

/// Returns a name like this one that is not reserved. Rules for `memory_*` do not match the tools of `memory-mcp`.
pub(crate) fn other_name(name: &str) -> String {
    let (first, rest) = name.split_once('_').unwrap_or((name, ""));
    let rest = rest.trim_matches('_');
    if rest.is_empty() { format!("{first}-mcp") } else { format!("{first}-{rest}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FAMILIES;

    #[test]
    fn names_that_merge_with_a_family_are_reserved_and_what_is_proposed_is_not() {
        for name in [
            "workspace",
            "memory",
            "vault",
            "chat",
            "model",
            "calendar",
            "web",
            "github",
            "script",
            "schedule",
            "assistant",
            "tachyon",
            "opencode",
            "Memory",
            "memory_",
            "memory_bank",
            "web__x",
        ] {
            assert!(reserved_prefix(FAMILIES, name).is_some(), "{name}");
            assert_eq!(reserved_prefix(FAMILIES, &other_name(name)), None, "{name}");
        }
        for name in ["git", "memory-mcp", "memories", "webby", "", "my_memory"] {
            assert_eq!(reserved_prefix(FAMILIES, name), None, "{name}");
        }
    }
}
