//! The native tools, one module per family.

pub mod calendar;
mod files;
pub mod github;
mod memory;
mod prompts;
pub mod scripts;
#[cfg(test)]
mod testing;
mod vault;
mod watch;
pub mod web;
mod workspace;
mod written_file;

pub use calendar::{CalendarConfig, CalendarLocation, CalendarSource, CalendarsSection};
pub use github::{GithubConfig, GithubSection, GithubSettings};
pub use memory::{MemorySection, MemorySettings};
pub use prompts::{PromptSettings, PromptsSection};
pub use scripts::{ScriptCheckError, ScriptCheckReport, ScriptChecker, ScriptsConfig};
pub use vault::{
    CommitAuthor, RemoteAddress, SyncConfig, SyncTimes, VaultConfig, VaultSection, VaultSettings,
    VaultSyncSettings, find_git,
};
pub use web::{WebConfig, WebSection, WebSettings};
pub use written_file::{CONTENT_ARGUMENT, WrittenFile, WrittenFolder, written_file};

use portcullis_core::{Registry, Root};
use portcullis_family::{BoxError, Families, FamilyModule};
use portcullis_store::FamilyTables;
use std::path::Path;

/// Every family, in the order in which tools are listed. This is the only list.
pub const FAMILIES: Families = &MODULES;

const MODULES: [FamilyModule; 8] = [
    workspace::MODULE,
    memory::MODULE,
    vault::MODULE,
    web::MODULE,
    calendar::MODULE,
    github::MODULE,
    scripts::MODULE,
    prompts::MODULE,
];

/// Returns the tables of the families.
pub fn tables() -> Vec<FamilyTables> {
    portcullis_family::tables(FAMILIES)
}

/// Registers the families that need nothing but folders: `workspace_*`, `memory_*` and prompts.
pub fn register_local(workspace_root: &Path, prompts_dir: &Path, into: &Registry) -> Result<(), BoxError> {
    let root = Root::create(workspace_root)?;
    into.add(workspace::family(root.clone(), workspace_root, into.changes()))?;
    into.add(memory::family(root))?;
    into.add(prompts::family(prompts_dir, into.changes()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::ToolsFixture;
    use portcullis_core::{Gate, Output, Target, ToolDef};
    use portcullis_family::{FamilyParts, WorkspaceSettings};
    use serde_json::{Value, json};

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

    fn names(sections: Value, workspace: bool) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let registry = Registry::default();
        let parts = testing::family_parts(folder.path(), sections, workspace, &registry);
        portcullis_family::register(FAMILIES, &parts, &registry).unwrap();
        let tools = Gate::new(registry, vec![]).tools(&testing::caller()).unwrap();
        tools.iter().map(|tool| tool.name.clone()).collect()
    }

    #[test]
    fn a_family_that_is_off_does_not_exist() {
        let off = json!({ "memory": { "enabled": false }, "scripts": { "enabled": false } });
        let memory = json!({ "scripts": { "enabled": false } });
        assert_eq!(names(memory, false), ["memory_read", "memory_write"]);
        assert_eq!(names(off.clone(), true), ["workspace_read", "workspace_write", "workspace_list"]);
        assert_eq!(names(off, false), Vec::<String>::new());
    }

    #[test]
    fn a_section_turns_its_family_on() {
        let scripts = json!({ "scripts": { "enabled": false }, "memory": { "enabled": false } });
        let with = |key: &str, section: Value| {
            let mut sections = scripts.clone();
            sections[key] = section;
            names(sections, false)
        };
        assert_eq!(with("vault", json!({})), ["vault_read", "vault_write", "vault_list", "vault_search"]);
        assert_eq!(with("web", json!({})), ["web_fetch"]);
        assert_eq!(with("calendars", json!([{ "name": "a", "file": "a.ics" }])), ["calendar_read"]);
        assert_eq!(with("github", json!({})), ["github_list_issues", "github_create_issue"]);
    }

    /// Returns the integers of a schema, each as a value with `number` in its place.
    fn with_each_integer(schema: &Value, number: &Value) -> Vec<Value> {
        let mut found = Vec::new();
        if schema["type"] == "integer"
            || schema["type"].as_array().is_some_and(|types| types.contains(&json!("integer")))
        {
            found.push(number.clone());
        }
        for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
            found.extend(
                with_each_integer(inner, number).into_iter().map(|value| json!({ name.as_str(): value })),
            );
        }
        if schema["items"].is_object() {
            found.extend(with_each_integer(&schema["items"], number).into_iter().map(|value| json!([value])));
        }
        for form in
            ["anyOf", "oneOf", "allOf"].iter().flat_map(|word| schema[word].as_array().into_iter().flatten())
        {
            found.extend(with_each_integer(form, number));
        }
        found
    }

    #[test]
    fn every_integer_argument_may_be_written_with_a_fraction_of_zero() {
        let sections =
            json!({ "vault": {}, "web": {}, "github": {}, "calendars": [{ "name": "a", "file": "a.ics" }] });
        let (folder, registry) = (tempfile::tempdir().unwrap(), Registry::default());
        let parts = testing::family_parts(folder.path(), sections, true, &registry);
        portcullis_family::register(FAMILIES, &parts, &registry).unwrap();
        let mut seen = Vec::new();
        for tool in Gate::new(registry, vec![]).tools(&testing::caller()).unwrap() {
            let schema = &tool.input_schema;
            assert!(!schema.to_string().contains("$ref"), "{}: a reference is not followed", tool.name);
            for (mut given, expected) in
                with_each_integer(schema, &json!(3.0)).into_iter().zip(with_each_integer(schema, &json!(3)))
            {
                portcullis_core::schema::write_whole_numbers(schema, &mut given);
                assert_eq!(given, expected, "{}", tool.name);
                seen.push(format!("{} {given}", tool.name));
            }
        }
        assert!(seen.contains(&"calendar_read {\"days\":3}".to_owned()) && seen.len() >= 7, "{seen:?}");
    }

    /// What a client sees of a value that the schema allows and the type does not.
    #[tokio::test]
    async fn no_words_of_a_rust_type_reach_a_caller() {
        let site = web::WebFixtureSite::open(|_| web::html("<title>Example</title><p>A page"));
        let hub = site.hub();
        let url = site.url("/");
        let fetch = |start: Value| json!({ "url": url, "max_length": 10.0, "start_index": start });
        let call =
            async |start| testing::shown(hub.call(Target::Tool("web_fetch".to_owned()), fetch(start)).await);
        assert_eq!(call(json!(2.0)).await, call(json!(2)).await);
        assert!(!call(json!(2.0)).await.starts_with("invalid_args"));
        assert_eq!(
            call(json!(1e30)).await,
            "invalid_args: invalid arguments: `start_index` does not fit the tool's schema\n\
             hint: compare them with the description and the schema of the tool, in `tools/list`"
        );
    }

    #[test]
    fn a_workspace_that_cannot_be_is_named() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), "").unwrap();
        let workspace = WorkspaceSettings { path: folder.path().join("file"), enabled: true };
        let error = FamilyParts::open_root(&workspace).unwrap_err().to_string();
        assert_eq!(error, format!("the workspace `{}`: it is not a folder", workspace.data_dir().display()));
    }
}
