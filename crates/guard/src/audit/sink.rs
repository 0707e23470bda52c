//! Log sinks: files, and in tests a disk that fails on demand.
//!
//! The sink handles files and their ends; the writer handles the content of lines.

use super::AuditSettings;
use super::anchor::{self, Anchor};
use super::chain::{ChainKey, ChainLink, Mac, UnverifiedLine};
use super::log_lines::{CURRENT, closed_name, closed_numbers};
use super::record::TornTail;
use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// How far from the end the last record is searched first; if it is not there, the whole file is searched.
const TAIL_BYTES: u64 = 256 * 1024;

/// A destination for complete lines.
pub(crate) trait LogSink: Send {
    /// Opens the log and returns its end.
    fn resume(&mut self) -> io::Result<ResumePoint>;

    /// Returns whether lines can be appended. If not, the writer must `resume`.
    fn is_open(&self) -> bool;

    /// Appends the bytes: all of them, or none.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Makes everything appended durable.
    fn sync(&mut self) -> io::Result<()>;

    /// Returns whether the file must be rotated.
    fn is_full(&self) -> bool {
        false
    }

    /// Rotates a full file, whose content is durable.
    fn rotate(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Writes an anchor.
    fn anchor(&mut self, _anchor: &Anchor) -> io::Result<()> {
        Ok(())
    }
}

/// The end of the log.
pub(crate) struct ResumePoint {
    pub(crate) key: ChainKey,
    /// The last record of the log.
    pub(crate) end: Option<ChainLink>,
    /// The newest anchor.
    pub(crate) anchored: Option<ChainLink>,
    /// The previous file, if this one has no record yet.
    pub(crate) previous: Option<String>,
    /// A torn line after the last record.
    pub(crate) torn: Option<TornTail>,
}

/// The files of [`AuditSettings`], readable by the hub's user only.
pub(crate) struct FileLogSink {
    settings: AuditSettings,
    file: Option<File>,
    bytes: u64,
    /// The size to truncate to, if that failed after a failed write.
    cut_to: Option<u64>,
    /// How much of the file is known to be on disk.
    synced_bytes: u64,
    /// A sync failed, so everything after `synced_bytes` must be rewritten.
    write_again: bool,
}

impl FileLogSink {
    pub(crate) fn new(settings: AuditSettings) -> FileLogSink {
        FileLogSink { settings, file: None, bytes: 0, cut_to: None, synced_bytes: 0, write_again: false }
    }

    fn path(&self) -> PathBuf {
        self.settings.dir.join(CURRENT)
    }

    fn open(&self) -> io::Result<File> {
        let dir = &self.settings.dir;
        portcullis_core::durable_dir::create_all(dir)?;
        std::fs::set_permissions(dir, Permissions::from_mode(0o700))?;
        let file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(self.path())?;
        file.set_permissions(Permissions::from_mode(0o600))?;
        // The entry of a new file is durable only after the directory is fsynced.
        File::open(dir)?.sync_all()?;
        Ok(file)
    }

    fn key(&self, exists: bool) -> io::Result<ChainKey> {
        let path = &self.settings.key_file;
        // A new key for an existing log would invalidate all of it, and let a forged log pass.
        let key = if exists || path.try_exists()? { ChainKey::read(path) } else { ChainKey::create(path) };
        // Also for an existing key: a crash may have come before the fsync.
        File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()?;
        Ok(key?)
    }

    fn look(&mut self) -> io::Result<(ResumePoint, File, u64)> {
        let mut file = self.open().map_err(named(&self.path()))?;
        if let Some(bytes) = self.cut_to.take()
            && bytes < file.metadata()?.len()
        {
            file.set_len(bytes).inspect_err(|_| self.cut_to = Some(bytes))?;
        }
        self.make_durable(&file).map_err(named(&self.path()))?;
        let numbers = closed_numbers(&self.settings.dir)?;
        let anchors_file = &self.settings.anchors_file;
        let anchored = anchor::newest(anchors_file).map_err(named(anchors_file))?.map(|anchor| anchor.link());
        let exists = file.metadata()?.len() > 0 || !numbers.is_empty() || anchored.is_some();
        let key = self.key(exists)?;
        let (mut end, good_bytes) = last_link(&file)?;
        let mut resumed = ResumePoint { key, end, anchored, previous: None, torn: None };
        if end.is_none() {
            let names = numbers.iter().rev().map(|number| closed_name(*number));
            for name in names {
                resumed.previous.get_or_insert_with(|| name.clone());
                end = last_link(&File::open(self.settings.dir.join(&name))?)?.0;
                if end.is_some() {
                    break;
                }
            }
            resumed.end = end;
        }
        self.end_tail(&mut file, good_bytes, &mut resumed)?;
        let bytes = file.metadata()?.len();
        Ok((resumed, file, bytes))
    }

    /// Makes the content of the file durable.
    ///
    /// After a failed fsync the kernel marks the pages clean, and a second fsync would succeed without writing them. So they
    /// are rewritten.
    fn make_durable(&mut self, file: &File) -> io::Result<()> {
        if self.write_again {
            // The other handle is in append mode and ignores offsets.
            let in_place = OpenOptions::new().write(true).open(self.path())?;
            let mut chunk = vec![0; 64 * 1024];
            let mut at = self.synced_bytes;
            while let count @ 1.. = file.read_at(&mut chunk, at)? {
                in_place.write_all_at(chunk.get(..count).unwrap_or_default(), at)?;
                at += count as u64;
            }
        }
        file.sync_data().inspect_err(|_| self.write_again = true)?;
        self.synced_bytes = file.metadata()?.len();
        self.write_again = false;
        Ok(())
    }

    /// Handles bytes after the last record. A record that lacks only its newline is completed; anything else stays, because
    /// nothing is ever removed from the log.
    fn end_tail(&self, file: &mut File, good_bytes: u64, resumed: &mut ResumePoint) -> io::Result<()> {
        let torn_bytes = file.metadata()?.len() - good_bytes;
        if torn_bytes == 0 {
            return Ok(());
        }
        let before = resumed.end.unwrap_or_else(|| resumed.key.start()).mac;
        if torn_bytes <= TAIL_BYTES && resumed.previous.is_none() {
            let mut tail = vec![0; usize::try_from(torn_bytes).unwrap_or_default()];
            file.read_exact_at(&mut tail, good_bytes)?;
            if let Some(sealed) =
                UnverifiedLine::of(&tail).filter(|sealed| sealed.follows(&resumed.key, before))
            {
                file.write_all(b"\n")?;
                resumed.end = Some(sealed.link);
                return Ok(());
            }
        }
        let mut hash = Sha256::new();
        let mut chunk = vec![0; 64 * 1024];
        file.seek(SeekFrom::Start(good_bytes))?;
        loop {
            match file.read(&mut chunk)? {
                0 => break,
                count => hash.update(&chunk[..count]),
            }
        }
        hash.update(b"\n");
        let torn_sha256 = Mac::from_hex(HEXLOWER.encode(&hash.finalize()).as_bytes());
        resumed.torn = torn_sha256.map(|torn_sha256| TornTail { torn_bytes: torn_bytes + 1, torn_sha256 });
        Ok(())
    }
}

/// Returns the last record of a file, and where it ends.
fn last_link(file: &File) -> io::Result<(Option<ChainLink>, u64)> {
    let bytes = file.metadata()?.len();
    for window in [TAIL_BYTES.min(bytes), bytes] {
        let from = bytes - window;
        let mut tail = vec![0; usize::try_from(window).map_err(io::Error::other)?];
        file.read_exact_at(&mut tail, from)?;
        let mut end = tail.len();
        while let Some(line_end) = tail[..end].iter().rposition(|byte| *byte == b'\n') {
            let start = tail[..line_end].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            if let Some(sealed) = UnverifiedLine::of(&tail[start..line_end]) {
                return Ok((Some(sealed.link), from + line_end as u64 + 1));
            }
            end = line_end;
        }
    }
    Ok((None, 0))
}

fn named(path: &Path) -> impl Fn(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

impl LogSink for FileLogSink {
    fn resume(&mut self) -> io::Result<ResumePoint> {
        self.file = None;
        let (resumed, file, bytes) = self.look()?;
        (self.file, self.bytes) = (Some(file), bytes);
        Ok(resumed)
    }

    /// False after the file was deleted, so that it is created again.
    fn is_open(&self) -> bool {
        let metadata = self.file.as_ref().and_then(|file| file.metadata().ok());
        metadata.is_some_and(|metadata| metadata.nlink() > 0)
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(file) = &mut self.file else { return Err(io::Error::other("the log is not open")) };
        let bytes_before = self.bytes;
        match file.write_all(bytes) {
            Ok(()) => {
                self.bytes += bytes.len() as u64;
                Ok(())
            }
            Err(error) => {
                // A partial write is truncated, because the bytes will be written again.
                self.cut_to = file.set_len(bytes_before).is_err().then_some(bytes_before);
                self.file = None;
                Err(named(&self.path())(error))
            }
        }
    }

    fn sync(&mut self) -> io::Result<()> {
        let Some(file) = &self.file else { return Err(io::Error::other("the log is not open")) };
        if let Err(error) = file.sync_data() {
            (self.file, self.write_again) = (None, true);
            return Err(named(&self.path())(error));
        }
        self.synced_bytes = self.bytes;
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.bytes >= self.settings.file_bytes_max
    }

    fn rotate(&mut self) -> io::Result<()> {
        let dir = &self.settings.dir;
        let number = closed_numbers(dir)?.last().map_or(1, |last| last + 1);
        self.file = None;
        std::fs::rename(self.path(), dir.join(closed_name(number)))?;
        File::open(dir)?.sync_all()
    }

    fn anchor(&mut self, anchor: &Anchor) -> io::Result<()> {
        let path = &self.settings.anchors_file;
        anchor::write(path, anchor).map_err(named(path))
    }
}
