//! The native tools, one module per family.

mod calendar;
mod files;
mod github;
mod memory;
mod prompts;
pub mod scripts;
#[cfg(test)]
mod testing;
mod vault;
mod watch;
mod web;
mod workspace;

pub use calendar::{CalendarConfig, CalendarLocation, CalendarSource, is_calendar_name};
pub use github::{GithubConfig, is_repository_pattern};
pub use scripts::{ScriptCheckError, ScriptCheckReport, ScriptChecker, ScriptsConfig};
pub use vault::{
    CommitAuthor, GitError, RemoteAddress, SyncConfig, SyncTimes, VaultConfig, find_git, look_at_repository,
};
pub use web::WebConfig;

use portcullis_core::{ChangeNotifier, Family, GateHandle, Provider, Registry, Root};
use portcullis_store::FamilyTables;
use std::path::PathBuf;

pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Configuration of the families. A family without configuration is not registered.
#[derive(Debug, Clone)]
pub struct ToolsConfig {
    /// The directory of `workspace_*` and `memory_*`, created if missing.
    pub workspace_root: PathBuf,
    /// The directory of prompts. It may be missing, and is picked up when it appears.
    pub prompts_dir: PathBuf,
    /// Whether there are `workspace_*` tools.
    pub workspace: bool,
    /// Whether there are `memory_*` tools.
    pub memory: bool,
    /// For `vault_*`.
    pub vault: Option<VaultConfig>,
    /// For `web_fetch`.
    pub web: Option<WebConfig>,
    /// For `calendar_read`.
    pub calendars: Option<CalendarConfig>,
    /// For `github_*`.
    pub github: Option<GithubConfig>,
    /// For `script_*`.
    pub scripts: Option<ScriptsConfig>,
    /// For families whose tools make calls. Connected once the gate is built.
    pub gate: GateHandle,
}

impl ToolsConfig {
    /// Lets scripts share an existing egress client.
    #[must_use]
    pub fn with_egress(mut self, egress: &std::sync::Arc<portcullis_egress::EgressClient>) -> ToolsConfig {
        if let Some(scripts) = &mut self.scripts {
            let egress = egress.clone();
            scripts.egress = std::sync::Arc::new(move || Ok(egress.clone()));
        }
        self
    }

    /// The families that need no network.
    pub fn local(workspace_root: PathBuf, prompts_dir: PathBuf) -> ToolsConfig {
        ToolsConfig {
            workspace_root,
            prompts_dir,
            workspace: true,
            memory: true,
            vault: None,
            web: None,
            calendars: None,
            github: None,
            scripts: None,
            gate: GateHandle::default(),
        }
    }
}

/// A family as a whole: a file or folder of this crate, and one line in [`FAMILIES`].
pub(crate) struct FamilyModule {
    /// The name of its provider.
    pub(crate) name: &'static str,
    /// Tables of its own, with the files that they replace.
    pub(crate) tables: Option<FamilyTables>,
    /// Builds its tools; `None` if it is not configured.
    pub(crate) provide: fn(&FamilyParts<'_>) -> Result<Option<Family>, BoxError>,
}

/// What a family is built from.
pub(crate) struct FamilyParts<'a> {
    pub(crate) config: &'a ToolsConfig,
    /// The workspace.
    pub(crate) root: Root,
    pub(crate) changes: ChangeNotifier,
}

/// Every family, in the order in which tools are listed. This is the only list.
const FAMILIES: [FamilyModule; 8] = [
    workspace::MODULE,
    memory::MODULE,
    vault::MODULE,
    web::MODULE,
    calendar::MODULE,
    github::MODULE,
    scripts::MODULE,
    prompts::MODULE,
];

/// Returns the tables of the families. A family that is off has its tables too, so that turning it off loses nothing.
pub fn tables() -> Vec<FamilyTables> {
    FAMILIES.iter().filter_map(|family| family.tables).collect()
}

/// Registers the configured families.
pub fn register(config: &ToolsConfig, into: &Registry) -> Result<(), BoxError> {
    let root = Root::create(&config.workspace_root)
        .map_err(|error| format!("the workspace `{}`: {error}", config.workspace_root.display()))?;
    files::tidy(&root);
    let parts = FamilyParts { config, root, changes: into.changes() };
    for family in &FAMILIES {
        if let Some(provider) = (family.provide)(&parts)? {
            debug_assert_eq!(Provider::name(&provider), family.name);
            into.add(provider)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::ToolsFixture;
    use portcullis_core::{Gate, Output, Target, ToolDef};
    use serde_json::Value;

    #[test]
    fn tools_are_listed_in_order() {
        let hub = ToolsFixture::new();
        let tools = hub.gate.tools(&hub.caller()).unwrap();
        let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!(
            names,
            ["workspace_read", "workspace_write", "workspace_list", "memory_read", "memory_write"]
        );
    }

    #[test]
    fn every_tool_is_described_for_a_model() {
        let hub = web::WebFixtureSite::open(|_| web::html("")).hub();
        for tool in hub.gate.tools(&hub.caller()).unwrap() {
            let name = &tool.name;
            let schema = &tool.input_schema;
            assert!(!tool.title.is_empty() && tool.description.ends_with('.'), "{name}");
            assert_eq!(schema["type"], "object", "{name}");
            assert_eq!(schema["additionalProperties"], false, "{name}: the schema is not closed");
            check_described(&tool, schema);
            if let Some(schema) = &tool.output_schema {
                check_described(&tool, schema);
            }
        }
    }

    fn check_described(tool: &ToolDef, schema: &Value) {
        for (field, property) in schema["properties"].as_object().unwrap() {
            assert!(property["description"].is_string(), "{}: `{field}` is not described", tool.name);
        }
    }

    #[tokio::test]
    async fn every_example_works() {
        let site = web::WebFixtureSite::open(|_| web::html("<title>Example</title><p>A page"));
        let hub = site.hub();
        let mut tools = hub.gate.tools(&hub.caller()).unwrap();
        // Writing examples run first, because others read what they write.
        tools.sort_by_key(|tool| !tool.effect.has_side_effects());
        for tool in tools {
            let example = tool.example.unwrap();
            // A web example goes to a local page instead.
            let arguments = example.arguments.replace("https://example.com/", &site.url("/"));
            let arguments = serde_json::from_str(&arguments).unwrap();
            match hub.call(Target::Tool(tool.name.clone()), arguments).await {
                Ok(Output::Tool(output)) => assert!(!output.is_error, "{}", tool.name),
                other => panic!("{}: {other:?}", tool.name),
            }
        }
    }

    #[test]
    fn a_family_that_is_off_does_not_exist() {
        let folder = tempfile::tempdir().unwrap();
        let names = |workspace, memory| -> Vec<String> {
            let registry = Registry::default();
            let prompts_dir = folder.path().join("prompts");
            let workspace_root = folder.path().join("ai-data");
            let config = ToolsConfig { workspace, memory, ..ToolsConfig::local(workspace_root, prompts_dir) };
            register(&config, &registry).unwrap();
            let tools = Gate::new(registry, vec![]).tools(&testing::caller()).unwrap();
            tools.iter().map(|tool| tool.name.clone()).collect()
        };
        assert_eq!(names(false, true), ["memory_read", "memory_write"]);
        assert_eq!(names(true, false), ["workspace_read", "workspace_write", "workspace_list"]);
        assert_eq!(names(false, false), Vec::<String>::new());
    }

    #[test]
    fn a_workspace_that_cannot_be_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let workspace_root = folder.path().join("file/ai-data");
        std::fs::write(folder.path().join("file"), "").unwrap();
        let config = ToolsConfig::local(workspace_root.clone(), folder.path().join("prompts"));
        let error = register(&config, &Registry::default()).unwrap_err().to_string();
        assert_eq!(error, format!("the workspace `{}`: it is not a folder", workspace_root.display()));
    }
}
