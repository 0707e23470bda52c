//! Path traversal, through every tool that takes a path or name. The root alone is tested with all paths.
//!
//! `PORTCULLIS_ALL_PATHS=1` takes every path of the public list instead of some.

use super::corpus;
use crate::support::{home, stdio};
use portcullis_testkit::mcp_client::McpClient;
use portcullis_testkit::process::{TestHome, UNHURRIED};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const CANARY: &str = "CANARY-OUTSIDE";
/// How many calls are under way at once.
const AT_ONCE: usize = 64;
/// How long so many calls may take before one of them counts as hanging.
const HANG: Duration = Duration::from_secs(10);

/// Everything that takes a path or a name of a file.
const WAYS: [&str; 13] = [
    "workspace_read",
    "workspace_list",
    "memory_read",
    "workspace_write",
    "memory_write",
    "memory_append",
    "vault_read",
    "vault_list",
    "vault_search",
    "vault_write",
    "resources/read",
    "prompts/get",
    "completion/complete",
];

fn message(way: &str, path: &str) -> (&'static str, Value) {
    let tool = |name: &str, arguments: Value| ("tools/call", json!({ "name": name, "arguments": arguments }));
    match way {
        "vault_search" => tool(way, json!({ "query": "canary", "path": path })),
        "workspace_write" | "vault_write" => tool(way, json!({ "path": path, "content": "WRITTEN" })),
        "memory_read" => tool(way, json!({ "file": path })),
        "memory_write" => tool(way, json!({ "file": path, "content": "WRITTEN" })),
        "memory_append" => {
            tool("memory_write", json!({ "file": path, "content": "WRITTEN", "append": true }))
        }
        "resources/read" => ("resources/read", json!({ "uri": format!("workspace:///{path}") })),
        "prompts/get" => ("prompts/get", json!({ "name": path })),
        "completion/complete" => {
            let reference = json!({ "type": "ref/resource", "uri": "workspace:///{path}" });
            let argument = json!({ "name": "path", "value": path });
            ("completion/complete", json!({ "ref": reference, "argument": argument }))
        }
        tool_with_path => tool(tool_with_path, json!({ "path": path })),
    }
}

/// Puts canaries around the workspace and links to them into it.
fn set_traps(home: &TestHome) {
    let (workspace, inside) = (home.path().join("workspace"), home.files());
    home.write("notes/todo.md", "milk");
    for neighbour in ["secure", "ai-data-evil", "ai-data2", "ai-data.bak"] {
        std::fs::create_dir_all(workspace.join(neighbour)).unwrap();
        std::fs::write(workspace.join(neighbour).join("CANARY"), CANARY).unwrap();
    }
    for (target, link) in [
        ("/etc/passwd", "link_abs"),
        ("../secure/CANARY", "link_rel"),
        ("../secure", "link_dir"),
        ("link_rel", "link_chain"),
        ("/etc", "link_dir_abs"),
        ("/proc/self", "link_proc"),
        ("/", "link_root"),
        (".", "link_dot"),
        ("/dev/zero", "link_dev_zero"),
    ] {
        symlink(target, inside.join(link)).unwrap();
    }
    std::fs::hard_link(workspace.join("secure/CANARY"), inside.join("hardlink_canary")).unwrap();
}

/// Returns what is outside, but for what the hub itself writes there.
fn outside(home: &TestHome) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![home.path()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let own = ["audit", "anchors", "hub."].iter().any(|own| name.starts_with(own));
            if own || path == home.files() {
                continue;
            }
            if path.is_dir() {
                folders.push(path.clone());
            }
            found.insert(path.clone(), std::fs::read(&path).unwrap_or_default());
        }
    }
    found
}

/// The checking function: how many answers show what is outside.
fn escapes(answers: &[String]) -> usize {
    let shows = |answer: &&String| answer.contains(CANARY) || answer.contains("root:x:0");
    answers.iter().filter(shows).count()
}

/// Sends every path one way and returns what came back, and how long the slowest part took.
async fn try_all(client: &mut McpClient, way: &str, paths: &[String]) -> (Vec<String>, Duration) {
    let (mut answers, mut slowest) = (Vec::new(), Duration::ZERO);
    for part in paths.chunks(AT_ONCE) {
        let started = Instant::now();
        let mut ids = Vec::new();
        for path in part {
            let (method, params) = message(way, path);
            ids.push(client.begin(method, params).await);
        }
        for id in ids {
            answers.push(client.answer(&json!(id)).await.to_string());
        }
        slowest = slowest.max(started.elapsed());
    }
    (answers, slowest)
}

#[tokio::test]
async fn leads_out_of_no_tool() {
    let home = home();
    // The vault is the same folder, so that the same traps are around it.
    home.configure(&format!("{UNHURRIED}[vault]\npath = \"workspace/ai-data\"\n"));
    let mut client = stdio(&home, "2025-11-25");
    client.initialize(json!({})).await;
    set_traps(&home);
    let before = outside(&home);
    let nth = if std::env::var_os("PORTCULLIS_ALL_PATHS").is_some() { 1 } else { 20 };
    let paths = corpus::paths(nth);
    // Each write waits for the disk twice: for its record and for itself.
    let some: Vec<String> = paths.iter().step_by(nth.min(4)).cloned().collect();
    let mut calls = 0;
    for way in WAYS {
        let writes = way.ends_with("write") || way.ends_with("append");
        let (answers, slowest) = try_all(&mut client, way, if writes { &some } else { &paths }).await;
        calls += answers.len();
        assert_eq!(escapes(&answers), 0, "{way}");
        assert!(slowest <= HANG, "{way}: {AT_ONCE} calls took {slowest:?}");
        // No way is shut altogether: the test would pass for the wrong reason.
        if !way.contains('/') {
            let (answers, _) =
                try_all(&mut client, way, &["MEMORY.md", "notes", "notes/todo.md"].map(str::to_owned)).await;
            assert!(answers.iter().any(|answer| answer.contains(r#""isError":false"#)), "{way}: {answers:?}");
        }
    }
    // What was written may have made a path lead somewhere else.
    let (answers, _) = try_all(&mut client, "workspace_read", &paths).await;
    assert_eq!(escapes(&answers), 0);
    let after = outside(&home);
    let changed = after.iter().filter(|(path, content)| before.get(*path) != Some(content));
    assert_eq!(changed.map(|(path, _)| path).collect::<Vec<_>>(), Vec::<&PathBuf>::new());
    assert!(before.keys().all(|path| after.contains_key(path)), "nothing was removed");
    client.unasked();
    eprintln!(
        "{} paths by {} ways, {calls} calls: nothing outside was seen or changed",
        paths.len(),
        WAYS.len()
    );
}

/// The test can fail: a tool that joins the path to its folder shows what is outside.
#[tokio::test]
async fn leads_out_of_a_weak_tool() {
    let home = home();
    std::fs::create_dir_all(home.files()).unwrap();
    set_traps(&home);
    let weak = |path: &String| {
        let path = home.files().join(path.trim_start_matches('/'));
        // Even a weak tool must not hang the test.
        let is_file =
            std::fs::metadata(&path).is_ok_and(|metadata| metadata.is_file() && metadata.len() < 1 << 20);
        is_file.then(|| std::fs::read(Path::new(&path)).unwrap_or_default())
    };
    let answers: Vec<String> = corpus::paths(10)
        .iter()
        .filter_map(weak)
        .map(|content| String::from_utf8_lossy(&content).into_owned())
        .collect();
    let found = escapes(&answers);
    eprintln!("a tool that joins paths: {found} escapes");
    assert!(found > 0);
}
