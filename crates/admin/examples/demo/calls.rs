//! Invented calls: what happens, and the record of it.

use crate::approvals;
use crate::data::ago;
use jiff::Timestamp;
use portcullis_ops::desk::*;

pub(crate) fn minutes() -> Vec<PeriodSummary> {
    (0..60)
        .map(|n: u64| {
            let wave = (n * n * 7 + n * 13) % 29;
            PeriodSummary {
                at: ago(59 - i64::try_from(n).unwrap_or(0)),
                calls: 18 + wave + if n > 40 { 12 } else { 0 },
                errors: if n % 11 == 3 { 4 } else { u64::from(n % 7 == 2) },
                p50_us: 2_100 + wave * 140,
                p95_us: 9_000 + wave * 2_200,
            }
        })
        .collect()
}

/// Statistics of a range, a little of them for each client and server.
pub(crate) fn statistics(range: &str) -> Statistics {
    let (range, seconds, fine, coarse) = match range {
        "week" => ("week", 604_800, 7_200, 21_600),
        "day" => ("day", 86_400, 900, 3_600),
        _ => ("hour", 3_600, 60, 300),
    };
    let now = Timestamp::now();
    let series = |name: &str, period_seconds: u64, part: u64| {
        let first = u64::try_from(now.as_second()).unwrap_or(0) / period_seconds - seconds / period_seconds;
        let period = |n: u64| {
            let wave = (n * n * 7 + n * 13 + part * 5) % 29;
            let calls = (18 + wave) * period_seconds / 60 / part;
            PeriodSummary {
                at: Timestamp::from_second(i64::try_from((first + 1 + n) * period_seconds).unwrap_or(0))
                    .unwrap_or(now),
                calls: if n % 17 == 9 { 0 } else { calls },
                errors: if n % 11 == 3 { calls / 8 } else { 0 },
                p50_us: 2_100 + wave * 140 * part,
                p95_us: 9_000 + wave * 2_200 * part,
            }
        };
        let periods: Vec<_> = (0..seconds / period_seconds).map(period).filter(|one| one.calls > 0).collect();
        let sum = |of: fn(&PeriodSummary) -> u64| -> u64 { periods.iter().map(of).sum() };
        let total = PeriodSummary {
            at: now,
            calls: sum(|one| one.calls),
            errors: sum(|one| one.errors),
            p50_us: 3_900 * part,
            p95_us: 41_000 * part,
        };
        CallSeries { name: name.into(), period_seconds, periods, total }
    };
    let named = |names: &[&str]| {
        names.iter().zip(2..).map(|(name, part)| series(name, coarse, part)).collect::<Vec<_>>()
    };
    Statistics {
        range: range.into(),
        now,
        counted_since: (range == "week").then(|| ago(60 * 24 * 5)),
        all: series("", fine, 1),
        clients: named(&["laptop", "research", "ci-deploy"]),
        servers: named(&["workspace", "git", "calculator", "vault"]),
        known_servers: ["calculator", "git", "memory", "vault", "workspace"].map(String::from).to_vec(),
    }
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

/// One record per call, as a search for calls returns them.
pub(crate) fn calls() -> Vec<AuditRecord> {
    let ends = records().into_iter().filter(|record| record.phase == "end");
    ends.enumerate()
        .map(|(n, end)| AuditRecord {
            phase: "call".into(),
            seq: end.begin.unwrap_or_default(),
            args: Some(call(n as u64 * 2).arguments),
            begin: None,
            // The newest still runs.
            outcome: end.outcome.clone().filter(|_| n > 0),
            duration_us: end.duration_us.filter(|_| n > 0),
            ..end
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
