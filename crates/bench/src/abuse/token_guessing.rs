//! Token guessing from one address, while a known honest client works from another of the same machine.

use super::{AbuseReport, SeededDice};
use portcullis_testkit::raw_http::{RawHttpConnection, RawHttpRequest};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The addresses of the guesser and of the honest client. Linux has all of 127.0.0.0/8 on loopback, which is
/// one source.
const GUESSER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 1));
const HONEST: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
/// Guesses that the hub may check.
const EVALUATED_MAX: u64 = 60;
const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// How many guesses.
#[derive(Debug, Clone, Copy)]
pub struct TokenGuessPlan {
    pub guesses: usize,
    pub connections: usize,
    pub seed: u64,
}

/// Figures of the run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GuessFigures {
    pub guesses: usize,
    /// Responses other than 401 and 429.
    pub let_in: usize,
    /// 429.
    pub not_looked_at: usize,
    /// As counted by the hub.
    pub evaluated: u64,
    pub honest_calls: usize,
    pub honest_refused: usize,
}

impl AbuseReport for GuessFigures {
    fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if self.let_in > 0 {
            faults.push(format!("{} guesses were let in", self.let_in));
        }
        if self.evaluated > EVALUATED_MAX {
            faults.push(format!(
                "{} guesses were looked at, at most {EVALUATED_MAX} should be",
                self.evaluated
            ));
        }
        if self.honest_refused > 0 || self.honest_calls == 0 {
            faults
                .push(format!("{} of {} honest calls were refused", self.honest_refused, self.honest_calls));
        }
        faults
    }
}

impl fmt::Display for GuessFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} guesses: {} let in, {} looked at, {} told to wait; honest client: {} calls, {} refused",
            self.guesses,
            self.let_in,
            self.evaluated,
            self.not_looked_at,
            self.honest_calls,
            self.honest_refused
        )
    }
}

/// Guesses at a hub whose client `token` is honest and unrestricted.
pub async fn guess_tokens(address: SocketAddr, token: &str, guessing: TokenGuessPlan) -> GuessFigures {
    let before = evaluated(address, token).await;
    let (let_in, waited) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let done = Arc::new(AtomicBool::new(false));
    let honest = tokio::spawn(work_honestly(address, token.to_owned(), done.clone()));
    let mut guessers = Vec::new();
    for n in 0..guessing.connections {
        let mut dice = SeededDice::new(guessing.seed.wrapping_add(n as u64));
        let share = guessing.guesses / guessing.connections
            + usize::from(n < guessing.guesses % guessing.connections);
        let (token, let_in, waited) = (token.to_owned(), let_in.clone(), waited.clone());
        guessers.push(tokio::spawn(async move {
            let mut connection = RawHttpConnection::open_from(GUESSER, address).await;
            for _ in 0..share {
                let request = RawHttpRequest::post("/mcp", PING).token(&guess(&token, &mut dice));
                match connection.exchange(&request).await.status() {
                    401 => 0,
                    429 => waited.fetch_add(1, Ordering::Relaxed),
                    _ => let_in.fetch_add(1, Ordering::Relaxed),
                };
            }
        }));
    }
    for guesser in guessers {
        joined(guesser.await);
    }
    done.store(true, Ordering::Relaxed);
    let (honest_calls, honest_refused) = joined(honest.await);
    GuessFigures {
        guesses: guessing.guesses,
        let_in: let_in.load(Ordering::Relaxed),
        not_looked_at: waited.load(Ordering::Relaxed),
        evaluated: evaluated(address, token).await - before,
        honest_calls,
        honest_refused,
    }
}

#[expect(clippy::expect_used, reason = "a helper that fails is a test that fails")]
fn joined<T>(result: Result<T, tokio::task::JoinError>) -> T {
    result.expect("no part of the run panics")
}

/// Calls until stopped, and once afterwards, alternately on new connections and on an old one.
async fn work_honestly(address: SocketAddr, token: String, done: Arc<AtomicBool>) -> (usize, usize) {
    let request = RawHttpRequest::post("/mcp", PING).token(&token);
    let mut kept = RawHttpConnection::open_from(HONEST, address).await;
    let (mut calls, mut refused) = (0, 0);
    let mut last = false;
    while !last {
        last = done.load(Ordering::Relaxed);
        let mut new = RawHttpConnection::open_from(HONEST, address).await;
        for connection in [&mut kept, &mut new] {
            calls += 1;
            refused += usize::from(connection.exchange(&request).await.status() != 200);
        }
    }
    (calls, refused)
}

/// A token of the right form; every other one is the valid one with one character changed.
fn guess(token: &str, dice: &mut SeededDice) -> String {
    let mut guess = token.as_bytes().to_vec();
    let body = token.find('_').map_or(0, |at| at + 1);
    if dice.below(2) == 0 {
        guess[body..].fill_with(|| ALPHABET[dice.below(64)]);
    } else {
        let at = body + dice.below(guess.len() - body);
        guess[at] = if guess[at] == b'A' { b'B' } else { ALPHABET[dice.below(64)] };
    }
    // By chance the same character again.
    if guess == token.as_bytes() {
        guess[body] ^= 1;
    }
    String::from_utf8_lossy(&guess).into_owned()
}

/// Returns how many wrong tokens the hub has checked, from its metrics.
async fn evaluated(address: SocketAddr, token: &str) -> u64 {
    let mut connection = RawHttpConnection::open_from(HONEST, address).await;
    let page = connection.exchange(&RawHttpRequest::get("/metrics").token(token)).await.text();
    super::slow_connections::number(&page, "portcullis_token_failures_total")
}
