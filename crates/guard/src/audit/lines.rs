//! Reading the log: which files it has, and their lines, one at a time and with a bound.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// The file that is written to.
pub(crate) const CURRENT: &str = "audit.jsonl";
/// One line. The largest has 512 bytes of target and 200 characters of arguments, each at most twelve escaped, and
/// names; a longer one is none of ours.
pub(crate) const LINE_BYTES_MAX: usize = 64 * 1024;
/// How much is read at once.
const BUFFER_BYTES: usize = 256 * 1024;

/// Returns the name of the `number`th file that was closed.
pub(crate) fn closed_name(number: u64) -> String {
    format!("audit.{number:06}.jsonl")
}

/// Returns the numbers of the closed files, oldest first.
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

/// The files of a log, oldest first. The one that is written to stays open, so that it is the same file whatever
/// it is called by the time it is read.
pub(crate) struct LogFiles {
    pub(crate) closed: Vec<PathBuf>,
    pub(crate) current: Option<File>,
}

impl LogFiles {
    pub(crate) fn open(dir: &Path) -> io::Result<LogFiles> {
        use std::os::unix::fs::MetadataExt;
        // First: a file that is closed between these two steps is found twice, and not missed.
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
pub(crate) enum Ended {
    Whole,
    /// The file ended first.
    Unfinished,
    /// It has more than [`LINE_BYTES_MAX`]. The rest comes as the next line.
    TooLong,
}

/// Reads lines, none longer than [`LINE_BYTES_MAX`].
pub(crate) struct Lines<R> {
    reader: BufReader<R>,
}

impl<R: Read> Lines<R> {
    pub(crate) fn new(reader: R) -> Lines<R> {
        Lines { reader: BufReader::with_capacity(BUFFER_BYTES, reader) }
    }

    /// Reads the next line into `line`, with its end. Returns `None` at the end of the file.
    pub(crate) fn next(&mut self, line: &mut Vec<u8>) -> io::Result<Option<Ended>> {
        line.clear();
        let bytes = self.reader.by_ref().take(LINE_BYTES_MAX as u64).read_until(b'\n', line)?;
        Ok(match (bytes, line.last()) {
            (0, _) => None,
            (_, Some(b'\n')) => Some(Ended::Whole),
            (LINE_BYTES_MAX, _) => Some(Ended::TooLong),
            _ => Some(Ended::Unfinished),
        })
    }
}
