//! Files that are no files, names that are no names, and links that lead out.

use super::Victim;
use crate::support::text;
use portcullis_testkit::process::TestHome;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};
use std::os::unix::fs::symlink;

const SECRET: &str = "this must not be seen";

/// Puts traps into the workspace and returns those that could be made.
fn set_traps(home: &TestHome) -> Vec<String> {
    let files = home.files();
    home.write("folder/inside.md", "inside");
    let outside = home.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("secret.txt"), SECRET).unwrap();
    std::fs::write(home.path().join("workspace/ai-data-sibling"), SECRET).unwrap();
    let links = [
        ("link-absolute", outside.join("secret.txt")),
        ("link-relative", "../../outside/secret.txt".into()),
        ("link-folder", outside.clone()),
        ("link-up", "..".into()),
        ("link-etc", "/etc/passwd".into()),
        ("link-proc", "/proc/self/environ".into()),
        ("link-nowhere", "nowhere".into()),
        ("link-loop", "link-loop".into()),
    ];
    for (name, target) in links {
        symlink(target, files.join(name)).unwrap();
    }
    std::fs::hard_link(outside.join("secret.txt"), files.join("hard-link")).unwrap();
    let pipe = mknodat(CWD, files.join("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0);
    pipe.unwrap();
    let zero = rustix::fs::makedev(1, 5);
    let device = mknodat(CWD, files.join("device"), FileType::CharacterDevice, Mode::RUSR | Mode::WUSR, zero);
    let mut traps: Vec<String> = [
        "folder",
        "link-absolute",
        "link-relative",
        "link-folder",
        "link-folder/secret.txt",
        "link-up",
        "link-up/secure/clients.json",
        "link-etc",
        "link-proc",
        "link-nowhere",
        "link-loop",
        "hard-link",
        "pipe",
        ".",
        "..",
        "../outside/secret.txt",
        "../ai-data-sibling",
        "../secure/clients.json",
        "folder/../../secure/clients.json",
        "/etc/passwd",
        "/proc/self/environ",
        "//etc/passwd",
        "folder/inside.md/below",
        "nul\\u0000byte",
        "line\\nbreak",
        "escape\\u001b[2J",
        "right-to-left\\u202e",
        "",
    ]
    .map(str::to_owned)
    .to_vec();
    traps.push("x".repeat(300));
    traps.push(format!("{}x", "y/".repeat(3_000)));
    match device {
        Ok(()) => traps.push("device".to_owned()),
        Err(error) => eprintln!("skipped: no device could be made: {error}"),
    }
    traps
}

/// Returns what a call brought, as text; a refusal must be a good one.
fn seen(what: &str, answer: &Value) -> String {
    if answer["error"].is_object() {
        let message = answer["error"]["message"].as_str().unwrap();
        assert!([-32602, -32002].contains(&answer["error"]["code"].as_i64().unwrap()), "{what}: {answer}");
        return message.to_owned();
    }
    let result = &answer["result"];
    assert_eq!(result["isError"], true, "{what}: {answer}");
    let code = result["structuredContent"]["code"].as_str().unwrap();
    assert!(["not_found", "invalid_args", "denied"].contains(&code), "{what}: {answer}");
    assert!(text(result).starts_with("Error: "), "{what}: {answer}");
    text(result).to_owned()
}

async fn check(mut victim: Victim) {
    let traps = set_traps(&victim._home);
    let outside = victim._home.path().join("outside/secret.txt");
    for trap in &traps {
        let path: String = serde_json::from_str(&format!("\"{trap}\"")).unwrap();
        let write = json!({ "path": path, "content": "overwritten" });
        let read = json!({ "path": path });
        for (tool, arguments) in [
            ("workspace_read", read.clone()),
            ("workspace_write", write),
            ("memory_read", json!({ "file": path })),
        ] {
            // A memory that was never written is empty, and `.`-names are not its own.
            let what = format!("{tool} {trap:.60}");
            let answer =
                victim.client.request("tools/call", json!({ "name": tool, "arguments": arguments })).await;
            let may_succeed = tool == "memory_read" || (tool == "workspace_write" && trap == "link-nowhere");
            let shown = if may_succeed && answer["result"]["isError"] == false {
                text(&answer["result"]).to_owned()
            } else {
                seen(&what, &answer)
            };
            assert!(!shown.contains(SECRET) && !shown.contains("root:"), "{what}: {shown}");
            let controls = shown.chars().filter(|c| c.is_control() && *c != '\n').count();
            assert_eq!((controls, shown.contains('\u{202e}')), (0, false), "{what}: {shown:?}");
        }
        if trap != "folder" && trap != "." && !trap.is_empty() {
            let answer = victim
                .client
                .request("tools/call", json!({ "name": "workspace_list", "arguments": read }))
                .await;
            seen(&format!("workspace_list {trap:.60}"), &answer);
        }
        let uri = format!("workspace:///{path}");
        let answer = victim.client.request("resources/read", json!({ "uri": uri })).await;
        seen(&format!("resources/read {trap:.60}"), &answer);
    }
    assert_eq!(std::fs::read_to_string(outside).unwrap(), SECRET);
    victim.client.unasked();
    victim.lives().await;
    victim.assert_small("odd files");
}

#[tokio::test]
async fn on_stdio_are_refused() {
    check(Victim::on_stdio().await).await;
}

#[tokio::test]
async fn over_http_are_refused() {
    check(Victim::over_http().await).await;
}

/// What cannot be opened is not offered as a resource either.
#[tokio::test]
async fn are_not_listed_as_resources() {
    let mut victim = Victim::on_stdio().await;
    set_traps(&victim._home);
    let listed = victim.client.result("resources/list", json!({})).await;
    let names: Vec<&str> =
        listed["resources"].as_array().unwrap().iter().map(|r| r["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["a.md", "b.md", "folder/inside.md"]);
}
