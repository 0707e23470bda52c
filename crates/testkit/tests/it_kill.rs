//! The real program, killed at random moments while it works.
//!
//! Runs the program that lies beside the tests, or that `PORTCULLIS_BIN` names: `cargo build -p portcullis` first.
//! `KILL_ROUNDS=1000` makes it the long form, and `KILL_SEED` repeats a run.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use serde_json::{Value, json};
use std::collections::HashSet;
use std::hash::{BuildHasher, Hasher};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How often the program is killed in the short form.
const ROUNDS: u64 = 20;
/// The longest it works before that.
const WORKS_MS_MAX: u64 = 200;
/// How many calls are sent ahead of their replies.
const AHEAD: u64 = 32;

fn program() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("PORTCULLIS_BIN") {
        return Some(named.into());
    }
    let tests = std::env::current_exe().unwrap();
    Some(tests.parent()?.parent()?.join("portcullis")).filter(|path| path.is_file())
}

fn number(name: &str, default: impl Fn() -> u64) -> u64 {
    std::env::var(name).map_or_else(|_| default(), |text| text.parse().unwrap())
}

struct Hub<'a> {
    program: &'a Path,
    home: &'a Path,
}

impl Hub<'_> {
    fn command(&self) -> Command {
        let mut command = Command::new(self.program);
        command.arg("--home").arg(self.home).env_remove("PORTCULLIS_HOME").env_remove("MCP_TRANSPORT");
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command().args(args).output().unwrap()
    }

    /// Starts it and returns when it has answered for the first time.
    fn start(&self) -> (Child, ChildStdin, impl Iterator<Item = Value> + Send + use<>) {
        let mut child = self
            .command()
            .arg("--mcp")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (mut stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        // A reply that was cut off was not given.
        let mut replies = BufReader::new(stdout)
            .lines()
            .map_while(Result::ok)
            .filter_map(|line| serde_json::from_str(&line).ok());
        let params = json!({
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "kill", "version": "1" }
        });
        send(&mut stdin, &json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params }))
            .unwrap();
        let first: Value = replies.next().expect("it opens what the last one left");
        assert!(first["result"].is_object(), "{first}");
        send(&mut stdin, &json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).unwrap();
        (child, stdin, replies)
    }

    /// Lets it work for a while, kills it, and returns which writes it had acknowledged.
    fn killed_after(&self, round: u64, works: Duration) -> Vec<u64> {
        let (mut child, mut stdin, replies) = self.start();
        let (replied, may_send) = mpsc::channel();
        let sender = std::thread::spawn(move || {
            for id in 1.. {
                let arguments = json!({ "path": format!("k{round}-{id}.md"), "content": content(round, id) });
                let params = json!({ "name": "workspace_write", "arguments": arguments });
                let call = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
                if send(&mut stdin, &call).is_err() || (id > AHEAD && may_send.recv().is_err()) {
                    return;
                }
            }
        });
        let reader = std::thread::spawn(move || {
            let mut acknowledged = Vec::new();
            for reply in replies.filter(|message| message["method"].is_null()) {
                assert!(reply["result"].is_object() && reply["result"]["isError"] != true, "{reply}");
                acknowledged.push(reply["id"].as_u64().unwrap());
                let _ = replied.send(());
            }
            acknowledged
        });
        let (_never, wait) = mpsc::channel::<()>();
        let _ = wait.recv_timeout(works);
        child.kill().unwrap();
        child.wait().unwrap();
        sender.join().unwrap();
        reader.join().unwrap()
    }

    /// Returns the paths of all writes that the log says were begun.
    fn begun(&self) -> HashSet<String> {
        let found = self.run(&["audit", "search", "--tool", "workspace_write", "--json"]);
        let lines = String::from_utf8(found.stdout).unwrap();
        let records = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let begun = records.filter(|record| record["phase"] == "begin");
        let path = |record: Value| {
            let arguments: Value = serde_json::from_str(record["args"].as_str()?).ok()?;
            Some(arguments["path"].as_str()?.to_owned())
        };
        begun.filter_map(path).collect()
    }
}

fn content(round: u64, id: u64) -> String {
    format!("written in round {round} as {id}\n")
}

fn send(to: &mut ChildStdin, message: &Value) -> std::io::Result<()> {
    to.write_all(format!("{message}\n").as_bytes())
}

#[test]
fn nothing_acknowledged_is_lost_and_the_log_verifies() {
    let Some(program) = program() else {
        println!("skipped: no program beside the tests; `cargo build -p portcullis` makes it");
        return;
    };
    let fresh = || std::collections::hash_map::RandomState::new().build_hasher().finish();
    let (rounds, seed) = (number("KILL_ROUNDS", || ROUNDS), number("KILL_SEED", fresh));
    println!("KILL_SEED={seed}");
    let home = tempfile::tempdir().unwrap();
    let limits = "[rate_limit]\nrequests_per_second = 1000000\nburst = 1000000\n";
    std::fs::write(home.path().join("portcullis.toml"), limits).unwrap();
    let hub = Hub { program: &program, home: home.path() };
    let (mut random, mut acknowledged_in_all, mut longest) = (seed | 1, 0, Duration::ZERO);
    for round in 1..=rounds {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let acknowledged = hub.killed_after(round, Duration::from_millis(random % WORKS_MS_MAX));
        acknowledged_in_all += acknowledged.len();
        for id in &acknowledged {
            let path = home.path().join(format!("workspace/ai-data/k{round}-{id}.md"));
            assert_eq!(std::fs::read_to_string(&path).unwrap(), content(round, *id), "{}", path.display());
        }
        let checking = Instant::now();
        let verified = hub.run(&["audit", "verify"]);
        longest = longest.max(checking.elapsed());
        assert!(verified.status.success(), "round {round}: {}", String::from_utf8_lossy(&verified.stderr));
    }
    // Whatever is there was announced before, acknowledged or not.
    let begun = hub.begun();
    let files = std::fs::read_dir(home.path().join("workspace/ai-data")).unwrap();
    let names = files.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let names: Vec<String> = names.filter(|name| name.starts_with('k')).collect();
    assert!(names.len() >= acknowledged_in_all);
    for name in &names {
        assert!(begun.contains(name), "{name} has no begin record");
    }
    let last = String::from_utf8(hub.run(&["audit", "verify"]).stdout).unwrap();
    println!(
        "{rounds} kills, {acknowledged_in_all} writes acknowledged, 0 lost; {}",
        last.trim().replace('\n', " ")
    );
    println!("the longest check took {longest:?}");
    assert!(acknowledged_in_all > 0);

    // The same check fails when a record is taken out.
    let log = home.path().join("workspace/secure/audit/audit.jsonl");
    let text = std::fs::read_to_string(&log).unwrap();
    let without_second: Vec<&str> =
        text.lines().enumerate().filter(|(at, _)| *at != 1).map(|(_, line)| line).collect();
    std::fs::write(&log, without_second.join("\n") + "\n").unwrap();
    let verified = hub.run(&["audit", "verify"]);
    assert_eq!(verified.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&verified.stderr)
            .contains("audit.jsonl, line 2 (record 3): record 2 is missing")
    );
}
