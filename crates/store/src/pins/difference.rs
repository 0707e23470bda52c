//! Diff between a pinned snapshot of a server and the current one.

use super::{DefinitionPin, PinKind, ServerSnapshot};
use std::collections::BTreeMap;

/// One difference. The texts are untrusted: code that shows them must escape hidden characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinDifference {
    /// `identity`, `instructions`, `tool`, `prompt` or `template`.
    pub kind: &'static str,
    pub name: String,
    /// `None` if it is new.
    pub before: Option<String>,
    /// `None` if it is gone.
    pub after: Option<String>,
}

/// Returns all differences, the server's identity first.
pub fn differences(before: &ServerSnapshot, after: &ServerSnapshot) -> Vec<PinDifference> {
    let mut found = Vec::new();
    compare("identity", &before.identity, &after.identity, String::clone, &mut found);
    if before.instructions != after.instructions {
        found.push(PinDifference {
            kind: "instructions",
            name: String::new(),
            before: before.instructions.clone(),
            after: after.instructions.clone(),
        });
    }
    for kind in PinKind::ALL {
        let text = |pin: &DefinitionPin| pin.definition.clone();
        compare(kind.as_str(), before.pins(kind), after.pins(kind), text, &mut found);
    }
    found
}

fn compare<T: PartialEq>(
    kind: &'static str,
    before: &BTreeMap<String, T>,
    after: &BTreeMap<String, T>,
    text: impl Fn(&T) -> String,
    found: &mut Vec<PinDifference>,
) {
    let names: std::collections::BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    for name in names {
        let (old, new) = (before.get(name), after.get(name));
        if old != new {
            let (before, after) = (old.map(&text), new.map(&text));
            found.push(PinDifference { kind, name: name.clone(), before, after });
        }
    }
}
