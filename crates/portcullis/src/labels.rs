//! What a tool has to do with data, found by its name alone.

use crate::compose;
use crate::config::{Config, McpServer};
use anyhow::Result;
use portcullis_core::Labels;
use std::collections::HashMap;

/// What the configuration says of every tool, whether a server of it runs or not.
pub(crate) struct KnownLabels<'a> {
    native: HashMap<String, Labels>,
    servers: &'a [McpServer],
}

impl KnownLabels<'_> {
    pub(crate) fn of(config: &Config) -> Result<KnownLabels<'_>> {
        let native = compose::native_tools(config)?;
        let native = native.iter().map(|tool| (tool.name.clone(), tool.labels)).collect();
        Ok(KnownLabels { native, servers: &config.mcp })
    }

    /// Returns the labels of a tool. One that nobody is known to have is taken for a stranger's.
    pub(crate) fn find(&self, tool: &str) -> Labels {
        if let Some(labels) = self.native.get(tool) {
            return *labels;
        }
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
        let Some((server, shown)) = owners.first() else { return Labels::FOREIGN };
        let renamed = server.rename.iter().find(|(_, other)| other == shown);
        let own = renamed.map_or(*shown, |(own, _)| own.as_str());
        let said = server.labels.iter().find(|(tools, _)| tools.matches(own));
        said.map_or(Labels::FOREIGN, |(_, labels)| *labels)
    }
}
