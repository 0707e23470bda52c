//! Misbehaving programs: each harms only itself.

use crate::support::{UpstreamFixture, prefixed};
use portcullis_testkit::wait::{PATIENCE, until, within};
use portcullis_upstream::{
    Processes, ProgramLookup, ServerSpec, StatusKind, StdioSpec, ValueResolver, WorkingDir,
};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A server with one tool. Each start adds its number to a file.
pub(crate) const USUAL: &str = r#"
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

pub(crate) fn program(script: &str, folder: &Path) -> ServerSpec {
    let starts = folder.join("starts").display().to_string();
    let spec = StdioSpec {
        program: ProgramLookup(Arc::new(|| Ok("/bin/sh".into()))),
        args: vec!["-c".to_owned(), script.to_owned(), "server".to_owned(), starts],
        cwd: WorkingDir::Inherited,
        env: Vec::new(),
        values: ValueResolver(Arc::new(|written: &str| Ok(written.to_owned()))),
        processes: Arc::new(Processes::new(std::path::Path::new("/nowhere")).unwrap()),
        digests: Arc::default(),
    };
    let timeout = Duration::from_millis(300);
    ServerSpec { timeout, ..prefixed(spec) }
}

pub(crate) fn starts(folder: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(folder.join("starts")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn lives(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // A zombie is dead.
    !stat.is_empty() && !stat.contains(") Z ")
}

const DEAF: &str = "while :; do sleep 1; done";

#[tokio::test]
async fn a_server_that_hears_nothing_any_more_ends_when_it_is_told_to() {
    let folder = tempfile::tempdir().unwrap();
    let world = UpstreamFixture::connected(program(&USUAL.replace("CALLED", DEAF), folder.path())).await;
    let mut client = world.client().await;
    // More than its pipe and the queue hold.
    for _ in 0..4 {
        let arguments = serde_json::json!({ "text": "x".repeat(500_000) });
        within("the call ends", client.call("up_echo", arguments)).await;
    }
    world.upstream.stop();
    until("no process is left", async || starts(folder.path()).iter().all(|pid| !lives(pid)).then_some(()))
        .await;
}

#[tokio::test]
async fn a_server_that_stopped_answering_is_started_again() {
    let folder = tempfile::tempdir().unwrap();
    let world = UpstreamFixture::connected(program(&USUAL.replace("CALLED", DEAF), folder.path())).await;
    let said = world.call("up_echo").await;
    assert!(said.contains("no answer within 300 ms"), "{said}");
    let status = world.status(StatusKind::Failed).await;
    assert_eq!(status.reason.as_deref(), Some("it does not respond"));
    world.status(StatusKind::Connected).await;
    assert_eq!(starts(folder.path()).len(), 2);
}

#[tokio::test]
async fn a_server_that_asks_and_takes_no_answer_is_ended() {
    let folder = tempfile::tempdir().unwrap();
    // As many as the pipe takes, each with an id that comes back; nothing is ever read.
    let asks = "pad=$(printf '%0200d' 0); while :; do \
                printf '{\"jsonrpc\":\"2.0\",\"id\":\"%s\",\"method\":\"x\"}\\n' \"$pad\"; done";
    let spec = program(&USUAL.replace("CALLED", asks), folder.path());
    let world = UpstreamFixture::connected(ServerSpec { timeout: PATIENCE, ..spec }).await;
    world.call("up_echo").await;
    let status = world.status(StatusKind::Failed).await;
    assert_eq!(status.reason.as_deref(), Some("it sends requests and does not read the responses"));
    let first = starts(folder.path()).remove(0);
    until("it is gone", async || (!lives(&first)).then_some(())).await;
}

#[tokio::test]
async fn a_program_that_ends_at_once_has_its_own_reason_each_time() {
    let folder = tempfile::tempdir().unwrap();
    let world = UpstreamFixture::new(program(
        r#"echo $$ >> "$1"; echo "boom: no licence" >&2; exit 7"#,
        folder.path(),
    ))
    .await;
    world.status(StatusKind::Failed).await;
    let mut stood = world.upstream.watch();
    within("it was tried often", async {
        while starts(folder.path()).len() < 9 {
            let status = stood.borrow_and_update().clone();
            assert_eq!(status.kind, StatusKind::Failed);
            assert_eq!(status.reason.as_deref(), Some("the connection to the server ended"));
            assert!(status.stderr.contains(&"boom: no licence".to_owned()), "{:?}", status.stderr);
            stood.changed().await.unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn a_server_that_closes_its_output_and_goes_on_is_not_told_as_ended() {
    let folder = tempfile::tempdir().unwrap();
    let closes = "exec >&-; while read -r line; do :; done";
    let world = UpstreamFixture::connected(program(&USUAL.replace("CALLED", closes), folder.path())).await;
    world.call("up_echo").await;
    let status = world.status(StatusKind::Failed).await;
    assert!(
        status.stderr.iter().any(|line| line.contains("it closed stdin or stdout")),
        "{:?}",
        status.stderr
    );
    assert!(status.stderr.iter().all(|line| !line.contains("exit status")), "{:?}", status.stderr);
}

#[tokio::test]
async fn a_mark_before_the_first_line_is_no_part_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let marked = format!("printf '\\357\\273\\277'{USUAL}");
    UpstreamFixture::connected(program(&marked.replace("CALLED", "say '\"result\":{}'"), folder.path()))
        .await;
}

#[tokio::test]
async fn an_answer_that_is_too_long_is_told_at_once_and_costs_nobody_else() {
    let filled = |bytes: usize| format!("head -c {bytes} /dev/zero | tr '\\0' x");
    // Both orders of members that implementations write.
    let first = r#"printf '{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"' "$id"; FILLED; printf '"}]}}\n'"#;
    let last = r#"printf '{"result":{"content":[{"type":"text","text":"'; FILLED; printf '"}]},"jsonrpc":"2.0","id":%s}\n' "$id""#;
    for answer in [first, last] {
        let folder = tempfile::tempdir().unwrap();
        let called = answer.replace("FILLED", &filled(17_000_000));
        let spec = program(&USUAL.replace("CALLED", &called), folder.path());
        let world = UpstreamFixture::connected(ServerSpec { timeout: PATIENCE, ..spec }).await;
        for _ in 0..2 {
            let said = world.call("up_echo").await;
            assert!(said.contains("server `up`: the response has 170000"), "{said}");
            assert!(said.contains(" bytes, the limit is 16777216"), "{said}");
        }
        assert_eq!((world.upstream.status().kind, starts(folder.path()).len()), (StatusKind::Connected, 1));
    }
    // A line that ends the server: the id has to come first.
    let folder = tempfile::tempdir().unwrap();
    let called = first.replace("FILLED", &filled(30_000_000));
    let spec = program(&USUAL.replace("CALLED", &called), folder.path());
    let world = UpstreamFixture::connected(ServerSpec { timeout: PATIENCE, ..spec }).await;
    let said = world.call("up_echo").await;
    assert!(said.contains("the response has more than 20971520 bytes"), "{said}");
}

/// A server that excludes a second instance, and takes its time to end. Conflicts are recorded in a file.
fn alone(folder: &Path) -> ServerSpec {
    let usual =
        USUAL.replace("CALLED", "say '\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"done\"}]}'");
    let script = format!(
        r#"mkdir "$1.lock" || {{ echo $$ >> "$1.refused"; exit 3; }}{usual}sleep 1; rmdir "$1.lock""#
    );
    ServerSpec { timeout: PATIENCE, ..program(&script, folder) }
}

/// Waits until it was started so often and is connected, and checks that it never ran twice.
async fn ran_alone(world: &UpstreamFixture, folder: &Path, times: usize) {
    until(&format!("it runs for the {times}. time"), async || {
        let status = world.upstream.status();
        assert_ne!(status.kind, StatusKind::Failed, "{status:?}");
        (status.kind == StatusKind::Connected && starts(folder).len() == times).then_some(())
    })
    .await;
    assert!(!folder.join("starts.refused").exists());
}

#[tokio::test]
async fn the_next_process_waits_for_the_end_of_the_former_when_it_is_wanted_anew() {
    let folder = tempfile::tempdir().unwrap();
    let world = UpstreamFixture::connected(alone(folder.path())).await;
    world.upstream.reconnect();
    ran_alone(&world, folder.path(), 2).await;
}

#[tokio::test]
async fn the_next_process_waits_for_the_end_of_the_former_when_a_call_wakes_it() {
    let folder = tempfile::tempdir().unwrap();
    let idle_stop = Some(Duration::from_millis(1));
    let world = UpstreamFixture::connected(ServerSpec { idle_stop, ..alone(folder.path()) }).await;
    for times in 2..4 {
        until("it rests", async || world.upstream.status().idle.then_some(())).await;
        assert_eq!(world.call("up_echo").await, "done");
        assert_eq!(starts(folder.path()).len(), times);
    }
    assert!(!folder.path().join("starts.refused").exists());
}

#[tokio::test]
async fn a_server_waits_for_the_process_of_the_one_whose_place_it_takes() {
    let folder = tempfile::tempdir().unwrap();
    let spec = alone(folder.path());
    UpstreamFixture::connected(spec.clone()).await.upstream.stop();
    let successor = UpstreamFixture::new(ServerSpec { prefix: "other_".to_owned(), ..spec }).await;
    ran_alone(&successor, folder.path(), 2).await;
}
