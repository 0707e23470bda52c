//! Checks of values that the schema cannot express. They go on after an error, so that all are reported at once.

use crate::finding::{Finding, key_path};
use crate::workspace_settings::WorkspaceSettings;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Source of environment variables; tests inject their own.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// Collects what is wrong in a section. A value with a finding is never used, so a check may return any.
pub struct SectionChecks<'a> {
    /// The home folder.
    pub home: &'a Path,
    pub env: Environment<'a>,
    pub workspace: &'a WorkspaceSettings,
    pub findings: &'a mut Vec<Finding>,
}

impl SectionChecks<'_> {
    /// Reports a text at a JSON pointer from the root of the file, as `/github/token`.
    pub fn unexpected(&mut self, pointer: &str, value: &str, expected: &str) {
        self.unexpected_value(pointer, &json!(value), expected);
    }

    pub fn unexpected_value(&mut self, pointer: &str, value: &Value, expected: &str) {
        self.findings.push(Finding::unexpected(pointer, value, expected));
    }

    /// Reports a value that may be a secret itself, without quoting it.
    pub fn unexpected_secret(&mut self, pointer: &str, expected: &str) {
        self.problem(pointer, format!("`{}` is invalid, expected {expected}", key_path(pointer)));
    }

    pub fn problem(&mut self, pointer: &str, text: String) {
        self.findings.push(Finding { pointer: pointer.to_owned(), text });
    }

    /// Resolves a path relative to the home folder; `~/` is the user's home directory.
    pub fn path(&mut self, pointer: &str, text: &str) -> PathBuf {
        let (path, expected) = resolve_path(self.home, self.env, text);
        if let Some(expected) = expected {
            self.unexpected(pointer, text, expected);
        }
        path
    }
}

/// Returns a path relative to the home folder, and what was expected if it cannot be one.
pub fn resolve_path(home: &Path, env: Environment<'_>, text: &str) -> (PathBuf, Option<&'static str>) {
    let expected = text.contains('\0').then_some("a path");
    let below_user = text.strip_prefix("~/").or_else(|| (text == "~").then_some(""));
    match (below_user, env("HOME")) {
        (None, _) => (home.join(text), expected),
        (Some(below), Some(user)) if !user.is_empty() => (Path::new(&user).join(below), expected),
        (Some(_), _) => (home.join(text), expected.or(Some("a path without `~`, because HOME is not set"))),
    }
}
