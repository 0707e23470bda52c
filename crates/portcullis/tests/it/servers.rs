//! `portcullis mcp`: every command, from outside.

use crate::changing_server::{Shop, done, tool};
use crate::support::{home, http, names};
use portcullis_testkit::process::{TestHome, UNHURRIED, run, run_at_terminal};
use portcullis_testkit::wait::until;
use serde_json::{Value, json};

fn offer() -> Value {
    json!({
        "name": "Corner shop", "instructions": "Look first.\nThen pay.",
        "tools": [tool("pay", "Pay an invoice"), tool("see", "See \u{1b}[8minvoices\u{202e}")],
        "prompts": [{ "name": "hello", "description": "Say hello" }],
        "resources": [{ "uri": "shop://a", "name": "a" }],
    })
}

/// Returns what was printed, without what is different in every run.
fn steady(text: &str, home: &TestHome, shop: &Shop) -> String {
    let [program, definitions, calls] = shop.words();
    let mut text = text
        .replace(&program, "[SHOP]")
        .replace(&definitions, "[DEFINITIONS]")
        .replace(&calls, "[CALLS]")
        .replace(&home.path().display().to_string(), "[HOME]");
    while let Some(at) = text.find("2025-11-25, ").map(|at| at + "2025-11-25, ".len()) {
        let end = at + text[at..].find(" ms").unwrap();
        text.replace_range(at - 2..end, " in N");
    }
    while let Some(at) = text.find("since 20") {
        text.replace_range(at..at + "since 2026-11-16T03:39:02Z".len(), "since TIME");
    }
    text
}

async fn status(home: &TestHome) -> Value {
    home.run(&["mcp", "status", "--json"]).await.json()
}

async fn until_status(home: &TestHome, expected: &str) -> Value {
    until(&format!("the server is {expected}"), async || {
        let status = status(home).await;
        (status["servers"][0]["status"] == expected).then(|| status["servers"][0].clone())
    })
    .await
}

#[tokio::test]
async fn a_server_is_added_shown_trusted_and_taken_out_and_the_file_keeps_its_comments() {
    let (home, shop) = (home(), Shop::new(&offer()));
    let before = std::fs::read_to_string(home.path().join("portcullis.toml")).unwrap() + "# mine\n";
    home.configure(&before);
    let [program, definitions, calls] = shop.words();
    let add = ["mcp", "add", "shop", "--yes", "--policy", "allow", "--", &program, &definitions, &calls];
    insta::assert_snapshot!(steady(&done(&home, &add).await, &home, &shop), @r"
    Server `shop` is connected: Corner shop, MCP 2025-11-25 in N ms

    TOOL  DESCRIPTION
    pay   Pay an invoice
    see   See \u{1b}[8minvoices\u{202e}

    PROMPT  DESCRIPTION
    hello   Say hello

    1 resource

    Instructions for agents:
      Look first.
      Then pay.

    TOOL  EFFECT   CALLS  ADVERTISED
    pay   destroy  allow  nothing
    see   destroy  allow  nothing

    Policy `allow`: allow everything. To choose otherwise: portcullis mcp trust shop --policy ask-changes|allow|ask --effect 'GLOB=EFFECT'

    Added server `shop` to [HOME]/portcullis.toml. It is trusted; later changes need review.
    ");
    let after = std::fs::read_to_string(home.path().join("portcullis.toml")).unwrap();
    assert!(after.starts_with(&before), "{after}");
    insta::assert_snapshot!(steady(&after[before.len()..], &home, &shop), @r#"

    [mcp.shop]
    command = "[SHOP]"
    args = ["[DEFINITIONS]", "[CALLS]"]
    "#);
    insta::assert_snapshot!(steady(&done(&home, &["mcp"]).await, &home, &shop), @"
    SERVER  ENABLED  TRUSTED                     TRANSPORT
    shop    yes      since TIME  [SHOP] [DEFINITIONS] [CALLS]
    ");
    let again = home.run(&add).await;
    assert_eq!((again.code, again.stdout.as_str()), (2, ""), "{again:?}");
    assert!(again.stderr.contains("already exists"), "{again:?}");
    // Trusted at once: the command line can call it, and a rule can be tried without starting it.
    assert_eq!(done(&home, &["tools", "call", "shop_pay", "{}"]).await, "called pay\n");
    assert_eq!(shop.calls(), ["pay"]);
    let test = home.run(&["policy", "test", "local", "shop_pay", "--json"]).await.json();
    assert_eq!((&test["decision"], &test["tool"]["effect"]), (&json!("allow"), &json!("destroy")), "{test}");
    done(&home, &["mcp", "remove", "shop"]).await;
    assert_eq!(std::fs::read_to_string(home.path().join("portcullis.toml")).unwrap(), before);
    let rows = home.export_rows().await;
    assert!(!rows.contains("shop"), "{rows}");
    assert_eq!(home.run(&["mcp", "remove", "shop"]).await.code, 2);
}

/// A model mends its call by what the server says, and a person the server.
#[tokio::test]
async fn what_a_server_says_of_an_error_arrives_whole() {
    let rest = "the value does not fit; ".repeat(40);
    let said = format!("[\n\t{{ \"path\": \"می\u{200c}خواهم ⚠\u{fe0f}\" }}]\r\n{rest}");
    let error = |text: &str| json!({ "code": -32000, "message": text });
    let tools = json!([{ "name": "pay", "inputSchema": { "type": "object" } }]);
    let sly = format!("{said}\u{202e}\u{1b}[2J😀\u{e0162}\u{e0155}");
    let shop = Shop::new(&json!({ "tools": tools, "errors": { "tools/call": error(&sly) } }));
    let home = home();
    shop.configure(&home, "trust = \"always\"");
    let hub = home.serve().await;
    let mut client = http(&hub, "2025-11-25").await;
    let refused = until("the tool is there", async || {
        let call = client.request("tools/call", json!({ "name": "shop_pay", "arguments": {} })).await;
        call["result"]["isError"].as_bool().map(|_| call["result"].clone())
    })
    .await;
    // As it was written, and nothing that nobody sees.
    let expected = format!("{}[2J😀", said.replace('\r', ""));
    let told = format!("server `shop` answered with error -32000: {expected}");
    let structured = json!({
        "code": "upstream",
        "message": told,
        "suggestions": [],
        "upstream": { "code": -32000, "message": expected },
    });
    assert_eq!(refused["structuredContent"], structured);
    assert_eq!(refused["content"], json!([{ "type": "text", "text": format!("Error: {told}") }]));
    let ran = home.run(&["tools", "call", "shop_pay", "{}"]).await;
    assert!(ran.stderr.contains(&expected), "{ran:?}");
    // One line where one is to be told from the other.
    shop.offers(&json!({ "errors": { "initialize": error(&said) } }));
    let ran = home.run(&["mcp", "test", "shop"]).await;
    let line = said.replace('\r', "").replace('\n', "\\u{a}").replace('\t', "\\u{9}");
    assert!(ran.code == 1 && ran.stderr.contains(&format!("error -32000: {line}")), "{ran:?}");
    shop.offers(&json!({ "fail": true, "last_words": said }));
    let ran = home.run(&["mcp", "test", "shop"]).await;
    assert!(ran.code == 1 && ran.stderr.contains(&format!("\n  {rest}")), "{ran:?}");
}

#[tokio::test]
async fn a_server_that_does_not_work_is_not_written_and_says_why() {
    let (home, shop) = (home(), Shop::new(&json!({ "fail": true })));
    let before = std::fs::read_to_string(home.path().join("portcullis.toml")).unwrap();
    let [program, definitions, calls] = shop.words();
    let ran = home.run(&["mcp", "add", "shop", "--", &program, &definitions, &calls]).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (1, ""));
    assert!(
        ran.stderr.contains("no \\u{1b}[31mdatabase") && ran.stderr.contains("--no-test"),
        "{}",
        ran.stderr
    );
    assert_eq!(std::fs::read_to_string(home.path().join("portcullis.toml")).unwrap(), before);
    done(&home, &["mcp", "add", "shop", "--no-test", "--", &program, &definitions, &calls]).await;
    let ran = home.run(&["mcp", "test", "shop", "--json"]).await;
    assert_eq!(ran.code, 1);
    let told = ran.json();
    assert_eq!(told["status"], "failed");
    assert!(told["stderr"][0].as_str().unwrap().contains("database"), "{told}");
    let _hub = home.serve().await;
    let told = until_status(&home, "failed").await;
    assert!(told["stderr"].to_string().contains("database"), "{told}");
    let ran = home.run(&["mcp", "status"]).await;
    assert!(ran.stdout.contains("failed") && ran.stdout.contains("database"), "{ran:?}");
}

#[tokio::test]
async fn a_running_hub_follows_trust_switches_and_reloads() {
    let (home, shop) = (home(), Shop::new(&offer()));
    shop.configure(&home, "# nothing more");
    let mut hub = home.serve().await;
    let mut client = http(&hub, "2025-11-25").await;
    let stands = until_status(&home, "connected").await;
    assert_eq!((&stands["tools"], &stands["prompts"]), (&json!(0), &json!(0)));
    assert_eq!(stands["quarantined"].as_array().unwrap().len(), 5, "{stands}");
    insta::assert_snapshot!(done(&home, &["mcp", "status"]).await, @"
    SERVER  STATUS     TOOLS  PROMPTS  RESOURCES  NEEDS REVIEW  MCP
    shop    connected  0      0        0          5             2025-11-25

    shop: these need review: portcullis mcp trust shop --diff
      tool pay (server not trusted)
      tool see (server not trusted)
      prompt hello (server not trusted)
      resources 1 resources and templates (server not trusted)
      instructions  (server not trusted)
    ");
    // Nobody can be asked here, and nothing is let in by looking.
    let ran = home.run(&["mcp", "trust", "shop"]).await;
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.stderr.contains("--yes"), "{ran:?}");
    insta::assert_snapshot!(steady(&done(&home, &["mcp", "trust", "shop", "--yes"]).await, &home, &shop), @r"
    Server `shop` is connected: Corner shop, MCP 2025-11-25 in N ms

    TOOL  DESCRIPTION
    pay   Pay an invoice
    see   See \u{1b}[8minvoices\u{202e}

    PROMPT  DESCRIPTION
    hello   Say hello

    1 resource

    Instructions for agents:
      Look first.
      Then pay.

    TOOL  EFFECT   CALLS  ADVERTISED
    pay   destroy  ask    nothing
    see   destroy  ask    nothing

    Policy `ask-changes`: ask before changes. To choose otherwise: portcullis mcp trust shop --policy ask-changes|allow|ask --effect 'GLOB=EFFECT'
    Server `shop` is trusted. Later changes need review.
    ");
    until("the tools are there", async || {
        let list = client.result("tools/list", json!({})).await;
        names(&list["tools"]).contains(&"shop_pay").then_some(())
    })
    .await;
    assert_eq!(client.result("prompts/list", json!({})).await["prompts"][0]["name"], "shop_hello");
    assert!(client.result("resources/list", json!({})).await.to_string().contains("shop://a"));
    until("the hub says so", async || (status(&home).await["servers"][0]["tools"] == 2).then_some(())).await;
    insta::assert_snapshot!(done(&home, &["mcp", "status"]).await, @"
    SERVER  STATUS     TOOLS  PROMPTS  RESOURCES  NEEDS REVIEW  MCP
    shop    connected  2      1        1          0             2025-11-25
    ");
    done(&home, &["mcp", "disable", "shop"]).await;
    until_status(&home, "disabled").await;
    let said = done(&home, &["mcp", "reload", "shop"]).await;
    assert!(said.contains("is disabled") && said.contains("portcullis mcp enable shop"), "{said}");
    let said = home.run(&["mcp", "reload", "shop", "--json"]).await.json();
    assert_eq!(said, json!({ "server": "shop", "reload": false, "enabled": false, "hub_running": true }));
    let listed = done(&home, &["mcp", "list"]).await;
    assert!(listed.contains("shop    no"), "{listed}");
    // Its tools are not just unknown.
    for args in [&["tools", "call", "shop_pay"][..], &["tools", "show", "shop_paid"]] {
        let said = home.run(args).await.stderr;
        let why = "server `shop` is disabled, so its tools are not available; to enable it: portcullis mcp enable shop";
        assert!(said.contains(why), "{args:?}: {said}");
    }
    let all = home.run(&["mcp", "reload", "--json"]).await.json();
    assert_eq!(all, json!([{ "server": "shop", "reload": false, "enabled": false, "hub_running": true }]));
    done(&home, &["mcp", "enable", "shop"]).await;
    until_status(&home, "connected").await;
    // A new connection is a new process, which reads its own name anew.
    let mut other = offer();
    other["name"] = "Other shop".into();
    other["announce"] = false.into();
    shop.offers(&other);
    done(&home, &["mcp", "reload", "shop"]).await;
    until("the new one is greeted", async || {
        (status(&home).await["servers"][0]["server"] == "Other shop").then_some(())
    })
    .await;
    // Another name is another server: all of it waits.
    assert_eq!(status(&home).await["servers"][0]["tools"], 0);
    insta::assert_snapshot!(done(&home, &["mcp", "trust", "shop", "--diff"]).await, @"
    Changes in `shop` since it was trusted:

    KIND      NAME    CHANGE
    identity  server  changed

    TOOL  EFFECT   CALLS  ADVERTISED
    pay   destroy  ask    nothing
    see   destroy  ask    nothing

    Policy `ask-changes`: ask before changes. To choose otherwise: portcullis mcp trust shop --policy ask-changes|allow|ask --effect 'GLOB=EFFECT'

    --- identity server
    +++ identity server
    @@ -1 +1 @@
    -Corner shop
    +Other shop
    Not trusted.
    ");
    hub.process.stop().await;
    let past = status(&home).await;
    assert_eq!((&past["hub_running"], &past["servers"][0]["status"]), (&json!(false), &json!("not running")));
    let ran = home.run(&["mcp", "status"]).await;
    assert!(ran.stderr.starts_with("No hub is running; last status update: 20"), "{ran:?}");
}

#[tokio::test]
async fn how_servers_stand_is_written_as_soon_as_that_can_be_done_again() {
    let (home, shop) = (home(), Shop::new(&offer()));
    shop.configure(&home, "trust = \"always\"");
    let hub = home.serve().await;
    let mut client = http(&hub, "2025-11-25").await;
    until_status(&home, "connected").await;
    let file = home.path().join("workspace/secure/servers.json");
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir_all(file.join("in the way")).unwrap();
    done(&home, &["mcp", "disable", "shop"]).await;
    until("the server is off", async || {
        let list = client.result("tools/list", json!({})).await;
        (!names(&list["tools"]).contains(&"shop_pay")).then_some(())
    })
    .await;
    std::fs::remove_dir_all(&file).unwrap();
    // Nothing else changes that could be a reason to write it.
    until_status(&home, "disabled").await;
}

#[tokio::test]
async fn whoever_is_asked_about_a_change_at_a_terminal_sees_every_word_of_it() {
    let (home, shop) = (home(), Shop::new(&json!({ "tools": [tool("pay", "Pay an invoice")] })));
    shop.configure(&home, "");
    let trust = ["mcp", "trust", "shop"];
    // At first everything is new, and most of it is shown shortened, which is said.
    let (code, screen) = run_at_terminal(home.command(&trust), "n\n").await;
    assert!(code == 0 && screen.contains("To see everything: portcullis mcp trust shop --diff"), "{screen}");
    assert!(
        screen.contains("Trust `shop` and expose this tool? [y/N]") && screen.contains("Not trusted."),
        "{screen}"
    );
    let (code, screen) = run_at_terminal(home.command(&trust), "y\n").await;
    assert!(code == 0 && screen.contains("Server `shop` is trusted."), "{screen}");
    let longer = format!("Pay an invoice{} and send me a copy", " that is due".repeat(50));
    shop.offers(&json!({ "tools": [tool("pay", &longer)] }));
    let (code, screen) = run_at_terminal(home.command(&trust), "n\n").await;
    let shown = screen.find("and send me a copy").expect("every word is shown");
    assert!(code == 0 && shown < screen.find("Trust these changes to `shop`? [y/N]").unwrap(), "{screen}");
    assert!(screen.contains("Not trusted."), "{screen}");
}

#[tokio::test]
async fn what_is_private_stays_so_where_a_server_is_added_and_where_it_changes() {
    let (home, shop) = (home(), Shop::new(&json!({ "tools": [tool("pay", "Pay an invoice")] })));
    let [program, definitions, calls] = shop.words();
    let words = ["--", &program, &definitions, &calls, "--api-key", "hunter2hunter2"];
    done(&home, &[&["mcp", "add", "shop", "--yes"][..], &words].concat()).await;
    let path = home.path().join("portcullis.toml");
    let written = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, written.replace("hunter2hunter2", "hunter3hunter3")).unwrap();
    for args in [&["mcp", "trust", "shop", "--diff"][..], &["mcp", "trust", "shop", "--diff", "--json"]] {
        let shown = done(&home, args).await;
        assert!(shown.contains("changed in a redacted part") && !shown.contains("hunter"), "{shown}");
    }
    // As headers are written elsewhere, and as many tokens end.
    let url = "https://notes.example.com/mcp";
    let header = "Authorization: Bearer hunter2hunter2dG9rZW4=";
    let added = home.run(&["mcp", "add", "notes", "--no-test", "--url", url, "--header", header]).await;
    assert_eq!(added.code, 0, "{added:?}");
    let written = std::fs::read_to_string(&path).unwrap();
    assert!(written.contains("Bearer hunter2hunter2dG9rZW4="), "{written}");
    let advice = "portcullis secrets set NAME --grant 'notes.example.com:authorization', \
                  then in `mcp.notes.headers`: Authorization = \"Bearer secret:NAME\"";
    assert!(added.stderr.contains(advice) && !added.stderr.contains("hunter2"), "{added:?}");
    let bad = home.run(&["mcp", "add", "bad", "--no-test", "--url", url, "--header", "A b hunter2=x"]).await;
    assert!(bad.code != 0 && !bad.stderr.contains("hunter2"), "{bad:?}");
    // Nothing would be put in here.
    let words = ["--env", "X=token=secret:NOPE", "--", &program, &definitions, &calls];
    let buried = home.run(&[&["mcp", "add", "buried"][..], &words].concat()).await;
    assert!(
        buried.code != 0 && buried.stderr.contains("`secret:NOPE` is part of a longer text"),
        "{buried:?}"
    );
}

#[tokio::test]
async fn what_does_not_let_us_in_or_cannot_be_used_says_what_to_do() {
    let home = home();
    let door = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = door.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = door.accept().await {
            let mut asked = [0; 4096];
            let _ = tokio::io::AsyncReadExt::read(&mut stream, &mut asked).await;
            let answer = b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, answer).await;
        }
    });
    let entry = format!("{UNHURRIED}[mcp.far]\nurl = \"http://{address}/mcp\"\n");
    home.configure(&entry);
    let ran = home.run(&["mcp", "test", "far"]).await;
    let wanted = "add `oauth = true` to `mcp.far` in the configuration, then: portcullis mcp auth far";
    assert!(ran.code == 1 && ran.stderr.contains(wanted), "{ran:?}");
    let mut hub = home.serve().await;
    until_status(&home, "needs_auth").await;
    let said = done(&home, &["mcp", "status"]).await;
    assert!(said.contains(wanted), "{said}");
    hub.process.stop().await;
    // A secret that is there, but for another place.
    let set = home.command(&["secrets", "set", "FAR", "--weak", "--grant", "far.example.com"]);
    let set = run(set, "abcdefgh12345").await;
    assert_eq!(set.code, 0, "{set:?}");
    home.configure(&format!("{entry}headers = {{ Authorization = \"Bearer secret:FAR\" }}\n"));
    let ran = home.run(&["mcp", "test", "far"]).await;
    assert!(ran.stderr.contains("portcullis secrets grant FAR '127.0.0.1:authorization'"), "{ran:?}");
    done(&home, &["secrets", "grant", "FAR", "127.0.0.1:authorization"]).await;
    let ran = home.run(&["mcp", "test", "far"]).await;
    assert!(ran.stderr.contains("rejects the `Authorization` header"), "{ran:?}");
    // A name that fits nowhere is not advised as a heading.
    let ran = home.run(&["mcp", "add", "bad name", "--", "echo"]).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{ran:?}");
    assert!(ran.stderr.contains("invalid server name") && !ran.stderr.contains("[mcp."), "{ran:?}");
}

#[tokio::test]
async fn a_name_can_be_given_and_effects_said() {
    let (home, shop) = (home(), Shop::new(&offer()));
    shop.configure(&home, "trust = \"always\"\neffect = \"write\"\neffects = { \"s*\" = \"read\" }\nrename = { pay = \"settle\" }");
    let test = async |tool: &str| {
        let hub = home.run(&["tools", "list", "--json"]).await.json();
        hub.as_array().unwrap().iter().any(|known| known["name"] == tool)
    };
    assert!(test("shop_settle").await && test("shop_see").await && !test("shop_pay").await);
    assert_eq!(done(&home, &["tools", "call", "shop_settle", "{}"]).await, "called pay\n");
    // What the hub goes by is shown, not what the server says of itself; and what would happen, without starting it.
    let listed = done(&home, &["tools", "list"]).await;
    let effects: Vec<&str> = listed.lines().filter(|line| line.starts_with("shop_")).collect();
    insta::assert_snapshot!(effects.join("\n").replace("  ", " "), @"
    shop_settle   write
    shop_see     read
    ");
    let decided = home.run(&["policy", "test", "local", "shop_settle", "--json"]).await.json();
    let (tool, decision) = (&decided["tool"], &decided["decision"]);
    assert_eq!(
        (&tool["effect"], &tool["assumed_of"], decision),
        (&json!("write"), &json!("shop"), &json!("allow"))
    );
    let ran = home.run(&["policy", "test", "local", "shop_settle"]).await;
    assert!(ran.stdout.contains("from the settings of server `shop`"), "{ran:?}");
    assert_eq!(home.run(&["policy", "test", "local", "shopping"]).await.code, 4);
    shop.configure(&home, "trust = \"always\"\ndecision = \"ask\"\ntools = { deny = [\"see\"] }");
    let codes = [("shop_pay", 3), ("shop_see", 4)];
    for (tool, code) in codes {
        let ran = home.run(&["policy", "test", "local", tool]).await;
        assert_eq!(ran.code, code, "{ran:?}");
    }
    assert!(done(&home, &["tools", "list"]).await.contains("shop_pay         destroy"));
    insta::assert_snapshot!(done(&home, &["policy", "list"]).await, @"
    No rules yet. Add one: portcullis policy add ask --tool 'git_*'

    DEFAULT              DECISION  APPLIES TO
    default:read         allow     read local, read outside
    default:local-write  allow     create local, write local
    default:outside      ask       create outside, write outside
    default:destroy      ask       destroy local, destroy outside
    server:ask           ask       trusted tools of server `shop` (`mcp.shop.decision`)

    Defaults apply if no rule matches. Upstream tools use `mcp.NAME.decision` instead, or the policy chosen in the server's review: with ask-changes, reads are allowed and other calls ask.
    Calls outside a client's scope and unknown tools are denied before any rule.
    ");
    shop.configure(&home, "rename = { pay = \"x y\", see = \"z\", a = \"z\" }");
    let ran = home.run(&["mcp", "list"]).await;
    assert_eq!(ran.code, 2);
    assert_eq!(ran.stderr.matches("expected letters, digits").count(), 2, "{ran:?}");
}

#[tokio::test]
async fn what_is_imported_is_not_started_before_somebody_looked() {
    let (home, shop) = (home(), Shop::new(&offer()));
    let [program, definitions, calls] = shop.words();
    let file = home.user().join("project/.vscode/mcp.json");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    let token = format!("ghp_{}", "a1B2c3D4e5".repeat(4).get(..36).unwrap());
    std::fs::write(
        &file,
        format!(
            "{{ // mine\n \"servers\": {{ \"shop\": {{ \"command\": {}, \"args\": [{}, {}], \"env\": {{ \"MODE\": \"x\", \"SHOP_TOKEN\": \"{token}\" }} }} }} }}",
            json!(program), json!(definitions), json!(calls)
        ),
    )
    .unwrap();
    let hub = home.serve().await;
    let path = file.display().to_string();
    let dry = home.run(&["mcp", "import", &path]).await;
    assert!(dry.stdout.contains("secret:SHOP_TOKEN") && dry.stderr.contains("--yes"), "{dry:?}");
    assert!(home.run(&["mcp", "list", "--json"]).await.json().as_array().unwrap().is_empty());
    let done_json = home.run(&["mcp", "import", &path, "--yes", "--json"]).await;
    assert_eq!(done_json.code, 0, "{done_json:?}");
    for said in [
        &dry.stdout,
        &done_json.stdout,
        &std::fs::read_to_string(home.path().join("portcullis.toml")).unwrap(),
    ] {
        assert!(!said.contains(&token), "{said}");
    }
    // The hub has taken the new configuration, and started nothing.
    hub.process.says("configuration reloaded").await;
    until_status(&home, "disabled").await;
    // Whoever wrote the project does not get it started by somebody who has not looked.
    for word in ["enable", "test", "disable", "enable"] {
        let ran = home.run(&["mcp", word, "shop"]).await;
        assert_eq!(ran.code, i32::from(word != "disable"), "{ran:?}");
        assert!(word == "disable" || ran.stderr.contains("portcullis mcp trust shop"), "{ran:?}");
    }
    until_status(&home, "disabled").await;
    let trusted = home.run(&["mcp", "trust", "shop", "--yes", "--json"]).await.json();
    assert_eq!((&trusted["trusted"], &trusted["switched_on"]), (&json!(true), &json!(true)), "{trusted}");
    let stands = until_status(&home, "connected").await;
    assert_eq!(stands["quarantined"], json!([]), "{stands}");
    done(&home, &["mcp", "disable", "shop"]).await;
    // What a person has switched off is not switched on by a look at it.
    let trusted = home.run(&["mcp", "trust", "shop", "--yes", "--json"]).await.json();
    assert_eq!((&trusted["trusted"], &trusted["switched_on"]), (&json!(true), &json!(false)), "{trusted}");
    until_status(&home, "disabled").await;
    done(&home, &["mcp", "enable", "shop"]).await;
    // From the usual places, in the folder of a project; what cannot be read is told as well.
    std::fs::create_dir(home.user().join("project/.cursor")).unwrap();
    std::fs::write(home.user().join("project/.cursor/mcp.json"), "nonsense").unwrap();
    let mut command = home.command(&["mcp", "import", "--json"]);
    command.current_dir(home.user().join("project"));
    let found = run(command, "").await.json();
    assert_eq!(found["files"][0]["skipped"][0]["why"], "a server of this name already exists", "{found}");
    let unreadable = &found["unreadable"][0];
    assert!(unreadable["path"].as_str().unwrap().ends_with(".cursor/mcp.json"), "{found}");
    assert!(!unreadable["why"].as_str().unwrap().is_empty(), "{found}");
}

#[tokio::test]
async fn what_cannot_be_imported_is_left_out_and_the_rest_is_not() {
    let home = home();
    let file = home.user().join("mcp.json");
    let servers = json!({
        "good": { "command": "/bin/cat", "args": ["--api-key", "hunter2hunter2"], "env": { "GOOD_TOKEN": "abcdefgh12345" } },
        "accepts": { "url": "https://a.example.com/mcp", "headers": { "Accept": "x", "Authorization": "Bearer abcdefgh54321" } },
        "both": { "url": "https://b.example.com/mcp", "env": { "A": "b" } },
        "nowhere": { "url": "nowhere" },
        "part": { "url": "https://p.example.com/mcp#part", "headers": { "Authorization": "Bearer abcdefgh09876" } },
        "odd": { "url": "https://o.example.com/mcp", "headers": { "X!Token": "abcdefgh67890" } },
    });
    std::fs::write(&file, json!({ "mcpServers": servers }).to_string()).unwrap();
    let path = file.display().to_string();
    let why = |found: &Value| {
        let skipped = found["files"][0]["skipped"].as_array().unwrap();
        skipped.iter().map(|one| format!("{}: {}\n", one["name"], one["why"])).collect::<String>()
    };
    let dry = home.run(&["mcp", "import", &path, "--json"]).await.json();
    insta::assert_snapshot!(why(&dry), @r#"
    "nowhere": "`mcp.nowhere.url` is not a valid URL: relative URL without a base"
    "part": "`mcp.part.url` is not a valid URL: the part after `#` is never sent; remove it"
    "odd": "the value of `X!Token` cannot be stored as a secret: `o.example.com:X!Token` is not a grant: the field is 1 to 64 letters, digits, `-`, `_` and `.`, like Authorization"
    "#);
    let ran = home.run(&["mcp", "import", &path, "--only", "nonesuch"]).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{ran:?}");
    assert!(ran.stderr.contains("found: `accepts`, `both`, `good`, `nowhere`, `odd`, `part`"), "{ran:?}");
    let ran = home.run(&["mcp", "import", &path, "--yes", "--json"]).await;
    let done = ran.json();
    let servers = &done["files"][0]["servers"];
    let names = [0_usize, 1, 2, 3].map(|at| servers[at]["name"].clone());
    assert_eq!((why(&done), json!(names)), (why(&dry), json!(["good", "accepts", "both", null])), "{done}");
    assert_eq!(servers[1]["headers"], json!({ "Authorization": "Bearer secret:ACCEPTS_AUTHORIZATION" }));
    // Only what was taken over left something in the store.
    let secrets = home.run(&["secrets", "list", "--json"]).await.stdout;
    assert!(secrets.contains("GOOD_TOKEN") && secrets.contains("ACCEPTS_AUTHORIZATION"), "{secrets}");
    assert!(!secrets.contains("ODD") && !secrets.contains("PART"), "{secrets}");
    let said = [
        ran.stdout,
        home.run(&["mcp", "list"]).await.stdout,
        home.run(&["mcp", "list", "--json"]).await.stdout,
    ];
    assert!(said.iter().all(|said| !said.contains("hunter2")), "{said:?}");
    assert!(said.iter().all(|said| said.contains("[HIDDEN]")), "{said:?}");
}

#[tokio::test]
async fn programs_are_told_all_that_people_are() {
    let home = home();
    let file = home.user().join("mcp.json");
    let servers = json!({
        "login": { "url": "https://a.example.com/mcp", "oauth": { "clientId": "me", "callbackPort": 3118 }, "timeout": 60_000 },
        "plain": { "url": "https://b.example.com/mcp", "oauth": true },
    });
    std::fs::write(&file, json!({ "mcpServers": servers }).to_string()).unwrap();
    let path = file.display().to_string();
    let found = home.run(&["mcp", "import", &path, "--yes", "--json"]).await.json();
    let found = &found["files"][0]["servers"];
    let login = json!({ "client_id": "me", "callback_port": 3118 });
    assert_eq!((&found[0]["oauth"], &found[0]["timeout_ms"]), (&login, &json!(60_000)));
    assert_eq!((&found[1]["oauth"], &found[1]["timeout_ms"]), (&json!(true), &Value::Null));
    let written = std::fs::read_to_string(home.path().join("portcullis.toml")).unwrap();
    let more = "[mcp.more]\ncommand = \"true\"\ncwd = \"/tmp\"\nstart = \"lazy\"\nidle_stop = \"10m\"\n\
                per_client = true\nclients_max = 3\n";
    home.configure(&format!("{written}{more}"));
    let listed = home.run(&["mcp", "list", "--json"]).await.json();
    let told = |name: &str| {
        let server = listed.as_array().unwrap().iter().find(|server| server["name"] == name).unwrap();
        let keys =
            ["unseen", "cwd", "oauth", "timeout_ms", "start", "idle_stop_ms", "per_client", "clients_max"];
        json!(keys.map(|key| server[key].clone()))
    };
    assert_eq!(told("login"), json!([true, null, true, 60_000, "now", null, false, null]));
    let timeout_ms = told("more")[3].clone();
    assert_eq!(told("more"), json!([false, "/tmp", false, timeout_ms, "lazy", 600_000, true, 3]));
}

#[tokio::test]
async fn what_is_to_be_set_for_an_import_replaces_no_secret() {
    let home = home();
    let set = home.command(&["secrets", "set", "GITHUB_TOKEN", "--grant", "api.github.com:authorization"]);
    assert_eq!(run(set, "correct-horse-battery-staple").await.code, 0);
    let file = home.user().join("mcp.json");
    let input = json!({ "type": "promptString", "id": "tok", "password": true });
    let github = json!({ "command": "/bin/cat", "env": { "GITHUB_TOKEN": "${input:tok}" } });
    std::fs::write(&file, json!({ "inputs": [input], "servers": { "github": github } }).to_string()).unwrap();
    let path = file.display().to_string();
    let said = done(&home, &["mcp", "import", &path, "--yes"]).await;
    assert!(said.contains("portcullis secrets set GITHUB_TOKEN_2 --grant 'mcp.github-mcp:env'"), "{said}");
    let written = std::fs::read_to_string(home.path().join("portcullis.toml")).unwrap();
    assert!(written.contains("secret:GITHUB_TOKEN_2"), "{written}");
}

#[tokio::test]
async fn a_folder_is_meant_from_where_the_command_is_given() {
    let home = home();
    std::fs::create_dir(home.user().join("project")).unwrap();
    for (name, cwd) in [("one", "."), ("two", "project"), ("three", "~/project")] {
        let mut command = home.command(&["mcp", "add", name, "--no-test", "--cwd", cwd, "--", "true"]);
        command.current_dir(home.user());
        assert_eq!(run(command, "").await.code, 0);
    }
    let written = std::fs::read_to_string(home.path().join("portcullis.toml")).unwrap();
    let folders = written.lines().filter_map(|line| line.strip_prefix("cwd = "));
    let here = home.user().canonicalize().unwrap();
    let expected = [json!(here), json!(here.join("project")), json!("~/project")];
    assert_eq!(folders.collect::<Vec<_>>(), expected.map(|folder| folder.to_string()));
}
