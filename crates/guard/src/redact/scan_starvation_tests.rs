//! The attack: a client reads texts that are costly to scan, to starve other clients.

use super::*;
use crate::testing::{call_by, caller, gate};
use portcullis_core::{Content, Gate, ToolOutput};
use serde_json::json;
use serde_json::value::RawValue;

const LARGE: usize = 100 << 10;

fn redactor() -> Redactor {
    Redactor::new(&[("KEY".to_owned(), Secret::new("hunter2-hunter2".to_owned()))]).unwrap()
}

/// A gate with a pool of two permits, and that pool.
fn pooled(share: usize, inline_bytes_max: usize) -> (Gate, Arc<RedactionLayer>) {
    let pool = ScrubPool::new(2, share, inline_bytes_max);
    let redact = Arc::new(RedactionLayer { redactor: redactor(), pool, ceiling: CallLimits::DEFAULT });
    (gate(vec![Box::new(Shared(redact.clone()))]).0, redact)
}

struct Shared(Arc<RedactionLayer>);

impl Layer for Shared {
    fn call<'a>(&'a self, call: Box<Call>, next: Next<'a>) -> BoxFuture<'a, Outcome> {
        self.0.call(call, next)
    }
}

fn read_by(client: &str, bytes: usize) -> Call {
    let text = format!("{} hunter2-hunter2", "A".repeat(bytes));
    call_by(caller(client), &format!("stub_read {}", json!({ "text": text })))
}

/// Returns whether other tasks of the only worker ran before a large result was redacted. All permits of the pool are taken
/// meanwhile, so that a scan on the pool must wait.
async fn others_ran(bytes: usize, inline_bytes_max: usize) -> bool {
    let (gate, redact) = pooled(1, inline_bytes_max);
    let taken = (redact.pool.permits("x").await, redact.pool.permits("y").await);
    let ran = Arc::new(AtomicBool::new(false));
    let other = {
        let ran = ran.clone();
        tokio::spawn(async move {
            ran.store(true, Ordering::Release);
            drop(taken);
        })
    };
    let outcome = gate.call(read_by("ada", bytes)).await.unwrap();
    let ran = ran.load(Ordering::Acquire);
    other.await.unwrap();
    let Output::Tool(tool) = outcome else { panic!() };
    assert!(tool.content.iter().any(|content| format!("{content:?}").contains("[REDACTED:KEY]")));
    ran
}

#[tokio::test]
async fn a_large_scan_does_not_hold_up_the_worker() {
    assert!(others_ran(LARGE, INLINE).await);
    // A small result is redacted inline.
    assert!(!others_ran(1_000, INLINE).await);
    // Control: everything is scanned inline and blocks the only worker.
    assert!(!others_ran(LARGE, usize::MAX).await);
}

const INLINE: usize = portcullis_core::INLINE_SCRUB_BYTES_MAX;

/// Returns whether another client is served while one uses its whole share of the pool and waits for more. Time is paused
/// until all tasks are idle, so a call without a permit ends at its deadline.
async fn another_is_served(share: usize) -> bool {
    let (gate, redact) = pooled(share, INLINE);
    let mut held = Vec::new();
    for _ in 0..share {
        held.push(redact.pool.permits("greedy").await);
    }
    let gate = Arc::new(gate);
    let greedy = tokio::spawn({
        let gate = gate.clone();
        async move { gate.call(read_by("greedy", LARGE)).await.is_ok() }
    });
    // Its call is queued before the other comes.
    tokio::task::yield_now().await;
    let served = gate.call(read_by("honest", LARGE)).await.is_ok();
    assert!(!greedy.is_finished() || !served);
    held.clear();
    assert!(greedy.await.unwrap() || !served);
    served
}

#[tokio::test(start_paused = true)]
async fn one_client_cannot_take_the_whole_pool() {
    assert!(another_is_served(1).await);
    // Control: the share of one client is the whole pool.
    assert!(!another_is_served(2).await);
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_the_pool_is_told_in_time_and_can_give_up() {
    let (gate, redact) = pooled(1, INLINE);
    let _held = (redact.pool.permits("ada").await, redact.pool.permits("bob").await);
    let error = gate.call(read_by("ada", LARGE)).await.unwrap_err();
    assert_eq!(error.kind, portcullis_core::ErrorKind::Timeout);
    let call = read_by("ada", LARGE);
    call.ctx.cancel.cancel();
    assert_eq!(gate.call(call).await.unwrap_err().kind, portcullis_core::ErrorKind::Cancelled);
}

/// Returns the decoded bytes per byte of text, if the scan stays within its budget.
fn decoded_per_byte(text: &str) -> Result<f64, OverBudget> {
    let redactor = redactor();
    let masks = redactor.known.masks.load();
    let mut scan = redactor.scan(&masks);
    scan.regions(text.as_bytes())?;
    scan.budget.decoded().map(|decoded| decoded as f64 / text.len() as f64)
}

/// Text that decodes in every encoding, at every offset.
fn costly_text() -> String {
    "AQ".repeat(1 << 16)
}

#[test]
fn one_character_again_and_again_is_cheap_to_scan() {
    for character in ["A", "a", "0", "V", "/", "7"] {
        let decoded = decoded_per_byte(&character.repeat(1 << 17)).unwrap();
        assert!(decoded <= 4.0, "{character}: {decoded}");
    }
    // Control: the measure detects costly text.
    assert_eq!(decoded_per_byte(&costly_text()), Err(OverBudget));
}

#[test]
fn what_is_over_budget_is_withheld_without_another_scan() {
    let redactor = redactor();
    let costly = costly_text();
    let masks = redactor.known.masks.load();
    let mut scan = redactor.scan(&masks);
    for text in [costly.as_str(), "short", "hunter2-hunter2"] {
        assert_eq!(scan.scrub(text), scan::WITHHELD);
    }
    let mut raw = Output::Raw(RawValue::from_string(json!([costly, "short"]).to_string()).unwrap());
    redactor.scrub_output(&mut raw);
    assert!(matches!(&raw, Output::Raw(raw) if raw.get().contains("[WITHHELD]")), "{raw:?}");
    let mut tool = Output::Tool(ToolOutput::text(costly));
    redactor.scrub_output(&mut tool);
    let Output::Tool(tool) = tool else { panic!() };
    assert_eq!(tool.content, [Content::text(scan::WITHHELD)]);
}
