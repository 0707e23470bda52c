//! CA certificates that an administrator trusts in addition to the built-in roots, read from a PEM file.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;

/// About three hundred certificates, four times as many as an operating system trusts.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Why a CA file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CaFileError {
    #[error("the file cannot be read")]
    Unreadable(#[from] io::Error),
    #[error("the file is larger than {FILE_BYTES_MAX} bytes")]
    TooLarge,
    #[error("the file contains no PEM certificate, which begins with -----BEGIN CERTIFICATE-----")]
    Empty,
    #[error("certificate {number} in the file is invalid: {why}")]
    Bad { number: usize, why: String },
}

/// Reads all certificates of a PEM file. One invalid certificate fails the whole file.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, CaFileError> {
    let mut text = Vec::new();
    File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(CaFileError::TooLarge);
    }
    let mut certificates = Vec::new();
    for (index, certificate) in CertificateDer::pem_slice_iter(&text).enumerate() {
        let bad = |why: String| CaFileError::Bad { number: index + 1, why };
        let certificate = certificate.map_err(|error| bad(error.to_string()))?;
        // Verified here, so that the error names the file and not the client that uses it.
        RootCertStore::empty().add(certificate.clone()).map_err(|error| bad(error.to_string()))?;
        certificates.push(certificate);
    }
    if certificates.is_empty() { Err(CaFileError::Empty) } else { Ok(certificates) }
}
