//! Which changes of the file a running hub follows, as declared in the written form.

use super::schema_check::annotated_schema;
use portcullis_family::Families;
use portcullis_tools::FAMILIES;
use serde_json::Value;

/// The annotation of a section, or of each of its keys.
pub(super) const RELOAD: &str = "x-reload";
pub(super) const RESTART: &str = "restart";

/// A key of the file, or a section without keys of its own.
struct ReloadKey {
    section: String,
    key: Option<String>,
    /// The classes of the section and of the key.
    declared: [Option<String>; 2],
}

/// Returns the keys whose changes need a restart.
pub(crate) fn restart_keys(families: Families) -> Vec<String> {
    needing_restart(families).map(|key| key.path()).collect()
}

/// Returns where changes need a restart, as Markdown.
pub fn restart_list() -> String {
    let mut names: Vec<String> = needing_restart(FAMILIES)
        .map(|key| match key.declared {
            [Some(_), _] => format!("`[{}]`", key.section),
            _ => format!("`{}`", key.path()),
        })
        .collect();
    names.dedup();
    names.join(", ")
}

fn needing_restart(families: Families) -> impl Iterator<Item = ReloadKey> {
    declared(families).into_iter().filter(|key| key.declared.iter().flatten().any(|class| class == RESTART))
}

fn declared(families: Families) -> Vec<ReloadKey> {
    let class = |node: &Value| node[RELOAD].as_str().map(str::to_owned);
    let mut found = Vec::new();
    for (section, node) in annotated_schema(families)["properties"].as_object().into_iter().flatten() {
        let mut add = |key: Option<&String>, own: Option<String>| {
            let (section, key) = (section.clone(), key.cloned());
            found.push(ReloadKey { section, key, declared: [class(node), own] });
        };
        match node["properties"].as_object() {
            Some(keys) => keys.iter().for_each(|(key, node)| add(Some(key), class(node))),
            None => add(None, None),
        }
    }
    found
}

impl ReloadKey {
    fn path(&self) -> String {
        match &self.key {
            Some(key) => format!("{}.{key}", self.section),
            None => self.section.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::keys;

    #[test]
    fn every_key_is_declared_once() {
        let declared = declared(FAMILIES);
        for key in &declared {
            let classes: Vec<&str> = key.declared.iter().flatten().map(String::as_str).collect();
            assert!(matches!(classes.as_slice(), ["live" | RESTART]), "{}: {classes:?}", key.path());
        }
        assert_eq!(declared.iter().map(ReloadKey::path).collect::<Vec<_>>(), keys());
        let restart = restart_keys(FAMILIES);
        for (key, needs_restart) in [
            ("http.listen", true),
            ("http.allowed_hosts", false),
            ("logging.level", false),
            ("limits.sessions_max", true),
            ("calendars", true),
            ("mcp", false),
            ("policy", false),
        ] {
            assert_eq!(restart.iter().any(|known| known == key), needs_restart, "{key}");
        }
    }

    #[test]
    fn sections_are_told_as_a_whole() {
        insta::assert_snapshot!(restart_list(), @"`http.listen`, `logging.format`, `[workspace]`, `[memory]`, `[vault]`, `[web]`, `[calendars]`, `[github]`, `[scripts]`, `[prompts]`, `[egress]`, `[secrets]`, `[limits]`, `[notify]`, `[admin]`");
    }
}
