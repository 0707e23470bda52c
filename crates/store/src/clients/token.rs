//! Tokens: how they are made, and how they are compared.

use super::IdentityError;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use data_encoding::HEXLOWER;
use portcullis_core::Secret;
use sha2::{Digest as _, Sha256};
use std::hash::{Hash, Hasher};
use subtle::ConstantTimeEq;

/// What every token begins with, so that people and secret scanners recognise one.
pub const TOKEN_PREFIX: &str = "pcl_";

/// 256 bits: guessing is out of the question, so a plain hash is enough to store.
const RANDOM_BYTES: usize = 32;
/// The random bytes in base64 without padding.
const BODY_CHARS: usize = 43;
/// How much of a token a list shows. 48 of 256 bits: enough to recognise it, useless for a guess.
const HINT_CHARS: usize = 8;

/// The SHA-256 of a token.
#[derive(Clone, Copy)]
pub(super) struct ClientTokenDigest([u8; 32]);

impl PartialEq for ClientTokenDigest {
    /// Takes the same time wherever two digests differ, so a map of clients tells nothing by its timing.
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for ClientTokenDigest {}

impl Hash for ClientTokenDigest {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl ClientTokenDigest {
    /// Returns enough of it to tell two tokens apart, and too little to find either by.
    pub(super) fn mark(self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    }

    pub(super) fn to_hex(self) -> String {
        HEXLOWER.encode(&self.0)
    }

    /// Reads what [`ClientTokenDigest::to_hex`] wrote, and nothing else.
    pub(super) fn from_hex(text: &str) -> Option<ClientTokenDigest> {
        let bytes = HEXLOWER.decode(text.as_bytes()).ok()?;
        Some(ClientTokenDigest(bytes.try_into().ok()?))
    }
}

/// Makes a token.
pub(super) fn generate() -> Result<(Secret<String>, ClientTokenDigest), IdentityError> {
    let mut bytes = [0; RANDOM_BYTES];
    getrandom::fill(&mut bytes).map_err(IdentityError::Random)?;
    let token = format!("{TOKEN_PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes));
    let digest = ClientTokenDigest(Sha256::digest(token.as_bytes()).into());
    Ok((Secret::new(token), digest))
}

/// Returns the digest of what a stranger sent; `None` if it does not even look like a token.
pub(super) fn digest_of(token: &str) -> Option<ClientTokenDigest> {
    // The form of a token is public, so refusing early tells nothing; it also bounds the work.
    let body = token.strip_prefix(TOKEN_PREFIX)?;
    (body.len() == BODY_CHARS).then(|| ClientTokenDigest(Sha256::digest(token.as_bytes()).into()))
}

/// Returns the part of a token that may be shown.
pub(super) fn hint_of(token: &str) -> String {
    token.chars().skip(TOKEN_PREFIX.len()).take(HINT_CHARS).collect()
}
