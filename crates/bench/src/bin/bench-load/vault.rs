//! A vault of ten thousand notes: how soon it is indexed, how fast it is searched, and what that costs.
//!
//! The notes are made here, with words as often as words are in a language: a few everywhere, most of them rare. ripgrep
//! searches the same folder for the same words in the same run, by turns, and only has to name the files.

use crate::figure::{BenchFigure, median, millis};
use crate::http::{SessionMode, ask};
use crate::hub::{BenchHub, CONFIG};
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::fmt::Write;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The targets.
const FIRST_INDEX_MS_MAX: f64 = 5_000.0;
const SHARE_OF_RIPGREP_PERCENT_MAX: f64 = 50.0;
const FOUND_AFTER_MS_MAX: f64 = 1_000.0;
const INDEX_MB_MAX: f64 = 60.0;

const NOTES: usize = 10_000;
const NOTE_BYTES: usize = 4_096;
const WORDS: usize = 60_000;
const SEARCHES: usize = 40;
const EDITS: usize = 10;
/// How long an edit is waited for before the run is given up.
const EDIT_WITHIN: Duration = Duration::from_secs(20);
/// How long the hub is left alone before its memory is looked at.
const SETTLE: Duration = Duration::from_secs(2);

pub(crate) async fn measure(portcullis: &Path) -> Result<Vec<BenchFigure>> {
    let folder = tempfile::tempdir().context("no temporary folder")?;
    let vault = folder.path().join("vault");
    let mut words = Words::new();
    let bytes = fill(&vault, &mut words)?;

    let without = memory_without(portcullis, &folder.path().join("plain")).await?;
    let home = folder.path().join("home");
    std::fs::create_dir_all(&home)?;
    std::fs::write(home.join("portcullis.toml"), format!("{CONFIG}\n[vault]\npath = {:?}\n", vault))?;
    let started = Instant::now();
    let hub = BenchHub::serve(portcullis, &home, None)?;
    let mut stream = hub.place.connect()?;
    found(&hub, &mut stream, &words.of_rank(1_000))?;
    let first_index = millis(started.elapsed());
    let cpu = hub.process.cpu()?;

    let mut figures = vec![BenchFigure::at_most(
        format!("vault of {NOTES} notes, {:.0} MB: start to first search", bytes as f64 / 1e6),
        first_index,
        FIRST_INDEX_MS_MAX,
        "ms",
    )];
    figures.push(BenchFigure::info("… CPU of the hub until then", format!("{:.0} ms", millis(cpu))));
    figures.extend(searches(&hub, &mut stream, &vault, &mut words)?);
    figures.push(edits(&hub, &mut stream, &vault).await?);
    tokio::time::sleep(SETTLE).await;
    let index = hub.process.rss_kb()?.saturating_sub(without) as f64 / 1024.0;
    figures.push(BenchFigure::at_most(
        "memory of the index, after searches and edits",
        index,
        INDEX_MB_MAX,
        "MB",
    ));
    Ok(figures)
}

async fn memory_without(portcullis: &Path, home: &Path) -> Result<u64> {
    std::fs::create_dir_all(home)?;
    std::fs::write(home.join("portcullis.toml"), CONFIG)?;
    let hub = BenchHub::serve(portcullis, home, None)?;
    crate::http::list_tools(&mut hub.place.connect()?, &hub.place)?;
    tokio::time::sleep(SETTLE).await;
    hub.process.rss_kb()
}

/// Searches by turns, with one word, two and three, from everywhere to nearly nowhere.
fn searches(
    hub: &BenchHub,
    stream: &mut TcpStream,
    vault: &Path,
    words: &mut Words,
) -> Result<Vec<BenchFigure>> {
    let has_ripgrep = ripgrep(vault, &["x"]).is_ok();
    let (mut ours, mut theirs, mut shares) = (Vec::new(), Vec::new(), Vec::new());
    for at in 0..SEARCHES {
        // From the twentieth word to the twenty thousandth.
        let rank = 20.0 * 1_000_f64.powf(at as f64 / SEARCHES as f64);
        let query: Vec<String> = (0..1 + at % 3).map(|n| words.of_rank(rank as usize + 7 * n)).collect();
        let query: Vec<&str> = query.iter().map(String::as_str).collect();
        let started = Instant::now();
        found(hub, stream, &query.join(" "))?;
        let our = millis(started.elapsed());
        ours.push(our);
        if has_ripgrep {
            let started = Instant::now();
            ripgrep(vault, &query)?;
            let their = millis(started.elapsed());
            theirs.push(their);
            shares.push(our / their);
        }
    }
    let slowest = ours.iter().copied().fold(0.0, f64::max);
    let text = format!("{:.1} ms, slowest {slowest:.1} ms", median(&mut ours));
    let mut figures =
        vec![BenchFigure::info(format!("… a search, of {SEARCHES} with one to three words"), text)];
    if !has_ripgrep {
        figures.push(BenchFigure::info(
            "… compared with ripgrep",
            "rg is not installed (Debian: apt-get install ripgrep)",
        ));
        return Ok(figures);
    }
    figures.push(BenchFigure::info(
        "… ripgrep, the same words in the same files",
        format!("{:.1} ms", median(&mut theirs)),
    ));
    let share = 100.0 * median(&mut shares);
    figures.push(BenchFigure::at_most(
        "… a search, share of ripgrep's time",
        share,
        SHARE_OF_RIPGREP_PERCENT_MAX,
        "%",
    ));
    Ok(figures)
}

/// Names the files that have one of the words: the least that ripgrep can be asked for.
fn ripgrep(vault: &Path, words: &[&str]) -> Result<()> {
    let mut command = Command::new("rg");
    command.args(["--no-config", "-i", "-l"]);
    for word in words {
        command.args(["-e", word]);
    }
    let output = command.arg("--").arg(vault).stdin(Stdio::null()).output().context("rg did not start")?;
    match output.status.code() {
        Some(0 | 1) => Ok(()),
        code => bail!("rg ended with {code:?}"),
    }
}

/// Changes notes as another program would, and waits until each is found.
async fn edits(hub: &BenchHub, stream: &mut TcpStream, vault: &Path) -> Result<BenchFigure> {
    let mut slowest = 0.0_f64;
    for at in 0..EDITS {
        let word = format!("edited{at}unheardof");
        let path = vault.join(note_path(at * 997 % NOTES));
        let text = std::fs::read_to_string(&path)?;
        let started = Instant::now();
        std::fs::write(&path, format!("{text}\n{word}\n"))?;
        while found(hub, stream, &word)? == 0 {
            if started.elapsed() > EDIT_WITHIN {
                bail!("an edit was not found within {EDIT_WITHIN:?}");
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        slowest = slowest.max(millis(started.elapsed()));
    }
    let what = format!("… an edit by another program is found after, slowest of {EDITS}");
    Ok(BenchFigure::at_most(what, slowest, FOUND_AFTER_MS_MAX, "ms"))
}

/// Searches, and returns how many notes were found.
fn found(hub: &BenchHub, stream: &mut TcpStream, query: &str) -> Result<u64> {
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "vault_search", "arguments": { "query": query } } });
    let request = hub.place.request("POST", &SessionMode::Sessions.headers(None), &call.to_string());
    let answer = ask(stream, &request)?;
    let body: Value = serde_json::from_str(&answer.body).with_context(|| answer.body.clone())?;
    body["result"]["structuredContent"]["total"].as_u64().with_context(|| format!("not a search: {body}"))
}

fn note_path(at: usize) -> String {
    format!("Area {}/Note {at}.md", at % 100)
}

/// Makes the notes and returns how many bytes they have.
fn fill(vault: &Path, words: &mut Words) -> Result<usize> {
    let mut bytes = 0;
    for area in 0..100 {
        std::fs::create_dir_all(vault.join(format!("Area {area}")))?;
    }
    for at in 0..NOTES {
        let mut text =
            format!("---\ntags: [area/{}, kind{}]\n---\n# {} {at}\n\n", at % 100, at % 7, words.next());
        while text.len() < NOTE_BYTES {
            for _ in 0..11 {
                text.push_str(&words.next());
                text.push(' ');
            }
            // Writing to a string cannot fail.
            let _ = writeln!(text, "[[Note {}]]", words.below(NOTES));
        }
        bytes += text.len();
        std::fs::write(vault.join(note_path(at)), text)?;
    }
    Ok(bytes)
}

/// Words in the order of how often they are used; the same in every run.
struct Words {
    state: u64,
}

impl Words {
    fn new() -> Words {
        Words { state: 0x9e37_79b9_7f4a_7c15 }
    }

    fn below(&mut self, end: usize) -> usize {
        // Xorshift: good enough to look like text.
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 11) as usize % end
    }

    /// Returns the next word of a text: the nth is about n times rarer than the first.
    fn next(&mut self) -> String {
        let at = self.below(1 << 30) as f64 / f64::from(1 << 30);
        self.of_rank((WORDS as f64).powf(at) as usize)
    }

    fn of_rank(&self, rank: usize) -> String {
        const SYLLABLES: [&str; 32] = [
            "ka", "to", "mi", "re", "so", "lu", "ne", "da", "vi", "po", "sha", "gri", "ton", "bel", "mar",
            "qui", "zen", "os", "tra", "fil", "um", "con", "per", "sta", "ling", "ver", "hol", "dru", "ix",
            "an", "pro", "wick",
        ];
        let mut word = String::new();
        let mut rest = rank + 1;
        while rest > 0 {
            word.push_str(SYLLABLES[rest % 32]);
            rest /= 32;
        }
        word
    }
}
