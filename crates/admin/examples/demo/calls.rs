//! Invented calls: what happens, and the record of it.

use crate::approvals;
use crate::data::ago;
use jiff::Timestamp;
use portcullis_ops::desk::*;

pub(crate) fn minutes() -> Vec<MinuteSummary> {
    (0..60)
        .map(|n: u64| {
            let wave = (n * n * 7 + n * 13) % 29;
            MinuteSummary {
                at: ago(59 - i64::try_from(n).unwrap_or(0)),
                calls: 18 + wave + if n > 40 { 12 } else { 0 },
                errors: if n % 11 == 3 { 4 } else { u64::from(n % 7 == 2) },
                p50_us: 2_100 + wave * 140,
                p95_us: 9_000 + wave * 2_200,
            }
        })
        .collect()
}

pub(crate) fn call(number: u64) -> CallView {
    let (client, target, effect, arguments) = match number % 7 {
        0 => ("laptop", "workspace_read", "read", "{\"path\":\"notes/plan.md\"}"),
        1 => ("research", "web_fetch", "read", "{\"url\":\"https://example.org/long/page\"}"),
        2 => ("laptop", "vault_search", "read", "{\"words\":[\"train\",\"lyon\"]}"),
        3 => ("ci-deploy", "git_git_commit", "write", "{\"message\":\"Release 1.9\"}"),
        4 => ("stdio", "memory_write", "create", "{\"text\":\"prefers short answers\"}"),
        5 => (
            "research",
            "calculator_add",
            "write",
            "{\"a\":1,\"b\":\"\u{202e}<img src=x onerror=alert(1)>\"}",
        ),
        _ => ("laptop", "workspace_list", "read", "{\"path\":\"notes\"}"),
    };
    CallView {
        call: number,
        at: Timestamp::now(),
        client: client.into(),
        origin: "client".into(),
        kind: "tool".into(),
        target: target.into(),
        effect: effect.into(),
        arguments: arguments.into(),
        end: None,
    }
}

pub(crate) fn ended(call: &CallView) -> CallView {
    let outcome = match call.call % 13 {
        5 => "denied",
        9 => "needs_approval",
        11 => "timeout",
        _ => "ok",
    };
    let end = CallEnding {
        outcome: outcome.into(),
        decision: Some("allow".into()),
        rule: Some("default-allow".into()),
        approval: None,
        bytes: 512 + call.call % 900,
        duration_us: 800 + (call.call * 7919) % 90_000,
    };
    CallView { end: Some(end), ..call.clone() }
}

pub(crate) fn records() -> Vec<AuditRecord> {
    (0..24u64)
        .map(|n| {
            let line = ended(&call(n));
            let is_end = n % 2 == 0;
            let end = line.end.as_ref();
            AuditRecord {
                seq: 10_240 - n,
                time: ago(i64::try_from(n).unwrap_or(0)).to_string(),
                phase: if is_end { "end".into() } else { "begin".into() },
                call: Some(5_000 - n / 2),
                client: line.client.clone(),
                origin: "client".into(),
                kind: "tool".into(),
                target: line.target.clone(),
                effect: line.effect.clone(),
                args: (!is_end).then(|| line.arguments.clone()),
                begin: is_end.then_some(10_239 - n),
                decision: is_end.then(|| "allow".into()),
                rule: is_end.then(|| "default-allow".into()),
                outcome: end.filter(|_| is_end).map(|end| end.outcome.clone()),
                bytes: end.filter(|_| is_end).map(|end| end.bytes),
                duration_us: end.filter(|_| is_end).map(|end| end.duration_us),
                digest: (!is_end).then(|| "7e0a".repeat(16)),
                approval: None,
            }
        })
        .collect()
}

pub(crate) fn story(seq: u64) -> Option<CallHistory> {
    let records = records();
    let end =
        records.iter().find(|one| one.phase == "end" && (one.seq == seq || one.begin == Some(seq))).cloned();
    let end = end?;
    let begin = AuditRecord {
        phase: "begin".into(),
        seq: end.seq - 1,
        args: Some("{\"path\":\"notes/plan.md\"}".into()),
        digest: Some("7e0a".repeat(16)),
        outcome: None,
        decision: None,
        rule: None,
        bytes: None,
        duration_us: None,
        ..end.clone()
    };
    Some(CallHistory { records: vec![begin, end], approval: approvals::over().into_iter().next() })
}
