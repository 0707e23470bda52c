//! No secret leaves the real program, by whichever way, however it is written.
//!
//! A hub knows secrets; files, names, requests and command lines hold them in every form of the corpus. What comes out
//! of every way is searched for any ten characters in a row of any of these forms.

mod leaks;
mod output_paths;

use crate::support::home;
use leaks::{LeakCase, LeakTier, leaks, secrets};
use portcullis_testkit::process::{TestHome, UNHURRIED, run};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

/// Of the leaks that should be caught, so many may be missed: one in ten, and one of the few that are tried without the corpus.
const SHOULD_MISSED_PERCENT_MAX: usize = 10;
/// So many characters of a leak in a row are as bad as all of it.
const SHARED_BYTES: usize = 10;
/// Stands around the secret in the corpora; it may stay.
const AROUND: &str = "https://api.test/v1?key= git clone https://x: @host/r.git eyJwYXNzd29yZCI6I";

/// Finds leaks in bytes.
struct Search<'l> {
    leaks: &'l [LeakCase],
    /// Which leaks a piece is part of.
    pieces: HashMap<&'l [u8], Vec<usize>>,
    /// Whether a piece that begins so may be there. Most are not, and this is soon known.
    maybe: Vec<bool>,
    /// Leaks that are shorter than a piece.
    short: Vec<usize>,
}

const MAYBE_BITS: u32 = 20;

/// Returns where `maybe` says whether a piece is known.
fn place(piece: &[u8]) -> usize {
    let first = u64::from_le_bytes(piece[..8].try_into().unwrap());
    usize::try_from(first.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - MAYBE_BITS)).unwrap()
}

impl<'l> Search<'l> {
    fn new(leaks: &'l [LeakCase]) -> Search<'l> {
        let around: BTreeSet<&[u8]> = AROUND.as_bytes().windows(SHARED_BYTES).collect();
        let (mut pieces, mut short) = (HashMap::<_, Vec<usize>>::new(), Vec::new());
        for (at, leak) in leaks.iter().enumerate() {
            if leak.text.len() < SHARED_BYTES {
                short.push(at);
            }
            for piece in leak.text.as_bytes().windows(SHARED_BYTES).filter(|piece| !around.contains(piece)) {
                let owners = pieces.entry(piece).or_default();
                if owners.last() != Some(&at) {
                    owners.push(at);
                }
            }
        }
        let mut maybe = vec![false; 1 << MAYBE_BITS];
        pieces.keys().for_each(|piece: &&[u8]| maybe[place(piece)] = true);
        Search { leaks, pieces, maybe, short }
    }

    /// Returns the leaks that these bytes tell of, as they are or behind one or two layers of escapes.
    fn told(&self, bytes: &[u8]) -> BTreeSet<usize> {
        let once = unescaped(bytes);
        let twice = unescaped(&once);
        let mut told = BTreeSet::new();
        for bytes in [bytes, &once, &twice] {
            for piece in bytes.windows(SHARED_BYTES).filter(|piece| self.maybe[place(piece)]) {
                told.extend(self.pieces.get(piece).into_iter().flatten());
            }
            let holds = |at: &&usize| {
                let text = self.leaks[**at].text.as_bytes();
                bytes.windows(text.len()).any(|part| part == text)
            };
            told.extend(self.short.iter().filter(holds));
        }
        told
    }
}

/// Undoes the escapes that JSON and our logs write.
fn unescaped(bytes: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(bytes);
    let (mut out, mut rest) = (String::with_capacity(text.len()), &*text);
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let code = |hex: &str| u32::from_str_radix(hex, 16).ok().and_then(char::from_u32);
        let braced = rest.strip_prefix("u{").and_then(|more| more.split_once('}'));
        let four = rest.strip_prefix('u').and_then(|more| more.split_at_checked(4));
        match (braced, four) {
            (Some((hex, after)), _) if code(hex).is_some() => {
                out.extend(code(hex));
                rest = after;
            }
            (None, Some((hex, after))) if code(hex).is_some() => {
                out.extend(code(hex));
                rest = after;
            }
            _ => {
                let mut after = rest.chars();
                match after.next() {
                    Some('n') => out.push('\n'),
                    Some('r') => out.push('\r'),
                    Some('t') => out.push('\t'),
                    Some(other) => out.push(other),
                    None => {}
                }
                rest = after.as_str();
            }
        }
    }
    out.push_str(rest);
    out.into_bytes()
}

/// What came out, by the way that it came.
#[derive(Default)]
struct Captured(BTreeMap<&'static str, Sink>);

#[derive(Default)]
struct Sink {
    bytes: Vec<u8>,
    /// How many leaks were sent this way.
    sent: usize,
}

impl Captured {
    fn add(&mut self, way: &'static str, bytes: impl AsRef<[u8]>, sent: usize) {
        let sink = self.0.entry(way).or_default();
        sink.bytes.extend_from_slice(bytes.as_ref());
        sink.bytes.extend_from_slice(b"\n\n\n");
        sink.sent += sent;
    }

    /// Counts by way what is told: of what must not be, and of what should not be.
    fn count(&self, search: &Search<'_>) -> BTreeMap<&'static str, (Vec<usize>, Vec<usize>)> {
        let count = |(way, sink): (&&'static str, &Sink)| {
            let told = search.told(&sink.bytes).into_iter();
            let (must, should) = told.partition(|at| search.leaks[*at].tier == LeakTier::Must);
            (*way, (must, should))
        };
        self.0.iter().map(count).collect()
    }

    /// The figures: of what must not be told nothing is, by any way, and of what should not be little.
    fn check(&self, search: &Search<'_>) -> Result<String, String> {
        let (mut report, mut bad) = (String::new(), false);
        let shoulds = search.leaks.iter().filter(|leak| leak.tier == LeakTier::Should).count();
        for (way, (must, should)) in self.count(search) {
            let sink = &self.0[way];
            let (sent, bytes) = (sink.sent, sink.bytes.len());
            let names = |told: &[usize]| {
                let name =
                    |at: &usize| format!("{} as {}", search.leaks[*at].name, search.leaks[*at].encoding);
                told.iter().take(8).map(name).collect::<Vec<_>>().join(", ")
            };
            report.push_str(&format!(
                "{way}: {sent} sent, {bytes} bytes; must: {} leak; should: {} of {shoulds} leak {} {}\n",
                must.len(),
                should.len(),
                names(&must),
                names(&should)
            ));
            bad |= !must.is_empty() || should.len() > (shoulds * SHOULD_MISSED_PERCENT_MAX).div_ceil(100);
        }
        if bad { Err(report) } else { Ok(report) }
    }
}

/// Returns a home whose files, prompts and names hold the leaks, and whose store holds the secrets, or none.
async fn home_with(leaks: &[LeakCase], secrets: &[(String, String)], logging: &str) -> TestHome {
    let home = home();
    // What is not registered may be recognised by its shape; that is not what is tested here.
    let shapes = "[redaction]\ntoken_shapes = false\n";
    home.configure(&format!("{UNHURRIED}[logging]\nlevel = \"debug\"\nformat = \"{logging}\"\n{shapes}"));
    for (name, value) in secrets {
        let ran = run(home.command(&["secrets", "set", name, "--weak"]), value).await;
        assert_eq!(ran.code, 0, "{name}: {ran:?}");
    }
    for (at, leak) in leaks.iter().enumerate() {
        let text = &leak.text;
        home.write(&format!("leak-{at}.txt"), format!("before {text} after\n"));
        if leak.is_file_name() {
            home.write(&format!("names/{text}"), "contents");
        }
        let quoted = serde_json::json!(text);
        let front = format!("description: {quoted}\narguments:\n  - name: a\n    values: [{quoted}]\n");
        home.write_prompt(&format!("p{at}"), &format!("---\n{front}---\nbefore {text} after\n"));
    }
    home
}

fn files_below(folder: &Path, found: &mut Vec<(String, Vec<u8>)>) {
    for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap()) {
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        if kind.is_dir() {
            files_below(&path, found);
        } else if kind.is_file() {
            found.push((path.display().to_string(), std::fs::read(&path).unwrap()));
        }
    }
}

/// Everything that is on disk, but for what the test itself put there.
fn at_rest(home: &TestHome) -> Vec<u8> {
    let mut found = Vec::new();
    files_below(&home.path(), &mut found);
    files_below(&home.user(), &mut found);
    let (files, prompts) = (home.files(), home.path().join("prompts"));
    let mine = |path: &str| Path::new(path).starts_with(&files) || Path::new(path).starts_with(&prompts);
    found.retain(|(path, _)| !mine(path));
    assert!(found.iter().any(|(path, _)| path.ends_with("portcullis.db") || path.contains("audit")));
    found.into_iter().flat_map(|(path, bytes)| [path.into_bytes(), bytes].concat()).collect()
}

/// Which ways are taken. Two halves, because all of them together take long.
#[derive(Clone, Copy, PartialEq)]
enum Ways {
    Calls,
    RefusalsAndCommands,
    All,
}

/// Sends every leak by these ways.
async fn send(ways: Ways, leaks: &[LeakCase], secrets: &[(String, String)]) -> Captured {
    let home = home_with(leaks, secrets, "text").await;
    let mut captured = Captured::default();
    let mut hub = home.serve().await;
    if ways != Ways::RefusalsAndCommands {
        output_paths::calls(&hub, leaks, &mut captured).await;
        output_paths::lists(&hub, leaks, &mut captured).await;
        output_paths::notices(&home, &hub, leaks, &mut captured).await;
        output_paths::stream(&hub, leaks, &mut captured).await;
    }
    if ways != Ways::Calls {
        output_paths::refusals(&hub, leaks, &mut captured).await;
        output_paths::commands(&home, leaks, &mut captured).await;
    }
    output_paths::operators(&hub, leaks.len(), &mut captured).await;
    let proc = format!("/proc/{}", hub.process.pid());
    for name in ["cmdline", "environ"] {
        let read = match std::fs::read(format!("{proc}/{name}")) {
            // The environment of a non-dumpable process is for root alone.
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => Vec::new(),
            read => read.unwrap(),
        };
        captured.add("argv and environ", read, leaks.len());
    }
    let limits = std::fs::read_to_string(format!("{proc}/limits")).unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    assert_eq!(core.split_whitespace().collect::<Vec<_>>()[4..], ["0", "0", "bytes"]);
    hub.process.stop().await;
    captured.add("log", hub.process.stderr(), leaks.len());
    captured.add("disk", at_rest(&home), leaks.len());
    captured
}

/// By these ways nothing of a request, a file or a name comes out, whether it is secret or not.
const SILENT: [&str; 4] = ["argv and environ", "disk", "operators", "cli: doctor and lists"];

async fn check(ways: Ways) -> String {
    let leaks = leaks();
    let captured = send(ways, &leaks, &secrets()).await;
    captured.check(&Search::new(&leaks)).unwrap_or_else(|report| panic!("{report}"))
}

#[tokio::test]
async fn no_call_tells_a_secret() {
    println!("{}", check(Ways::Calls).await);
}

#[tokio::test]
async fn no_refusal_and_no_command_tells_a_secret() {
    println!("{}", check(Ways::RefusalsAndCommands).await);
}

#[tokio::test]
async fn no_log_in_json_tells_a_secret() {
    let (secrets, leaks) = (secrets(), leaks());
    let search = Search::new(&leaks);
    let home = home_with(&[], &secrets, "json").await;
    let (mut captured, mut hub) = (Captured::default(), home.serve().await);
    output_paths::refusals(&hub, &leaks, &mut captured).await;
    hub.process.stop().await;
    let log = hub.process.stderr();
    assert!(log.lines().count() > leaks.len());
    for line in log.lines() {
        assert!(serde_json::from_str::<serde_json::Value>(line).is_ok(), "{line}");
    }
    captured.add("log", log, leaks.len());
    println!("{}", captured.check(&search).unwrap_or_else(|report| panic!("{report}")));
}

/// The same run, on a hub that knows no secrets, is caught by every way that says anything at all.
#[tokio::test]
async fn what_is_not_known_is_found_by_every_way() {
    let mut leaks = leaks();
    leaks.retain(|leak| leak.encoding == "plain");
    let search = Search::new(&leaks);
    let captured = send(Ways::All, &leaks, &[]).await;
    captured.check(&search).expect_err("a hub that masks nothing passes");
    let silent: Vec<&str> = captured
        .count(&search)
        .into_iter()
        .filter(|(_, (must, _))| must.is_empty())
        .map(|(way, _)| way)
        .collect();
    for way in silent {
        assert!(SILENT.contains(&way), "nothing came out by `{way}`, so it is not tested");
    }
}
