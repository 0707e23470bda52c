//! The files of the audit log and a bounded line reader.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// The current file.
pub(crate) const CURRENT: &str = "audit.jsonl";
/// Bound on one line. The largest has 512 bytes of target and 200 characters of arguments, each escaped to at most twelve
/// bytes, and names.
pub(crate) const LINE_BYTES_MAX: usize = 64 * 1024;
/// Read size.
const BUFFER_BYTES: usize = 256 * 1024;

/// Returns the name of the `number`th rotated file.
pub(crate) fn closed_name(number: u64) -> String {
    format!("audit.{number:06}.jsonl")
}

/// Returns the numbers of the rotated files, oldest first.
pub(crate) fn closed_numbers(dir: &Path) -> io::Result<Vec<u64>> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut numbers = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("audit.")?.strip_suffix(".jsonl"));
        let number = number.and_then(|number| number.parse().ok());
        numbers.extend(number.filter(|number| name.to_str() == Some(&closed_name(*number))));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// The files of a log, oldest first. The current file is held open, so that a rotation meanwhile does not matter.
pub(crate) struct LogFiles {
    pub(crate) closed: Vec<PathBuf>,
    pub(crate) current: Option<File>,
}

impl LogFiles {
    pub(crate) fn open(dir: &Path) -> io::Result<LogFiles> {
        use std::os::unix::fs::MetadataExt;
        // Opened first: a file rotated between the two steps is found twice (and skipped below), never missed.
        let current = match File::open(dir.join(CURRENT)) {
            Ok(file) => Some(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let held = current.as_ref().map(File::metadata).transpose()?.map(|held| (held.dev(), held.ino()));
        let mut closed = Vec::new();
        for number in closed_numbers(dir)? {
            let path = dir.join(closed_name(number));
            let metadata = std::fs::metadata(&path)?;
            if held != Some((metadata.dev(), metadata.ino())) {
                closed.push(path);
            }
        }
        Ok(LogFiles { closed, current })
    }
}

/// How a line ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineEnd {
    Whole,
    /// The file ended before the newline.
    Unfinished,
    /// Longer than [`LINE_BYTES_MAX`]. The rest comes as the next line.
    TooLong,
}

/// Reads lines of at most [`LINE_BYTES_MAX`].
pub(crate) struct LogLineReader<R> {
    reader: BufReader<R>,
}

impl<R: Read> LogLineReader<R> {
    pub(crate) fn new(reader: R) -> LogLineReader<R> {
        LogLineReader { reader: BufReader::with_capacity(BUFFER_BYTES, reader) }
    }

    /// Reads the next line with its newline into `line`. Returns `None` at the end of the file.
    pub(crate) fn next(&mut self, line: &mut Vec<u8>) -> io::Result<Option<LineEnd>> {
        line.clear();
        let bytes = self.reader.by_ref().take(LINE_BYTES_MAX as u64).read_until(b'\n', line)?;
        Ok(match (bytes, line.last()) {
            (0, _) => None,
            (_, Some(b'\n')) => Some(LineEnd::Whole),
            (LINE_BYTES_MAX, _) => Some(LineEnd::TooLong),
            _ => Some(LineEnd::Unfinished),
        })
    }
}
