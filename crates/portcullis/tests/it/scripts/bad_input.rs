//! Scripts that are none, names that lead elsewhere, and decisions that come too late or two at once: each is told, and
//! nothing is half done.

use super::{PENDING, approve, client, run_script, scripts, write};
use crate::admin::Admin;
use crate::support::{home, http, text};
use portcullis_testkit::process::UNHURRIED;
use serde_json::json;

#[tokio::test]
async fn bad_names_and_bad_files_are_told_and_nothing_runs() {
    let home = home();
    let mut client = client(&home, "").await;
    write(&home, "bytes.star", [0xff, 0xfe, 0x00]);
    write(&home, "long.star", "#".repeat(10 * 1024 * 1024));
    write(&home, "deep.star", format!("x = {}1{}", "[".repeat(10_000), "]".repeat(10_000)));
    for (name, told) in [
        ("../x", "is not a valid script name"),
        ("/etc/passwd", "is not a valid script name"),
        ("gone", "script 'gone.star' not found"),
        ("bytes", "is not UTF-8"),
        ("long", "10485760 bytes, at most 262144"),
    ] {
        let answer = run_script(&mut client, name).await;
        assert!(answer["isError"] == true && text(&answer).contains(told), "{name}: {answer}");
    }
    approve(&home, "deep", &[]).await;
    let answer = run_script(&mut client, "deep").await;
    assert!(text(&answer).contains("nested more than 250 levels deep"), "{answer}");
    let ran = home.run(&["scripts", "approve", "long", "--hash", "00000000"]).await;
    assert!(ran.code == 1 && ran.stderr.contains("at most 262144"), "{ran:?}");
    let ran = home.run(&["scripts", "show", "../x"]).await;
    assert!(ran.code == 2 && ran.stderr.contains("is not a valid script name"), "{ran:?}");
    // Nobody is there to look, so a version has to be named.
    let ran = home.run(&["scripts", "approve", "deep"]).await;
    assert!(ran.code == 2 && ran.stderr.contains("--hash"), "{ran:?}");
}

#[tokio::test]
async fn bad_code_of_an_agent_is_told_and_nothing_is_kept() {
    let home = home();
    let mut client = client(&home, "").await;
    let deep = format!("x = {}1{}", "[".repeat(10_000), "]".repeat(10_000));
    let long = "#".repeat(300_000);
    // Longer than any code could be, whichever way it is written: nobody keeps it, and it is recorded all the same.
    let longer = "#".repeat(2_000_000);
    for (name, code, told) in [
        ("../x", "x = 1", "is not a valid script name"),
        ("a/b", "x = 1", "is not a valid script name"),
        ("deep", deep.as_str(), "nested more than 250 levels deep"),
        ("long", long.as_str(), "300000 bytes"),
        ("longer", longer.as_str(), "at most 790528 are allowed"),
        ("broken", "def main(:\n", "at line 1, column 10"),
    ] {
        let answer = client.call("script_propose", json!({ "name": name, "code": code })).await;
        assert!(answer["isError"] == true && text(&answer).contains(told), "{name}: {answer}");
        if code != "x = 1" {
            let answer = client.call("script_exec", json!({ "code": code })).await;
            assert!(answer["isError"] == true && text(&answer).contains(told), "{name}: {answer}");
        }
    }
    assert_eq!(scripts(&home, &[]).await, json!([]));
    assert!(!home.path().join("x.star").exists() && !home.path().join("scripts").join("a").exists());
    // And the hub is as it was.
    let ran = client.call("script_exec", json!({ "code": "2 + 2" })).await;
    assert_eq!(ran["structuredContent"]["value"], 4, "{ran}");
    let records = home.run(&["audit", "search", "--tool", "script_exec", "--json"]).await.stdout;
    assert!(records.contains("[withheld: 2000011 bytes]"), "{records}");
}

#[tokio::test]
async fn what_changed_while_a_person_looked_is_not_approved() {
    let home = home();
    home.configure(UNHURRIED);
    write(&home, "x.star", "result = 1\n");
    let hub = home.serve().await;
    let ann = Admin::first(&hub).await;
    let mut client = http(&hub, "2026-07-28").await;
    let looked_at = ann.sees("/scripts/x").await;
    let (hash, seen) = (looked_at["sha256"].clone(), looked_at["seen"].clone());
    write(&home, "x.star", "result = 2\n");

    let yes = json!({ "sha256": hash, "seen": seen, "grant": {} });
    for (path, body) in [
        ("/scripts/x/approve", yes.clone()),
        ("/scripts/x/reject", json!({ "sha256": hash, "seen": seen, "reason": "no" })),
    ] {
        let reply = ann.send("POST", path, body).await;
        let told = reply.json();
        assert_eq!((reply.status(), &told["code"]), (409, &json!("changed")), "{told}");
        assert!(told["message"].as_str().unwrap().contains("was replaced by"), "{told}");
    }
    let ran = home.run(&["scripts", "approve", "x", "--hash", hash.as_str().unwrap()]).await;
    assert!(ran.code == 1 && ran.stderr.contains("was replaced by"), "{ran:?}");
    assert!(text(&run_script(&mut client, "x").await).starts_with(PENDING));
    assert_eq!(scripts(&home, &["history", "x"]).await["decisions"], json!([]));

    // What was looked at is what the same words are good for.
    write(&home, "x.star", "result = 1\n");
    ann.does("POST", "/scripts/x/approve", yes).await;
    assert_eq!(text(&run_script(&mut client, "x").await), "1");
}

#[tokio::test]
async fn of_two_who_decide_about_a_script_at_once_the_second_learns_of_the_first() {
    let home = home();
    home.configure(UNHURRIED);
    let hub = home.serve().await;
    let ann = Admin::first(&hub).await;
    let link = home.run(&["admin", "link", "--json"]).await.json();
    let link = link["link"].as_str().unwrap().split_once('#').unwrap().1.to_owned();
    let bob = Admin::welcome(hub.address, &link, "bob").await;
    let mut client = http(&hub, "2026-07-28").await;
    for round in 0..5 {
        write(&home, "x.star", format!("result = {round}\n"));
        let looked_at = ann.sees("/scripts/x").await;
        let (hash, seen) = (&looked_at["sha256"], &looked_at["seen"]);
        let yes = json!({ "sha256": hash, "seen": seen, "grant": {} });
        let no = json!({ "sha256": hash, "seen": seen, "reason": "no" });
        let (yes, no) = tokio::join!(
            ann.send("POST", "/scripts/x/approve", yes),
            bob.send("POST", "/scripts/x/reject", no)
        );
        let approved = yes.status() == 200;
        let (first, second) = if approved { (&yes, &no) } else { (&no, &yes) };
        assert_eq!((first.status(), second.status()), (200, 409), "{} {}", yes.text(), no.text());
        let told = second.json()["message"].as_str().unwrap().to_owned();
        let whose = if approved { "was approved by admin ann at" } else { "was rejected by admin bob at" };
        assert!(told.contains(whose) && told.contains("meanwhile; review it again"), "{told}");

        // One decision, and the hub acts by it.
        let history = scripts(&home, &["history", "x"]).await["decisions"].clone();
        assert_eq!(history.as_array().unwrap().len(), round + 1, "{history}");
        assert_eq!(history[0]["approved"], approved, "{history}");
        let ran = run_script(&mut client, "x").await;
        match approved {
            true => assert_eq!(text(&ran), round.to_string(), "{ran}"),
            false => assert!(text(&ran).contains("was rejected by an administrator: no"), "{ran}"),
        }
    }

    // The same on the command line, where each looks and decides in one go: both are heard, or one is told.
    write(&home, "x.star", "result = \"last\"\n");
    let hash = scripts(&home, &["show", "x"]).await["sha256"].as_str().unwrap().to_owned();
    let before = scripts(&home, &["history", "x"]).await["decisions"].as_array().unwrap().len();
    let decide = async |word| home.run(&["scripts", word, "x", "--hash", &hash]).await;
    let (yes, no) = tokio::join!(decide("approve"), decide("reject"));
    for ran in [&yes, &no] {
        assert!(ran.code == 0 || ran.stderr.contains("meanwhile; review it again"), "{ran:?}");
    }
    let history = scripts(&home, &["history", "x"]).await["decisions"].clone();
    let heard = [&yes, &no].into_iter().filter(|ran| ran.code == 0).count();
    assert!(heard > 0 && history.as_array().unwrap().len() == before + heard, "{history}");
    let ran = run_script(&mut client, "x").await;
    assert_eq!(ran["isError"] == false, history[0]["approved"] == true, "{ran} {history}");
}
