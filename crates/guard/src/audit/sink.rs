//! Where the lines go. A file; in tests also a disk that fails on demand.
//!
//! Rotation would live here: the journal knows only "append" and "make durable".

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// How far back the last line is looked for. Lines are below 2 KiB: 512 bytes of target, each at most six escaped.
const LAST_LINE_BYTES_MAX: u64 = 64 * 1024;

/// Takes whole lines.
pub(crate) trait Sink: Send {
    /// Adds the bytes at the end: all of them, or none.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Returns when everything appended is durable.
    fn sync(&mut self) -> io::Result<()>;

    /// Returns the last whole line, if there is one.
    fn last_line(&mut self) -> io::Result<Option<Vec<u8>>>;
}

/// `audit.jsonl` in a folder that only the hub may look into.
pub(crate) struct FileSink {
    dir: PathBuf,
    file: Option<File>,
}

impl FileSink {
    pub(crate) fn new(dir: &Path) -> FileSink {
        FileSink { dir: dir.to_owned(), file: None }
    }

    fn path(&self) -> PathBuf {
        self.dir.join("audit.jsonl")
    }

    /// Returns the open file. One that somebody removed is made again.
    fn file(&mut self) -> io::Result<&mut File> {
        let usable = match &self.file {
            Some(file) => file.metadata()?.nlink() > 0,
            None => false,
        };
        let file = if usable { self.file.take() } else { None };
        let file = match file {
            Some(file) => file,
            None => self.open().map_err(|error| {
                io::Error::new(error.kind(), format!("{}: {error}", self.path().display()))
            })?,
        };
        Ok(self.file.insert(file))
    }

    fn open(&self) -> io::Result<File> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
        std::fs::set_permissions(&self.dir, Permissions::from_mode(0o700))?;
        let path = self.path();
        let mut file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(&path)?;
        file.set_permissions(Permissions::from_mode(0o600))?;
        // The name of a new file is as durable as its contents only once the folder is.
        File::open(&self.dir)?.sync_all()?;
        end_torn_line(&mut file)?;
        Ok(file)
    }
}

/// Ends a line that was cut off when the machine went down. It is left to be seen: nothing is taken out of the log.
fn end_torn_line(file: &mut File) -> io::Result<()> {
    if file.metadata()?.len() == 0 {
        return Ok(());
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    if last != *b"\n" {
        file.write_all(b"\n")?;
    }
    Ok(())
}

impl Sink for FileSink {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let file = self.file()?;
        let bytes_before = file.metadata()?.len();
        file.write_all(bytes).inspect_err(|_| {
            // What was written of them goes again, because they will be written once more. If even that fails,
            // the next opening ends the torn line.
            if let Some(file) = self.file.take() {
                let _ = file.set_len(bytes_before);
            }
        })
    }

    fn sync(&mut self) -> io::Result<()> {
        // After a failed sync the kernel may have dropped the pages: the handle is not to be trusted any more.
        self.file()?.sync_data().inspect_err(|_| self.file = None)
    }

    fn last_line(&mut self) -> io::Result<Option<Vec<u8>>> {
        let file = self.file()?;
        let bytes = file.metadata()?.len();
        file.seek(SeekFrom::Start(bytes.saturating_sub(LAST_LINE_BYTES_MAX)))?;
        let mut tail = Vec::new();
        file.take(LAST_LINE_BYTES_MAX).read_to_end(&mut tail)?;
        Ok(tail
            .split(|byte| *byte == b'\n')
            .rfind(|line| super::record::seq_of(line).is_some())
            .map(<[u8]>::to_vec))
    }
}
