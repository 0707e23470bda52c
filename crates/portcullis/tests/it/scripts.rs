//! Scripts, through the real program: approved by their bytes, run in a process of their own.

mod bad_input;
mod figures;

use crate::support::{home, stdio, text};
use parking_lot::Mutex;
use portcullis_testkit::mcp_client::McpClient;
use portcullis_testkit::process::{TestHome, UNHURRIED, run};
use portcullis_testkit::wait::until;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Instant;

const PENDING: &str = "Error: Script 'x.star' is pending approval. An administrator must review and approve this script \
                       before it can be executed.";

fn write(home: &TestHome, name: &str, source: impl AsRef<[u8]>) {
    let folder = home.path().join("scripts");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join(name), source).unwrap();
}

/// What `portcullis scripts … --json` says.
async fn scripts(home: &TestHome, args: &[&str]) -> Value {
    let ran = home.run(&[&["scripts"], args, &["--json"]].concat()).await;
    assert_eq!(ran.code, 0, "{args:?}: {ran:?}");
    ran.json()
}

async fn approve(home: &TestHome, name: &str, more: &[&str]) {
    let shown = scripts(home, &["show", name]).await;
    let hash = shown["sha256"].as_str().unwrap();
    scripts(home, &[&["approve", name, "--hash", hash], more].concat()).await;
}

/// Puts a script in place and approves it.
pub(crate) async fn approved(home: &TestHome, name: &str, source: &str) {
    write(home, &format!("{name}.star"), source);
    approve(home, name, &[]).await;
}

async fn run_script(client: &mut McpClient, name: &str) -> Value {
    client.call("script_run", json!({ "name": name })).await
}

/// A hub with what a test configures, and a client of it.
async fn client(home: &TestHome, config: &str) -> McpClient {
    home.configure(&format!("{UNHURRIED}{config}"));
    stdio(home, "2026-07-28")
}

#[tokio::test]
async fn exactly_what_a_person_approved_runs() {
    let home = home();
    let mut client = client(&home, "").await;
    write(&home, "x.star", "# @description: Adds\ndef main(a = 2, b = 2):\n    return a + b\n");
    let told = run_script(&mut client, "x").await;
    assert!(told["isError"] == true && text(&told).starts_with(PENDING), "{told}");
    assert!(text(&told).contains("\ntell the user: `portcullis scripts show x.star` shows it"), "{told}");

    approve(&home, "x", &[]).await;
    for name in ["x", "x.star"] {
        let ran = run_script(&mut client, name).await;
        assert_eq!((text(&ran), &ran["structuredContent"]["value"]), ("4", &json!(4)), "{ran}");
    }
    let ran = client.call("script_run", json!({ "name": "x", "function": "main", "args": [40, 2] })).await;
    assert_eq!(ran["structuredContent"]["value"], 42, "{ran}");

    // One byte, and it waits; the same process sees it, and what another process decides.
    write(&home, "x.star", "# @description: Adds\ndef main(a = 2, b = 3):\n    return a + b\n");
    assert!(text(&run_script(&mut client, "x").await).starts_with(PENDING));
    let listed = client.call("script_list", json!({})).await;
    assert_eq!(listed["structuredContent"]["scripts"][0]["state"], "changed", "{listed}");
    let shown = home.run(&["scripts", "show", "x", "--diff"]).await.stdout;
    assert!(shown.contains("-def main(a = 2, b = 2):\n+def main(a = 2, b = 3):"), "{shown}");

    let hash = scripts(&home, &["show", "x"]).await["sha256"].as_str().unwrap().to_owned();
    scripts(&home, &["reject", "x", "--hash", &hash, "--reason", "three is too much"]).await;
    let told = run_script(&mut client, "x").await;
    assert!(text(&told).contains("was rejected by an administrator: three is too much"), "{told}");

    // Back to what was good, with its history.
    let history = scripts(&home, &["history", "x"]).await;
    let old = history["decisions"][1]["sha256"].as_str().unwrap().to_owned();
    scripts(&home, &["restore", "x", &old[..8]]).await;
    assert_eq!(text(&run_script(&mut client, "x").await), "4");
    let history = scripts(&home, &["history", "x"]).await;
    assert_eq!(history["runs"][0]["outcome"], "ok", "{history}");
    assert_eq!(history["decisions"].as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn what_an_agent_proposes_runs_once_a_person_accepts_it() {
    let home = home();
    let mut client = client(&home, "").await;
    let code = "# @description: Greets\n# @tools: workspace_read\ndef main():\n    return \"hi\"\n";
    let proposed = client.call("script_propose", json!({ "name": "x", "code": code })).await;
    assert!(text(&proposed).contains("waits for a person"), "{proposed}");
    assert!(!home.path().join("scripts/x.star").exists());
    assert!(text(&run_script(&mut client, "x").await).starts_with(PENDING));
    let list = scripts(&home, &[]).await;
    assert_eq!(
        (&list[0]["exists"], &list[0]["proposal"]["client"]),
        (&json!(false), &json!("local")),
        "{list}"
    );
    approve(&home, "x", &[]).await;
    assert_eq!(std::fs::read_to_string(home.path().join("scripts/x.star")).unwrap(), code);
    assert_eq!(text(&run_script(&mut client, "x").await), "hi");

    let broken = client.call("script_propose", json!({ "name": "y", "code": "def main(:\n" })).await;
    assert!(text(&broken).contains("at line 1, column 10"), "{broken}");
    assert_eq!(scripts(&home, &[]).await.as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn code_of_an_agent_has_nothing_and_its_faults_are_shown() {
    let home = home();
    let mut client = client(&home, "").await;
    let mut exec = async |code: &str| client.call("script_exec", json!({ "code": code })).await;
    let ran = exec("result = 2 + 2\nprint(result)").await;
    assert_eq!(ran["structuredContent"]["value"], 4, "{ran}");
    assert_eq!(ran["structuredContent"]["printed"], "4\n", "{ran}");
    for (code, told) in [
        ("http.get(\"https://example.com/\")", "granted no hosts"),
        ("secrets.get(\"ANY\")", "not granted"),
        ("tools.call(\"workspace_list\")", "tool `workspace_list` was not granted"),
        ("x = 1\ny = x + \"a\"", "at line 2, column 5"),
        ("x = 12345678901234567890 * 10\nfail(x)", "123456789012345678900"),
    ] {
        let answer = exec(code).await;
        assert!(answer["isError"] == true && text(&answer).contains(told), "{code}: {answer}");
    }
}

/// A place that remembers what it was asked, and repeats the request.
fn echo() -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let kept = asked.clone();
    std::thread::spawn(move || {
        for mut visitor in listener.incoming().flatten() {
            let mut bytes = [0; 16_384];
            let Ok(read) = visitor.read(&mut bytes) else { continue };
            let request = String::from_utf8_lossy(&bytes[..read]).into_owned();
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{request}", request.len());
            kept.lock().push(request);
            let _ = visitor.write_all(answer.as_bytes());
        }
    });
    (address, asked)
}

#[tokio::test]
async fn a_secret_goes_where_it_was_granted_and_is_never_seen() {
    const VALUE: &str = "correct-horse-battery-staple";
    let (address, asked) = echo();
    let home = home();
    let set = ["secrets", "set", "A_KEY", "--grant", "127.0.0.1", "--grant", "127.0.0.1:body"];
    assert_eq!(run(home.command(&set), VALUE).await.code, 0);
    let mut client = client(&home, &format!("[egress]\nallow = [\"{address}\"]\n")).await;
    let source = format!(
        "# @secrets: A_KEY\n# @hosts: 127.0.0.1\n# @timeout: 20s\n\
         def main():\n    key = secrets.get(\"A_KEY\")\n    print(key)\n    \
         r = http.post(\"http://{address}/x\", json = {{\"k\": key}}, headers = {{\"Authorization\": \"Bearer \" + key}})\n    \
         return [r[\"status\"], r[\"body\"], str(key)]\n\
         def elsewhere():\n    return http.get(\"http://localhost:{port}/\", headers = {{\"Authorization\": secrets.get(\"A_KEY\")}})\n\
         def in_the_address():\n    return http.get(\"http://{address}/?k=\" + secrets.get(\"A_KEY\"))\n",
        port = address.port()
    );
    write(&home, "x.star", &source);
    approve(&home, "x", &[]).await;
    let ran = run_script(&mut client, "x").await;
    assert_eq!(ran["isError"], false, "{ran}");
    let sent = asked.lock().join("\n");
    assert!(
        sent.contains(&format!("authorization: Bearer {VALUE}"))
            && sent.contains(&format!("{{\"k\":\"{VALUE}\"}}")),
        "{sent}"
    );
    // The place said it all again; the agent sees none of it.
    let seen = ran.to_string();
    assert!(
        !seen.contains(VALUE) && seen.contains("[REDACTED:A_KEY]") && seen.contains("[secret A_KEY]"),
        "{seen}"
    );
    for (function, told) in
        [("elsewhere", "host `localhost` was not granted"), ("in_the_address", "not granted for")]
    {
        let answer = client.call("script_run", json!({ "name": "x", "function": function })).await;
        assert!(answer["isError"] == true && text(&answer).contains(told), "{answer}");
    }
    assert_eq!(asked.lock().len(), 1, "nothing else was sent");

    // The same script without the grants of its approval.
    approve(&home, "x", &["--nothing"]).await;
    let answer = run_script(&mut client, "x").await;
    assert!(text(&answer).contains("`A_KEY` does not exist, or is not granted"), "{answer}");
}

#[tokio::test]
async fn calls_of_a_script_take_the_gate_under_their_own_names() {
    let home = home();
    let rules = "[approvals]\nwait_secs = 60\n[[policy]]\ntools = [\"workspace_write\"]\norigins = [\"script\"]\ndecision = \"ask\"\n\
                 [[policy]]\ntools = [\"memory_*\"]\norigins = [\"script\"]\ndecision = \"deny\"\n";
    let mut client = client(&home, rules).await;
    home.write("a.txt", "from the file");
    let source = "# @tools: workspace_*, memory_read, script_run\n\
                  def main():\n    return tools.call(\"workspace_read\", path = \"a.txt\")\n\
                  def asks():\n    tools.call(\"workspace_write\", path = \"b.txt\", content = \"x\")\n    return \"written\"\n\
                  def hidden():\n    return tools.call(\"memory_read\")\n\
                  def other():\n    return tools.call(\"vault_read\", path = \"x\")\n\
                  def itself():\n    return tools.call(\"script_run\", name = \"x\", function = \"itself\")\n";
    write(&home, "x.star", source);
    approve(&home, "x", &[]).await;
    let ran = run_script(&mut client, "x").await;
    assert_eq!(ran["structuredContent"]["value"], "from the file", "{ran}");
    for (function, told) in [
        ("hidden", "Unknown tool: memory_read"),
        ("other", "tool `vault_read` was not granted"),
        ("itself", "more than 4 levels deep"),
    ] {
        let answer = client.call("script_run", json!({ "name": "x", "function": function })).await;
        assert!(answer["isError"] == true && text(&answer).contains(told), "{function}: {answer}");
    }

    // A call that is asked about pauses the script for longer than it may run, and the hub goes on.
    let asks = json!({ "name": "script_run", "arguments": { "name": "x", "function": "asks" } });
    let waiting = client.begin("tools/call", asks).await;
    let pending = async || home.run(&["approvals", "--json"]).await.json();
    let id =
        until("the question is asked", async || pending().await[0]["id"].as_str().map(str::to_owned)).await;
    assert_eq!(pending().await[0]["origin"], "script");
    let began = Instant::now();
    while began.elapsed().as_secs_f64() < 2.3 {
        let read = client.call("workspace_read", json!({ "path": "a.txt" })).await;
        assert_eq!(read["isError"], false, "{read}");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    assert_eq!(home.run(&["approvals", "approve", &id]).await.code, 0);
    let answer = client.answer(&json!(waiting)).await;
    assert_eq!(answer["result"]["structuredContent"]["value"], "written", "{answer}");
    assert_eq!(std::fs::read_to_string(home.files().join("b.txt")).unwrap(), "x");

    // Each has a record of its own, which names the call that it was made within.
    let records = home.run(&["audit", "search", "--tool", "workspace_write", "--json"]).await.stdout;
    let records: Vec<Value> = records.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(
        records.iter().all(|record| record["origin"] == "script" && record["within"].is_u64()),
        "{records:?}"
    );
}

#[tokio::test]
async fn the_configuration_approves_by_hash_and_grants_to_code() {
    let home = home();
    write(&home, "x.star", "result = 1\n");
    let hash = scripts(&home, &["show", "x"]).await["sha256"].as_str().unwrap().to_owned();
    let config = format!(
        "[scripts]\nallow = [{{ name = \"x.star\", sha256 = \"{hash}\" }}]\nexec = {{ tools = [\"workspace_list\"] }}\n\
         [[policy]]\ntools = [\"script_exec\"]\ndecision = \"allow\"\n"
    );
    let mut client = client(&home, &config).await;
    assert_eq!(text(&run_script(&mut client, "x").await), "1");
    write(&home, "x.star", "result = 2\n");
    assert!(text(&run_script(&mut client, "x").await).starts_with(PENDING));
    home.write("a.txt", "a");
    let ran = client
        .call("script_exec", json!({ "code": "len(tools.call(\"workspace_list\")[\"entries\"])" }))
        .await;
    assert_eq!(ran["structuredContent"]["value"], 1, "{ran}");
}

#[tokio::test]
async fn the_command_line_tries_and_checks_scripts() {
    let home = home();
    home.configure(UNHURRIED);
    write(
        &home,
        "x.star",
        "# @tools: workspace_read\ndef main(n = 1):\n    print(\"seen\")\n    return n * 2\n",
    );
    let dry = scripts(&home, &["run", "x", "--dry-run", "21"]).await;
    assert_eq!((&dry["value"], &dry["printed"]), (&json!(42), &json!("seen\n")), "{dry}");
    let ran = home.run(&["scripts", "run", "x"]).await;
    assert!(ran.code == 1 && ran.stderr.contains(PENDING), "{ran:?}");
    approve(&home, "x", &["--expires", "30d"]).await;
    let ran = home.run(&["scripts", "run", "x", "5"]).await;
    assert_eq!((ran.code, ran.stdout.lines().next()), (0, Some("10")), "{ran:?}");
    let file = home.path().join("scripts/x.star");
    assert_eq!(home.run(&["scripts", "check", file.to_str().unwrap()]).await.code, 0);
    std::fs::write(home.path().join("bad.star"), "x = = 1\n").unwrap();
    let ran = home.run(&["scripts", "check", home.path().join("bad.star").to_str().unwrap()]).await;
    assert!(ran.code == 1 && ran.stderr.contains("bad.star at line 1, column 5"), "{ran:?}");
    let told = home.run(&["doctor"]).await.stdout;
    assert!(told.contains("1 script; sandbox available"), "{told}");
}
