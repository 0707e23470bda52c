//! The HMAC chain over all audit records, and its key.
//!
//! Each line ends in `"mac"`: an HMAC-SHA256 over the `mac` of the previous line and everything before its own. Without the
//! key, no line can be changed, added, removed or moved without breaking the chain there. The key is stored apart from the
//! log, so that a copy of the log does not include it.

use data_encoding::HEXLOWER;
use hmac::{Hmac, KeyInit, Mac as _};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

const KEY_BYTES: usize = 32;
/// The separator between the body of a line and its MAC. The MAC and `"}` follow.
const MAC_FIELD: &[u8] = b",\"mac\":\"";
/// The start of every line.
const SEQ_FIELD: &[u8] = b"{\"seq\":";

/// Domain separation: the first byte of every signed message, so that a MAC for one purpose is never valid for another.
#[derive(Clone, Copy)]
#[repr(u8)]
enum MacPurpose {
    Start = 0,
    Line = 1,
    Digest = 2,
}

/// An HMAC-SHA256.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mac([u8; 32]);

impl Mac {
    /// Returns the MAC in hexadecimal.
    pub(super) fn digits(self) -> [u8; 64] {
        let mut digits = [0; 64];
        HEXLOWER.encode_mut(&self.0, &mut digits);
        digits
    }

    pub(crate) fn to_hex(self) -> String {
        HEXLOWER.encode(&self.0)
    }

    /// Parses exactly what [`Mac::to_hex`] writes: a second spelling of the same MAC would be an undetected edit.
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
        Mac::from_hex(text.as_bytes()).ok_or_else(|| serde::de::Error::custom("not a MAC"))
    }
}

/// The sequence number and MAC of a line, which the next one builds on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChainLink {
    pub(crate) seq: u64,
    pub(crate) mac: Mac,
}

/// Signs and verifies. Never printed.
#[derive(Clone)]
pub(crate) struct ChainKey {
    hmac: Hmac<Sha256>,
}

/// Why the key is not available.
#[derive(Debug, thiserror::Error)]
pub enum ChainKeyError {
    #[error(
        "{path}: the key of the audit log is missing, so the log cannot be verified; \
         restore the file, or move the log and its anchors away to begin a new one", path = .0.display()
    )]
    Missing(PathBuf),
    #[error("{path}: expected {KEY_BYTES} bytes in hexadecimal", path = .0.display())]
    Malformed(PathBuf),
    #[error("{path}: {source}", path = .path.display())]
    Io { path: PathBuf, source: io::Error },
}

impl From<ChainKeyError> for io::Error {
    fn from(error: ChainKeyError) -> io::Error {
        io::Error::other(error)
    }
}

impl ChainKey {
    pub(crate) fn new(bytes: &[u8; KEY_BYTES]) -> ChainKey {
        #[expect(clippy::expect_used, reason = "HMAC takes a key of any length")]
        let hmac = Hmac::new_from_slice(bytes).expect("a key of any length");
        ChainKey { hmac }
    }

    /// Reads the key. Restricts the file's mode if other users can read it.
    pub(crate) fn read(path: &Path) -> Result<ChainKey, ChainKeyError> {
        let failed = |source: io::Error| match source.kind() {
            io::ErrorKind::NotFound => ChainKeyError::Missing(path.to_owned()),
            _ => ChainKeyError::Io { path: path.to_owned(), source },
        };
        let file = File::open(path).map_err(failed)?;
        if file.metadata().map_err(failed)?.permissions().mode() & 0o077 != 0 {
            tracing::warn!(path = %path.display(), "audit key was readable by other users; mode set to 0600");
            file.set_permissions(Permissions::from_mode(0o600)).map_err(failed)?;
        }
        let mut text = Vec::new();
        file.take(2 * KEY_BYTES as u64 + 2).read_to_end(&mut text).map_err(failed)?;
        let key = read_hex(text.trim_ascii_end()).ok_or_else(|| ChainKeyError::Malformed(path.to_owned()))?;
        Ok(ChainKey::new(&key))
    }

    /// Creates the key; an existing one is an error.
    pub(crate) fn create(path: &Path) -> Result<ChainKey, ChainKeyError> {
        let mut key = [0; KEY_BYTES];
        let made = getrandom::fill(&mut key).map_err(|error| io::Error::other(error.to_string()));
        match made.and_then(|()| place(path, &format!("{}\n", HEXLOWER.encode(&key)))) {
            Ok(()) => Ok(ChainKey::new(&key)),
            Err(source) => Err(ChainKeyError::Io { path: path.to_owned(), source }),
        }
    }

    fn sign(&self, purpose: MacPurpose, parts: [&[u8]; 2]) -> Mac {
        let mut hmac = self.hmac.clone();
        hmac.update(&[purpose as u8]);
        parts.iter().for_each(|part| hmac.update(part));
        Mac(hmac.finalize().into_bytes().into())
    }

    /// Returns the link before the first line.
    pub(crate) fn start(&self) -> ChainLink {
        ChainLink { seq: 0, mac: self.sign(MacPurpose::Start, [b"portcullis audit 1", b""]) }
    }

    /// Returns the MAC of a line with this `body`.
    pub(crate) fn line(&self, before: Mac, body: &[u8]) -> Mac {
        self.sign(MacPurpose::Line, [&before.0, body])
    }

    /// Returns a keyed digest. Arguments are often short, so a plain digest could be guessed.
    pub(crate) fn conceal(&self, digest: &[u8; 32]) -> Mac {
        self.sign(MacPurpose::Digest, [digest, b""])
    }

    /// Appends the line after `before`: `write` appends an object that begins with the given sequence number, and this
    /// method its MAC.
    pub(crate) fn add(
        &self,
        before: ChainLink,
        lines: &mut Vec<u8>,
        write: impl FnOnce(u64, &mut Vec<u8>),
    ) -> ChainLink {
        let (seq, start) = (before.seq + 1, lines.len());
        write(seq, lines);
        // The closing brace.
        lines.pop();
        let mac = self.line(before.mac, lines.get(start..).unwrap_or_default());
        lines.extend_from_slice(MAC_FIELD);
        lines.extend_from_slice(&mac.digits());
        lines.extend_from_slice(b"\"}\n");
        ChainLink { seq, mac }
    }
}

/// A parsed line, not verified yet.
pub(crate) struct UnverifiedLine<'a> {
    pub(crate) body: &'a [u8],
    pub(crate) link: ChainLink,
}

impl UnverifiedLine<'_> {
    /// Parses a line without its newline.
    pub(crate) fn of(line: &[u8]) -> Option<UnverifiedLine<'_>> {
        let (body, end) = line.split_at_checked(line.len().checked_sub(MAC_FIELD.len() + 64 + 2)?)?;
        let mac = Mac::from_hex(end.strip_prefix(MAC_FIELD)?.strip_suffix(b"\"}")?)?;
        let rest = body.strip_prefix(SEQ_FIELD)?;
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let seq = std::str::from_utf8(rest.get(..digits)?).ok()?.parse().ok()?;
        (rest.get(digits) == Some(&b',')).then_some(UnverifiedLine { body, link: ChainLink { seq, mac } })
    }

    pub(crate) fn follows(&self, key: &ChainKey, before: Mac) -> bool {
        key.line(before, self.body) == self.link.mac
    }
}

/// Creates a small file atomically with mode 0600. An existing file is an error.
fn place(path: &Path, text: &str) -> io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("."));
    portcullis_core::durable_dir::create_all(dir)?;
    let draft = path.with_extension("key.new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::hard_link(&draft, path)?;
    std::fs::remove_file(&draft)?;
    File::open(dir)?.sync_all()
}

fn read_hex(text: &[u8]) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 2 * bytes.len() {
        return None;
    }
    HEXLOWER.decode_mut(text, &mut bytes).ok()?;
    Some(bytes)
}
