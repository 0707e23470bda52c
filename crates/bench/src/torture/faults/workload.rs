//! What the hub is asked to do, and what must be there afterwards.

use crate::torture::durable::DurabilityPromises;
use crate::torture::session::CallReply;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

/// Enough that every thread makes more calls of a kind than can be made to fail.
pub(super) const CALLS: u64 = 110;
/// Files are written several times, so that there is something to be torn.
const FILES: u64 = 25;
const FOLDERS: u64 = 3;
/// Every so many calls something is added to one file instead.
const APPEND_EVERY: u64 = 7;
const MEMORY: &str = "MEMORY.md";

pub(super) struct FaultWorkload {
    files: PathBuf,
    /// What each file may hold: `None` where it may be missing.
    allowed: BTreeMap<String, Vec<Option<String>>>,
    added: Vec<(u64, bool)>,
    acknowledged: HashSet<u64>,
}

fn is_append(id: u64) -> bool {
    id.is_multiple_of(APPEND_EVERY)
}

fn path(id: u64) -> String {
    match is_append(id) {
        true => MEMORY.to_owned(),
        false => format!("d{}/k{}.md", id % FOLDERS, id % FILES),
    }
}

fn content(id: u64) -> String {
    if is_append(id) {
        return format!("w{id} added\n");
    }
    let times = usize::try_from(id * 37 % 97).unwrap_or_default();
    format!("w{id} {}end of {id}\n", "and so on, ".repeat(times))
}

impl FaultWorkload {
    pub(super) fn new(files: PathBuf) -> FaultWorkload {
        FaultWorkload { files, allowed: BTreeMap::new(), added: Vec::new(), acknowledged: HashSet::new() }
    }

    pub(super) fn call(&self, id: u64) -> (&'static str, Value) {
        match is_append(id) {
            true => ("memory_write", json!({ "content": content(id), "append": true })),
            false => ("workspace_write", json!({ "path": path(id), "content": content(id) })),
        }
    }

    pub(super) fn replied(&mut self, id: u64, reply: &CallReply) {
        let done = *reply == CallReply::Done;
        if done {
            self.acknowledged.insert(id);
        }
        if is_append(id) {
            self.added.push((id, done));
            return;
        }
        let allowed = self.allowed.entry(path(id)).or_insert_with(|| vec![None]);
        if done {
            allowed.clear();
        }
        allowed.push(Some(content(id)));
    }

    pub(super) fn promises(&self) -> DurabilityPromises {
        let file = |id: &u64| (*id, self.files.join(path(*id)).display().to_string());
        self.acknowledged.iter().map(file).collect()
    }

    /// Holds the files against what may be in them.
    pub(super) fn check(&self) -> Result<()> {
        for (path, allowed) in &self.allowed {
            let found = read(&self.files.join(path))?;
            let shown = || found.as_ref().map(|text| text.chars().take(60).collect::<String>());
            ensure!(
                allowed.contains(&found),
                "`{path}` holds {:?}, which is none of {}",
                shown(),
                allowed.len()
            );
        }
        let mut memory = read(&self.files.join(MEMORY))?.unwrap_or_default();
        for (id, done) in &self.added {
            match memory.strip_prefix(&content(*id)) {
                Some(rest) => memory = rest.to_owned(),
                None => ensure!(!done, "what call {id} added to `{MEMORY}` is gone"),
            }
        }
        ensure!(memory.is_empty(), "`{MEMORY}` goes on with {memory:?}");
        Ok(())
    }

    /// Every call that was acknowledged was announced in the log.
    pub(super) fn check_records(&self, lines: &str) -> Result<()> {
        let mut begun = HashSet::new();
        for line in lines.lines() {
            let record: Value =
                serde_json::from_str(line).with_context(|| format!("not a record: {line}"))?;
            if record["phase"] == "begin" {
                let args = record["args"].as_str().unwrap_or_default();
                let id =
                    args.split("\"w").nth(1).and_then(|rest| rest.split(' ').next()?.parse::<u64>().ok());
                begun.extend(id);
            }
        }
        let missing: Vec<_> = self.acknowledged.difference(&begun).collect();
        ensure!(missing.is_empty(), "these calls have no begin record: {missing:?}");
        Ok(())
    }
}

fn read(path: &Path) -> Result<Option<String>> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| path.display().to_string()),
    }
}

/// Returns what writes left behind.
pub(super) fn temporaries(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(temporaries(&path)?);
        } else if path
            .file_name()
            .and_then(|name| name.to_str())
            .is_some_and(portcullis_core::root::is_temporary)
        {
            found.push(path);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Does what a hub should do, and returns what the check says after `spoil`.
    fn check(spoil: impl Fn(&Path)) -> Result<()> {
        let folder = tempfile::tempdir()?;
        let mut work = FaultWorkload::new(folder.path().to_owned());
        for id in 1..=CALLS {
            let path = folder.path().join(path(id));
            std::fs::create_dir_all(path.parent().context("a folder")?)?;
            let before = if is_append(id) { read(&path)?.unwrap_or_default() } else { String::new() };
            std::fs::write(&path, before + &content(id))?;
            work.replied(id, &CallReply::Done);
        }
        work.replied(1, &CallReply::Refused(String::new()));
        spoil(folder.path());
        work.check()
    }

    #[test]
    fn what_is_whole_passes_and_what_is_torn_or_lost_does_not() {
        check(|_| ()).unwrap();
        // Refused, and yet all of it is there.
        check(|files| std::fs::write(files.join(path(1)), content(1)).unwrap()).unwrap();
        type Spoil = fn(&Path);
        let spoils: [Spoil; 5] = [
            |files| std::fs::remove_file(files.join(path(110))).unwrap(),
            |files| std::fs::write(files.join(path(109)), &content(109)[..20]).unwrap(),
            |files| std::fs::write(files.join(path(109)), content(109 - FILES * FOLDERS)).unwrap(),
            |files| std::fs::write(files.join(MEMORY), content(7)).unwrap(),
            |files| {
                std::fs::write(files.join(MEMORY), read(&files.join(MEMORY)).unwrap().unwrap() + "w1")
                    .unwrap()
            },
        ];
        for (at, spoil) in spoils.into_iter().enumerate() {
            check(spoil).expect_err(&at.to_string());
        }
    }

    #[test]
    fn a_call_without_a_record_is_told() {
        let mut work = FaultWorkload::new(PathBuf::new());
        work.replied(8, &CallReply::Done);
        let record = json!({ "phase": "begin", "args": json!({ "content": "w8 x" }).to_string() });
        work.check_records(&record.to_string()).unwrap();
        work.check_records(&record.to_string().replace("w8", "w9")).unwrap_err();
    }
}
