//! Files of scripts, and stored copies by hash.

use super::{SOURCE_BYTES_MAX, ScriptError, ScriptName};
use data_encoding::HEXLOWER;
use portcullis_store::FileError;
use rustix::fs::OFlags;
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

const PRIVATE_FILE: u32 = 0o600;
const PRIVATE_FOLDER: u32 = 0o700;
/// How old a copy is that no row names before it is removed. A change takes seconds.
const UNUSED_FOR: Duration = Duration::from_secs(60);

pub(super) fn sha256(bytes: &[u8]) -> String {
    HEXLOWER.encode(&Sha256::digest(bytes))
}

/// Returns the scripts in the folder. Other file names are skipped.
pub(super) fn names_in(folder: &Path, names_max: usize) -> Result<Vec<ScriptName>, ScriptError> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(FileError::new("read", folder, error).into()),
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let names = names.filter(|name| name.ends_with(".star")).filter_map(|name| name.parse().ok());
    Ok(names.take(names_max).collect())
}

/// Reads the file of a script.
pub(super) fn read(folder: &Path, name: &ScriptName) -> Result<String, ScriptError> {
    // No symlink is followed, and a FIFO in its place does not block.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let unreadable =
        |error: io::Error| ScriptError::Unreadable { name: name.clone(), why: error.kind().to_string() };
    let file = OpenOptions::new().read(true).custom_flags(flags).open(folder.join(name.as_str()));
    let file = file.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => ScriptError::Unknown(name.clone()),
        _ if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
            ScriptError::NotFile(name.clone())
        }
        _ => unreadable(error),
    })?;
    let metadata = file.metadata().map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(ScriptError::NotFile(name.clone()));
    }
    let mut bytes = Vec::new();
    file.take(SOURCE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() > SOURCE_BYTES_MAX {
        return Err(ScriptError::TooLarge {
            name: name.clone(),
            bytes: metadata.len().max(bytes.len() as u64),
        });
    }
    String::from_utf8(bytes).map_err(|_| ScriptError::NotText(name.clone()))
}

/// Writes the file of a script atomically.
pub(super) fn put(folder: &Path, name: &ScriptName, source: &str) -> Result<(), ScriptError> {
    make(folder)?;
    Ok(write(folder, name.as_str(), source)?)
}

pub(super) fn remove(folder: &Path, name: &ScriptName) -> Result<(), ScriptError> {
    let path = folder.join(name.as_str());
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(ScriptError::Unknown(name.clone())),
        removed => Ok(removed.map_err(|error| FileError::new("remove", &path, error))?),
    }
}

fn make(folder: &Path) -> Result<(), FileError> {
    let made = DirBuilder::new().recursive(true).mode(PRIVATE_FOLDER).create(folder);
    made.map_err(|error| FileError::new("make", folder, error))
}

fn write(folder: &Path, name: &str, source: &str) -> Result<(), FileError> {
    let path = folder.join(name);
    let failed = |error: io::Error| FileError::new("write", &path, error);
    // Not a script's name, so that a leftover of a crash is no script.
    let new_path = folder.join(format!(".{name}.new"));
    match std::fs::remove_file(&new_path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let new = OpenOptions::new().create_new(true).write(true).mode(PRIVATE_FILE).open(&new_path);
    let mut new = new.map_err(failed)?;
    new.write_all(source.as_bytes()).and_then(|()| new.sync_all()).map_err(failed)?;
    std::fs::rename(&new_path, &path).map_err(failed)?;
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed)
}

/// Copies of versions, content-addressed by their hash.
pub(super) struct ScriptCopies {
    dir: PathBuf,
}

impl ScriptCopies {
    pub(super) fn new(dir: PathBuf) -> ScriptCopies {
        ScriptCopies { dir }
    }

    /// Stores a version. An existing copy is reused if its contents match its name.
    pub(super) fn keep(&self, hash: &str, source: &str) -> Result<(), ScriptError> {
        if self.read(hash).is_ok() {
            return Ok(());
        }
        make(&self.dir)?;
        Ok(write(&self.dir, &format!("{hash}.star"), source)?)
    }

    /// Returns a version, if its contents still match its hash.
    pub(super) fn read(&self, hash: &str) -> Result<String, String> {
        let gone =
            |why: &str| format!("the stored version {} of the script {why}", &hash[..hash.len().min(12)]);
        let flags = OFlags::NOFOLLOW.bits().cast_signed();
        let file =
            OpenOptions::new().read(true).custom_flags(flags).open(self.dir.join(format!("{hash}.star")));
        let file = file.map_err(|error| gone(&format!("cannot be read: {}", error.kind())))?;
        let mut bytes = Vec::new();
        let read = file.take(SOURCE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes);
        read.map_err(|error| gone(&format!("cannot be read: {}", error.kind())))?;
        if sha256(&bytes) != hash {
            return Err(gone("was changed; approve the script again"));
        }
        String::from_utf8(bytes).map_err(|_| gone("is not UTF-8"))
    }

    /// Removes versions that no record refers to. One that cannot be removed only takes space.
    pub(super) fn forget_others(&self, used: &BTreeSet<String>) {
        for entry in std::fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let hash = name.to_str().and_then(|name| name.strip_suffix(".star"));
            let is_unused = hash.is_some_and(|hash| hash.len() == 64 && !used.contains(hash));
            // A copy is written before the row that names it: a young one may belong to a change under way.
            let is_old = |file: std::fs::Metadata| {
                file.modified().ok().and_then(|at| at.elapsed().ok()).is_some_and(|age| age >= UNUSED_FOR)
            };
            if is_unused && entry.metadata().is_ok_and(is_old) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }
}
