//! Ways to access files: the root itself, the tools behind all guards, and one with a known race.
#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use super::FileAccess;
use portcullis_core::root::RootedPath;
use portcullis_core::{
    Arguments, Call, CallCtx, CallLimits, Client, Gate, Output, Registry, Root, Scope, SystemClock, Target,
    ToolOutput,
};
use portcullis_guard::{ApprovalTimes, AuditSettings, GuardHandles, GuardSettings, Policy, RateSettings};
use serde_json::{Value, json};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::runtime::Runtime;

/// More than any file of a race.
const BYTES_MAX: usize = 1024 * 1024;
const UNHURRIED: NonZeroU32 = NonZeroU32::new(1_000_000_000).unwrap();

impl FileAccess for Root {
    fn read(&self, path: &str) -> Option<Vec<u8>> {
        Root::read(self, &RootedPath::parse(path).ok()?, BYTES_MAX).ok()
    }

    fn write(&self, path: &str, content: &str) {
        let path = RootedPath::parse(path).unwrap();
        // Both, so that each way to write is raced.
        let _ = Root::append(self, &path, content.as_bytes(), BYTES_MAX);
        let _ = Root::write(self, &path, content.as_bytes());
    }

    fn list(&self, path: &str) -> Option<Vec<String>> {
        let listed = Root::list(self, &RootedPath::parse(path).ok()?, 1_000).ok()?;
        Some(listed.entries.into_iter().map(|entry| entry.name).collect())
    }
}

/// The workspace tools, behind every guard.
pub struct GatedFileAccess {
    gate: Gate,
    client: Arc<Client>,
    runtime: Runtime,
    _handles: GuardHandles,
    _folder: tempfile::TempDir,
}

impl GatedFileAccess {
    pub fn open(inside: &Path) -> GatedFileAccess {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.unwrap();
        let folder = tempfile::tempdir_in(inside.parent().unwrap()).unwrap();
        let registry = Registry::default();
        let client = Arc::new(Client { name: "racer".to_owned(), scope: Scope::everything(), token: None });
        let settings = GuardSettings {
            rate: RateSettings { per_second: UNHURRIED, burst: UNHURRIED, wait: std::time::Duration::ZERO },
            policy: Policy::default(),
            secrets: Vec::new(),
            audit: AuditSettings::in_folder(folder.path()),
            database: portcullis_store::open(folder.path(), &[]).unwrap(),
            owners: Arc::new(client.clone()),
            approval_times: ApprovalTimes::default(),
            ceiling: CallLimits::CEILING,
        };
        let (gate, handles) = runtime.block_on(async {
            portcullis_tools::register_local(inside, &folder.path().join("prompts"), &registry).unwrap();
            portcullis_guard::stack(registry, settings, Arc::new(SystemClock)).unwrap()
        });
        GatedFileAccess { gate, client, runtime, _handles: handles, _folder: folder }
    }

    /// Calls a tool and returns its output.
    fn call(&self, tool: &str, arguments: &Value) -> Option<ToolOutput> {
        let target = Target::Tool(tool.to_owned());
        let call = Call::new(self.client.clone(), target, Arguments::of(arguments), CallCtx::detached());
        match self.runtime.block_on(self.gate.call(call)) {
            Ok(Output::Tool(output)) => Some(output),
            _ => None,
        }
    }
}

impl FileAccess for GatedFileAccess {
    fn read(&self, path: &str) -> Option<Vec<u8>> {
        let output = self.call("workspace_read", &json!({ "path": path }))?;
        Some(format!("{output:?}").into_bytes())
    }

    fn write(&self, path: &str, content: &str) {
        let _ = self.call("workspace_write", &json!({ "path": path, "content": content }));
    }

    fn list(&self, path: &str) -> Option<Vec<String>> {
        Some(vec![format!("{:?}", self.call("workspace_list", &json!({ "path": path }))?)])
    }
}

/// Checks where a path leads, and then uses it: a TOCTOU race.
pub struct RacyFileAccess(pub PathBuf);

impl RacyFileAccess {
    fn checked(&self, path: &str) -> Option<PathBuf> {
        let path = self.0.join(path);
        let real = path.canonicalize().or_else(|_| path.parent().unwrap_or(&path).canonicalize()).ok()?;
        real.starts_with(&self.0).then_some(path)
    }
}

impl FileAccess for RacyFileAccess {
    fn read(&self, path: &str) -> Option<Vec<u8>> {
        std::fs::read(self.checked(path)?).ok()
    }

    fn write(&self, path: &str, content: &str) {
        if let Some(path) = self.checked(path) {
            let _ = std::fs::write(path, content);
        }
    }

    fn list(&self, path: &str) -> Option<Vec<String>> {
        let entries = std::fs::read_dir(self.checked(path)?).ok()?;
        Some(entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect())
    }
}
