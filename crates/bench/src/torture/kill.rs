//! The real program, killed at random moments while it works: nothing acknowledged is lost, nothing is torn, and the
//! log verifies every time.

use super::random::SplitMix64;
use super::session::{CallReply, StdioSession, TortureHome};
use anyhow::{Result, ensure};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::path::Path;
use std::time::{Duration, Instant};

/// The longest it works before it is killed.
const WORKS_MS_MAX: usize = 200;
/// How many calls are sent ahead of their replies.
const AHEAD: u64 = 32;
/// A home is used for so many kills: each begins with what the last one left, and the log is short enough to be read
/// after every one.
const KILLS_PER_HOME: u64 = 25;

/// What was seen.
#[derive(Debug, Default)]
pub struct KillFigures {
    pub kills: u64,
    pub acknowledged: u64,
    /// Acknowledged, and not there in full.
    pub lost: u64,
    /// There, but not in full.
    pub torn: u64,
    /// There, and not announced in the log.
    pub unannounced: u64,
    /// Kills after which the log did not verify.
    pub unverified: u64,
    /// Lines that were cut off by a kill, and marked so.
    pub marked: u64,
    /// From the start of each process to its first reply.
    pub starts: Vec<Duration>,
    pub problems: Vec<String>,
}

/// Kills a hub so many times, and returns the last home to be looked at.
pub fn run(program: &Path, kills: u64, seed: u64) -> Result<(KillFigures, TortureHome)> {
    let mut lab = TortureHome::new(program)?;
    let mut random = SplitMix64::new(seed);
    let mut seen = KillFigures::default();
    let (mut unfinished, mut marked) = (0, 0);
    for round in 1..=kills {
        if round.is_multiple_of(KILLS_PER_HOME) {
            check_announced(&lab, &mut seen)?;
            lab = TortureHome::new(program)?;
            seen.marked += std::mem::take(&mut marked);
        }
        let works = Duration::from_millis(random.below(WORKS_MS_MAX) as u64);
        let acknowledged = killed_after(&lab, round, works, &mut seen)?;
        seen.kills += 1;
        seen.acknowledged += acknowledged.len() as u64;
        check_files(&lab, round, &acknowledged, &mut seen)?;
        match lab.succeeds(&["audit", "verify", "--json"]) {
            Ok(told) => {
                let told: Value = serde_json::from_str(&told)?;
                let number = |key: &str| told[key].as_u64().unwrap_or_default();
                unfinished += u64::from(number("unfinished_bytes") > 0);
                marked = number("torn");
            }
            Err(error) => {
                seen.unverified += 1;
                seen.problems.push(format!("round {round}: {error:#}"));
            }
        }
    }
    // Marked when the next hub opened the log; before that, told as unfinished.
    seen.marked = (seen.marked + marked).max(unfinished);
    check_announced(&lab, &mut seen)?;
    Ok((seen, lab))
}

fn name(round: u64, id: u64) -> String {
    format!("k{round}-{id}.md")
}

/// Long enough that it takes several pages.
fn content(round: u64, id: u64) -> String {
    format!("written in round {round} as {id}\n").repeat(1 + usize::try_from(id % 7).unwrap_or_default() * 60)
}

/// Lets a hub work for a while, kills it, and returns which writes it had acknowledged.
fn killed_after(lab: &TortureHome, round: u64, works: Duration, seen: &mut KillFigures) -> Result<Vec<u64>> {
    let begun = Instant::now();
    let mut session = StdioSession::start(lab.command::<&str>(&[], &["--mcp"]))?;
    ensure!(session.initialize(), "round {round}: it does not open what the last one left");
    seen.starts.push(begun.elapsed());
    let (end, mut sent, mut acknowledged) = (Instant::now() + works, 0, Vec::new());
    let mut take = |reply: Option<(u64, CallReply)>, seen: &mut KillFigures| match reply {
        Some((id, CallReply::Done)) => acknowledged.push(id),
        Some((id, other)) => seen.problems.push(format!("round {round}: call {id} got {other:?}")),
        None => {}
    };
    while Instant::now() < end {
        while sent < AHEAD || session.waiting() < AHEAD {
            sent += 1;
            let arguments = json!({ "path": name(round, sent), "content": content(round, sent) });
            session.post(sent, "workspace_write", &arguments);
        }
        take(session.any_reply(end.saturating_duration_since(Instant::now())), seen);
    }
    session.kill_now()?;
    while let reply @ Some(_) = session.any_reply(super::session::REPLY_LIMIT) {
        take(reply, seen);
    }
    session.close()?;
    Ok(acknowledged)
}

/// What was acknowledged is there, and whatever is there of this round is there in full.
fn check_files(lab: &TortureHome, round: u64, acknowledged: &[u64], seen: &mut KillFigures) -> Result<()> {
    for id in acknowledged {
        if !lab.files().join(name(round, *id)).is_file() {
            seen.lost += 1;
            seen.problems.push(format!("round {round}: write {id} was acknowledged and is gone"));
        }
    }
    let acknowledged: HashSet<u64> = acknowledged.iter().copied().collect();
    for entry in std::fs::read_dir(lab.files())? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let id =
            name.strip_prefix(&format!("k{round}-")).and_then(|rest| rest.strip_suffix(".md")?.parse().ok());
        let Some(id) = id else { continue };
        if std::fs::read_to_string(&path)? != content(round, id) {
            seen.torn += 1;
            seen.lost += u64::from(acknowledged.contains(&id));
            seen.problems.push(format!("round {round}: `{name}` is torn"));
        }
    }
    Ok(())
}

/// Whatever is there was announced before, acknowledged or not.
fn check_announced(lab: &TortureHome, seen: &mut KillFigures) -> Result<()> {
    let found = lab.succeeds(&["audit", "search", "--tool", "workspace_write", "--json"])?;
    let mut begun = HashSet::new();
    for line in found.lines() {
        let record: Value = serde_json::from_str(line)?;
        let args = record["args"].as_str().filter(|_| record["phase"] == "begin").unwrap_or_default();
        begun.extend(args.split('"').find(|word| word.starts_with('k')).map(str::to_owned));
    }
    for entry in std::fs::read_dir(lab.files())? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.starts_with('k') && !begun.contains(&name) {
            seen.unannounced += 1;
            seen.problems.push(format!("`{name}` has no begin record"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_or_torn_is_counted() {
        let lab = TortureHome::new(Path::new("not started")).unwrap();
        std::fs::create_dir_all(lab.files()).unwrap();
        for id in 1..=3 {
            std::fs::write(lab.files().join(name(1, id)), content(1, id)).unwrap();
        }
        let counted = |lab: &TortureHome| {
            let mut seen = KillFigures::default();
            check_files(lab, 1, &[1, 2], &mut seen).unwrap();
            (seen.lost, seen.torn)
        };
        assert_eq!(counted(&lab), (0, 0));
        std::fs::write(lab.files().join(name(1, 3)), &content(1, 3)[..10]).unwrap();
        assert_eq!(counted(&lab), (0, 1));
        std::fs::write(lab.files().join(name(1, 2)), &content(1, 2)[..10]).unwrap();
        assert_eq!(counted(&lab), (1, 2));
        std::fs::remove_file(lab.files().join(name(1, 1))).unwrap();
        assert_eq!(counted(&lab), (2, 2));
    }
}
