//! The `[scripts]` section: where scripts are, what bounds them, and which are approved by the configuration itself.

use super::{PreapprovedScript, ScriptChecker, ScriptName, ScriptPermissions, ScriptStore};
use portcullis_core::SystemClock;
use portcullis_family::{AbsentSection, ConfigSection, SectionChecks};
use portcullis_script::{PoolSettings, SandboxStrictness, WORD, WorkerPool};
use portcullis_store::database::Database;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Concurrent scripts; others queue.
const RUNNING_MAX: usize = 4;
/// Idle timeout of pre-started workers.
const IDLE: Duration = Duration::from_secs(60);

/// Starlark scripts, approved by a person.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ScriptsSection {
    /// Enable the script_* tools.
    enabled: bool,
    /// Folder of scripts, which no tool can reach; relative to the home folder.
    #[schemars(length(min = 1), example = &"scripts")]
    path: String,
    /// Default timeout of a script, in milliseconds.
    #[schemars(range(min = 100, max = 300_000))]
    timeout_ms: u64,
    /// Memory limit of a script, in megabytes.
    #[schemars(range(min = 64, max = 4_096))]
    memory_mb: u64,
    /// If the kernel lacks part of the sandbox: required (scripts do not run) or best-effort.
    sandbox: SandboxName,
    /// Pre-started worker processes.
    #[schemars(range(min = 0, max = 16))]
    warm: usize,
    /// Grants of `script_exec` code, each use with approval; nothing by default.
    exec: WrittenGrants,
    /// Pre-approved scripts, with name, sha256, secrets, hosts and tools.
    allow: Vec<WrittenAllowedScript>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum SandboxName {
    #[default]
    Required,
    BestEffort,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct WrittenGrants {
    /// Secret names.
    #[schemars(example = ["API_KEY"])]
    secrets: Vec<String>,
    /// Hosts, or *.example.com for subdomains.
    #[schemars(example = ["api.example.com"])]
    hosts: Vec<String>,
    /// Globs over tool names.
    #[schemars(example = ["workspace_read"])]
    tools: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct WrittenAllowedScript {
    /// Script name.
    #[schemars(example = &"report.star")]
    name: String,
    /// SHA-256 of the approved version; other versions need approval.
    sha256: String,
    /// Granted secrets.
    secrets: Vec<String>,
    /// Granted hosts, or *.example.com for subdomains.
    hosts: Vec<String>,
    /// Granted tools, as globs.
    tools: Vec<String>,
    /// Timeout in milliseconds, instead of the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64", range(min = 1, max = 300_000))]
    timeout_ms: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptSettings {
    pub enabled: bool,
    pub folder: PathBuf,
    pub timeout: Duration,
    pub memory_bytes_max: u64,
    pub strictness: SandboxStrictness,
    pub warm: usize,
    /// Grants of `script_exec` code.
    pub exec: ScriptPermissions,
    /// Pre-approved scripts.
    pub allow: Vec<PreapprovedScript>,
}

impl Default for ScriptsSection {
    fn default() -> Self {
        ScriptsSection {
            enabled: true,
            path: "scripts".to_owned(),
            timeout_ms: 2_000,
            memory_mb: 128,
            sandbox: SandboxName::Required,
            // One runs while the next is ready.
            warm: 2,
            exec: WrittenGrants::default(),
            allow: Vec::new(),
        }
    }
}

impl ConfigSection for ScriptsSection {
    const KEY: &'static str = "scripts";
    const ABSENT: AbsentSection = AbsentSection::Defaults;
    type Settings = ScriptSettings;

    fn resolve(&self, checks: &mut SectionChecks<'_>) -> Option<ScriptSettings> {
        let folder = checks.path("/scripts/path", &self.path);
        if folder.starts_with(&checks.workspace.path) {
            let expected = "a folder outside of the workspace, which agents write to";
            checks.unexpected("/scripts/path", &self.path, expected);
        }
        let exec = ScriptPermissions {
            secrets: self.exec.secrets.iter().cloned().collect(),
            hosts: lower(&self.exec.hosts),
            tools: self.exec.tools.iter().cloned().collect(),
            timeout_ms: None,
        };
        check_permissions("/scripts/exec", &exec, checks);
        let mut allow = Vec::new();
        for (index, entry) in self.allow.iter().enumerate() {
            allow.extend(entry.resolve(&format!("/scripts/allow/{index}"), checks));
        }
        Some(ScriptSettings {
            enabled: self.enabled,
            folder,
            timeout: Duration::from_millis(self.timeout_ms),
            memory_bytes_max: self.memory_mb * 1024 * 1024,
            strictness: match self.sandbox {
                SandboxName::Required => SandboxStrictness::Required,
                SandboxName::BestEffort => SandboxStrictness::BestEffort,
            },
            warm: self.warm,
            exec,
            allow,
        })
    }
}

impl WrittenAllowedScript {
    fn resolve(&self, pointer: &str, checks: &mut SectionChecks<'_>) -> Option<PreapprovedScript> {
        let name = self.name.parse::<ScriptName>();
        if name.is_err() {
            let expected = "the name of a script like report.star";
            checks.unexpected(&format!("{pointer}/name"), &self.name, expected);
        }
        let sha256 = self.sha256.to_ascii_lowercase();
        if sha256.len() != 64 || !sha256.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            let expected = "the SHA-256 of its text, as `portcullis scripts show NAME` tells it";
            checks.unexpected(&format!("{pointer}/sha256"), &self.sha256, expected);
        }
        let granted = ScriptPermissions {
            secrets: self.secrets.iter().cloned().collect(),
            hosts: lower(&self.hosts),
            tools: self.tools.iter().cloned().collect(),
            timeout_ms: self.timeout_ms,
        };
        check_permissions(pointer, &granted, checks);
        Some(PreapprovedScript { name: name.ok()?, sha256, granted })
    }
}

fn check_permissions(pointer: &str, granted: &ScriptPermissions, checks: &mut SectionChecks<'_>) {
    if let Err(text) = granted.check() {
        checks.problem(pointer, text);
    }
}

fn lower(hosts: &[String]) -> BTreeSet<String> {
    hosts.iter().map(|host| host.to_ascii_lowercase()).collect()
}

impl ScriptSettings {
    /// The settings of a hub without scripts.
    pub fn off() -> ScriptSettings {
        ScriptSettings {
            enabled: false,
            folder: PathBuf::from("/nonexistent"),
            timeout: Duration::ZERO,
            memory_bytes_max: 0,
            strictness: SandboxStrictness::Required,
            warm: 0,
            exec: ScriptPermissions::default(),
            allow: Vec::new(),
        }
    }

    /// Opens the scripts and the decisions about them.
    pub fn open_store(&self, database: &Database) -> ScriptStore {
        ScriptStore::open(&self.folder, database, self.allow.clone(), Arc::new(SystemClock))
    }

    /// Returns what checks scripts and runs them dry.
    pub fn checker(&self, database: &Database) -> ScriptChecker {
        ScriptChecker::new(Arc::new(self.open_store(database)), self.pool(0), self.timeout)
    }

    /// Returns the worker processes, with so many pre-started.
    pub(super) fn pool(&self, warm: usize) -> WorkerPool {
        WorkerPool::new(PoolSettings {
            program: own_program(),
            arguments: vec![WORD.to_owned()],
            memory_bytes_max: self.memory_bytes_max,
            strictness: self.strictness,
            warm,
            running_max: RUNNING_MAX,
            idle: IDLE,
        })
    }
}

/// The running binary, even if it was replaced on disk.
fn own_program() -> PathBuf {
    let own = PathBuf::from("/proc/self/exe");
    if own.exists() { own } else { std::env::current_exe().unwrap_or(own) }
}
