//! What strangers write neither moves a cursor nor hides anything, in logs and in what commands print.

use crate::support::{corpus, home, http, shared, unseen};
use portcullis_core::hidden_chars::is_invisible;
use portcullis_testkit::process::{UNHURRIED, run};
use serde_json::json;

/// Names, texts and tools, as someone writes them who wants to be obeyed by a terminal, or overlooked by a person.
fn hostile() -> Vec<String> {
    let Some(mut lines) = corpus("unicode_ansi.jsonl") else {
        let own = [
            "\u{1b}[31mred\u{1b}[0m",
            "ok\r\n INFO forged",
            "a\u{202e}b",
            "a\u{e0041}\u{200b}b",
            "\u{7f}\u{9b}2J",
        ];
        return own.map(str::to_owned).to_vec();
    };
    // Some are nested deeper than a reader goes; those are not about how text looks.
    let tools = shared("tool_definitions.jsonl")
        .map(|path| std::fs::read_to_string(path).unwrap())
        .unwrap_or_default();
    let tools = tools.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    lines.extend(tools.map(|line| line["tool"]["description"].clone()));
    let text = |line: &serde_json::Value| line["text"].as_str().or(line.as_str()).map(str::to_owned);
    lines.iter().filter_map(text).collect()
}

#[tokio::test]
async fn nothing_in_logs_and_output_is_unseen() {
    let hostile = hostile();
    for format in ["text", "json"] {
        let home = home();
        home.configure(&format!("{UNHURRIED}[logging]\nlevel = \"debug\"\nformat = \"{format}\"\n"));
        let mut hub = home.serve().await;
        let mut client = http(&hub, "2025-11-25").await;
        let mut raw = 0;
        for (at, text) in hostile.iter().enumerate() {
            client.request(text, json!({})).await;
            client.request("tools/call", json!({ "name": text })).await;
            client.notify(text, json!({})).await;
            let path = format!("hostile-{at}.txt");
            home.write(&path, text);
            // The agent reads what is there; that is what makes the check worth something.
            let read = client.call("workspace_read", json!({ "path": path })).await;
            raw += usize::from(unseen(read["content"][0]["text"].as_str().unwrap()).is_some());
        }
        assert!(raw > hostile.len() / 10, "{raw}");
        let all: String = hostile.join("\n");
        home.write("all.txt", all);
        let read = r#"{"path": "all.txt"}"#;
        for args in [
            &["tools", "call", "workspace_read", read][..],
            &["tools", "call", "workspace_read", read, "--json"],
            &["audit", "tail", "-n", "10000"],
            &["audit", "tail", "-n", "10000", "--json"],
            &["tools", "call", "a\u{1b}[2Kb\u{202e}"],
            &["clients", "revoke", "a\u{1b}[2Kb\u{202e}"],
            &["a\u{1b}[2Kb\u{202e}"],
        ] {
            let ran = run(home.command(args), "").await;
            let said = ran.stdout + &ran.stderr;
            assert!(!said.is_empty() && unseen(&said).is_none(), "{args:?}: {:?} in {said}", unseen(&said));
        }
        hub.process.stop().await;
        let log = hub.process.stderr();
        assert!(log.lines().count() > 2 * hostile.len() && !log.contains('\r'), "{log}");
        // There not even what belongs to letters is left as it is.
        let is_hidden = |c: &char| c.is_control() && !"\n\t".contains(*c) || is_invisible(*c);
        assert_eq!(log.chars().find(is_hidden), None, "{log}");
        let is_event = |line: &str| match format {
            "json" => serde_json::from_str::<serde_json::Value>(line).is_ok(),
            // Behind the time.
            _ => line.split_once("Z ").is_some_and(|(_, rest)| {
                ["ERROR ", " WARN ", " INFO ", "DEBUG "].iter().any(|level| rest.starts_with(level))
            }),
        };
        // Nobody but the hub begins a line.
        assert_eq!(log.lines().find(|line| !is_event(line)), None);
        assert!(!log.lines().any(|line| line.starts_with("2026-01-01") || line.starts_with(" INFO forged")));
    }
}
