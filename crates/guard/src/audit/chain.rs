//! The chain through all records, and the key that makes it.
//!
//! Each line ends in `"mac"`: an HMAC-SHA256 over the `mac` of the line before and everything in this line before
//! its own. Whoever has not the key can neither change, add, remove nor move a line without the chain breaking
//! there. The key lies in a file apart from the log, so that a copy of the log does not carry it.

use hmac::{Hmac, KeyInit, Mac as _};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

const KEY_BYTES: usize = 32;
/// What stands between the rest of a line and its code. The code and `"}` follow.
const MAC_FIELD: &[u8] = b",\"mac\":\"";
/// How every line begins.
const SEQ_FIELD: &[u8] = b"{\"seq\":";

/// The first byte of everything that the key signs, so that a code for one purpose never serves another.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Purpose {
    Start = 0,
    Line = 1,
    Digest = 2,
}

/// A code that only the key can make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mac([u8; 32]);

impl Mac {
    /// The code in hexadecimal.
    pub(super) fn digits(self) -> [u8; 64] {
        let mut digits = [0; 64];
        for (pair, byte) in digits.as_chunks_mut::<2>().0.iter_mut().zip(self.0) {
            *pair = hex_digits(byte);
        }
        digits
    }

    pub(crate) fn to_hex(self) -> String {
        hex(&self.0)
    }

    /// Reads what [`Mac::to_hex`] writes, and nothing else: a second way to write the same code would be an edit
    /// that nobody sees.
    pub(crate) fn from_hex(text: &[u8]) -> Option<Mac> {
        read_hex(text).map(Mac)
    }
}

impl Serialize for Mac {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let digits = self.digits();
        serializer.serialize_str(std::str::from_utf8(&digits).map_err(serde::ser::Error::custom)?)
    }
}

impl<'de> Deserialize<'de> for Mac {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Mac, D::Error> {
        let text = String::deserialize(deserializer)?;
        Mac::from_hex(text.as_bytes()).ok_or_else(|| serde::de::Error::custom("not a code"))
    }
}

/// The number and the code of a line: all that the next one needs to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) seq: u64,
    pub(crate) mac: Mac,
}

/// Makes and checks codes. Never printed.
#[derive(Clone)]
pub(crate) struct ChainKey {
    hmac: Hmac<Sha256>,
}

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error(
        "{path}: the key of the audit log is missing, and without it nobody can say whether the log was changed; \
         put the file back, or move the log and its anchors away to begin a new one", path = .0.display()
    )]
    Missing(PathBuf),
    #[error("{path}: expected {KEY_BYTES} bytes in hexadecimal", path = .0.display())]
    Malformed(PathBuf),
    #[error("{path}: {source}", path = .path.display())]
    Io { path: PathBuf, source: io::Error },
}

impl From<KeyError> for io::Error {
    fn from(error: KeyError) -> io::Error {
        io::Error::other(error)
    }
}

impl ChainKey {
    pub(crate) fn new(bytes: &[u8; KEY_BYTES]) -> ChainKey {
        #[expect(clippy::expect_used, reason = "HMAC takes a key of any length")]
        let hmac = Hmac::new_from_slice(bytes).expect("a key of any length");
        ChainKey { hmac }
    }

    /// Reads the key. A file that others can read is closed to them.
    pub(crate) fn read(path: &Path) -> Result<ChainKey, KeyError> {
        let failed = |source: io::Error| match source.kind() {
            io::ErrorKind::NotFound => KeyError::Missing(path.to_owned()),
            _ => KeyError::Io { path: path.to_owned(), source },
        };
        let file = File::open(path).map_err(failed)?;
        if file.metadata().map_err(failed)?.permissions().mode() & 0o077 != 0 {
            tracing::warn!(path = %path.display(), "The key of the audit log was open to other users; it is closed now.");
            file.set_permissions(Permissions::from_mode(0o600)).map_err(failed)?;
        }
        let mut text = Vec::new();
        file.take(2 * KEY_BYTES as u64 + 2).read_to_end(&mut text).map_err(failed)?;
        let key = read_hex(text.trim_ascii_end()).ok_or_else(|| KeyError::Malformed(path.to_owned()))?;
        Ok(ChainKey::new(&key))
    }

    /// Makes a key where there is none.
    pub(crate) fn create(path: &Path) -> Result<ChainKey, KeyError> {
        let mut key = [0; KEY_BYTES];
        let made = getrandom::fill(&mut key).map_err(|error| io::Error::other(error.to_string()));
        match made.and_then(|()| place(path, &format!("{}\n", hex(&key)))) {
            Ok(()) => Ok(ChainKey::new(&key)),
            Err(source) => Err(KeyError::Io { path: path.to_owned(), source }),
        }
    }

    fn sign(&self, purpose: Purpose, parts: [&[u8]; 2]) -> Mac {
        let mut hmac = self.hmac.clone();
        hmac.update(&[purpose as u8]);
        parts.iter().for_each(|part| hmac.update(part));
        Mac(hmac.finalize().into_bytes().into())
    }

    /// Returns what stands before the first line.
    pub(crate) fn start(&self) -> Link {
        Link { seq: 0, mac: self.sign(Purpose::Start, [b"portcullis audit 1", b""]) }
    }

    /// Returns the code of a line whose bytes before its code are `body`.
    pub(crate) fn line(&self, before: Mac, body: &[u8]) -> Mac {
        self.sign(Purpose::Line, [&before.0, body])
    }

    /// Returns a digest from which nobody without the key can guess what was digested. Arguments are often short.
    pub(crate) fn conceal(&self, digest: &[u8; 32]) -> Mac {
        self.sign(Purpose::Digest, [digest, b""])
    }

    /// Adds the line after `before`: `write` adds an object that begins with the number it is given, and this its
    /// code and its end.
    pub(crate) fn add(
        &self,
        before: Link,
        lines: &mut Vec<u8>,
        write: impl FnOnce(u64, &mut Vec<u8>),
    ) -> Link {
        let (seq, start) = (before.seq + 1, lines.len());
        write(seq, lines);
        // Its closing brace.
        lines.pop();
        let mac = self.line(before.mac, lines.get(start..).unwrap_or_default());
        lines.extend_from_slice(MAC_FIELD);
        lines.extend_from_slice(&mac.digits());
        lines.extend_from_slice(b"\"}\n");
        Link { seq, mac }
    }
}

/// A line taken apart. Nothing in it is believed yet.
pub(crate) struct Sealed<'a> {
    pub(crate) body: &'a [u8],
    pub(crate) link: Link,
}

impl Sealed<'_> {
    /// Takes a line, without its end, apart.
    pub(crate) fn of(line: &[u8]) -> Option<Sealed<'_>> {
        let (body, end) = line.split_at_checked(line.len().checked_sub(MAC_FIELD.len() + 64 + 2)?)?;
        let mac = Mac::from_hex(end.strip_prefix(MAC_FIELD)?.strip_suffix(b"\"}")?)?;
        let rest = body.strip_prefix(SEQ_FIELD)?;
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let seq = std::str::from_utf8(rest.get(..digits)?).ok()?.parse().ok()?;
        (rest.get(digits) == Some(&b',')).then_some(Sealed { body, link: Link { seq, mac } })
    }

    pub(crate) fn follows(&self, key: &ChainKey, before: Mac) -> bool {
        key.line(before, self.body) == self.link.mac
    }
}

/// Writes a small file that is either whole or not there, for this user alone. One that is there stays.
fn place(path: &Path, text: &str) -> io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("."));
    portcullis_core::folder::make(dir)?;
    let draft = path.with_extension("key.new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::hard_link(&draft, path)?;
    std::fs::remove_file(&draft)?;
    File::open(dir)?.sync_all()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().flat_map(|byte| hex_digits(*byte)).map(char::from).collect()
}

fn hex_digits(byte: u8) -> [u8; 2] {
    [byte >> 4, byte & 15].map(|value| b"0123456789abcdef"[value as usize])
}

fn read_hex(text: &[u8]) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 2 * bytes.len() {
        return None;
    }
    let value = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        let [high, low] = pair else { return None };
        *byte = value(*high)? << 4 | value(*low)?;
    }
    Some(bytes)
}
