//! What is known of a tool by its name alone: what it does, what it has to do with data, and whose it is.

use crate::compose;
use crate::config::{Config, McpServer};
use anyhow::Result;
use portcullis_core::{Definition, Effect, Labels, Limits, Reach, ToolDef, Unruled};
use portcullis_upstream::{effect_of, labels_of, lists};
use serde_json::json;
use serde_json::value::RawValue;
use std::collections::HashMap;

/// What the configuration says of every tool, whether a server of it runs or not.
pub(crate) struct KnownTools<'a> {
    native: HashMap<String, NativeTool>,
    servers: &'a [McpServer],
}

/// What the rules see of a native tool.
struct NativeTool {
    effect: Effect,
    labels: Labels,
    unruled: Unruled,
}

impl KnownTools<'_> {
    pub(crate) fn of(config: &Config) -> Result<KnownTools<'_>> {
        let native = compose::native_tools(config)?;
        let native = native.iter().map(|tool| {
            let &ToolDef { effect, labels, unruled, .. } = &**tool;
            (tool.name.clone(), NativeTool { effect, labels, unruled })
        });
        Ok(KnownTools { native: native.collect(), servers: &config.mcp })
    }

    /// Returns the labels of a tool. One that nobody is known to have is taken for a stranger's.
    pub(crate) fn labels(&self, tool: &str) -> Labels {
        match (self.native.get(tool), self.owner(tool)) {
            (Some(native), _) => native.labels,
            (None, Some((server, own))) => labels_of(&server.labels, own),
            (None, None) => Labels::FOREIGN,
        }
    }

    /// Returns what a tool does, where anybody is known to have it.
    pub(crate) fn effect(&self, tool: &str) -> Option<Effect> {
        match self.native.get(tool) {
            Some(native) => Some(native.effect),
            None => self.owner(tool).map(|(server, own)| effect_of(&server.effects, own)),
        }
    }

    /// Returns what holds for a tool where no rule matches, where anybody is known to have it.
    pub(crate) fn unruled(&self, tool: &str) -> Option<Unruled> {
        match self.native.get(tool) {
            Some(native) => Some(native.unruled),
            None => self.owner(tool).map(|(server, _)| server.decision.into()),
        }
    }

    /// Returns a tool as the settings of a server that is trusted in any case make it, if its name is one that a tool
    /// of that server would have. Whether there is such a tool, only the server knows.
    pub(crate) fn assumed(&self, tool: &str) -> Option<ToolDef> {
        let (server, own) = self.owner(tool).filter(|(server, _)| server.always_trusted)?;
        let is_listed = lists(&server.allow, server.deny.as_ref(), own);
        let def = ToolDef::foreign(
            server.name.clone(),
            tool.to_owned(),
            String::new(),
            String::new(),
            effect_of(&server.effects, own),
            Reach::Outside,
            Limits::DEFAULT,
            json!({ "type": "object" }),
            None,
            Definition::new(RawValue::NULL.to_owned()),
        );
        is_listed.then(|| def.unruled(server.decision.into()).labelled(labels_of(&server.labels, own)))
    }

    /// Returns the server whose prefix a name carries, and the tool's own name there.
    fn owner<'t>(&'t self, tool: &'t str) -> Option<(&'t McpServer, &'t str)> {
        let mut owners: Vec<(&McpServer, &str)> = self
            .servers
            .iter()
            .filter_map(|server| {
                let own = tool.strip_prefix(server.prefix.as_str())?;
                Some((server, own))
            })
            .collect();
        // A longer prefix says more.
        owners.sort_by_key(|(server, _)| std::cmp::Reverse(server.prefix.len()));
        let (server, shown) = *owners.first()?;
        let renamed = server.rename.iter().find(|(_, other)| other == shown);
        Some((server, renamed.map_or(shown, |(own, _)| own.as_str())))
    }
}
