//! Atomic, durable file replacement: write, fsync, rename, fsync of the folder.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Replaces a file. The text is durable on return; on failure the old file is intact.
pub fn replace(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let new = sibling_path(path, &format!("{}.new", std::process::id()));
    let written = write_new(&new, text, mode).and_then(|()| std::fs::rename(&new, path));
    if written.is_err() {
        // The first error counts.
        let _ = std::fs::remove_file(&new);
    }
    written?;
    // The rename must be durable too.
    let folder = path.parent().unwrap_or(Path::new("/"));
    File::open(folder)?.sync_all()
}

/// Writes a file that must not exist yet.
pub fn write_new(path: &Path, content: impl AsRef<[u8]>, mode: u32) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    // Set explicitly: the umask must not change the mode.
    file.set_permissions(Permissions::from_mode(mode))?;
    file.write_all(content.as_ref())?;
    file.sync_all()
}

/// Backups of one file. More mean that nothing reads them.
const BACKUPS_MAX: usize = 999;

/// Copies a file to the first free of `FILE.bak-1`, `FILE.bak-2` and so on, readable by its owner only. The copy is durable on
/// return.
pub fn keep_backup(path: &Path) -> io::Result<PathBuf> {
    let mut original = File::open(path)?;
    for number in 1..=BACKUPS_MAX {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".bak-{number}"));
        let backup = path.with_file_name(name);
        let mut copy = match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&backup) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            opened => opened?,
        };
        let copied = io::copy(&mut original, &mut copy).and_then(|_| copy.sync_all());
        if copied.is_err() {
            // Half a backup would pass for one.
            let _ = std::fs::remove_file(&backup);
        }
        copied?;
        File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()?;
        return Ok(backup);
    }
    Err(io::Error::other(format!("it has {BACKUPS_MAX} backups already; move them away first")))
}

/// Returns a sibling name: `mcp.json` with `x` gives `mcp.json.portcullis-x`.
pub fn sibling_path(path: &Path, what: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".portcullis-{what}"));
    path.with_file_name(name)
}
