//! A disk with no room for the record of a call: nothing that has side effects happens. Nor for a change of the database: a
//! client is revoked or is not, and the one who asked knows which.

use super::session::{CallReply, StdioSession, TortureHome};
use anyhow::{Result, ensure};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How often a write is tried once there is room.
const RECOVERY_TRIES_MAX: u64 = 100;
const KEPT: &str = "what was there before";

/// What was seen.
#[derive(Debug, Default)]
pub struct FullDiskFigures {
    /// Refused, and the caller was told that there is no room or no record.
    pub refused: u64,
    /// Files that are not as they were.
    pub changed: u64,
    /// Reads that were answered meanwhile.
    pub read: u64,
    pub recovered: bool,
    pub verified: bool,
    /// Whether a client was revoked exactly if the command said so, and could be revoked when there was room.
    pub revocation_held: bool,
}

/// A small file system, gone when dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(path: PathBuf) -> Result<Option<SmallDisk>> {
        std::fs::create_dir(&path)?;
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=2m", "tmpfs"]).arg(&path).output();
        Ok(mounted.is_ok_and(|output| output.status.success()).then_some(SmallDisk(path)))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Fills the disk under a hub and asks it to write so many times. `None` where this user may not mount.
pub fn run(program: &Path, calls: u64) -> Result<Option<FullDiskFigures>> {
    let lab = TortureHome::new(program)?;
    let Some(disk) = SmallDisk::mount(lab.home().join("small"))? else { return Ok(None) };
    let config = format!("{}[workspace]\npath = \"small\"\n", portcullis_testkit::process::UNHURRIED);
    std::fs::write(lab.home().join("portcullis.toml"), config)?;
    let mut session = StdioSession::start(lab.command::<&str>(&[], &["--mcp"]))?;
    ensure!(session.initialize(), "it does not start");
    let write = |path: &str, content: &str| json!({ "path": path, "content": content });
    ensure!(
        session.call(1, "workspace_write", &write("kept.md", KEPT)) == CallReply::Done,
        "it does not write"
    );
    lab.succeeds(&["clients", "add", "ada", "--json"])?;

    let filler = disk.0.join("filler");
    fill(&filler)?;
    // What is left of the log's last page takes a few records yet.
    let mut id = 1;
    while session.call(id + 1, "workspace_read", &json!({ "path": "kept.md" })) == CallReply::Done && id < 200
    {
        id += 1;
        fill(&filler)?;
    }
    let mut seen = FullDiskFigures::default();
    for _ in 0..calls {
        id += 2;
        if let CallReply::Refused(told) =
            session.call(id, "workspace_write", &write("kept.md", "something else"))
        {
            let why = told.contains("audit log cannot be written") || told.contains("no space is left");
            seen.refused += u64::from(why);
        }
        let read = session.call(id + 1, "workspace_read", &json!({ "path": "kept.md" }));
        seen.read += u64::from(read == CallReply::Done);
        seen.changed += u64::from(std::fs::read_to_string(disk.0.join("ai-data/kept.md"))? != KEPT);
    }
    fill(&filler)?;
    let revoked = lab.succeeds(&["clients", "revoke", "ada", "--json"]).is_ok();
    std::fs::remove_file(&filler)?;
    let is_there =
        || Ok::<_, anyhow::Error>(lab.succeeds(&["clients", "list", "--json"])?.contains("\"ada\""));
    let held = is_there()? != revoked;
    seen.revocation_held =
        held && (revoked || lab.succeeds(&["clients", "revoke", "ada", "--json"]).is_ok()) && !is_there()?;
    let again = write("kept.md", "room again");
    seen.recovered = (0..RECOVERY_TRIES_MAX)
        .any(|tried| session.call(id + 2 + tried, "workspace_write", &again) == CallReply::Done);
    session.close()?;
    seen.verified = lab.succeeds(&["audit", "verify"]).is_ok();
    Ok(Some(seen))
}

/// Takes all the room there is.
fn fill(filler: &Path) -> Result<()> {
    use std::io::Write;
    let mut file = std::fs::File::options().create(true).append(true).open(filler)?;
    // Until it fails, which it must on so small a disk.
    while file.write_all(&[0; 4096]).is_ok() {}
    Ok(())
}
