//! Lookup of effect, labels and provider by tool name, without a running server.

use crate::config::{Config, McpServerSettings};
use crate::tool_families;
use anyhow::Result;
use portcullis_core::{CallLimits, DefaultDecision, Definition, Effect, Labels, Reach, ToolDef};
use portcullis_upstream::{effect_of, labels_of, lists};
use serde_json::json;
use serde_json::value::RawValue;
use std::collections::HashMap;

/// Tools known from the configuration, whether or not their server runs.
pub struct KnownTools<'a> {
    native: HashMap<String, NativeTool>,
    servers: &'a [McpServerSettings],
}

/// Policy view of a native tool.
struct NativeTool {
    effect: Effect,
    labels: Labels,
    default_decision: DefaultDecision,
}

impl KnownTools<'_> {
    pub fn of(config: &Config) -> Result<KnownTools<'_>> {
        let native = tool_families::native_tools(config)?;
        let native = native.iter().map(|tool| {
            let &ToolDef { effect, labels, default_decision, .. } = &**tool;
            (tool.name.clone(), NativeTool { effect, labels, default_decision })
        });
        Ok(KnownTools { native: native.collect(), servers: &config.mcp })
    }

    /// Returns the labels of a tool. An unknown one counts as untrusted.
    pub fn labels(&self, tool: &str) -> Labels {
        match (self.native.get(tool), self.owner(tool)) {
            (Some(native), _) => native.labels,
            (None, Some((server, own))) => labels_of(&server.labels, own),
            (None, None) => Labels::FOREIGN,
        }
    }

    /// Returns the effect of a known tool.
    pub fn effect(&self, tool: &str) -> Option<Effect> {
        match self.native.get(tool) {
            Some(native) => Some(native.effect),
            None => self.owner(tool).map(|(server, own)| effect_of(&server.effects, own)),
        }
    }

    /// Returns the default decision on a known tool.
    pub fn default_decision(&self, tool: &str) -> Option<DefaultDecision> {
        match self.native.get(tool) {
            Some(native) => Some(native.default_decision),
            None => self.owner(tool).map(|(server, _)| server.decision.into()),
        }
    }

    /// Returns a tool of an always trusted server, by the server's prefix and settings. Whether it exists, only the server
    /// knows.
    pub fn assumed(&self, tool: &str) -> Option<ToolDef> {
        let (server, own) = self.owner(tool).filter(|(server, _)| server.always_trusted)?;
        let is_listed = lists(&server.allow, server.deny.as_ref(), own);
        let def = ToolDef::foreign(
            server.name.clone(),
            tool.to_owned(),
            String::new(),
            String::new(),
            effect_of(&server.effects, own),
            Reach::Outside,
            CallLimits::DEFAULT,
            json!({ "type": "object" }),
            None,
            Definition::new(RawValue::NULL.to_owned()),
        );
        is_listed
            .then(|| def.default_decision(server.decision.into()).labelled(labels_of(&server.labels, own)))
    }

    /// Returns the server by prefix, and the tool's name there.
    fn owner<'t>(&'t self, tool: &'t str) -> Option<(&'t McpServerSettings, &'t str)> {
        let mut owners: Vec<(&McpServerSettings, &str)> = self
            .servers
            .iter()
            .filter_map(|server| {
                let own = tool.strip_prefix(server.prefix.as_str())?;
                Some((server, own))
            })
            .collect();
        // The longest prefix wins.
        owners.sort_by_key(|(server, _)| std::cmp::Reverse(server.prefix.len()));
        let (server, shown) = *owners.first()?;
        let renamed = server.rename.iter().find(|(_, other)| other == shown);
        Some((server, renamed.map_or(shown, |(own, _)| own.as_str())))
    }
}
