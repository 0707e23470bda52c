//! A client starts a script, or a call that waits for an approval, and is narrowed, revoked or replaced meanwhile. What it
//! could do at the start must not count any more: neither for the next call of the script, nor for the approved call.

use crate::changing_server::done;
use crate::scripts::approved;
use crate::support::home;
use portcullis_core::{EffectSet, SystemClock};
use portcullis_store::clients::ClientDirectory;
use portcullis_testkit::mcp_client::McpClient;
use portcullis_testkit::process::{TestHome, UNHURRIED};
use portcullis_testkit::wait::until;
use serde_json::{Value, json};
use std::sync::Arc;

/// Makes two calls. A person is asked about the first, and the client changes before the second.
const SCRIPT: &str = "# @tools: workspace_*\n\
    def main():\n    tools.call(\"workspace_list\")\n    \
    tools.call(\"workspace_write\", path = \"a.txt\", content = \"x\")\n    return \"done\"\n";

/// What becomes of the client while its call waits.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fate {
    Unchanged,
    Narrowed,
    Revoked,
    Replaced,
}

async fn befall(home: &TestHome, fate: Fate) {
    match fate {
        Fate::Unchanged => {}
        Fate::Narrowed => {
            let secure = home.path().join("workspace/secure");
            let narrowing = portcullis_core::run_blocking(move || {
                let database = portcullis_store::open(&secure, &portcullis_tools::tables()).unwrap();
                let clients = ClientDirectory::open(&database, Arc::new(SystemClock));
                clients.change_scope("ada", vec!["script_*".to_owned()], EffectSet::ALL, None).unwrap();
            });
            narrowing.await.unwrap();
        }
        Fate::Revoked => {
            done(home, &["clients", "revoke", "ada"]).await;
        }
        Fate::Replaced => {
            done(home, &["clients", "revoke", "ada"]).await;
            home.add_client("ada", &[]).await;
        }
    }
}

/// Starts `call` as the client `ada`, and approves it after the client has met its fate. Returns whether it succeeded.
async fn succeeds(home: &TestHome, call: &Value, fate: Fate) -> bool {
    let hub = home.serve().await;
    let token = home.add_client("ada", &[]).await;
    let mut client = McpClient::http(hub.address, &token, "2026-07-28").await;
    let call = call.clone();
    let waiting = tokio::spawn(async move { client.request("tools/call", call).await });
    let pending = async || home.run(&["approvals", "--json"]).await.json();
    let id =
        until("the question is asked", async || pending().await[0]["id"].as_str().map(str::to_owned)).await;
    befall(home, fate).await;
    done(home, &["approvals", "approve", &id]).await;
    waiting.await.unwrap()["result"]["isError"] == false
}

#[tokio::test]
async fn a_call_acts_with_the_scope_that_its_client_has_when_it_runs() {
    let script = json!({ "name": "script_run", "arguments": { "name": "x" } });
    let write = json!({ "name": "workspace_write", "arguments": { "path": "a.txt", "content": "x" } });
    for fate in [Fate::Unchanged, Fate::Narrowed, Fate::Revoked, Fate::Replaced] {
        for (call, asked) in [(&write, "workspace_write"), (&script, "workspace_list")] {
            let home = home();
            let rule = format!("[[policy]]\ntools = [\"{asked}\"]\ndecision = \"ask\"\n");
            home.configure(&format!("{UNHURRIED}[approvals]\nwait_secs = 60\n{rule}"));
            approved(&home, "x", SCRIPT).await;
            let runs = fate == Fate::Unchanged;
            assert_eq!(succeeds(&home, call, fate).await, runs, "{call} {fate:?}");
            assert_eq!(home.files().join("a.txt").exists(), runs, "{call} {asked} {fate:?}");
        }
    }
}
