//! SHA-256 and gzip, as the formats write them.

use anyhow::Result;
use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};
use std::io::Write;

/// Returns the SHA-256 in lower-case hexadecimal digits.
pub(super) fn sha256(content: &[u8]) -> String {
    HEXLOWER.encode(&Sha256::digest(content))
}

/// Returns the SHA-256 as the RECORD of a wheel has it.
pub(super) fn sha256_base64url(content: &[u8]) -> String {
    BASE64URL_NOPAD.encode(&Sha256::digest(content))
}

/// Compresses, without a date and a name.
pub(super) fn gzip(content: &[u8], level: Compression) -> Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), level);
    encoder.write_all(content)?;
    Ok(encoder.finish()?)
}
