//! SHA-256 digests of program files, cached by the file's metadata: a server that restarts again and again costs nothing.

use data_encoding::HEXLOWER;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Programs up to this size are known by their contents. Runtimes that carry everything have about a hundred MB.
const PROGRAM_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// How many digests are cached.
const CACHED_MAX: usize = 1_000;

/// Which file it was: device, inode, size, mtime and ctime.
type FileStamp = (u64, u64, u64, i64, i64, i64, i64);

/// The digests of one hub.
#[derive(Default)]
pub struct ProgramDigests(Mutex<BTreeMap<PathBuf, (FileStamp, String)>>);

impl fmt::Debug for ProgramDigests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProgramDigests")
    }
}

impl ProgramDigests {
    /// Returns the digest of a file, or why there is none.
    pub(crate) fn digest(&self, path: &Path) -> String {
        self.read(path).unwrap_or_else(|error| format!("not readable: {}", error.kind()))
    }

    fn read(&self, path: &Path) -> io::Result<String> {
        let file = File::open(path)?;
        let found = file.metadata()?;
        if !found.is_file() {
            return Ok("not a file".to_owned());
        }
        if found.size() > PROGRAM_BYTES_MAX {
            return Ok(format!("too large to read: {} bytes", found.size()));
        }
        let stamp = stamp(&found);
        if let Some((_, digest)) = self.0.lock().get(path).filter(|(cached, _)| *cached == stamp) {
            return Ok(digest.clone());
        }
        let (mut hash, mut buffer) = (Sha256::new(), vec![0; 256 * 1024]);
        let mut file = file.take(PROGRAM_BYTES_MAX + 1);
        loop {
            match file.read(&mut buffer)? {
                0 => break,
                bytes => hash.update(&buffer[..bytes]),
            }
        }
        let digest = format!("sha256:{}", HEXLOWER.encode(&hash.finalize()));
        let mut cached = self.0.lock();
        if cached.len() >= CACHED_MAX {
            cached.clear();
        }
        cached.insert(path.to_owned(), (stamp, digest.clone()));
        Ok(digest)
    }
}

fn stamp(found: &Metadata) -> FileStamp {
    (
        found.dev(),
        found.ino(),
        found.size(),
        found.mtime(),
        found.mtime_nsec(),
        found.ctime(),
        found.ctime_nsec(),
    )
}
