//! TOCTOU: a folder and a file turn into links to the outside and back, during reads, writes and lists.
#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use super::{AbuseReport, SeededDice};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::collections::BTreeMap;
use std::fmt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const OUTSIDE: &str = "CANARY-OUTSIDE";
const INSIDE: &str = "inside";
/// Contents that exist only outside.
const ONLY_OUTSIDE: &str = "only-outside";

/// A way to access the files of one folder.
pub trait FileAccess: Sync {
    fn read(&self, path: &str) -> Option<Vec<u8>>;
    fn write(&self, path: &str, content: &str);
    fn list(&self, path: &str) -> Option<Vec<String>>;
}

/// Duration, concurrency and seed.
#[derive(Debug, Clone, Copy)]
pub struct LinkSwapPlan {
    pub duration: Duration,
    pub threads: usize,
    pub seed: u64,
}

/// Figures of the race.
#[derive(Debug, Clone, Default)]
pub struct SwapFigures {
    pub swaps: usize,
    pub reads: usize,
    pub writes: usize,
    pub lists: usize,
    /// Reads that returned contents from inside: shows that the race took place.
    pub seen_inside: usize,
    pub seen_outside: usize,
    pub changed_outside: bool,
}

impl SwapFigures {
    pub fn operations(&self) -> usize {
        self.reads + self.writes + self.lists
    }
}

impl AbuseReport for SwapFigures {
    fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if self.seen_outside > 0 {
            faults.push(format!("what is outside was seen {} times", self.seen_outside));
        }
        if self.changed_outside {
            faults.push("what is outside was changed".to_owned());
        }
        if self.seen_inside == 0 || self.swaps == 0 {
            faults.push("there was no race".to_owned());
        }
        faults
    }
}

impl fmt::Display for SwapFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outside = if self.changed_outside { "changed" } else { "unchanged" };
        write!(
            f,
            "{} swaps, {} reads, {} writes, {} lists: outside seen {} times and {outside}, inside seen {} times",
            self.swaps, self.reads, self.writes, self.lists, self.seen_outside, self.seen_inside
        )
    }
}

/// Runs the race. `open` gets the folder that nothing may escape.
pub fn swap_links<D: FileAccess>(open: impl FnOnce(&Path) -> D, swapping: LinkSwapPlan) -> SwapFigures {
    // Thousands of durable writes are quick in memory.
    let memory = Path::new("/dev/shm");
    let base = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
    let (inside, outside) = (base.path().join("inside"), base.path().join("outside"));
    for folder in [inside.join("swap/deep"), outside.join("deep")] {
        std::fs::create_dir_all(folder).unwrap();
    }
    for (folder, content) in [(inside.join("swap"), INSIDE), (outside.clone(), OUTSIDE)] {
        std::fs::write(folder.join("file"), content).unwrap();
        std::fs::write(folder.join("deep/file"), content).unwrap();
    }
    std::fs::write(outside.join(ONLY_OUTSIDE), OUTSIDE).unwrap();
    std::fs::write(outside.join("deep").join(ONLY_OUTSIDE), OUTSIDE).unwrap();
    std::fs::write(inside.join("last"), INSIDE).unwrap();
    symlink("../outside", inside.join("other")).unwrap();
    let before = contents(&outside);
    let door = open(&inside);

    let done = AtomicBool::new(false);
    let counts: [AtomicUsize; 5] = Default::default();
    let [reads, writes, lists, seen_inside, seen_outside] = &counts;
    let count = |of: &AtomicUsize| {
        of.fetch_add(1, Ordering::Relaxed);
    };
    let mut swaps = 0;
    let ends = Instant::now() + swapping.duration;
    std::thread::scope(|scope| {
        for thread in 0..swapping.threads {
            let (door, done) = (&door, &done);
            let mut dice = SeededDice::new(swapping.seed.wrapping_add(thread as u64));
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    let path = ["swap/file", "swap/deep/file", "last"][dice.below(3)];
                    match dice.below(8) {
                        0 => {
                            door.write(path, INSIDE);
                            count(writes);
                        }
                        1 => {
                            door.write(&format!("swap/new-{}", dice.below(16)), INSIDE);
                            count(writes);
                        }
                        2 | 3 => {
                            let names = door.list(["swap", "swap/deep"][dice.below(2)]).unwrap_or_default();
                            count(lists);
                            if names.iter().any(|name| name.contains(ONLY_OUTSIDE)) {
                                count(seen_outside);
                            }
                        }
                        _ => {
                            let content = door.read(path).unwrap_or_default();
                            count(reads);
                            let content = String::from_utf8_lossy(&content);
                            if content.contains(OUTSIDE) {
                                count(seen_outside);
                            } else if content.contains(INSIDE) {
                                count(seen_inside);
                            }
                        }
                    }
                }
            });
        }
        while Instant::now() < ends {
            swap(&inside, swaps);
            swaps += 1;
        }
        done.store(true, Ordering::Relaxed);
    });
    let count = |of: &AtomicUsize| of.load(Ordering::Relaxed);
    SwapFigures {
        swaps,
        reads: count(reads),
        writes: count(writes),
        lists: count(lists),
        seen_inside: count(seen_inside),
        seen_outside: count(seen_outside),
        changed_outside: contents(&outside) != before,
    }
}

/// Turns the folder and the file into links, or back.
fn swap(inside: &Path, turn: usize) {
    renameat_with(CWD, inside.join("swap"), CWD, inside.join("other"), RenameFlags::EXCHANGE).unwrap();
    // Renamed into place, because a write may have replaced what was there.
    let new = inside.join("new");
    if turn.is_multiple_of(2) {
        symlink("../outside/file", &new).unwrap();
    } else {
        std::fs::write(&new, INSIDE).unwrap();
    }
    std::fs::rename(new, inside.join("last")).unwrap();
}

/// Returns every file below a folder with its contents.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                found.insert(path.display().to_string(), Vec::new());
                folders.push(path);
            } else {
                found.insert(path.display().to_string(), std::fs::read(&path).unwrap());
            }
        }
    }
    found
}
