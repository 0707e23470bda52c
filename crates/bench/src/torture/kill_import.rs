//! The import of the files of earlier versions, killed at each of its steps: the files or the database are in force, and
//! nothing is lost.
//!
//! The real program runs under strace, which kills it (SIGKILL) at its Nth write, flush, rename, lock, link or unlink. Then it
//! runs again, and every row must be there once.

use super::session::TortureHome;
use crate::sample_rows;
use anyhow::{Context, Result, ensure};
use data_encoding::BASE64;
use portcullis_core::SystemClock;
use portcullis_store::approvals::ApprovalStore;
use portcullis_store::clients::ClientDirectory;
use portcullis_store::database::{Database, Migration, wait};
use serde_json::{Map, Value, json};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

/// What the program is killed at.
const STEPS: [&str; 6] =
    ["pwrite64", "fsync,fdatasync", "rename,renameat,renameat2", "flock", "link,linkat", "unlink,unlinkat"];
/// Rows of each kind, where there are several.
const ROWS: usize = 20;
const RUNS: usize = 50;
/// Approvals that one client may have pending are fewer.
const CLIENTS: [&str; 2] = ["ada", "grace"];
/// The copy of a version of a script, which is named by its hash.
const COPY: &str = "scripts/6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b.star";
/// How many kills of one kind there may be at most.
const KILLS_MAX: u32 = 10_000;

/// What was seen.
#[derive(Debug, Default)]
pub struct ImportKillFigures {
    pub kills: u64,
    /// After these the files were still in force.
    pub not_begun: u64,
    pub problems: Vec<String>,
}

/// The files of an earlier version, and the rows that they are to become.
struct LegacyHome {
    files: Vec<(&'static str, Vec<u8>)>,
    rows: Map<String, Value>,
}

/// Kills the import at each of its steps, at most so many times for each kind of step.
pub fn run(program: &Path, kills: u32) -> Result<ImportKillFigures> {
    let legacy = LegacyHome::new(program)?;
    let mut seen = ImportKillFigures::default();
    for step in STEPS {
        for nth in 1..=kills.min(KILLS_MAX) {
            let lab = TortureHome::new(program)?;
            legacy.write(&lab)?;
            let strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e"].map(str::to_owned);
            let inject =
                [format!("trace={step}"), "-e".to_owned(), format!("inject={step}:signal=KILL:when={nth}")];
            let ran = lab.run(&[&strace[..], &inject].concat(), &["clients", "list", "--json"], "")?;
            if ran.status.success() {
                // It has fewer steps of this kind.
                break;
            }
            seen.kills += 1;
            let checked = legacy.check(&lab, &mut seen);
            seen.problems.extend(checked.err().map(|error| format!("{step} {nth}: {error:#}")));
        }
    }
    Ok(seen)
}

impl LegacyHome {
    /// Lets this version make rows, and writes them as an earlier one did.
    fn new(program: &Path) -> Result<LegacyHome> {
        let lab = TortureHome::new(program)?;
        // The format of a secret's row is that of the whole file.
        let set =
            lab.run::<&str>(&[], &["secrets", "set", "TOKEN", "--json"], "a-value-9f3c-of-some-length\n")?;
        ensure!(set.status.success(), "no secret: {}", String::from_utf8_lossy(&set.stderr));
        let folder = lab.secure();
        let database = portcullis_store::open(&folder, &portcullis_tools::tables())?;
        let secrets = records(&wait(database.export())?, "secrets")?;
        let sealed = secrets.iter().find(|row| row["id"] != "").context("no row of the secret")?;
        let sealed = sealed["sealed"].as_str().context("no sealed text")?;
        let secret = BASE64.decode(sealed.as_bytes())?;

        let clients = ClientDirectory::open(&database, Arc::new(SystemClock));
        let approvals = ApprovalStore::open(&database, Arc::new(SystemClock));
        for n in 0..ROWS {
            clients.add(sample_rows::client(format!("client-{n}")))?;
            approvals.ask(&sample_rows::approval(CLIENTS[n % CLIENTS.len()], n), sample_rows::LIFETIMES)?;
        }
        let export = wait(database.export())?;
        let (clients, approvals) = (records(&export, "clients")?, records(&export, "approvals")?);
        let toggle =
            |n: usize| (format!("server-{n}"), json!({ "enabled": n.is_multiple_of(2), "reloads": n }));
        let toggles: Map<String, Value> = (0..ROWS).map(toggle).collect();
        let run = |n: usize| {
            let at = format!("2026-01-01T00:00:{:02}Z", n % 60);
            json!({ "at": at, "sha256": "00", "client": "ada", "duration_ms": n, "outcome": "ok" })
                .to_string()
        };
        let runs: Vec<String> = (0..RUNS).map(run).collect();
        let decision =
            json!({ "sha256": "00", "approved": false, "by": "ada", "at": "2026-01-01T00:00:00Z" });
        let link = json!({ "sha256": "00", "expires": "2126-01-01T00:00:00Z" });
        let pin = json!({ "since": "2026-01-01T00:00:00Z", "by": "me", "as_it_was": { "identity": {}, "instructions": null, "tools": {}, "prompts": {} } });
        let text = |value: Value| value.to_string().into_bytes();
        let files = vec![
            ("clients.json", text(json!({ "version": 1, "clients": clients }))),
            ("approvals.json", text(json!({ "version": 1, "approvals": approvals }))),
            ("pins.json", text(json!({ "version": 1, "servers": { "git": pin } }))),
            ("toggles.json", text(json!({ "version": 1, "servers": toggles }))),
            ("admins.json", text(json!({ "version": 1, "links": [link] }))),
            ("secrets.pcs", secret),
            (
                "scripts.json",
                text(json!({ "version": 1, "scripts": { "x.star": { "decisions": [decision] } } })),
            ),
            ("scripts/runs/x.star.jsonl", runs.join("\n").into_bytes()),
            (COPY, b"1".to_vec()),
        ];
        // What an import that nothing disturbs makes of them.
        let undisturbed = TortureHome::new(program)?;
        let mut legacy = LegacyHome { files, rows: Map::new() };
        legacy.write(&undisturbed)?;
        undisturbed.succeeds(&["clients", "list", "--json"])?;
        legacy.rows = imported_rows(&undisturbed)?;
        let expected = [
            ("clients", ROWS),
            ("approvals", ROWS),
            ("server_overrides", ROWS),
            ("pins", 1),
            ("admin_links", 1),
            ("secrets", 1),
            ("scripts", 1),
            ("script_runs", RUNS),
        ];
        for (table, count) in expected {
            let found = legacy.rows.get(table).and_then(Value::as_array).map_or(0, Vec::len);
            ensure!(
                found == count,
                "an import that nothing disturbs makes {found} rows of `{table}`, not {count}"
            );
        }
        Ok(legacy)
    }

    fn write(&self, lab: &TortureHome) -> Result<()> {
        let secure = lab.secure();
        std::fs::create_dir_all(secure.join("scripts/runs"))?;
        std::fs::set_permissions(&secure, Permissions::from_mode(0o700))?;
        for (name, bytes) in &self.files {
            std::fs::write(secure.join(name), bytes)?;
            std::fs::set_permissions(secure.join(name), Permissions::from_mode(0o600))?;
        }
        Ok(())
    }

    /// Looks at what a kill has left, and at what the next start makes of it.
    fn check(&self, lab: &TortureHome, seen: &mut ImportKillFigures) -> Result<()> {
        let secure = lab.secure();
        let retired = |name: &&str| {
            // Folders are renamed as a whole, those in them first.
            let names = match *name {
                name if name.starts_with("scripts/") => vec!["scripts.imported", "scripts/runs.imported"],
                _ => vec![],
            };
            let is_file = secure.join(format!("{name}.imported")).exists();
            is_file || names.iter().any(|name| secure.join(name).exists())
        };
        if self.files.iter().any(|(name, _)| retired(name)) {
            // The names change only after the rows are on disk.
            let migrations: Vec<Migration> = portcullis_store::MIGRATIONS
                .iter()
                .chain(portcullis_tools::tables().iter().flat_map(|family| family.migrations))
                .copied()
                .collect();
            let database = Database::open(&secure, &migrations)?;
            let found = comparable(&wait(database.export())?);
            ensure!(found == self.rows, "files were renamed whose rows are not there");
        } else {
            seen.not_begun += 1;
        }
        lab.succeeds(&["clients", "list", "--json"]).context("the next start")?;
        let left: Vec<_> =
            self.files.iter().filter(|(name, _)| !retired(name)).map(|(name, _)| name).collect();
        ensure!(left.is_empty(), "these were not imported: {left:?}");
        ensure!(imported_rows(lab)? == self.rows, "the rows are others than without a kill");
        let checked: Value = serde_json::from_str(&lab.succeeds(&["store", "check", "--json"])?)?;
        ensure!(checked["problems"] == json!([]), "{checked}");
        Ok(())
    }
}

fn imported_rows(lab: &TortureHome) -> Result<Map<String, Value>> {
    Ok(comparable(&serde_json::from_str(&lab.succeeds(&["store", "export"])?)?))
}

/// Returns the rows that come from the files, without seals and ids, which differ each time.
fn comparable(export: &Value) -> Map<String, Value> {
    let of_the_import =
        |table: &str| !["migrations", "operations", "topics", "imports", "table_digests"].contains(&table);
    let tables = export.as_object().into_iter().flatten().filter(|(table, _)| of_the_import(table));
    let stripped = tables.map(|(table, rows)| {
        let mut rows = rows.clone();
        for row in rows.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
            row.remove("seal");
            row.remove("id");
            // When a copy was written.
            if table == "script_copies" {
                row.remove("at");
            }
        }
        let mut rows: Vec<Value> = rows.as_array().cloned().unwrap_or_default();
        rows.sort_by_key(Value::to_string);
        (table.clone(), Value::from(rows))
    });
    stripped.collect()
}

fn rows(export: &Value, table: &str) -> Result<Vec<Value>> {
    export[table].as_array().cloned().with_context(|| format!("no table `{table}`"))
}

fn records(export: &Value, table: &str) -> Result<Vec<Value>> {
    rows(export, table)?
        .iter()
        .map(|row| Ok(serde_json::from_str(row["record"].as_str().context("no record")?)?))
        .collect()
}
