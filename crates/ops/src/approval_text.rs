//! What a person reads of a call that waits: its arguments, file writes as a diff, and the line that announces it.
//!
//! One rendering for the command line and the page. Texts with several lines stand as indented blocks, so that no line of
//! them can pass for another argument. Hidden characters stay in: who shows the text marks them.

use crate::context::Operations;
use portcullis_core::Root;
use portcullis_store::approvals::{Approval, ApprovalRequest};
use portcullis_tools::{CONTENT_ARGUMENT, VaultSection, WrittenFile, WrittenFolder, written_file};
use serde_json::{Map, Value};
use similar::{ChangeTag, TextDiff};
use std::time::Duration;

/// Before each line of a text with several.
const INDENT: &str = "    ";
/// Unchanged lines around a change.
const CONTEXT_LINES: usize = 3;
/// Lines of a diff. A person does not read more before a decision.
const DIFF_LINES_MAX: usize = 400;
/// The largest current file that is compared.
const FILE_BYTES_MAX: usize = 1024 * 1024;
/// Comparing takes at most this long; then the diff is coarser.
const DIFF_WITHIN: Duration = Duration::from_millis(200);

/// Whether a write is shown as a change of the file that is there now. That reads and compares the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileComparison {
    WithCurrent,
    /// Its content is shown as a text.
    Skipped,
}

/// The content of a file before a call.
enum CurrentFile {
    Missing,
    Text(String),
    /// It is no text, or too large: it cannot be compared.
    Other,
}

impl Operations {
    /// Returns the arguments of a call for a person. `scrub` redacts the current content of a file that the call would
    /// change; the arguments are redacted already.
    pub fn readable_arguments(
        &self,
        approval: &Approval,
        comparison: FileComparison,
        scrub: &dyn Fn(&str) -> String,
    ) -> String {
        let change = |arguments: &Map<String, Value>| {
            // Afterwards, the file has the change already.
            let is_whole = approval.call.more == 0
                && approval.decided.is_none()
                && comparison == FileComparison::WithCurrent;
            let content = arguments.get(CONTENT_ARGUMENT)?.as_str().filter(|_| is_whole)?;
            let file = written_file(&approval.call.target, &Value::Object(arguments.clone()))?;
            Some(describe_change(&file, &self.current(&file, scrub), content))
        };
        readable(&approval.call, &change)
    }

    fn current(&self, file: &WrittenFile, scrub: &dyn Fn(&str) -> String) -> CurrentFile {
        let config = self.config();
        let opened = match file.folder {
            WrittenFolder::Workspace => {
                Root::open(&config.workspace.data_dir()).and_then(|root| root.open_file(&file.path))
            }
            WrittenFolder::Vault => {
                let Some(vault) = config.section::<VaultSection>() else { return CurrentFile::Other };
                Root::open(&vault.path).and_then(|root| root.open_nofollow(&file.path))
            }
        };
        match opened.and_then(|file| file.read(FILE_BYTES_MAX)).map(String::from_utf8) {
            Ok(Ok(text)) => CurrentFile::Text(scrub(&text)),
            Err(portcullis_core::root::RootError::NotFound) => CurrentFile::Missing,
            Ok(Err(_)) | Err(_) => CurrentFile::Other,
        }
    }
}

/// Returns the line that announces a waiting call: who wants what, and where a person decides. No arguments are in it.
pub fn announcement(approval: &Approval) -> String {
    let ApprovalRequest { client, kind, target, effect, reach, .. } = &approval.call;
    let outside = if reach == "outside" { ", reaches outside" } else { "" };
    format!(
        "client `{client}` wants to run {kind} `{target}` (effect: {effect}{outside}); \
         `portcullis approvals show {id}` shows it",
        id = approval.id
    )
}

fn readable(call: &ApprovalRequest, change: &dyn Fn(&Map<String, Value>) -> Option<String>) -> String {
    let mut values = serde_json::Deserializer::from_str(&call.arguments).into_iter::<Value>();
    // What was cut is not JSON any more.
    let Some(Ok(Value::Object(arguments))) = values.next() else { return call.arguments.clone() };
    let rest = call.arguments[values.byte_offset()..].trim();
    let mut text = String::new();
    let change = change(&arguments);
    for (name, value) in &arguments {
        // A name is as foreign as a value.
        let name = if name.contains(char::is_control) { quoted(name) } else { name.clone() };
        text.push_str(&name);
        match (value, &change) {
            (Value::String(_), Some(change)) if name == CONTENT_ARGUMENT => text.push_str(change),
            (Value::String(long), _) if long.contains('\n') => {
                text.push_str(&format!(":\n{}", block(INDENT, long)))
            }
            (Value::String(short), _) => text.push_str(&format!(": {}\n", plain(short))),
            (value @ (Value::Array(_) | Value::Object(_)), _) => {
                let pretty = format!("{value:#}");
                match pretty.contains('\n') {
                    true => text.push_str(&format!(":\n{}", block(INDENT, &pretty))),
                    false => text.push_str(&format!(": {pretty}\n")),
                }
            }
            (value, _) => text.push_str(&format!(": {value}\n")),
        }
    }
    if arguments.is_empty() {
        text.push_str("no arguments\n");
    }
    if !rest.is_empty() {
        text.push_str(&format!("{rest}\n"));
    }
    text.truncate(text.trim_end_matches('\n').len());
    text
}

/// Returns a text on one line: as it is, in quotes where it could be taken for something else.
fn plain(text: &str) -> String {
    let is_ambiguous = text.trim() != text || text.is_empty() || serde_json::from_str::<Value>(text).is_ok();
    if is_ambiguous { quoted(text) } else { text.to_owned() }
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// Indents every line.
fn block(indent: &str, text: &str) -> String {
    let lines = text.strip_suffix('\n').unwrap_or(text).split('\n');
    lines.map(|line| format!("{indent}{}\n", line.strip_suffix('\r').unwrap_or(line))).collect()
}

/// Describes what becomes of a file, behind the name of the argument.
fn describe_change(file: &WrittenFile, current: &CurrentFile, content: &str) -> String {
    let path = &file.path;
    match current {
        CurrentFile::Missing => format!(", a new file {path}:\n{}", block("  + ", content)),
        _ if file.appends => format!(", added to the end of {path}:\n{}", block("  + ", content)),
        CurrentFile::Text(current) if current == content => format!(", which {path} has already\n"),
        CurrentFile::Text(current) => match diff(current, content) {
            (diff, DiffExtent::Whole) => format!(", as changes to {path}:\n{diff}"),
            // Removed lines come first, so what is written could be all that was cut.
            (diff, DiffExtent::Cut) => {
                format!(", as changes to {path}:\n{diff}  all of the new text:\n{}", block(INDENT, content))
            }
        },
        CurrentFile::Other => format!(", which replaces {path}:\n{}", block(INDENT, content)),
    }
}

/// How much of the changes is shown.
enum DiffExtent {
    Whole,
    Cut,
}

fn diff(before: &str, after: &str) -> (String, DiffExtent) {
    let diff = TextDiff::configure().timeout(DIFF_WITHIN).diff_lines(before, after);
    let (mut text, mut lines) = (String::new(), 0);
    for (number, group) in diff.grouped_ops(CONTEXT_LINES).iter().enumerate() {
        if number > 0 {
            text.push_str("    …\n");
        }
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            lines += 1;
            if lines > DIFF_LINES_MAX {
                text.push_str("    … and more changes\n");
                return (text, DiffExtent::Cut);
            }
            let sign = match change.tag() {
                ChangeTag::Equal => "    ",
                ChangeTag::Insert => "  + ",
                ChangeTag::Delete => "  - ",
            };
            text.push_str(&block(sign, change.value()));
        }
    }
    (text, DiffExtent::Whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(arguments: &str) -> ApprovalRequest {
        serde_json::from_value(serde_json::json!({
            "digest": "", "client": "laptop", "origin": "client", "kind": "tool", "target": "workspace_write",
            "effect": "write", "reach": "local", "rule": "policy[0]", "definition": "", "arguments": arguments,
        }))
        .unwrap()
    }

    #[test]
    fn arguments_stand_as_a_person_reads_them() {
        let shown = |arguments: &str| readable(&call(arguments), &|_| None);
        assert_eq!(shown(r#"{"path":"a.md","limit":5,"deep":true}"#), "path: a.md\nlimit: 5\ndeep: true");
        assert_eq!(shown("{}"), "no arguments");
        // A text that looks like something else is quoted, and no line of a block passes for an argument.
        assert_eq!(shown(r#"{"a":"5","b":"","c":" x"}"#), "a: \"5\"\nb: \"\"\nc: \" x\"");
        assert_eq!(
            shown(r#"{"body":"one\r\npath: b.md\n","path":"a.md"}"#),
            "body:\n    one\n    path: b.md\npath: a.md"
        );
        assert_eq!(shown(r#"{"a\nb":1}"#), r#""a\nb": 1"#);
        assert_eq!(shown(r#"{"list":["x"]}"#), "list:\n    [\n      \"x\"\n    ]");
        // What was cut, and what stands beside the arguments.
        assert_eq!(shown(r#"{"path":"a.m"#), r#"{"path":"a.m"#);
        assert_eq!(shown(r#"{"a":1} and {"b":2}"#), "a: 1\nand {\"b\":2}");
    }

    #[test]
    fn a_write_is_shown_as_a_change_of_the_file() {
        let file = |appends| WrittenFile {
            folder: WrittenFolder::Workspace,
            path: portcullis_core::root::RootedPath::parse("a.md").unwrap(),
            appends,
        };
        let text = |text: &str| CurrentFile::Text(text.to_owned());
        let shown =
            |current: CurrentFile, appends, content: &str| describe_change(&file(appends), &current, content);
        assert_eq!(
            shown(CurrentFile::Missing, false, "one\ntwo\n"),
            ", a new file a.md:\n  + one\n  + two\n"
        );
        assert_eq!(
            shown(text("one\ntwo\nthree\n"), false, "one\n2\nthree\n"),
            ", as changes to a.md:\n    one\n  - two\n  + 2\n    three\n"
        );
        assert_eq!(shown(text("one\n"), true, "two"), ", added to the end of a.md:\n  + two\n");
        assert_eq!(shown(text("one"), false, "one"), ", which a.md has already\n");
        assert_eq!(shown(CurrentFile::Other, false, "one"), ", which replaces a.md:\n    one\n");
        let many: String = (0..1_000).map(|n| format!("{n}\n")).collect();
        assert_eq!(shown(text(""), false, &many).lines().count(), 1 + DIFF_LINES_MAX + 1 + 1 + 1_000);
        // However much is removed, what is written is shown.
        let replaced = shown(text(&many), false, "exfiltrate\n");
        assert!(
            replaced.ends_with("  … and more changes\n  all of the new text:\n    exfiltrate\n"),
            "{replaced}"
        );
        // As a whole, in its argument.
        let shown = readable(&call(r#"{"path":"a.md","content":"x"}"#), &|_| {
            Some(", a new file a.md:\n  + x\n".to_owned())
        });
        assert_eq!(shown, "path: a.md\ncontent, a new file a.md:\n  + x");
    }
}
