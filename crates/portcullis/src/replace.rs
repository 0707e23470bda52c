//! Replacing a file of a person's so that no program ever sees half of it.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Puts a text in the place of a file. It is on disk when this returns; if it fails, the old one is still there.
pub(crate) fn replace(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let new = beside(path, &format!("{}.new", std::process::id()));
    let written = write_new(&new, text, mode).and_then(|()| std::fs::rename(&new, path));
    if written.is_err() {
        // The first error is the one to tell.
        let _ = std::fs::remove_file(&new);
    }
    written?;
    // The new name must last as well as the new contents.
    let folder = path.parent().unwrap_or(Path::new("/"));
    File::open(folder)?.sync_all()
}

/// Writes a file that must not exist yet.
pub(crate) fn write_new(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    // What the process takes away by default is not what the owner of the file wanted.
    file.set_permissions(Permissions::from_mode(mode))?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// Returns a name beside `path`: `mcp.json` with `x` gives `mcp.json.portcullis-x`.
pub(crate) fn beside(path: &Path, what: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".portcullis-{what}"));
    path.with_file_name(name)
}
