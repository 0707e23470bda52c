//! Scripts: where they are, what bounds them, and which are approved by the configuration itself.

use super::ConfigResolver;
use crate::errors::Finding;
use crate::{ScriptSettings, written};
use portcullis_script::SandboxStrictness;
use portcullis_tools::scripts::{PreapprovedScript, ScriptName, ScriptPermissions};
use std::time::Duration;

impl ConfigResolver<'_> {
    pub(super) fn scripts(&mut self, scripts: &written::WrittenScripts, workspace: &str) -> ScriptSettings {
        let folder = self.path("/scripts/path", &scripts.path);
        if folder.starts_with(self.home.join(workspace)) {
            let expected = "a folder outside of the workspace, which agents write to";
            self.unexpected("/scripts/path", &scripts.path, expected);
        }
        let exec = ScriptPermissions {
            secrets: scripts.exec.secrets.iter().cloned().collect(),
            hosts: lower(&scripts.exec.hosts),
            tools: scripts.exec.tools.iter().cloned().collect(),
            timeout_ms: None,
        };
        self.capabilities("/scripts/exec", &exec);
        let mut allow = Vec::new();
        for (index, entry) in scripts.allow.iter().enumerate() {
            let at = |key: &str| format!("/scripts/allow/{index}/{key}");
            let name = entry.name.parse::<ScriptName>();
            if name.is_err() {
                self.unexpected(&at("name"), &entry.name, "the name of a script like report.star");
            }
            let sha256 = entry.sha256.to_ascii_lowercase();
            if sha256.len() != 64 || !sha256.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                let expected = "the SHA-256 of its text, as `portcullis scripts show NAME` tells it";
                self.unexpected(&at("sha256"), &entry.sha256, expected);
            }
            let granted = ScriptPermissions {
                secrets: entry.secrets.iter().cloned().collect(),
                hosts: lower(&entry.hosts),
                tools: entry.tools.iter().cloned().collect(),
                timeout_ms: entry.timeout_ms,
            };
            self.capabilities(&format!("/scripts/allow/{index}"), &granted);
            if let Ok(name) = name {
                allow.push(PreapprovedScript { name, sha256, granted });
            }
        }
        ScriptSettings {
            enabled: scripts.enabled,
            folder,
            timeout: Duration::from_millis(scripts.timeout_ms),
            memory_bytes_max: scripts.memory_mb * 1024 * 1024,
            strictness: match scripts.sandbox {
                written::SandboxName::Required => SandboxStrictness::Required,
                written::SandboxName::BestEffort => SandboxStrictness::BestEffort,
            },
            warm: scripts.warm,
            exec,
            allow,
        }
    }

    fn capabilities(&mut self, pointer: &str, granted: &ScriptPermissions) {
        if let Err(text) = granted.check() {
            self.findings.push(Finding { pointer: pointer.to_owned(), text });
        }
    }
}

fn lower(hosts: &[String]) -> std::collections::BTreeSet<String> {
    hosts.iter().map(|host| host.to_ascii_lowercase()).collect()
}
