use super::chain::{ChainKey, UnverifiedLine};
use super::record::TARGET_BYTES_MAX;
use super::sink::{LogSink, ResumePoint};
use super::*;
use crate::commit::CommitLayer;
use crate::testing::{StoppedClock, StubState, call, gate, kind_of, outcome_text};
use futures::future::join_all;
use futures::poll;
use parking_lot::Mutex;
use portcullis_core::{ErrorKind, Gate};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::sync::mpsc;

/// An in-memory disk that fails on demand, and can block a sync until released.
#[derive(Clone, Default)]
struct Disk {
    state: Arc<Mutex<DiskState>>,
}

#[derive(Default)]
struct DiskState {
    bytes: Vec<u8>,
    broken: bool,
    cursed: bool,
    syncs: usize,
    hold_sync: Option<mpsc::Receiver<()>>,
}

impl Disk {
    fn set_broken(&self, broken: bool) {
        self.state.lock().broken = broken;
    }

    fn lines(&self) -> Vec<Value> {
        let bytes = self.state.lock().bytes.clone();
        String::from_utf8(bytes).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn check(&self) -> io::Result<()> {
        if self.state.lock().broken { Err(io::Error::other("disk on fire")) } else { Ok(()) }
    }
}

impl LogSink for Disk {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.check()?;
        let cursed = self.state.lock().cursed;
        assert!(!cursed, "cursed disk");
        self.state.lock().bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.check()?;
        let mut state = self.state.lock();
        state.syncs += 1;
        if let Some(hold) = state.hold_sync.take() {
            drop(state);
            hold.recv().unwrap();
        }
        Ok(())
    }

    fn resume(&mut self) -> io::Result<ResumePoint> {
        self.check()?;
        let key = ChainKey::new(&[7; 32]);
        Ok(ResumePoint { key, end: None, anchored: None, previous: None, torn: None })
    }

    fn is_open(&self) -> bool {
        true
    }
}

struct Setup {
    gate: Gate,
    world: Arc<StubState>,
    handle: AuditHandle,
}

fn open(secure: &Path) -> AuditHandle {
    AuditHandle::open(AuditSettings::in_folder(secure), Arc::new(StoppedClock)).unwrap()
}

fn seq_of(line: &str) -> u64 {
    UnverifiedLine::of(line.as_bytes()).unwrap().link.seq
}

fn audited(handle: AuditHandle) -> Setup {
    let redactor = Redactor::new(&[]).ok().unwrap();
    let audit =
        AuditLayer::new(handle.clone(), Arc::new(StoppedClock), redactor, crate::live::LiveCalls::default());
    let (gate, world) = gate(vec![Box::new(audit), Box::new(CommitLayer::new(handle.clone()))]);
    Setup { gate, world, handle }
}

fn on(disk: &Disk) -> Setup {
    audited(AuditHandle::write_to(disk.clone(), Arc::new(StoppedClock)).unwrap())
}

/// Formats records without the fields that differ between runs.
fn summary(lines: &[Value]) -> String {
    let mut summary = String::new();
    for line in lines {
        let text =
            |key: &str| line.get(key).map(|value| value.to_string().replace('"', "")).unwrap_or_default();
        let keys = ["seq", "phase", "kind", "target", "effect", "outcome", "bytes", "lost"];
        let words: Vec<_> = keys.map(text).into_iter().filter(|word| !word.is_empty()).collect();
        summary.push_str(&format!("{}\n", words.join(" ")));
    }
    summary
}

#[tokio::test(start_paused = true)]
async fn a_record_says_who_did_what() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("audit.key"), "07".repeat(32)).unwrap();
    let setup = audited(open(dir.path()));
    let call = call(r#"stub_write {"text":"it"}"#);
    let id = call.id.to_string();
    setup.gate.call(call).await.unwrap();
    setup.handle.flush().await.unwrap();
    let written = std::fs::read_to_string(dir.path().join("audit/audit.jsonl")).unwrap();
    // The MAC differs too, because it covers the call's number.
    let line_without_mac = |line: &str| format!("{}…\n", &line[..line.len() - 66]);
    let written: String = written.lines().map(line_without_mac).collect();
    insta::assert_snapshot!(written.replace(&format!("\"call\":{id},"), "\"call\":N,"), @r#"
    {"seq":1,"time":"2026-06-21T12:00:00.123Z","call":N,"phase":"begin","client":"ada","origin":"client","kind":"tool","target":"stub_write","digest":"ae856da4e22f4ab3e2bb721fc50a416e6bc7b59964288f8ea08e0f5069b01000","args":"{\"text\":\"it\"}","effect":"write","mac":"…
    {"seq":2,"time":"2026-06-21T12:00:00.123Z","call":N,"phase":"end","client":"ada","origin":"client","kind":"tool","target":"stub_write","digest":"ae856da4e22f4ab3e2bb721fc50a416e6bc7b59964288f8ea08e0f5069b01000","effect":"write","begin":1,"outcome":"ok","bytes":6,"duration_us":0,"mac":"…
    "#);
}

#[tokio::test]
async fn every_call_begins_and_ends() {
    let disk = Disk::default();
    let setup = on(&disk);
    let long = format!("resource stub://{}", "ä".repeat(TARGET_BYTES_MAX));
    for line in ["stub_read", "stub_refuse", "none_such", "resource stub://a", "prompt stub_greet", &long] {
        let _ = setup.gate.call(call(line)).await;
    }
    let mut gone = setup.gate.call(call("stub_hang"));
    assert!(poll!(&mut gone).is_pending());
    drop(gone);
    setup.handle.flush().await.unwrap();
    let lines = disk.lines();
    assert!(lines[10]["target"].as_str().unwrap().len() < TARGET_BYTES_MAX + "…".len() + 1);
    insta::assert_snapshot!(summary(&lines).replace(&"ä".repeat(252), "ä(252)"), @"
    1 begin tool stub_read read
    2 end tool stub_read read ok 4
    3 begin tool stub_refuse read
    4 end tool stub_refuse read not_found 24
    5 begin tool none_such destroy
    6 end tool none_such destroy unknown 23
    7 begin resource stub://a read
    8 end resource stub://a read ok 28
    9 begin prompt stub_greet read
    10 end prompt stub_greet read ok 21
    11 begin resource stub://ä(252)… read
    12 end resource stub://ä(252)… read ok 2074
    13 begin tool stub_hang read
    14 end tool stub_hang read cancelled 0
    ");
}

#[tokio::test]
async fn a_stranger_cannot_forge_a_line_nor_hide_a_secret_in_a_name() {
    let disk = Disk::default();
    let handle = AuditHandle::write_to(disk.clone(), Arc::new(StoppedClock)).unwrap();
    let secret = ("KEY".to_owned(), portcullis_core::Secret::new("hunter2-hunter2".to_owned()));
    let redactor = Redactor::new(&[secret]).ok().unwrap();
    let (gate, _) = gate(vec![Box::new(AuditLayer::new(
        handle.clone(),
        Arc::new(StoppedClock),
        redactor,
        crate::live::LiveCalls::default(),
    ))]);
    let _ = gate.call(call("x\n[\"seq\":1,\"phase\":\"end\"]hunter2-hunter2")).await;
    handle.flush().await.unwrap();
    let lines = disk.lines();
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[0]["target"], "x\n[\"seq\":1,\"phase\":\"end\"][REDACTED:KEY]");
}

#[tokio::test]
async fn a_call_with_side_effects_waits_for_the_disk_and_a_read_does_not() {
    let (go_on, hold) = mpsc::channel();
    let disk = Disk::default();
    disk.state.lock().hold_sync = Some(hold);
    let setup = on(&disk);
    let mut write = setup.gate.call(call("stub_write"));
    assert!(poll!(&mut write).is_pending());
    assert!(setup.gate.call(call("stub_read")).await.is_ok());
    assert!(poll!(&mut write).is_pending());
    assert_eq!(setup.world.acted(), 1, "only the read has run");
    go_on.send(()).unwrap();
    assert!(write.await.is_ok());
    assert_eq!(setup.world.acted(), 2);
}

#[tokio::test]
async fn those_who_wait_together_share_a_sync() {
    let (go_on, hold) = mpsc::channel();
    let disk = Disk::default();
    disk.state.lock().hold_sync = Some(hold);
    let setup = on(&disk);
    let mut writes: Vec<_> = (0..50).map(|_| setup.gate.call(call("stub_write"))).collect();
    for write in &mut writes {
        assert!(poll!(write).is_pending());
    }
    go_on.send(()).unwrap();
    assert!(join_all(writes).await.iter().all(Result::is_ok));
    assert!(disk.state.lock().syncs <= 2);
}

#[tokio::test]
async fn a_broken_disk_stops_what_acts_and_nothing_else() {
    let disk = Disk::default();
    disk.set_broken(true);
    let setup = on(&disk);
    insta::assert_snapshot!(outcome_text(&setup.gate.call(call("stub_write")).await), @"
    unavailable: the audit log cannot be written, so nothing is changed
    hint: reading still works; an administrator finds the reason at `/readyz`
    ");
    assert_eq!(setup.world.acted(), 0);
    assert_eq!(setup.handle.health(), Err("disk on fire".to_owned()));
    assert!(setup.gate.call(call("stub_read")).await.is_ok());
    // Repaired: the next call detects it, and the buffered records are written.
    disk.set_broken(false);
    assert!(setup.gate.call(call("stub_write")).await.is_ok());
    assert_eq!(setup.handle.health(), Ok(()));
    setup.handle.flush().await.unwrap();
    insta::assert_snapshot!(summary(&disk.lines()), @"
    1 begin tool stub_write write
    2 end tool stub_write write unavailable 121
    3 begin tool stub_read read
    4 end tool stub_read read ok 4
    5 begin tool stub_write write
    6 end tool stub_write write ok 4
    ");
    // Without `commit` the call runs, and there is no record of it.
    disk.set_broken(true);
    let redactor = Redactor::new(&[]).ok().unwrap();
    let audit = AuditLayer::new(
        setup.handle.clone(),
        Arc::new(StoppedClock),
        redactor,
        crate::live::LiveCalls::default(),
    );
    let (bare, world) = gate(vec![Box::new(audit)]);
    assert!(bare.call(call("stub_write")).await.is_ok());
    assert_eq!(world.acted(), 1);
}

#[tokio::test]
async fn what_could_not_be_kept_is_counted_and_does_not_act() {
    let disk = Disk::default();
    disk.set_broken(true);
    let setup = on(&disk);
    let mut calls = 0;
    while calls < 5_000 {
        let _ = setup.gate.call(call("stub_read")).await;
        calls += 1;
    }
    assert!(setup.handle.flush().await.is_err());
    // The begin record of this call is lost. The disk is repaired before it commits.
    let write = call("stub_write");
    let subject = Arc::new(AuditSubject::of(&write, &Redactor::new(&[]).ok().unwrap()));
    let begun = JournalRecord::Begin { at: std::time::SystemTime::UNIX_EPOCH, subject };
    // Outside the gate the call has no known tool, which counts as the worst effect.
    setup.handle.journal.begin(begun).await.unwrap();
    assert!(setup.handle.flush().await.is_err());
    disk.set_broken(false);
    assert_eq!(setup.handle.committed(write.id).await, Err("the record was lost".to_owned()));
    let lines = disk.lines();
    let gap = lines.last().unwrap();
    assert_eq!(gap["phase"], "gap");
    assert_eq!(lines.len() as u64 - 1 + gap["lost"].as_u64().unwrap(), 2 * 5_000 + 1);
    assert!(setup.gate.call(call("stub_write")).await.is_ok(), "later ones act again");
}

#[tokio::test]
async fn a_call_without_a_record_does_not_act() {
    let handle = AuditHandle::write_to(Disk::default(), Arc::new(StoppedClock)).unwrap();
    let (gate, world) = gate(vec![Box::new(CommitLayer::new(handle))]);
    assert_eq!(kind_of(&gate.call(call("stub_write")).await), Some(ErrorKind::Unavailable));
    assert_eq!(world.acted(), 0);
}

#[tokio::test]
async fn nothing_is_lost_when_the_hub_ends_and_numbers_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let secure = dir.path().join("secure");
    let (audit_dir, file) = (secure.join("audit"), secure.join("audit/audit.jsonl"));
    for _ in 0..2 {
        let setup = audited(open(&secure));
        for _ in 0..100 {
            setup.gate.call(call("stub_read")).await.unwrap();
        }
    }
    let read = || std::fs::read_to_string(&file).unwrap();
    let numbers: Vec<_> = read().lines().map(seq_of).collect();
    assert_eq!(numbers, (1..=400).collect::<Vec<_>>());
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&audit_dir), mode(&file)), (0o700, 0o600));

    // A line torn by a power failure stays, and does not corrupt the next one.
    std::fs::write(&file, format!("{}{{\"seq\":401,\"ti", read())).unwrap();
    let setup = audited(open(&secure));
    setup.gate.call(call("stub_read")).await.unwrap();
    setup.handle.flush().await.unwrap();
    assert_eq!(seq_of(read().lines().nth(401).unwrap()), 401);
    // A deleted file is created again.
    std::fs::remove_file(&file).unwrap();
    setup.gate.call(call("stub_write")).await.unwrap();
    assert_eq!(seq_of(read().lines().next().unwrap()), 404);
}

#[tokio::test]
async fn a_path_that_is_no_folder_is_told_and_mended_without_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit");
    std::fs::write(&path, "not a folder").unwrap();
    let setup = audited(open(dir.path()));
    assert_eq!(kind_of(&setup.gate.call(call("stub_write")).await), Some(ErrorKind::Unavailable));
    assert!(setup.handle.health().unwrap_err().contains("audit.jsonl: "));
    assert!(setup.gate.call(call("stub_read")).await.is_ok());
    std::fs::remove_file(&path).unwrap();
    assert!(setup.gate.call(call("stub_write")).await.is_ok());
    assert_eq!(setup.handle.health(), Ok(()));
}

#[tokio::test]
async fn a_writer_that_panics_stops_what_acts_and_nothing_else() {
    let disk = Disk::default();
    disk.state.lock().cursed = true;
    let setup = on(&disk);
    for _ in 0..2 {
        assert_eq!(kind_of(&setup.gate.call(call("stub_write")).await), Some(ErrorKind::Unavailable));
        assert!(setup.gate.call(call("stub_read")).await.is_ok());
    }
    assert_eq!(setup.handle.health(), Err("the audit writer has stopped".to_owned()));
    assert_eq!(setup.world.acted(), 2, "the reads");
}

/// What commands change is recorded by the hub, once, even if its log fails meanwhile.
#[tokio::test]
async fn the_spool_waits_for_a_log_that_fails() {
    let dir = tempfile::tempdir().unwrap();
    let settings = AuditSettings::in_folder(dir.path());
    let (disk, clock) = (Disk::default(), Arc::new(StoppedClock));
    let handle = AuditHandle::write_to(disk.clone(), clock.clone()).unwrap();
    let log = ChangeLog::new(handle, clock.clone(), Redactor::new(&[]).ok().unwrap());
    let mut reader = SpoolReader::new(&settings, log);
    let change = |action: &str| {
        let actor = "admin".to_owned();
        SpooledChange::begin(&settings, actor, action, serde_json::json!({}), clock.now()).unwrap()
    };
    change("clients.add").end(Ok(()), clock.now()).unwrap();
    let spooled = || std::fs::metadata(settings.dir.join("changes.spool")).unwrap().len();
    disk.set_broken(true);
    for _ in 0..2 {
        assert_eq!(reader.take_over().await, Err("disk on fire".to_owned()));
        assert!(spooled() > 0);
    }
    disk.set_broken(false);
    assert_eq!(reader.take_over().await, Ok(()));
    assert_eq!((disk.lines().len(), spooled()), (2, 0));
    // Lines of the same length come after it.
    change("clients.add").end(Ok(()), clock.now()).unwrap();
    assert_eq!(reader.take_over().await, Ok(()));
    assert_eq!((disk.lines().len(), spooled()), (4, 0));
}
