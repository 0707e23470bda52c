//! Lookup of effect, labels and provider by tool name, without a running server.

use crate::config::{Config, McpServerSettings};
use crate::mcp::ServerFactory;
use crate::tool_families;
use anyhow::Result;
use portcullis_core::{CallLimits, DefaultDecision, Definition, Effect, Labels, Reach, ToolDef};
use portcullis_store::pins::TrustedServer;
use portcullis_upstream::{ToolRules, labels_of, lists};
use serde_json::json;
use serde_json::value::RawValue;
use std::collections::HashMap;

/// Tools known from the configuration, whether or not their server runs.
pub struct KnownTools<'a> {
    native: HashMap<String, NativeTool>,
    servers: &'a [McpServerSettings],
    factory: Option<&'a ServerFactory>,
}

/// Policy view of a native tool.
struct NativeTool {
    effect: Effect,
    labels: Labels,
    default_decision: DefaultDecision,
}

/// Returns what holds for the tools of a server, if it is `trusted` like this.
pub fn tool_rules<'a>(server: &'a McpServerSettings, trusted: Option<&'a TrustedServer>) -> ToolRules<'a> {
    ToolRules { effects: &server.effects, decision: server.decision.map(Into::into), trusted }
}

impl KnownTools<'_> {
    /// `factory` has the pins of servers; without it, only what is configured counts.
    pub fn of<'a>(config: &'a Config, factory: Option<&'a ServerFactory>) -> Result<KnownTools<'a>> {
        let native = tool_families::native_tools(config)?;
        let native = native.iter().map(|tool| {
            let &ToolDef { effect, labels, default_decision, .. } = &**tool;
            (tool.name.clone(), NativeTool { effect, labels, default_decision })
        });
        Ok(KnownTools { native: native.collect(), servers: &config.mcp, factory })
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
            None => self.owner(tool).map(|(server, own)| self.rules(server, |rules| rules.effect(own))),
        }
    }

    /// Returns the default decision on a known tool.
    pub fn default_decision(&self, tool: &str) -> Option<DefaultDecision> {
        match self.native.get(tool) {
            Some(native) => Some(native.default_decision),
            None => self.owner(tool).map(|(server, own)| self.rules(server, |rules| rules.decision(own))),
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
            self.rules(server, |rules| rules.effect(own)),
            Reach::Outside,
            CallLimits::DEFAULT,
            json!({ "type": "object" }),
            None,
            Definition::new(RawValue::NULL.to_owned()),
        );
        let decision = self.rules(server, |rules| rules.decision(own));
        is_listed.then(|| def.default_decision(decision).labelled(labels_of(&server.labels, own)))
    }

    /// Looks something up in what holds for the tools of a server.
    fn rules<T>(&self, server: &McpServerSettings, look_up: impl FnOnce(ToolRules<'_>) -> T) -> T {
        let trusted = self.factory.and_then(|factory| factory.trusted(server));
        look_up(tool_rules(server, trusted.as_deref()))
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
