//! Certificates of authorities that a person trusts besides the well-known ones.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;

/// Three hundred certificates. All that a whole operating system trusts are a quarter of it.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Why a file holds no certificates that can be used.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    #[error("it cannot be read")]
    Unreadable(#[from] io::Error),
    #[error("it is larger than {FILE_BYTES_MAX} bytes")]
    TooLarge,
    #[error("it holds no certificate in PEM, which begins with -----BEGIN CERTIFICATE-----")]
    Empty,
    #[error("certificate {number} in it cannot be used: {why}")]
    Bad { number: usize, why: String },
}

/// Reads the certificates of a file in PEM, all of them or none.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, AuthorityError> {
    let mut text = Vec::new();
    File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(AuthorityError::TooLarge);
    }
    let mut certificates = Vec::new();
    for (index, certificate) in CertificateDer::pem_slice_iter(&text).enumerate() {
        let bad = |why: String| AuthorityError::Bad { number: index + 1, why };
        let certificate = certificate.map_err(|error| bad(error.to_string()))?;
        // Tried here, so that the file is to blame and not the client.
        RootCertStore::empty().add(certificate.clone()).map_err(|error| bad(error.to_string()))?;
        certificates.push(certificate);
    }
    if certificates.is_empty() { Err(AuthorityError::Empty) } else { Ok(certificates) }
}
