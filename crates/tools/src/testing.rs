//! A hub with only native tools, for tests.

use crate::{FAMILIES, register_local, tables};
use jiff::tz::TimeZone;
use portcullis_core::{
    Arguments, Call, CallCtx, Caller, Client, CompletionRef, Content, ContentBody, Family, Gate, GateHandle,
    Origin, Outcome, Output, Registry, ResourceBody, Scope, SystemClock, Target, ToolError,
};
use portcullis_egress::{EgressClient, EgressSettings, NoSecrets, SystemResolver};
use portcullis_family::{FamilyMode, FamilyParts, SectionChecks, Sections, SharedEgress, WorkspaceSettings};
use serde_json::Value;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

pub(crate) struct ToolsFixture {
    folder: TempDir,
    pub(crate) gate: Gate,
}

impl ToolsFixture {
    pub(crate) fn new() -> ToolsFixture {
        ToolsFixture::with(|_| {})
    }

    /// Returns a hub on a folder that `prepare` has filled.
    pub(crate) fn with(prepare: impl FnOnce(&Path)) -> ToolsFixture {
        ToolsFixture::made(prepare, |folder, registry| {
            register_local(&folder.join("ai-data"), &folder.join("prompts"), registry).unwrap();
        })
    }

    /// Returns a hub with one more family.
    pub(crate) fn and(family: Family) -> ToolsFixture {
        ToolsFixture::made(
            |_| {},
            |folder, registry| {
                register_local(&folder.join("ai-data"), &folder.join("prompts"), registry).unwrap();
                registry.add(family).unwrap();
            },
        )
    }

    /// Returns a hub with one family.
    pub(crate) fn only(family: Family) -> ToolsFixture {
        ToolsFixture::made(|_| {}, |_, registry| registry.add(family).unwrap())
    }

    fn made(prepare: impl FnOnce(&Path), register: impl FnOnce(&Path, &Registry)) -> ToolsFixture {
        let folder = tempfile::tempdir().unwrap();
        prepare(folder.path());
        let registry = Registry::default();
        register(folder.path(), &registry);
        ToolsFixture { folder, gate: Gate::new(registry, vec![]) }
    }

    pub(crate) fn workspace(&self) -> PathBuf {
        self.folder.path().join("ai-data")
    }

    pub(crate) fn prompts(&self) -> PathBuf {
        self.folder.path().join("prompts")
    }

    pub(crate) fn caller(&self) -> Caller {
        caller()
    }

    pub(crate) async fn call(&self, target: Target, arguments: Value) -> Outcome {
        let arguments = Arguments::of(&arguments);
        self.gate.call(Call::new(self.caller().client, target, arguments, CallCtx::detached())).await
    }

    /// Calls tools written as `name {arguments}` and returns what a client would see.
    pub(crate) async fn check(&self, calls: &[&str]) -> String {
        let mut transcript = String::new();
        for call in calls {
            let (name, arguments) = call.split_once(' ').unwrap();
            let arguments = serde_json::from_str(arguments).unwrap();
            let outcome = self.call(Target::Tool(name.to_owned()), arguments).await;
            writeln!(transcript, "> {call}\n{}", shown(outcome)).unwrap();
        }
        transcript
    }

    pub(crate) async fn resource(&self, uri: &str) -> String {
        shown(self.call(Target::Resource(uri.to_owned()), serde_json::json!({})).await)
    }

    pub(crate) async fn prompt(&self, name: &str, arguments: Value) -> String {
        shown(self.call(Target::Prompt(name.to_owned()), arguments).await)
    }

    pub(crate) async fn complete(&self, of: CompletionRef, argument: &str, typed: &str) -> Vec<String> {
        let arguments = serde_json::json!({ "argument": { "name": argument, "value": typed } });
        match self.call(Target::Completion(of), arguments).await.unwrap() {
            Output::Completion(completion) => completion.values,
            other => panic!("{other:?}"),
        }
    }
}

/// Returns what the families of a home are built from, with these sections of its configuration.
pub(crate) fn family_parts(
    home: &Path,
    written: Value,
    workspace_tools: bool,
    registry: &Registry,
) -> FamilyParts {
    let workspace = WorkspaceSettings { path: home.join("workspace"), enabled: workspace_tools };
    let mut findings = Vec::new();
    let mut checks = SectionChecks { home, env: &|_| None, workspace: &workspace, findings: &mut findings };
    let mut sections = Sections::default();
    for spec in portcullis_family::sections(FAMILIES) {
        let section = spec.read(written.get(spec.key).cloned()).unwrap();
        if let Some(settings) = section.and_then(|section| section.settings(&mut checks)) {
            sections.insert(spec, settings);
        }
    }
    assert!(findings.is_empty(), "{findings:?}");
    let egress = || {
        let (settings, names) = (EgressSettings::default(), Arc::new(SystemResolver::default()));
        Ok(EgressClient::new(settings, names, Arc::new(NoSecrets), Arc::new(SystemClock))?)
    };
    FamilyParts {
        sections,
        root: FamilyParts::open_root(&workspace).unwrap(),
        workspace,
        database: portcullis_store::open_in_memory(&tables()).unwrap(),
        clock: Arc::new(SystemClock),
        zone: Arc::new(|| TimeZone::UTC),
        secrets: Arc::new(NoSecrets),
        egress: SharedEgress::new(egress),
        gate: GateHandle::default(),
        changes: registry.changes(),
        mode: FamilyMode::Live,
    }
}

pub(crate) fn caller() -> Caller {
    let client = Client { name: "test".to_owned(), scope: Scope::everything(), token: None };
    Caller::new(Arc::new(client), Origin::Client)
}

/// Returns an outcome as text, the same for every kind.
pub(crate) fn shown(outcome: Outcome) -> String {
    match outcome {
        Err(ToolError { kind, message, hints, .. }) => {
            let hints: String = hints.iter().map(|hint| format!("\nhint: {hint}")).collect();
            format!("{}: {message}{hints}", kind.code())
        }
        Ok(Output::Tool(output)) => {
            // The text of a JSON result equals the structured content.
            if let ([Content { body: ContentBody::Text(text), .. }], Some(data)) =
                (output.content.as_slice(), &output.structured)
                && *text == serde_json::to_string_pretty(data).unwrap()
            {
                return format!("json: {data}");
            }
            let texts: Vec<String> = output.content.iter().map(text_of).collect();
            let facts = output.structured.map(|facts| format!("\nfacts: {facts}")).unwrap_or_default();
            format!("{}{facts}", texts.join("\n"))
        }
        Ok(Output::Resource(contents)) => contents.iter().map(shown_resource).collect(),
        Ok(Output::Prompt(prompt)) => {
            let messages: Vec<String> = prompt
                .messages
                .iter()
                .map(|message| format!("{:?}: {}", message.role, text_of(&message.content)))
                .collect();
            messages.join("\n")
        }
        Ok(other) => format!("{other:?}"),
    }
}

fn text_of(content: &Content) -> String {
    match &content.body {
        ContentBody::Text(text) => format!("{text:?}"),
        other => format!("{other:?}"),
    }
}

fn shown_resource(contents: &portcullis_core::ResourceContents) -> String {
    let body = match &contents.body {
        ResourceBody::Text(text) => format!("text {text:?}"),
        ResourceBody::Base64(text) => format!("base64 {text}"),
    };
    format!("{} {} {body}", contents.uri, contents.mime_type.as_deref().unwrap_or("-"))
}

/// A timeout that only a missing notification reaches.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(20);

/// Waits for `wanted`. Other notifications are ignored.
pub(crate) async fn hear(
    changes: &mut tokio::sync::broadcast::Receiver<portcullis_core::CatalogChange>,
    wanted: portcullis_core::CatalogChange,
) {
    let heard = async { while changes.recv().await.unwrap() != wanted {} };
    tokio::time::timeout(PATIENCE, heard).await.unwrap_or_else(|_| panic!("{wanted:?} was never announced"));
}

/// Waits for a change of the resource list.
pub(crate) async fn hear_list(
    changes: &mut tokio::sync::broadcast::Receiver<portcullis_core::CatalogChange>,
) {
    use portcullis_core::{CatalogChange, List};
    let heard = async {
        while !matches!(changes.recv().await.unwrap(), CatalogChange::Within(List::Resources, _)) {}
    };
    tokio::time::timeout(PATIENCE, heard).await.expect("no list change was announced");
}
