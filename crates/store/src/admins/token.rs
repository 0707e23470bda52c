//! Tokens of links and sessions.

use super::AdminError;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use portcullis_core::Secret;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq;

/// 256 bits cannot be guessed, so a plain hash is enough to store.
const RANDOM_BYTES: usize = 32;
/// The random bytes in unpadded base64.
const CHARS: usize = 43;
/// Enough to tell sessions apart.
const ID_BYTES: usize = 6;

/// The SHA-256 of a token.
#[derive(Debug, Clone, Copy)]
pub(super) struct AdminTokenDigest([u8; 32]);

impl PartialEq for AdminTokenDigest {
    /// Constant time.
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl AdminTokenDigest {
    pub(super) fn to_hex(self) -> String {
        HEXLOWER.encode(&self.0)
    }

    pub(super) fn from_hex(text: &str) -> Option<AdminTokenDigest> {
        let bytes = HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok()?;
        Some(AdminTokenDigest(bytes.try_into().ok()?))
    }
}

pub(super) fn generate() -> Result<(Secret<String>, AdminTokenDigest), AdminError> {
    let mut bytes = [0; RANDOM_BYTES];
    getrandom::fill(&mut bytes).map_err(AdminError::Random)?;
    let secret = URL_SAFE_NO_PAD.encode(bytes);
    let digest = AdminTokenDigest(Sha256::digest(secret.as_bytes()).into());
    Ok((Secret::new(secret), digest))
}

/// Returns the digest of a received token; `None` if it does not have the form of one.
pub(super) fn digest_of(secret: &str) -> Option<AdminTokenDigest> {
    (secret.len() == CHARS).then(|| AdminTokenDigest(Sha256::digest(secret.as_bytes()).into()))
}

/// Makes an identifier that grants nothing.
pub(super) fn short_id() -> Result<String, AdminError> {
    let mut bytes = [0; ID_BYTES];
    getrandom::fill(&mut bytes).map_err(AdminError::Random)?;
    Ok(HEXLOWER.encode(&bytes))
}
