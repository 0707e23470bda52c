//! Brute force of tokens: ten thousand guesses from one address.

use crate::support::{BINARY, home};
use portcullis_bench::abuse::{AbuseReport, GuessFigures, TokenGuessPlan, guess_tokens};
use portcullis_testkit::process::{TestHome, UNHURRIED};
use portcullis_testkit::raw_http::{RawHttpConnection, RawHttpRequest};
use portcullis_testkit::wait::until;

const GUESSING: TokenGuessPlan = TokenGuessPlan { guesses: 10_000, connections: 8, seed: 1 };

async fn guessed(home: &TestHome) -> GuessFigures {
    let hub = home.serve().await;
    let figures = guess_tokens(hub.address, &hub.token, GUESSING).await;
    eprintln!("{figures}");
    let log = hub.process.stderr();
    assert!(log.matches("Too many wrong tokens").count() <= 1, "one lock, one line: {log}");
    figures
}

#[tokio::test]
async fn are_slowed_down_and_then_not_looked_at() {
    let figures = guessed(&home()).await;
    assert_eq!(figures.faults(), Vec::<String>::new());
    assert!(figures.not_looked_at >= 9_900, "{figures}");
}

/// The test can fail: a hub that allows a thousand mistakes looks at too many.
#[tokio::test]
async fn without_a_strict_limit_are_found_out() {
    let home = TestHome::bare(BINARY);
    home.configure(&format!("{UNHURRIED}[limits]\ntoken_failures_max = 1000\n"));
    let figures = guessed(&home).await;
    assert_eq!(figures.faults().len(), 1, "{figures}");
    assert!(figures.evaluated >= 499, "{figures}");
}

/// Who guesses does not keep out who was let in before from the same address, and is told what to do.
#[tokio::test]
async fn do_not_lock_out_who_is_known() {
    let home = TestHome::bare(BINARY);
    home.configure(&format!("{UNHURRIED}[limits]\ntoken_failures_max = 2\n"));
    let hub = home.serve().await;
    let ping = |token: &str| {
        RawHttpRequest::post("/mcp", r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#).token(token)
    };
    let mut known = RawHttpConnection::open(hub.address).await;
    assert_eq!(known.exchange(&ping(&hub.token)).await.status(), 200);
    let late = home.add_client("late", &[]).await;
    let (mut n, mut statuses) = (0, Vec::new());
    // One guess, a second of waiting, and the one that is too many.
    until("the address is locked", async || {
        n += 1;
        let reply = ping(&format!("pcl_{n:0>43}")).send(hub.address).await;
        statuses.push(reply.status());
        let wait = reply.head.header("retry-after").and_then(|wait| wait.parse::<u64>().ok());
        wait.is_some_and(|wait| wait > 60).then_some(())
    })
    .await;
    let looked_at = statuses.iter().filter(|status| **status == 401).count();
    assert_eq!((statuses[0], looked_at), (401, 2), "{statuses:?}");
    // Known, on its own connection and on a new one.
    assert_eq!(known.exchange(&ping(&hub.token)).await.status(), 200);
    assert_eq!(ping(&hub.token).send(hub.address).await.status(), 200);
    // Good, but not known: it could as well be a guess.
    let refused = ping(&late).send(hub.address).await;
    assert_eq!(refused.status(), 429);
    assert!(refused.text().contains("was not checked; wait "), "{}", refused.text());
    assert!(!refused.text().contains(&late[..12]), "what was sent is not repeated");
    // Who shows no token guesses nothing.
    let none = RawHttpRequest::post("/mcp", "{}");
    assert_eq!(none.send(hub.address).await.status(), 401);
    assert_eq!(RawHttpRequest::get("/healthz").send(hub.address).await.status(), 200);
}
