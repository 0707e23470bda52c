//! Entries as text: to be added to a file, or to paste into one that the hub does not edit, in its format.

use super::NewServer;
use crate::secret_detection::HIDDEN;
use serde_json::{Map, Value, json};
use std::fmt::Write;

/// Returns the entries for the file of that name, with private values masked.
pub(super) fn entries(file: &str, servers: &[NewServer]) -> String {
    let shown: Vec<NewServer> = servers.iter().map(NewServer::shown).collect();
    let mut text = match file.rsplit('.').next() {
        Some("yaml" | "yml") => yaml(&shown),
        Some("json") => {
            let servers: Map<String, Value> =
                shown.iter().map(|server| (server.name.clone(), Value::Object(members(server)))).collect();
            format!("{:#}\n", json!({ "mcp": servers }))
        }
        _ => shown.iter().map(NewServer::written).collect::<Vec<_>>().join("\n"),
    };
    if text.contains(HIDDEN) {
        text.push_str(&format!("Replace {HIDDEN} with the actual values.\n"));
    }
    text
}

/// Returns a TOML section with a comment above it.
pub(super) fn section(comment: Option<&str>, heading: &str, members: &Map<String, Value>) -> String {
    let comment = comment.map(|text| format!("# {}\n", text.replace(char::is_control, " ")));
    let settings = members.iter().map(|(key, value)| format!("{key} = {}\n", toml(value)));
    format!("{}{heading}\n{}", comment.unwrap_or_default(), settings.collect::<String>())
}

/// Returns a value as TOML on one line: line ends of the file must not change a string.
pub(super) fn toml(value: &Value) -> String {
    let quoted = |text: &str| match text.contains(['\n', '\r']) {
        false => toml_edit::Value::from(text).to_string(),
        // TOML escapes like JSON, plus DEL.
        true => json!(text).to_string().replace('\u{7f}', "\\u007f"),
    };
    let list = |items: Vec<String>| items.join(", ");
    match value {
        Value::String(text) => quoted(text),
        Value::Array(items) => format!("[{}]", list(items.iter().map(toml).collect())),
        Value::Object(members) => {
            let member = |(key, value): (&String, &Value)| format!("{} = {}", quoted(key), toml(value));
            format!("{{ {} }}", list(members.iter().map(member).collect()))
        }
        plain => plain.to_string(),
    }
}

/// Values are JSON on one line, which YAML accepts.
fn yaml(servers: &[NewServer]) -> String {
    let mut text = "mcp:\n".to_owned();
    for server in servers {
        if let Some(comment) = &server.comment {
            // Writing to a string does not fail, here and below.
            let _ = writeln!(text, "  # {}", comment.replace(char::is_control, " "));
        }
        let _ = writeln!(text, "  {}:", Value::from(server.name.as_str()));
        for (key, value) in members(server) {
            let _ = writeln!(text, "    {key}: {value}");
        }
    }
    text
}

/// Returns the entry as JSON.
pub(super) fn members(server: &NewServer) -> Map<String, Value> {
    let pairs = |all: &[(String, String)]| {
        let members: Map<String, Value> =
            all.iter().map(|(key, value)| (key.clone(), Value::from(value.as_str()))).collect();
        (!members.is_empty()).then_some(Value::Object(members))
    };
    let texts = |all: &[String]| (!all.is_empty()).then(|| json!(all));
    let trust = server.always_trusted.then(|| "always".into());
    let oauth = server.oauth.as_ref().map(|members| match members.as_slice() {
        [] => Value::Bool(true),
        members => members.iter().cloned().collect(),
    });
    let all = [
        ("command", server.command.clone().map(Value::from)),
        ("cwd", server.cwd.clone().map(Value::from)),
        ("url", server.url.clone().map(Value::from)),
        ("args", texts(&server.args)),
        ("env", pairs(&server.env)),
        ("headers", pairs(&server.headers)),
        ("oauth", oauth),
        ("timeout_ms", server.timeout_ms.map(Value::from)),
        ("start_timeout_ms", server.start_timeout_ms.map(Value::from)),
        ("trust", trust),
    ];
    all.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, add_servers};

    #[test]
    fn what_is_pasted_is_understood_in_every_format() {
        let server = NewServer {
            name: "two".to_owned(),
            command: Some("npx".to_owned()),
            args: vec!["-y".to_owned(), "a \"b\"\n".to_owned()],
            env: vec![("KEY".to_owned(), "secret:KEY".to_owned())],
            timeout_ms: Some(5_000),
            comment: Some("from\nelsewhere".to_owned()),
            ..NewServer::default()
        };
        for file in ["portcullis.yaml", "portcullis.yml"] {
            let home = tempfile::tempdir().unwrap();
            std::fs::write(home.path().join(file), "{}").unwrap();
            let error = add_servers(home.path(), &|_| None, std::slice::from_ref(&server)).unwrap_err();
            let said = error.to_string();
            let entry = said.split_once("edit it yourself:\n").unwrap().1;
            std::fs::write(home.path().join(file), entry).unwrap();
            let read = Config::load(home.path(), &|_| None).unwrap().config;
            assert_eq!((&read.mcp[0].args, &read.mcp[0].env), (&server.args, &server.env), "{entry}");
        }
        insta::assert_snapshot!(entries("portcullis.yaml", &[server]), @r#"
        mcp:
          # from elsewhere
          "two":
            command: "npx"
            args: ["-y","a \"b\"\n"]
            env: {"KEY":"secret:KEY"}
            timeout_ms: 5000
        "#);
    }
}
