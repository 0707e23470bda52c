mod proposal_flood;

use super::*;
use portcullis_store::database::{OperationId, TopicState, wait};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;
use tempfile::TempDir;

/// A clock that only the test moves.
struct Hands(AtomicU64);

impl Clock for Hands {
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(self.0.load(Ordering::Relaxed))
    }
}

fn database(folder: &Path) -> Database {
    portcullis_store::open(folder, &crate::tables()).unwrap()
}

struct World {
    dir: TempDir,
    clock: Arc<Hands>,
    scripts: ScriptStore,
}

impl World {
    fn new() -> World {
        World::allowing(Vec::new())
    }

    fn allowing(allowed: Vec<PreapprovedScript>) -> World {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(Hands(AtomicU64::new(1_800_000_000)));
        let scripts = ScriptStore::open(
            &dir.path().join("scripts"),
            &database(&dir.path().join("secure")),
            allowed,
            clock.clone(),
        );
        std::fs::create_dir(dir.path().join("scripts")).unwrap();
        World { dir, clock, scripts }
    }

    /// Another process on the same home.
    fn other(&self) -> ScriptStore {
        ScriptStore::open(
            &self.dir.path().join("scripts"),
            &database(&self.dir.path().join("secure")),
            Vec::new(),
            self.clock.clone(),
        )
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> ScriptName {
        std::fs::write(self.dir.path().join("scripts").join(name), bytes).unwrap();
        name.parse().unwrap()
    }

    fn approve(&self, name: &ScriptName) -> Result<Option<ScriptDecision>, ScriptError> {
        let review = self.scripts.review(name)?;
        self.scripts.approve(name, of(&review))
    }
}

fn of(review: &ScriptReview) -> ScriptApproval {
    ScriptApproval {
        sha256: review.listed.sha256.clone(),
        granted: review.listed.header.wants.clone(),
        expires: None,
        by: "somebody".to_owned(),
        seen: Some(review.listed.seen),
    }
}

fn state(scripts: &ScriptStore, name: &ScriptName) -> ScriptState {
    scripts.review(name).unwrap().listed.state
}

#[test]
fn exactly_what_was_approved_runs() {
    let world = World::new();
    let name = world.write("x.star", "# @secrets: A_KEY\nresult = 4\n");
    assert!(matches!(
        world.scripts.runnable(&name),
        Err(RunRefusal::Waits { state: ScriptState::Pending, .. })
    ));
    world.approve(&name).unwrap();
    let runnable = world.scripts.runnable(&name).unwrap();
    assert_eq!(runnable.source, "# @secrets: A_KEY\nresult = 4\n");
    assert_eq!(runnable.granted.secrets.iter().collect::<Vec<_>>(), ["A_KEY"]);

    // One byte differs.
    world.write("x.star", "# @secrets: A_KEY\nresult = 5\n");
    assert!(matches!(
        world.scripts.runnable(&name),
        Err(RunRefusal::Waits { state: ScriptState::Changed, .. })
    ));
    let review = world.scripts.review(&name).unwrap();
    assert_eq!(review.approved.unwrap().1, "# @secrets: A_KEY\nresult = 4\n");

    // And back: these bytes were approved.
    world.write("x.star", "# @secrets: A_KEY\nresult = 4\n");
    assert!(world.scripts.runnable(&name).is_ok());

    // Unless another version was approved since: there is one approved version at a time.
    world.write("x.star", "result = 5\n");
    world.approve(&name).unwrap();
    world.write("x.star", "# @secrets: A_KEY\nresult = 4\n");
    assert_eq!(state(&world.scripts, &name), ScriptState::Changed);
}

#[test]
fn a_decision_is_seen_by_every_process_at_once() {
    let world = World::new();
    let name = world.write("x.star", "1");
    let other = world.other();
    assert_eq!(state(&other, &name), ScriptState::Pending);
    world.approve(&name).unwrap();
    assert_eq!(state(&other, &name), ScriptState::Approved);
    let sha256 = other.review(&name).unwrap().listed.sha256;
    let reject =
        ScriptRejection { sha256, reason: Some("no".to_owned()), by: "another".to_owned(), seen: None };
    other.reject(&name, reject).unwrap();
    match world.scripts.runnable(&name) {
        Err(RunRefusal::Rejected { by, reason, .. }) => {
            assert_eq!((by.as_str(), reason.as_deref()), ("another", Some("no")))
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_changed_meanwhile_is_not_approved() {
    let world = World::new();
    let name = world.write("x.star", "1");
    let review = world.scripts.review(&name).unwrap();
    world.write("x.star", "2");
    let error = world.scripts.approve(&name, of(&review)).unwrap_err().to_string();
    assert!(error.contains("was replaced by"), "{error}");
    assert_eq!(state(&world.scripts, &name), ScriptState::Pending);
    // The weak variant approves the file as it is now.
    assert!(world.approve(&name).is_ok());
}

#[test]
fn the_second_of_two_people_learns_who_decided() {
    let world = World::new();
    let name = world.write("x.star", "1");
    let (mine, theirs) = (world.scripts.review(&name).unwrap(), world.scripts.review(&name).unwrap());
    let sha256 = theirs.listed.sha256.clone();
    let reject =
        ScriptRejection { sha256, reason: None, by: "the first".to_owned(), seen: Some(theirs.listed.seen) };
    world.scripts.reject(&name, reject).unwrap();
    // Before the first decision, the count is all there is to compare.
    let error = world.scripts.approve(&name, of(&mine)).unwrap_err().to_string();
    assert!(error.contains("rejected by the first"), "{error}");
    // A person who reviews again may decide.
    world.approve(&name).unwrap();
    assert_eq!(state(&world.scripts, &name), ScriptState::Approved);
}

/// Also after more decisions than are stored.
#[test]
fn the_second_of_two_people_learns_it_however_often_was_decided_before() {
    let world = World::new();
    let name = world.write("x.star", "1");
    for _ in 0..DECISIONS_MAX + 3 {
        world.approve(&name).unwrap();
    }
    assert_eq!(world.scripts.decisions(&name).unwrap().len(), DECISIONS_MAX);
    let mine = world.scripts.review(&name).unwrap();
    assert_eq!(mine.listed.seen, DECISIONS_MAX + 3);
    world.approve(&name).unwrap();
    let error = world.scripts.approve(&name, of(&mine)).unwrap_err().to_string();
    assert!(error.contains("approved by somebody"), "{error}");
    // The weak variant counts the stored decisions, which does not change.
    let remembered = |scripts: &ScriptStore| scripts.decisions(&name).unwrap().len();
    assert_eq!(remembered(&world.scripts), remembered(&world.other()));
}

#[test]
fn an_approval_ends_when_it_was_said_to() {
    let world = World::new();
    let name = world.write("x.star", "1");
    let review = world.scripts.review(&name).unwrap();
    let approve = ScriptApproval { expires: Some(Duration::from_secs(60)), ..of(&review) };
    world.scripts.approve(&name, approve).unwrap();
    assert_eq!(state(&world.scripts, &name), ScriptState::Approved);
    world.clock.0.fetch_add(60, Ordering::Relaxed);
    assert_eq!(state(&world.scripts, &name), ScriptState::Pending);
    assert!(world.scripts.runnable(&name).is_err());
}

#[test]
fn a_proposal_is_no_script_until_it_is_accepted() {
    let world = World::new();
    let name: ScriptName = "new".parse().unwrap();
    let proposal = world.scripts.propose(&name, "result = 1\n", "agent").unwrap();
    assert!(!world.dir.path().join("scripts/new.star").exists());
    assert!(matches!(world.scripts.runnable(&name), Err(RunRefusal::Waits { .. })));
    let review = world.scripts.review(&name).unwrap();
    assert!(!review.listed.exists);
    assert_eq!(review.listed.proposal.as_ref(), Some(&proposal));
    world.scripts.approve(&name, of(&review)).unwrap();
    assert_eq!(world.scripts.runnable(&name).unwrap().source, "result = 1\n");

    // A proposed change leaves the script unchanged.
    let proposal = world.scripts.propose(&name, "result = 2\n", "agent").unwrap();
    assert_eq!(world.scripts.runnable(&name).unwrap().source, "result = 1\n");
    let review = world.scripts.review(&name).unwrap();
    assert_eq!(review.proposed.as_deref(), Some("result = 2\n"));
    let reject =
        ScriptRejection { sha256: proposal.sha256.clone(), reason: None, by: "me".to_owned(), seen: None };
    world.scripts.reject(&name, reject).unwrap();
    assert_eq!(world.scripts.review(&name).unwrap().listed.proposal, None);
    assert_eq!(world.scripts.runnable(&name).unwrap().source, "result = 1\n");
}

#[test]
fn rejecting_a_proposal_leaves_the_approved_file_approved() {
    let world = World::new();
    let name = world.write("x.star", "1");
    world.approve(&name).unwrap();
    let proposal = world.scripts.propose(&name, "2", "agent").unwrap();
    let reject = ScriptRejection { sha256: proposal.sha256, reason: None, by: "me".to_owned(), seen: None };
    world.scripts.reject(&name, reject).unwrap();
    assert_eq!(state(&world.scripts, &name), ScriptState::Approved);
    assert!(world.scripts.runnable(&name).is_ok());
}

#[test]
fn bad_files_are_told_apart_and_run_nothing() {
    let world = World::new();
    let error = |name: &str| world.scripts.review(&name.parse().unwrap()).unwrap_err().to_string();
    world.write("bytes.star", [0xff, 0xfe]);
    assert!(error("bytes").contains("is not UTF-8"), "{}", error("bytes"));
    world.write("long.star", "#".repeat(10 * 1024 * 1024));
    assert!(error("long").contains("10485760 bytes, at most 262144"), "{}", error("long"));
    std::os::unix::fs::symlink("/etc/hostname", world.dir.path().join("scripts/link.star")).unwrap();
    assert!(error("link").contains("not a regular file"), "{}", error("link"));
    std::fs::create_dir(world.dir.path().join("scripts/folder.star")).unwrap();
    assert!(error("folder").contains("not a regular file"), "{}", error("folder"));
    assert!(error("gone").contains("not found"), "{}", error("gone"));
    assert_eq!(world.scripts.list().unwrap().len(), 4);
}

#[test]
fn the_configuration_approves_bytes_and_not_names() {
    let allowed = |text: &str| PreapprovedScript {
        name: "x".parse().unwrap(),
        sha256: copies::sha256(text.as_bytes()),
        granted: ScriptPermissions::default(),
    };
    let world = World::allowing(vec![allowed("1")]);
    let name = world.write("x.star", "1");
    assert_eq!(world.scripts.runnable(&name).unwrap().source, "1");
    world.write("x.star", "2");
    assert!(world.scripts.runnable(&name).is_err());
}

#[test]
fn a_copy_that_was_changed_does_not_come_back() {
    let world = World::new();
    let name = world.write("x.star", "1");
    world.approve(&name).unwrap();
    let sha256 = copies::sha256(b"1");
    world.write("x.star", "2");
    let changed: Result<usize, DatabaseError> = wait(database(&world.dir.path().join("secure")).claim(
        OperationId::random().unwrap(),
        |transaction| {
            Box::pin(async { transaction.execute("UPDATE script_copies SET source = '3'", &[]).await })
        },
    ));
    assert_eq!(changed.unwrap(), 1);
    let restore = ScriptRestoration { sha256, by: "ada".to_owned(), instead_of: None };
    let error = world.scripts.restore(&name, restore).unwrap_err().to_string();
    assert!(error.contains("was changed"), "{error}");
    assert_eq!(world.scripts.review(&name).unwrap().source, "2");
}

#[test]
fn copies_are_rows_and_those_that_nothing_names_are_removed() {
    let world = World::new();
    let name = world.write("x.star", "1");
    world.approve(&name).unwrap();
    let age = |by: &'static str| {
        let aged: Result<usize, DatabaseError> = wait(
            database(&world.dir.path().join("secure"))
                .claim(OperationId::random().unwrap(), move |transaction| {
                    Box::pin(async move { transaction.execute(by, &[]).await })
                }),
        );
        aged.unwrap();
    };
    age("INSERT INTO script_copies (sha256, source, at) VALUES ('old', 'nothing names it', 1)");
    age("UPDATE script_copies SET at = 1");
    world.scripts.propose(&"y".parse().unwrap(), "2", "agent").unwrap();
    let backup = world.dir.path().join("copy");
    wait(database(&world.dir.path().join("secure")).backup(&backup)).unwrap();
    let export = wait(database(&world.dir.path().join("secure")).export()).unwrap();
    let mut sources: Vec<&str> = export["script_copies"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["source"].as_str().unwrap())
        .collect();
    sources.sort_unstable();
    assert_eq!(sources, ["1", "2"]);
    assert!(!world.dir.path().join("secure/scripts").exists());
}

#[test]
fn decisions_that_cannot_be_read_approve_nothing() {
    let world = World::new();
    let name = world.write("x.star", "1");
    world.approve(&name).unwrap();
    let other = database(&world.dir.path().join("secure"));
    let edited: Result<usize, DatabaseError> =
        wait(other.change(ScriptTable::TOPIC, OperationId::random().unwrap(), |transaction| {
            Box::pin(async { transaction.execute("UPDATE scripts SET record = '{'", &[]).await })
        }));
    assert_eq!(edited.unwrap(), 1);
    assert!(world.scripts.runnable(&name).is_err());
    assert!(world.scripts.health().is_err());
}

#[test]
fn an_old_version_comes_back_with_what_it_had() {
    let world = World::new();
    let name = world.write("x.star", "# @hosts: one.example.com\n1");
    world.approve(&name).unwrap();
    let first = world.scripts.review(&name).unwrap().listed.sha256;
    world.write("x.star", "# @hosts: two.example.com\n2");
    world.approve(&name).unwrap();
    let back = |sha256: &str, instead_of| ScriptRestoration {
        sha256: sha256.to_owned(),
        by: "me".to_owned(),
        instead_of,
    };
    world.scripts.restore(&name, back(&first[..10], None)).unwrap();
    let runnable = world.scripts.runnable(&name).unwrap();
    assert!(runnable.source.ends_with("\n1") && runnable.granted.has_host("one.example.com"));
    assert!(!runnable.granted.has_host("two.example.com"));
    assert!(matches!(
        world.scripts.restore(&name, back("00000000", None)),
        Err(ScriptError::NoVersion { .. })
    ));
    assert_eq!(world.scripts.decisions(&name).unwrap().len(), 3);

    // Restoring overwrites neither a text nor a decision that the person has not seen.
    let seen = |scripts: &ScriptStore| {
        let listed = scripts.review(&name).unwrap().listed;
        Some(ScriptSnapshot { sha256: Some(listed.sha256), seen: listed.seen })
    };
    let before = seen(&world.scripts);
    world.write("x.star", "somebody's work");
    let refused = world.scripts.restore(&name, back(&first, before.clone()));
    assert!(matches!(refused, Err(ScriptError::NotThatVersion { .. })), "{refused:?}");
    let before = seen(&world.scripts);
    world.approve(&name).unwrap();
    let refused = world.scripts.restore(&name, back(&first, before));
    assert!(matches!(refused, Err(ScriptError::Decided { .. })), "{refused:?}");
    assert_eq!(world.scripts.runnable(&name).unwrap().source, "somebody's work");
    world.scripts.restore(&name, back(&first, seen(&world.scripts))).unwrap();
}

#[test]
fn the_newest_runs_are_remembered_and_not_all() {
    let world = World::new();
    let name: ScriptName = "x".parse().unwrap();
    let run = |at: u64| ScriptRunRecord {
        at: Timestamp::from_second(i64::try_from(at).unwrap()).unwrap(),
        sha256: "0".repeat(64),
        client: "agent".to_owned(),
        duration_ms: at,
        outcome: "ok".to_owned(),
    };
    let other: ScriptName = "y".parse().unwrap();
    wait(world.scripts.record_run(&other, run(0))).unwrap();
    for at in 0..230 {
        wait(world.scripts.record_run(&name, run(at))).unwrap();
    }
    let runs = world.scripts.runs(&name).unwrap();
    assert_eq!(runs, (30..230).rev().map(run).collect::<Vec<_>>());
    // Every process of the home sees them, and other scripts keep theirs.
    assert_eq!(world.other().runs(&name).unwrap(), runs);
    assert_eq!(world.scripts.runs(&other).unwrap(), [run(0)]);
}

#[test]
fn the_files_of_an_earlier_version_become_rows() {
    let dir = tempfile::tempdir().unwrap();
    let secure = dir.path().join("secure");
    std::fs::create_dir_all(secure.join("scripts/runs")).unwrap();
    std::fs::set_permissions(&secure, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let decision = r#"{"sha256":"00","approved":false,"by":"ada","at":"2026-01-01T00:00:00Z"}"#;
    let scripts = format!(r#"{{"version":1,"scripts":{{"x.star":{{"decisions":[{decision}]}}}}}}"#);
    std::fs::write(secure.join("scripts.json"), scripts).unwrap();
    let run =
        |at: &str| format!(r#"{{"at":"{at}","sha256":"00","client":"ada","duration_ms":7,"outcome":"ok"}}"#);
    let runs = [run("2026-01-02T00:00:00Z"), "{ damaged".to_owned(), run("2026-01-03T00:00:00Z")];
    std::fs::write(secure.join("scripts/runs/x.star.jsonl"), runs.join("\n")).unwrap();
    let approved = copies::sha256(b"approved");
    std::fs::write(secure.join(format!("scripts/{approved}.star")), "approved").unwrap();
    std::fs::write(secure.join(format!("scripts/{}.star", "0".repeat(64))), "another text").unwrap();

    let database = database(&secure);
    let clock = Arc::new(Hands(AtomicU64::new(1_800_000_000)));
    let scripts = ScriptStore::open(&dir.path().join("scripts"), &database, Vec::new(), clock);
    let name: ScriptName = "x".parse().unwrap();
    assert_eq!(scripts.decisions(&name).unwrap()[0].by, "ada");
    let at: Vec<String> = scripts.runs(&name).unwrap().iter().map(|run| run.at.to_string()).collect();
    assert_eq!(at, ["2026-01-03T00:00:00Z", "2026-01-02T00:00:00Z"]);
    assert!(secure.join("scripts.json.imported").exists() && !secure.join("scripts.json").exists());
    assert!(secure.join("scripts.imported/runs.imported").exists() && !secure.join("scripts").exists());
    let export = wait(database.export()).unwrap();
    let copies = export["script_copies"].as_array().unwrap();
    assert!(
        matches!(&copies[..], [copy] if copy["sha256"] == approved.as_str() && copy["source"] == "approved")
    );
}

#[test]
fn runs_of_an_earlier_version_become_rows_without_decisions_too() {
    let dir = tempfile::tempdir().unwrap();
    let secure = dir.path().join("secure");
    std::fs::create_dir_all(secure.join("scripts/runs")).unwrap();
    std::fs::set_permissions(&secure, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let run = r#"{"at":"2026-01-02T00:00:00Z","sha256":"00","client":"ada","duration_ms":7,"outcome":"ok"}"#;
    std::fs::write(secure.join("scripts/runs/x.star.jsonl"), run).unwrap();
    let clock = Arc::new(Hands(AtomicU64::new(1_800_000_000)));
    for _ in 0..2 {
        let database = database(&secure);
        let scripts = ScriptStore::open(&dir.path().join("scripts"), &database, Vec::new(), clock.clone());
        assert_eq!(scripts.runs(&"x".parse().unwrap()).unwrap().len(), 1);
    }
}

#[test]
fn proposals_have_a_bound() {
    let world = World::new();
    for number in 0..PROPOSALS_MAX {
        let client = format!("agent{}", number / PROPOSALS_PER_CLIENT_MAX);
        world.scripts.propose(&format!("p{number}").parse().unwrap(), "1", &client).unwrap();
    }
    let more = world.scripts.propose(&"more".parse().unwrap(), "1", "another");
    assert!(matches!(more, Err(ScriptError::ManyProposals)));
    // An existing one can be replaced.
    world.scripts.propose(&"p0".parse().unwrap(), "2", "agent0").unwrap();
    let long = "#".repeat(SOURCE_BYTES_MAX + 1);
    assert!(matches!(
        world.scripts.propose(&"p0".parse().unwrap(), &long, "agent0"),
        Err(ScriptError::TooLarge { .. })
    ));
}
