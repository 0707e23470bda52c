//! Programs that do not behave: each costs itself, and nobody else.

use crate::support::{World, prefixed};
use portcullis_testkit::wait::{until, within};
use portcullis_upstream::{Processes, Program, ServerSpec, StatusKind, StdioSpec, TransportSpec, Values};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A server of one tool, but for what it does when that is called. Each start adds its number to a file.
const USUAL: &str = r#"
echo $$ >> "$1"
say() { printf '{"jsonrpc":"2.0","id":%s,%s}\n' "$id" "$1"; }
while read -r line; do
  id=${line#*\"id\":}; id=${id%%,*}
  case $line in
    *'"server/discover"'*) say '"error":{"code":-32601,"message":"what?"}';;
    *'"initialize"'*) say '"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}}}';;
    *'"tools/list"'*) say '"result":{"tools":[{"name":"echo","inputSchema":{"type":"object"}}]}';;
    *'"tools/call"'*) CALLED;;
  esac
done
"#;

fn program(script: &str, folder: &Path) -> ServerSpec {
    let starts = folder.join("starts").display().to_string();
    let spec = StdioSpec {
        program: Program(Arc::new(|| Ok("/bin/sh".into()))),
        args: vec!["-c".to_owned(), script.to_owned(), "server".to_owned(), starts],
        cwd: None,
        env: Vec::new(),
        values: Values(Arc::new(|written: &str| Ok(written.to_owned()))),
        processes: Arc::new(Processes::new().unwrap()),
    };
    let timeout = Duration::from_millis(300);
    ServerSpec { timeout, ..prefixed(TransportSpec::Stdio(spec)) }
}

fn starts(folder: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(folder.join("starts")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn lives(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // One that is dead and not yet collected is dead.
    !stat.is_empty() && !stat.contains(") Z ")
}

const DEAF: &str = "while :; do sleep 1; done";

#[tokio::test]
async fn a_server_that_hears_nothing_any_more_ends_when_it_is_told_to() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::connected(program(&USUAL.replace("CALLED", DEAF), folder.path())).await;
    let mut client = world.client().await;
    // More than its input and all that may wait for it hold.
    for _ in 0..4 {
        let arguments = serde_json::json!({ "text": "x".repeat(500_000) });
        within("the call ends", client.call("up_echo", arguments)).await;
    }
    world.upstream.stop();
    until("no process is left", async || starts(folder.path()).iter().all(|pid| !lives(pid)).then_some(()))
        .await;
}

#[tokio::test]
async fn a_server_that_closes_its_output_and_goes_on_is_not_told_as_ended() {
    let folder = tempfile::tempdir().unwrap();
    let closes = "exec >&-; while read -r line; do :; done";
    let world = World::connected(program(&USUAL.replace("CALLED", closes), folder.path())).await;
    world.call("up_echo").await;
    let status = world.status(StatusKind::Failed).await;
    assert!(status.stderr.iter().any(|line| line.contains("it closed its output")), "{:?}", status.stderr);
    assert!(status.stderr.iter().all(|line| !line.contains("exit status")), "{:?}", status.stderr);
}

#[tokio::test]
async fn a_mark_before_the_first_line_is_no_part_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let marked = format!("printf '\\357\\273\\277'{USUAL}");
    World::connected(program(&marked.replace("CALLED", "say '\"result\":{}'"), folder.path())).await;
}
