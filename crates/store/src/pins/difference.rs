//! What is different between a server as somebody saw it and as it is.

use super::{Kind, Pin, Snapshot};
use std::collections::BTreeMap;

/// One thing that is not as it was. Texts are a stranger's: whoever shows them makes everything in them visible.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// `identity`, `instructions`, `tool`, `prompt` or `template`.
    pub kind: &'static str,
    pub name: String,
    /// `None` where there was nothing before.
    pub before: Option<String>,
    /// `None` where there is nothing now.
    pub after: Option<String>,
}

/// Names everything that is different, how the server is reached first.
pub fn differences(before: &Snapshot, after: &Snapshot) -> Vec<Difference> {
    let mut found = Vec::new();
    compare("identity", &before.identity, &after.identity, String::clone, &mut found);
    if before.instructions != after.instructions {
        found.push(Difference {
            kind: "instructions",
            name: String::new(),
            before: before.instructions.clone(),
            after: after.instructions.clone(),
        });
    }
    for kind in Kind::ALL {
        let text = |pin: &Pin| pin.definition.clone();
        compare(kind.as_str(), before.pins(kind), after.pins(kind), text, &mut found);
    }
    found
}

fn compare<T: PartialEq>(
    kind: &'static str,
    before: &BTreeMap<String, T>,
    after: &BTreeMap<String, T>,
    text: impl Fn(&T) -> String,
    found: &mut Vec<Difference>,
) {
    let names: std::collections::BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    for name in names {
        let (old, new) = (before.get(name), after.get(name));
        if old != new {
            let (before, after) = (old.map(&text), new.map(&text));
            found.push(Difference { kind, name: name.clone(), before, after });
        }
    }
}
