//! Bad input. Every file is named for an attack.
//!
//! The same rule for all: exactly one answer, which says what is wrong; the server goes on; and the whole of it
//! costs next to no memory.

mod changed_words;
mod chosen_redaction;
mod claimed_harmless;
mod connection_flood;
mod content_length_lies;
mod corpus;
mod deep_nesting;
mod dns_rebinding;
mod doubling_schema;
mod duplicate_keys;
mod endless_body;
mod forged_questions;
mod full_disk;
mod giant_line;
mod guessed_tokens;
mod header_mismatch;
mod hidden_names;
mod inherited_session;
mod json_suite;
mod link_swap;
mod many_loopback_addresses;
mod mutated_frames;
mod name_given_again;
mod not_json;
mod odd_files;
mod outlived_scope;
mod overheard_changes;
mod parent_environment;
mod poisoned_definitions;
mod redaction_oracle;
mod respelt_names;
mod rug_pull;
mod second_message;
mod secret_as_a_name;
mod server_as_user;
mod slow_connections;
mod traversal;
mod unknown_revision;
mod unrecorded_change;
mod unrestricted_stdio;
mod unseen_command;
mod whole_run;
mod wrong_shapes;
mod wrong_types;

use crate::support::{home, stdio, text};
use portcullis_testkit::mcp_client::McpClient;
use portcullis_testkit::process::{ChildProcess, HubProcess, ProcessMemory, TestHome};
use serde_json::{Value, json};

/// How much memory a whole run of attacks may cost.
const GROWTH_KB_MAX: u64 = 16 * 1024;

/// One thing that nobody should send.
pub(crate) struct Attack {
    frame: Vec<u8>,
    expected: Expected,
}

/// What comes back.
#[derive(Debug, Clone)]
enum Expected {
    /// A JSON-RPC error with this code, whose text holds these words.
    Error(i64, &'static str),
    /// A result with `isError`, with this code in it and these words in its text.
    Told(&'static str, &'static str),
}

fn error(code: i64, says: &'static str, frame: impl Into<Vec<u8>>) -> Attack {
    Attack { frame: frame.into(), expected: Expected::Error(code, says) }
}

fn told(code: &'static str, says: &'static str, tool: &str, arguments: &str) -> Attack {
    let frame = format!(
        r#"{{"jsonrpc":"2.0","id":"attack","method":"tools/call","params":{{"name":"{tool}","arguments":{arguments}}}}}"#
    );
    Attack { frame: frame.into(), expected: Expected::Told(code, says) }
}

/// Who is attacked.
struct Victim {
    client: McpClient,
    hub: Option<HubProcess>,
    _home: TestHome,
    before: ProcessMemory,
}

impl Victim {
    async fn on_stdio() -> Victim {
        let home = home();
        let client = stdio(&home, "2025-11-25");
        Victim::ready(client, None, home).await
    }

    async fn over_http() -> Victim {
        let home = home();
        let hub = home.serve().await;
        let client = McpClient::http(hub.address, &hub.token, "2025-11-25").await;
        Victim::ready(client, Some(hub), home).await
    }

    async fn ready(client: McpClient, hub: Option<HubProcess>, home: TestHome) -> Victim {
        home.write("a.md", "text");
        let before = ProcessMemory { now_kb: 0, peak_kb: 0 };
        let mut victim = Victim { client, hub, _home: home, before };
        // What is made once and kept is not growth.
        for _ in 0..50 {
            victim.client.call("workspace_read", json!({ "path": "a.md" })).await;
            victim.client.call("workspace_write", json!({ "path": "b.md", "content": "x" })).await;
            victim.lives().await;
        }
        victim.begin_measuring();
        victim
    }

    fn process(&mut self) -> &mut ChildProcess {
        match &mut self.hub {
            Some(hub) => &mut hub.process,
            None => self.client.process(),
        }
    }

    fn begin_measuring(&mut self) {
        self.process().forget_peak();
        self.before = self.process().memory();
    }

    /// Returns by how much the memory has grown at its highest.
    fn growth_kb(&mut self) -> u64 {
        let before = self.before.now_kb;
        self.process().memory().peak_kb.saturating_sub(before)
    }

    fn assert_small(&mut self, what: &str) {
        let growth = self.growth_kb();
        eprintln!("{what}: memory grew by at most {growth} kB");
        assert!(growth <= GROWTH_KB_MAX, "{what}: memory grew by {growth} kB");
    }

    /// The server answers, and says nothing that nobody asked for.
    async fn lives(&mut self) {
        assert_eq!(self.client.result("ping", json!({})).await, json!({}));
        let listed = self.client.result("tools/list", json!({})).await;
        assert_eq!(listed["tools"][0]["name"], "workspace_read");
        assert_eq!(self.client.unasked(), Vec::<Value>::new(), "one answer is enough");
    }

    async fn suffer(&mut self, attack: &Attack) {
        self.client.send_bytes(&attack.frame).await;
        let answer = self.client.wait("an answer to the attack", |_| true).await;
        check(attack, &answer);
        self.lives().await;
    }
}

fn check(attack: &Attack, answer: &Value) {
    let shown = String::from_utf8_lossy(&attack.frame[..attack.frame.len().min(200)]).into_owned();
    match &attack.expected {
        Expected::Error(code, says) => {
            assert_eq!(answer["error"]["code"], *code, "{shown}: {answer}");
            let message = answer["error"]["message"].as_str().unwrap();
            assert!(message.contains(says), "{shown}: {message}");
            assert!(message.len() < 1_000, "{shown}: {message}");
        }
        Expected::Told(code, says) => {
            let result = &answer["result"];
            assert_eq!(
                (&result["isError"], &result["structuredContent"]["code"]),
                (&json!(true), &json!(code)),
                "{shown}: {answer}"
            );
            assert!(text(result).starts_with("Error: ") && text(result).contains(says), "{shown}: {answer}");
        }
    }
}

/// Runs attacks over both ways in.
async fn check_all(attacks: impl Fn() -> Vec<Attack>) {
    for mut victim in [Victim::on_stdio().await, Victim::over_http().await] {
        for attack in attacks() {
            victim.suffer(&attack).await;
        }
        victim.assert_small("attack");
    }
}
