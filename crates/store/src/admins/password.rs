//! Passwords: policy and hashing (argon2id).

use super::AdminError;
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use portcullis_core::Secret;
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// Length is the only rule: a sentence is easier to remember than punctuation.
pub const PASSWORD_CHARS_MIN: usize = 12;
/// Far longer than any password. Hashing more would let a stranger keep the machine busy.
pub const PASSWORD_BYTES_MAX: usize = 1_024;

/// OWASP's minimum for argon2id: 19 MiB, two passes, one lane.
const MEMORY_KIB: u32 = 19 * 1024;
const PASSES: u32 = 2;
const LANES: u32 = 1;
const SALT_BYTES: usize = 16;
const HASH_BYTES: usize = 32;
/// Upper bound for parameters from the file. More would keep the machine busy.
const MEMORY_KIB_MAX: u32 = 1024 * 1024;
const PASSES_MAX: u32 = 64;

/// A password hash with its argon2id parameters.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct StoredPassword {
    memory_kib: u32,
    passes: u32,
    salt: String,
    argon2id: String,
}

/// Checks whether a password may be set.
pub(super) fn check(password: &Secret<Zeroizing<String>>) -> Result<(), AdminError> {
    let password = password.expose();
    if password.len() > PASSWORD_BYTES_MAX {
        return Err(AdminError::LongPassword);
    }
    match password.chars().count() {
        short @ ..PASSWORD_CHARS_MIN => Err(AdminError::ShortPassword(short)),
        _ => Ok(()),
    }
}

impl StoredPassword {
    pub(super) fn of(password: &Secret<Zeroizing<String>>) -> Result<StoredPassword, AdminError> {
        let mut salt = [0; SALT_BYTES];
        getrandom::fill(&mut salt).map_err(AdminError::Random)?;
        let hash = hash(password, &salt, MEMORY_KIB, PASSES)?;
        let (salt, argon2id) = (STANDARD_NO_PAD.encode(salt), STANDARD_NO_PAD.encode(hash));
        Ok(StoredPassword { memory_kib: MEMORY_KIB, passes: PASSES, salt, argon2id })
    }

    /// Returns the hash that an unknown name is compared with, so that it takes as long.
    pub(super) fn dummy() -> StoredPassword {
        let zeros = |count| STANDARD_NO_PAD.encode(vec![0; count]);
        StoredPassword {
            memory_kib: MEMORY_KIB,
            passes: PASSES,
            salt: zeros(SALT_BYTES),
            argon2id: zeros(HASH_BYTES),
        }
    }

    pub(super) fn is_of(&self, password: &Secret<Zeroizing<String>>) -> Result<bool, AdminError> {
        let damaged = |e: base64::DecodeError| AdminError::Hash(e.to_string());
        let salt = STANDARD_NO_PAD.decode(&self.salt).map_err(damaged)?;
        let expected = STANDARD_NO_PAD.decode(&self.argon2id).map_err(damaged)?;
        if self.memory_kib > MEMORY_KIB_MAX || self.passes > PASSES_MAX {
            return Err(AdminError::Hash("the argon2id parameters in the file exceed the limit".to_owned()));
        }
        let found = hash(password, &salt, self.memory_kib, self.passes)?;
        Ok(found.as_slice().ct_eq(&expected).into())
    }
}

fn hash(
    password: &Secret<Zeroizing<String>>,
    salt: &[u8],
    memory_kib: u32,
    passes: u32,
) -> Result<Zeroizing<[u8; HASH_BYTES]>, AdminError> {
    let failed = |e: argon2::Error| AdminError::Hash(e.to_string());
    let params = argon2::Params::new(memory_kib, passes, LANES, Some(HASH_BYTES)).map_err(failed)?;
    let argon2 = argon2::Argon2::new(argon2::Algorithm::Argon2id, argon2::Version::V0x13, params);
    let mut hash = Zeroizing::new([0; HASH_BYTES]);
    argon2.hash_password_into(password.expose().as_bytes(), salt, &mut *hash).map_err(failed)?;
    Ok(hash)
}
