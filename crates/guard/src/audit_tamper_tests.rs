//! Tampering with the log files, and what `verify` reports.

use super::chain::{ChainKey, ChainLink, UnverifiedLine};
use super::record::TimestampCache;
use super::*;
use crate::commit::CommitLayer;
use crate::testing::{StoppedClock, call, gate};
use futures::future::join_all;
use portcullis_core::{Gate, Secret};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, Hasher};
use tempfile::TempDir;

/// A log of small files.
fn settings(dir: &Path) -> AuditSettings {
    AuditSettings { file_bytes_max: 6_000, ..AuditSettings::in_folder(dir) }
}

fn open(settings: &AuditSettings) -> (Gate, AuditHandle) {
    let handle = AuditHandle::open(settings.clone(), Arc::new(StoppedClock)).unwrap();
    let secret = ("KEY".to_owned(), Secret::new("hunter2-hunter2".to_owned()));
    let audit = AuditLayer::new(
        handle.clone(),
        Arc::new(StoppedClock),
        Redactor::new(&[secret]).ok().unwrap(),
        crate::live::LiveCalls::default(),
    );
    let (gate, _) = gate(vec![Box::new(audit), Box::new(CommitLayer::new(handle.clone()))]);
    (gate, handle)
}

async fn calls(settings: &AuditSettings, count: usize) {
    let (gate, handle) = open(settings);
    for at in 0..count {
        gate.call(call(["stub_read", "stub_write"][at % 2])).await.unwrap();
    }
    handle.flush().await.unwrap();
}

/// Leaves what `kill -9` during a write leaves: a torn line, and no `Close` anchor.
fn tear(settings: &AuditSettings, left: &str) {
    let anchors = std::fs::read_to_string(&settings.anchors_file).unwrap();
    let kept: Vec<&str> = anchors.lines().filter(|line| !line.contains("close")).collect();
    std::fs::write(&settings.anchors_file, kept.join("\n") + "\n").unwrap();
    let path = settings.dir.join("audit.jsonl");
    std::fs::write(&path, std::fs::read_to_string(&path).unwrap() + left).unwrap();
}

fn report(settings: &AuditSettings) -> String {
    match verify(settings) {
        Ok(VerifyReport { files, records, torn, unfinished_bytes, .. }) => {
            format!("{files} files, {records} records, {torn} torn, {unfinished_bytes} bytes unfinished")
        }
        Err(error) => error.to_string(),
    }
}

type Files = BTreeMap<String, String>;

fn files(settings: &AuditSettings) -> Files {
    let entries = std::fs::read_dir(&settings.dir).unwrap().map(Result::unwrap);
    entries
        .map(|entry| {
            let name = entry.file_name().into_string().unwrap();
            (name, std::fs::read_to_string(entry.path()).unwrap())
        })
        .collect()
}

/// Writes the files that differ.
fn put(settings: &AuditSettings, old: &Files, new: &BTreeMap<String, Vec<u8>>) {
    for (name, bytes) in new {
        if old.get(name).is_none_or(|text| text.as_bytes() != bytes) {
            std::fs::write(settings.dir.join(name), bytes).unwrap();
        }
    }
}

struct Random(u64);

impl Random {
    /// Seeded from `AUDIT_SEED`, or at random. Printed, so that a failure can be reproduced.
    fn seeded() -> Random {
        let fresh = || std::collections::hash_map::RandomState::new().build_hasher().finish();
        let seed = std::env::var("AUDIT_SEED").map_or_else(|_| fresh(), |seed| seed.parse().unwrap());
        println!("AUDIT_SEED={seed}");
        Random(seed | 1)
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

/// Makes one edit in one file. Returns its kind.
fn edit(random: &mut Random, files: &Files, edited: &mut BTreeMap<String, Vec<u8>>) -> &'static str {
    *edited = files.iter().map(|(name, text)| (name.clone(), text.clone().into_bytes())).collect();
    let all: Vec<&str> = files.values().flat_map(|text| text.split_inclusive('\n')).collect();
    let name = files.keys().nth(random.below(files.len())).unwrap();
    let mut lines: Vec<&str> = files[name].split_inclusive('\n').collect();
    let (at, other) = (random.below(lines.len()), random.below(lines.len()));
    let bytes = edited.get_mut(name).unwrap();
    let kind = ["flip", "delete", "swap", "truncate", "insert"][random.below(5)];
    match kind {
        "flip" => {
            let at = random.below(bytes.len());
            bytes[at] ^= 1 << random.below(8);
            return kind;
        }
        "truncate" => {
            bytes.truncate(random.below(bytes.len()));
            return kind;
        }
        "delete" => drop(lines.remove(at)),
        "swap" => lines.swap(at, other),
        _ => lines.insert(random.below(lines.len() + 1), all[random.below(all.len())]),
    }
    *bytes = lines.concat().into_bytes();
    kind
}

/// Returns the position of the first changed line: in the edited log, or just after its end.
fn first_change(old: &Files, new: &BTreeMap<String, Vec<u8>>) -> (String, u64) {
    // File names sort by age.
    let mut old = old.values().flat_map(|text| text.as_bytes().split_inclusive(|byte| *byte == b'\n'));
    let mut place = (String::new(), 0);
    for (name, bytes) in new {
        place = (name.clone(), 0);
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            place.1 += 1;
            if old.next() != Some(line) {
                return place;
            }
        }
    }
    (place.0, place.1 + 1)
}

/// A check without a chain: every line is an object, and the numbers increase by one.
fn unchained_finds(files: &BTreeMap<String, Vec<u8>>, records: u64) -> bool {
    let lines = files.values().flat_map(|bytes| bytes.split_inclusive(|byte| *byte == b'\n'));
    let numbers = lines.filter(|line| !line.starts_with(b"{\"torn")).map(|line| {
        serde_json::from_slice::<Value>(line).ok().and_then(|line| line["seq"].as_u64()).unwrap_or(0)
    });
    numbers.ne(1..=records)
}

#[tokio::test]
async fn a_thousand_edits_are_found_and_the_first_bad_line_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    calls(&settings, 15).await;
    tear(&settings, "{\"torn");
    calls(&settings, 15).await;
    let (files, whole) = (files(&settings), verify(&settings).unwrap());
    assert!(whole.files >= 4 && whole.torn == 1 && whole.records > 60, "{whole:?}");
    // The same log with an outdated anchors file.
    let unanchored = AuditSettings { anchors_file: dir.path().join("first.anchors"), ..settings.clone() };
    let anchors = std::fs::read_to_string(&settings.anchors_file).unwrap();
    std::fs::write(&unanchored.anchors_file, anchors.split_inclusive('\n').next().unwrap()).unwrap();
    assert_eq!(verify(&unanchored).unwrap().records, whole.records);

    let mut random = Random::seeded();
    let (mut kinds, mut edited) = (HashMap::new(), BTreeMap::new());
    let (mut found, mut named, mut without_chain, mut without_anchors) = (0, 0, 0, 0);
    let mut edits = 0;
    while edits < 1_000 {
        let kind = edit(&mut random, &files, &mut edited);
        if edited.iter().all(|(name, bytes)| files[name].as_bytes() == bytes) {
            continue;
        }
        edits += 1;
        *kinds.entry(kind).or_insert(0) += 1;
        put(&settings, &files, &edited);
        let (file, line) = first_change(&files, &edited);
        match verify(&settings) {
            Err(VerifyError::Fault(fault)) => {
                found += 1;
                // A torn line is a defect unless the next line describes it: if that one is changed, the torn line is
                // reported. It may be the last one of the previous file.
                let is_end = |byte: &u8| *byte == b'\n';
                let half = edited[&fault.file].split(is_end).nth(fault.line as usize - 1);
                let older = edited.range(..file.clone()).next_back();
                let is_last = |(name, bytes): (&String, &Vec<u8>)| {
                    *name == fault.file && bytes.split_inclusive(is_end).count() as u64 == fault.line
                };
                let is_before = match line {
                    1 => older.is_some_and(is_last),
                    line => fault.file == file && fault.line + 1 == line,
                };
                let is_early = is_before && half == Some(b"{\"torn");
                let is_named = fault.file == file && fault.line == line;
                assert!(is_named || is_early, "{kind} {file}:{line}: {fault}");
                named += 1;
            }
            other => panic!("{kind} at {file}:{line} is not found: {other:?}"),
        }
        without_anchors += usize::from(verify(&unanchored).is_err());
        without_chain += usize::from(unchained_finds(&edited, whole.records));
        for (name, text) in files.iter().filter(|(name, text)| edited[*name] != text.as_bytes()) {
            std::fs::write(settings.dir.join(name), text).unwrap();
        }
    }
    println!("{kinds:?}: {found} of {edits} found, {named} with the first bad line named");
    println!("the same edits: {without_anchors} found without anchors, {without_chain} without the chain");
    println!("figure:\tedits found, with the first bad line named\t{named}\t1000\tok");
    assert_eq!((found, named), (1_000, 1_000));
    assert!(without_anchors < 1_000 && without_chain < 1_000);
    assert_eq!(verify(&settings).unwrap(), whole);
}

#[tokio::test]
async fn who_has_not_the_key_cannot_write_another_log() {
    let dir = tempfile::tempdir().unwrap();
    let settings = AuditSettings::in_folder(dir.path());
    calls(&settings, 5).await;
    let path = settings.dir.join("audit.jsonl");
    let text = std::fs::read_to_string(&path).unwrap();
    // Changes the first record and recomputes all MACs and anchors.
    let forge = |key: &ChainKey| {
        let (mut lines, mut end) = (Vec::new(), key.start());
        let write_anchors = |end: ChainLink| {
            let anchor = anchor::Anchor {
                time: String::new(),
                file: String::new(),
                seq: end.seq,
                mac: end.mac,
                why: anchor::AnchorReason::Close,
            };
            std::fs::write(&settings.anchors_file, format!("{}\n", serde_json::to_string(&anchor).unwrap()))
        };
        for line in text.lines() {
            let body = UnverifiedLine::of(line.as_bytes()).unwrap().body;
            let body = String::from_utf8(body.to_vec()).unwrap().replace("\"ada\"", "\"eve\"") + "}";
            end = key.add(end, &mut lines, |_, lines| lines.extend_from_slice(body.as_bytes()));
        }
        std::fs::write(&path, lines).unwrap();
        write_anchors(end).unwrap();
        report(&settings)
    };
    let own = forge(&ChainKey::new(&[0; 32]));
    assert_eq!(own, "audit.jsonl, line 1 (record 1): the record was changed");
    // With the key forgery is possible: that is why the key is stored elsewhere.
    assert_eq!(
        forge(&ChainKey::read(&settings.key_file).unwrap()),
        "1 files, 10 records, 0 torn, 0 bytes unfinished"
    );
}

#[tokio::test]
async fn files_follow_each_other_and_none_can_be_taken() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    for _ in 0..3 {
        calls(&settings, 10).await;
    }
    let files = files(&settings);
    let first_of_second: Value =
        serde_json::from_str(files["audit.000002.jsonl"].lines().next().unwrap()).unwrap();
    let last_of_first: Value =
        serde_json::from_str(files["audit.000001.jsonl"].lines().last().unwrap()).unwrap();
    assert_eq!(first_of_second["previous"], "audit.000001.jsonl");
    assert_eq!(first_of_second["previous_mac"], last_of_first["mac"]);
    let headers = files.len() - 1;
    assert_eq!(
        report(&settings),
        format!("{} files, {} records, 0 torn, 0 bytes unfinished", files.len(), 60 + headers)
    );

    for (name, expected) in [
        ("audit.000001.jsonl", "audit.000002.jsonl, line 1 (record "),
        ("audit.000002.jsonl", "audit.000003.jsonl, line 1 (record "),
        ("audit.jsonl", "line 1"),
    ] {
        let path = settings.dir.join(name);
        let aside = dir.path().join("aside");
        std::fs::rename(&path, &aside).unwrap();
        let report = report(&settings);
        let missing = report.ends_with(&format!("the file before it, `{name}`, is missing"));
        let cut = name == "audit.jsonl" && report.contains("the log was cut off");
        assert!(report.contains(expected) || cut, "{report}");
        assert!(missing || cut, "{report}");
        std::fs::rename(&aside, &path).unwrap();
    }
    // A hub that continues after a file was removed does not hide the gap.
    std::fs::remove_file(settings.dir.join("audit.jsonl")).unwrap();
    calls(&settings, 10).await;
    let report = report(&settings);
    assert!(report.contains(", line 1 (record ") && report.contains(" missing before this one"), "{report}");
}

#[tokio::test]
async fn a_torn_end_is_told_then_marked_and_never_an_excuse() {
    let dir = tempfile::tempdir().unwrap();
    let settings = AuditSettings::in_folder(dir.path());
    calls(&settings, 2).await;
    let path = settings.dir.join("audit.jsonl");
    tear(&settings, "{\"seq\":5,\"ti");
    assert_eq!(report(&settings), "1 files, 4 records, 0 torn, 12 bytes unfinished");
    calls(&settings, 1).await;
    assert_eq!(report(&settings), "1 files, 7 records, 1 torn, 0 bytes unfinished");
    // A record that lacks only its newline is not torn.
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.trim_end()).unwrap();
    calls(&settings, 1).await;
    assert_eq!(report(&settings), "1 files, 9 records, 1 torn, 0 bytes unfinished");
    // Bytes after a closed log are tampering, whether a hub reopened it or not.
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text + "{\"seq\"").unwrap();
    assert_eq!(report(&settings), "audit.jsonl, line 11 (record 10): the log was closed before this line");
    // An anchored record cannot be passed off as torn.
    let dir = tempfile::tempdir().unwrap();
    let settings = AuditSettings::in_folder(dir.path());
    calls(&settings, 2).await;
    let path = settings.dir.join("audit.jsonl");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, &text[..text.len() - 40]).unwrap();
    assert!(
        report(&settings).starts_with("audit.jsonl, line 4 (record 4): the log was cut off"),
        "{}",
        report(&settings)
    );
    calls(&settings, 1).await;
    assert!(report(&settings).starts_with("audit.jsonl, line 4 "), "{}", report(&settings));
}

#[test]
fn a_log_that_was_only_begun_is_empty() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    std::fs::create_dir_all(&settings.dir).unwrap();
    std::fs::write(settings.dir.join("audit.jsonl"), "").unwrap();
    assert_eq!(verify(&settings).unwrap(), VerifyReport::default());
    // A non-empty log needs its key.
    std::fs::write(settings.dir.join("audit.jsonl"), "{").unwrap();
    verify(&settings).unwrap_err();
}

#[tokio::test]
async fn a_log_without_its_key_is_told_and_never_given_another() {
    let dir = tempfile::tempdir().unwrap();
    let settings = AuditSettings::in_folder(dir.path());
    assert_eq!(report(&settings), "0 files, 0 records, 0 torn, 0 bytes unfinished");
    calls(&settings, 1).await;
    let key = std::fs::read(&settings.key_file).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(&settings.key_file).unwrap().permissions(),
    );
    assert_eq!((key.len(), mode & 0o777), (65, 0o600));
    std::fs::remove_file(&settings.key_file).unwrap();
    let (gate, handle) = open(&settings);
    assert!(gate.call(call("stub_write")).await.is_err());
    assert!(gate.call(call("stub_read")).await.is_ok());
    let health = handle.health().unwrap_err();
    assert!(health.contains("audit.key: the key of the audit log is missing"), "{health}");
    assert!(report(&settings).contains("the key of the audit log is missing"));
    assert!(!settings.key_file.exists());
    // Once restored, it works again, and the records of the meantime are in the log.
    std::fs::write(&settings.key_file, &key).unwrap();
    assert!(gate.call(call("stub_write")).await.is_ok());
    drop((gate, handle));
    assert_eq!(report(&settings), "1 files, 8 records, 0 torn, 0 bytes unfinished");
    std::fs::write(&settings.key_file, &key[..20]).unwrap();
    assert!(report(&settings).contains("expected 32 bytes in hexadecimal"));
}

#[tokio::test]
async fn without_the_second_place_nothing_acts() {
    let dir = tempfile::tempdir().unwrap();
    let settings = AuditSettings::in_folder(dir.path());
    std::fs::write(dir.path().join("anchors"), "not a folder").unwrap();
    let (gate, handle) = open(&settings);
    assert!(gate.call(call("stub_write")).await.is_err());
    assert!(handle.health().unwrap_err().contains("audit.anchors: "));
    std::fs::remove_file(dir.path().join("anchors")).unwrap();
    assert!(gate.call(call("stub_write")).await.is_ok());
    drop((gate, handle));
    // Removed later together with the end of the log, it is detected too.
    std::fs::remove_dir_all(dir.path().join("anchors")).unwrap();
    assert!(report(&settings).contains("there is no anchor"));
}

#[tokio::test]
async fn a_preview_shows_no_secret_and_hides_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let settings = AuditSettings::in_folder(dir.path());
    let (gate, handle) = open(&settings);
    let long = format!(r#"stub_read {{"text":"{}hunter2-hunter2"}}"#, "x".repeat(180));
    let huge = format!(r#"stub_read {{"text":"hunter2-hunter2{}"}}"#, "x".repeat(300_000));
    let mut shown = Vec::new();
    for line in [
        r#"stub_read {"text":"key hunter2-hunter2"}"#,
        r#"stub_read {"text":"\u0068unter2-hunter2"}"#,
        "stub_read {\"text\":\"to\u{200b}day \u{202e}gnp\"}",
        "stub_read {\"text\":\"a\\u200bb\"}",
        r#"stub_read {"text":"\u0068unter2-hunter2","text":1}"#,
        &long,
        &huge,
    ] {
        let _ = gate.call(call(line)).await;
        handle.flush().await.unwrap();
        let lines = last_lines(&settings, 2).unwrap().0;
        let [begin, end] = &lines[..] else { panic!("{lines:?}") };
        let (begin, end): (Value, Value) =
            (serde_json::from_slice(begin).unwrap(), serde_json::from_slice(end).unwrap());
        assert_eq!(end["begin"], begin["seq"]);
        assert_eq!((&end["digest"], &end["args"]), (&begin["digest"], &Value::Null));
        shown.push(begin["args"].as_str().unwrap().replace(&"x".repeat(180), "x(180)"));
    }
    insta::assert_snapshot!(shown.join("\n"), @r#"
    {"text":"key [REDACTED:KEY]"}
    {"text":"[REDACTED:KEY]"}
    {"text":"to\u{200b}day \u{202e}gnp"}
    {"text":"a\u{200b}b"}
    [withheld: not readable]
    {"text":"x(180)[REDACTED:K…
    [withheld: 300026 bytes]
    "#);
}

#[tokio::test]
async fn what_stands_beside_the_arguments_is_on_the_record() {
    let dir = tempfile::tempdir().unwrap();
    let settings = AuditSettings::in_folder(dir.path());
    let (gate, handle) = open(&settings);
    let long = format!(r#"stub_read {{"text":"{}"}}"#, "x".repeat(300));
    let (mut shown, mut digests) = (Vec::new(), BTreeMap::new());
    for (line, extra) in [
        ("stub_read", ""),
        ("stub_read", r#""force":true"#),
        ("stub_read", r#""force":false"#),
        ("stub_read", r#""key":"hunter2-hunter2""#),
        ("stub_read", r#""key":"\u0068unter2-hunter2","to":"a\u200bb""#),
        (&long, r#""force":true"#),
        // The arguments of a completion are all of its parameters.
        (r#"completion stub_greet {"force":true}"#, r#""force":true"#),
    ] {
        let mut call = call(line);
        call.passed.params = extra.to_owned();
        let _ = gate.call(call).await;
        handle.flush().await.unwrap();
        let lines = last_lines(&settings, 2).unwrap().0;
        let begin: Value = serde_json::from_slice(&lines[0]).unwrap();
        shown.push(begin["args"].as_str().unwrap().replace(&"x".repeat(191), "x(191)"));
        let twice = digests.insert(begin["digest"].as_str().unwrap().to_owned(), extra);
        assert_eq!(twice, None, "{line} {extra}");
    }
    insta::assert_snapshot!(shown.join("\n"), @r#"
    {}
    {} with extra parameters {"force":true}
    {} with extra parameters {"force":false}
    {} with extra parameters {"key":"[REDACTED:KEY]"}
    {} with extra parameters {"key":"[REDACTED:KEY]","to":"a\u{200b}b"}
    {"text":"x(191)… with extra parameters {"force":true}
    {"force":true}
    "#);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn ten_thousand_calls_at_once_leave_twenty_thousand_records() {
    const CALLS: usize = 10_000;
    let dir = tempfile::tempdir().unwrap();
    let settings = AuditSettings { file_bytes_max: 1024 * 1024, ..AuditSettings::in_folder(dir.path()) };
    let (gate, handle) = open(&settings);
    let gate = Arc::new(gate);
    let calls = (0..CALLS).map(|at| {
        let gate = gate.clone();
        tokio::spawn(async move {
            let name = ["stub_read", "stub_write", "none_such", "resource stub://a"][at % 4];
            let _ = gate.call(call(name)).await;
        })
    });
    assert!(join_all(calls).await.iter().all(Result::is_ok));
    handle.flush().await.unwrap();
    drop((gate, handle));
    let (mut begun, mut ended, mut openings) = (HashMap::new(), 0, 0);
    each_line(&settings, &mut |line| {
        let line: Value = serde_json::from_slice(line).unwrap();
        match line["phase"].as_str().unwrap() {
            "begin" => {
                let twice = begun.insert(line["call"].as_u64().unwrap(), line["seq"].as_u64().unwrap());
                assert_eq!(twice, None);
            }
            "end" => {
                assert_eq!(begun.insert(line["call"].as_u64().unwrap(), 0), line["begin"].as_u64());
                ended += 1;
            }
            "file" => openings += 1,
            other => panic!("{other}"),
        }
        std::ops::ControlFlow::Continue(())
    })
    .unwrap();
    println!("{} begun, {ended} ended, {} files", begun.len(), openings + 1);
    assert_eq!((begun.len(), ended), (CALLS, CALLS));
    assert!(begun.values().all(|seq| *seq == 0));
    assert_eq!(verify(&settings).unwrap().records, 2 * CALLS as u64 + openings);
    println!(
        "figure:\trecords of 10,000 calls at once, none missing or twice\t{}\t20000\tok",
        begun.len() + ended
    );
}

#[tokio::test]
async fn new_lines_are_followed_into_the_next_file() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    calls(&settings, 12).await;
    let (last, mut follow) = last_lines(&settings, 20).unwrap();
    let seq = |line: &[u8]| UnverifiedLine::of(line).unwrap().link.seq;
    let newest = seq(last.last().unwrap());
    assert_eq!(
        last.iter().map(|line| seq(line)).collect::<Vec<_>>(),
        (newest - 19..=newest).collect::<Vec<_>>()
    );
    let mut seen = Vec::new();
    for _ in 0..4 {
        // Less than a file at a time: a file that is rotated away between two polls is not seen.
        calls(&settings, 2).await;
        for _ in 0..3 {
            let _ = follow.poll(&mut |line| {
                seen.push(seq(line));
                std::ops::ControlFlow::Continue(())
            });
        }
    }
    let end = verify(&settings).unwrap().records;
    assert_eq!(seen, (newest + 1..=end).collect::<Vec<_>>());
}

/// Prints the speed of verification: `cargo test --release -p portcullis-guard -- --ignored --nocapture verify_speed`.
#[test]
#[ignore = "a measurement"]
fn verify_speed() {
    const RECORDS: u64 = 500_000;
    let dir: TempDir = tempfile::tempdir().unwrap();
    let settings = AuditSettings::in_folder(dir.path());
    let redactor = Redactor::new(&[]).ok().unwrap();
    std::fs::create_dir_all(&settings.dir).unwrap();
    let key = ChainKey::create(&settings.key_file).unwrap();
    let subject =
        Arc::new(AuditSubject::of(&call(r#"stub_write {"text":"some text of a usual length"}"#), &redactor));
    let (mut lines, mut end) = (Vec::new(), key.start());
    for at in 0..RECORDS {
        let (time, subject) = (std::time::SystemTime::UNIX_EPOCH, subject.clone());
        let record = match at % 2 {
            0 => JournalRecord::Begin { at: time, subject },
            _ => JournalRecord::End {
                at: time,
                subject,
                ending: OutcomeKind::Ok,
                bytes: 10,
                duration: Default::default(),
            },
        };
        end = key.add(end, &mut lines, |seq, lines| {
            record.write(seq, &key, &mut TimestampCache::default(), lines)
        });
    }
    std::fs::write(settings.dir.join("audit.jsonl"), &lines).unwrap();
    let (time, file) = (String::new(), String::new());
    let close = anchor::Anchor { time, file, seq: end.seq, mac: end.mac, why: anchor::AnchorReason::Close };
    anchor::write(&settings.anchors_file, &close).unwrap();
    let started = std::time::Instant::now();
    assert_eq!(verify(&settings).unwrap().records, RECORDS);
    let took = started.elapsed();
    let per_second = RECORDS as f64 / took.as_secs_f64();
    println!(
        "{RECORDS} records ({} MB) verified in {took:?}: {per_second:.0} records/s",
        lines.len() / 1_000_000
    );
    let ok = if per_second >= 100_000.0 { "ok" } else { "FAILED" };
    println!("figure:\trecords verified per second\t{per_second:.0}\t≥ 100000\t{ok}");
}
