//! Encrypted file format of the secret store: header and AES-256-GCM.
//!
//! ```text
//! bytes
//!  0.. 8  magic `PCSECRET`
//!  8..10  version, big endian
//! 10      where the key came from when the file was written
//! 11      zero
//! 12..28  key id: tells a wrong key from a damaged file
//! 28..40  Argon2id: memory in KiB, passes, lanes, big endian; zeros where the key is not a passphrase
//! 40..56  Argon2id: salt
//! 56..68  nonce
//! 68..    AES-256-GCM ciphertext and tag; bytes 0..56 are authenticated with it
//! ```

use super::key::MasterKey;
use super::{STORE, SecretError};
use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use zeroize::Zeroizing;

const MAGIC: &[u8; 8] = b"PCSECRET";
const VERSION: u16 = 1;
const HEADER_BYTES: usize = 56;
const TAG_BYTES: usize = 16;
const KEY_ID_BYTES: usize = 16;
const ROW_ID_BYTES: usize = 16;
pub(super) const SALT_BYTES: usize = 16;

// Domain separation: one key, three uses, none of which reveals another.
const LABEL_ENCRYPT: &[u8] = b"portcullis secrets 1 encrypt";
const LABEL_ROW_ID: &[u8] = b"portcullis secrets 1 row id";
const LABEL_KEY_ID: &[u8] = b"portcullis secrets 1 key id";

/// The origin of the key, as stated by the file. Informative only: the key id decides whether a key is right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeySourceId {
    File = 1,
    Credential = 2,
    Passphrase = 3,
    Keyring = 4,
}

impl KeySourceId {
    fn from_byte(byte: u8) -> Option<KeySourceId> {
        match byte {
            1 => Some(KeySourceId::File),
            2 => Some(KeySourceId::Credential),
            3 => Some(KeySourceId::Passphrase),
            4 => Some(KeySourceId::Keyring),
            _ => None,
        }
    }

    pub(super) fn as_str(self) -> &'static str {
        match self {
            KeySourceId::File => "a key file",
            KeySourceId::Credential => "a systemd credential",
            KeySourceId::Passphrase => "a passphrase",
            KeySourceId::Keyring => "a key in the keyring",
        }
    }
}

/// Parameters of the key derivation (Argon2id). All zeros without a passphrase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct KeyDerivation {
    pub(super) memory_kib: u32,
    pub(super) passes: u32,
    pub(super) lanes: u32,
    pub(super) salt: [u8; SALT_BYTES],
}

/// The header before the ciphertext.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CipherHeader {
    pub(super) source: KeySourceId,
    key_id: [u8; KEY_ID_BYTES],
    pub(super) derivation: KeyDerivation,
}

impl CipherHeader {
    pub(super) fn new(source: KeySourceId, master: &MasterKey, derivation: KeyDerivation) -> CipherHeader {
        CipherHeader { source, key_id: key_id(master), derivation }
    }

    /// Parses the header of a file. The ciphertext is not checked, but must exist.
    pub(super) fn parse(bytes: &[u8]) -> Result<CipherHeader, SecretError> {
        let Some((magic, rest)) = bytes.split_first_chunk::<8>() else { return Err(too_short()) };
        if magic != MAGIC {
            return Err(SecretError::Damaged(format!("{STORE} is not a secret store")));
        }
        let Some((version, rest)) = rest.split_first_chunk::<2>() else { return Err(too_short()) };
        // Checked first, to tell a file of another version from a damaged one.
        let version = u16::from_be_bytes(*version);
        if version != VERSION {
            let why = format!("{STORE} is of version {version}, this program reads version {VERSION}");
            return Err(SecretError::Damaged(why));
        }
        if bytes.len() < HEADER_BYTES + NONCE_LEN + TAG_BYTES {
            return Err(too_short());
        }
        let Some(([source, reserved], rest)) = rest.split_first_chunk() else { return Err(too_short()) };
        let (Some(source), 0) = (KeySourceId::from_byte(*source), *reserved) else {
            return Err(SecretError::Damaged(format!("{STORE} is damaged: its header is invalid")));
        };
        let Some((key_id, rest)) = rest.split_first_chunk() else { return Err(too_short()) };
        let Some((numbers, rest)) = rest.split_first_chunk::<12>() else { return Err(too_short()) };
        let Some((salt, _)) = rest.split_first_chunk() else { return Err(too_short()) };
        let [a, b, c, d, e, f, g, h, i, j, k, l] = *numbers;
        let derivation = KeyDerivation {
            memory_kib: u32::from_be_bytes([a, b, c, d]),
            passes: u32::from_be_bytes([e, f, g, h]),
            lanes: u32::from_be_bytes([i, j, k, l]),
            salt: *salt,
        };
        Ok(CipherHeader { source, key_id: *key_id, derivation })
    }

    /// Returns whether the file was encrypted with this key.
    pub(super) fn fits(&self, master: &MasterKey) -> bool {
        // Not constant time: a file that others can write is not read, so no attacker can time this.
        self.key_id == key_id(master)
    }

    fn encode(&self) -> Vec<u8> {
        let KeyDerivation { memory_kib, passes, lanes, salt } = self.derivation;
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_be_bytes());
        bytes.extend_from_slice(&[self.source as u8, 0]);
        bytes.extend_from_slice(&self.key_id);
        for number in [memory_kib, passes, lanes] {
            bytes.extend_from_slice(&number.to_be_bytes());
        }
        bytes.extend_from_slice(&salt);
        bytes
    }
}

/// Encrypts the contents; returns the whole file.
pub(super) fn seal(
    header: &CipherHeader,
    master: &MasterKey,
    mut contents: Zeroizing<Vec<u8>>,
) -> Result<Vec<u8>, SecretError> {
    let failed = |_| SecretError::Cipher;
    let mut file = header.encode();
    let key = encryption_key(master)?;
    let nonce = key.seal_in_place_append_tag(Aad::from(&file), &mut *contents).map_err(failed)?;
    file.extend_from_slice(nonce.as_ref());
    file.extend_from_slice(&contents);
    Ok(file)
}

/// Decrypts a whole file whose header was parsed and whose key matches.
pub(super) fn open(master: &MasterKey, file: &[u8]) -> Result<Zeroizing<Vec<u8>>, SecretError> {
    let (Some(header), Some(rest)) = (file.get(..HEADER_BYTES), file.get(HEADER_BYTES..)) else {
        return Err(too_short());
    };
    let Some((nonce, sealed)) = rest.split_first_chunk::<NONCE_LEN>() else { return Err(too_short()) };
    let mut contents = Zeroizing::new(sealed.to_vec());
    let damaged = |_| SecretError::Damaged(format!("{STORE} is damaged: decryption failed"));
    let opened = encryption_key(master)?
        .open_in_place(Nonce::from(nonce), Aad::from(header), &mut contents)
        .map_err(damaged)?
        .len();
    contents.truncate(opened);
    Ok(contents)
}

fn too_short() -> SecretError {
    SecretError::Damaged(format!("{STORE} is damaged: it is truncated"))
}

/// Returns the id of a secret's row. The database shows neither the name nor whether a guess of it is right.
pub(super) fn row_id(master: &MasterKey, name: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, &*derived(master, LABEL_ROW_ID));
    let tag = hmac::sign(&key, name.as_bytes());
    URL_SAFE_NO_PAD.encode(&tag.as_ref()[..ROW_ID_BYTES])
}

fn encryption_key(master: &MasterKey) -> Result<RandomizedNonceKey, SecretError> {
    // Random nonces are safe for 2^32 writes with one key, more than a store will ever have.
    let key = derived(master, LABEL_ENCRYPT);
    RandomizedNonceKey::new(&AES_256_GCM, &*key).map_err(|_| SecretError::Cipher)
}

fn key_id(master: &MasterKey) -> [u8; KEY_ID_BYTES] {
    let mut id = [0; KEY_ID_BYTES];
    id.copy_from_slice(&derived(master, LABEL_KEY_ID)[..KEY_ID_BYTES]);
    id
}

fn derived(master: &MasterKey, label: &[u8]) -> Zeroizing<[u8; 32]> {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, master.bytes()), label);
    let mut key = Zeroizing::new([0; 32]);
    key.copy_from_slice(tag.as_ref());
    key
}
