//! Redaction oracle: a client prints guesses of a short secret and observes which one is redacted.

use super::*;
use portcullis_testkit::process::run;
use portcullis_testkit::raw_http::RawHttpRequest;

const PIN: &str = "49382716";
const PRINTED: usize = 100_000;
/// Half of what docs/configuration.md says of `secret_guesses`: a number is also looked for backwards.
const LOOK_ALIKES_MAX: usize = 5_000;
/// Look-alikes whose digest of 32 bits equals one that was read: a tenth of one is expected here.
const COLLISIONS_MAX: usize = 5;

/// Returns the guesses that come back in another way than all others, if they are few enough to try each elsewhere.
fn found(first: usize, printed: &str) -> Vec<usize> {
    let masked: Vec<usize> = (first..)
        .zip(printed.split(", "))
        .filter(|(guess, read)| *read != guess.to_string())
        .map(|(guess, _)| guess)
        .collect();
    if masked.len() < 10 { masked } else { Vec::new() }
}

async fn set(home: &TestHome, more: &[&str]) -> portcullis_testkit::process::CommandOutput {
    run(home.command(&[&["secrets", "set", "PIN"], more].concat()), PIN).await
}

#[tokio::test]
async fn does_not_tell_a_pin_to_who_prints_all_of_them() {
    let home = home();
    let refused = set(&home, &[]).await;
    assert_eq!(refused.code, 2);
    assert!(
        refused.stderr.contains("about 26 bits") && refused.stderr.contains("--weak"),
        "{}",
        refused.stderr
    );
    let taken = set(&home, &["--weak"]).await;
    assert_eq!(taken.code, 0, "{}", taken.stderr);
    assert!(taken.stderr.contains("Warning: ") && !taken.stderr.contains(PIN), "{}", taken.stderr);
    let hub = home.serve().await;
    let token = home.add_client("eve", &["--allow", "script_exec"]).await;
    let mut eve = McpClient::http(hub.address, &token, "2025-06-18").await;
    eve.initialize(json!({})).await;
    let mut print = async |first: usize, count: usize| {
        let code = format!("result = \", \".join([str(n) for n in range({first}, {})])", first + count);
        let answer = eve.call("script_exec", json!({ "code": code })).await;
        assert_ne!(answer["isError"], true, "{answer}");
        answer["structuredContent"]["value"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    };
    let pin: usize = PIN.parse().unwrap();
    // As many in one call as an attacker would: the PIN is beyond what it may read in a day.
    let first = pin - PRINTED / 2;
    let printed = print(first, PRINTED).await;
    assert!(!printed.contains(PIN));
    assert!(found(first, &printed).is_empty(), "the PIN stands out");
    let read = printed.split(", ").filter(|read| !read.starts_with("[REDACTED")).count();
    assert!((LOOK_ALIKES_MAX..=LOOK_ALIKES_MAX + COLLISIONS_MAX).contains(&read), "{read}");
    // Nor in small pieces afterwards.
    for offset in 0..5 {
        let printed = print(pin - offset, 12).await;
        assert!(found(pin - offset, &printed).is_empty(), "{printed}");
    }
    // People hear of it: in the log, in the metrics, and in the records.
    hub.process.says("as when guessing it").await;
    let page = RawHttpRequest::get("/metrics").token(&hub.token).send(hub.address).await.text();
    assert!(page.contains("portcullis_limit_hits_total{limit=\"secret_guesses\"} 1\n"), "{page}");
    let records = home.run(&["audit", "search", "--tool", "script_exec", "--json"]).await.stdout;
    assert!(records.contains("\"alert\":\"secret_guesses\""), "{records}");
    assert!(!records.contains(PIN), "{records}");
    // Weak: another client, which has read nothing yet, guesses the right thousand. The check notices.
    let token = home.add_client("lucky", &["--allow", "script_exec"]).await;
    let mut lucky = McpClient::http(hub.address, &token, "2025-06-18").await;
    lucky.initialize(json!({})).await;
    let code = format!("result = \", \".join([str(n) for n in range({}, {})])", pin - 500, pin + 500);
    let answer = lucky.call("script_exec", json!({ "code": code })).await;
    assert_eq!(found(pin - 500, answer["structuredContent"]["value"].as_str().unwrap()), [pin]);
}
