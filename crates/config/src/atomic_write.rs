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
pub fn write_new(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    // Set explicitly: the umask must not change the mode.
    file.set_permissions(Permissions::from_mode(mode))?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// Returns a sibling name: `mcp.json` with `x` gives `mcp.json.portcullis-x`.
pub fn sibling_path(path: &Path, what: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".portcullis-{what}"));
    path.with_file_name(name)
}
