//! Minimal HTTP. The certificates are for tests only.

use std::sync::Arc;
use tokio::io::AsyncReadExt;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ServerConfig, crypto};

/// The authority of the public pages' certificate.
pub fn authority() -> CertificateDer<'static> {
    CertificateDer::from(include_bytes!("../../../egress/src/tests/certificates/authority.der").to_vec())
}

pub(crate) fn acceptor() -> TlsAcceptor {
    let certificate = include_bytes!("../../../egress/src/tests/certificates/leaf.der");
    let certificate = CertificateDer::from(certificate.to_vec());
    let key = include_bytes!("../../../egress/src/tests/certificates/leaf-key.der");
    let key = PrivateKeyDer::try_from(key.to_vec()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(crypto::aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

/// Reads the head of a request.
pub(super) async fn head(visitor: &mut (impl AsyncReadExt + Unpin)) -> String {
    let mut request = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let count = visitor.read(&mut piece).await.unwrap_or(0);
        request.extend_from_slice(&piece[..count]);
        let text = String::from_utf8_lossy(&request);
        if count == 0 || text.contains("\r\n\r\n") {
            return text.into_owned();
        }
    }
}

/// Returns a response with headers and a body.
pub(super) fn answer(status: u16, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> Vec<u8> {
    let mut text = format!("HTTP/1.1 {status} Whatever\r\nconnection: close\r\n");
    headers.iter().for_each(|(name, value)| text += &format!("{name}: {value}\r\n"));
    [text.as_bytes(), b"\r\n", body.as_ref()].concat()
}

pub(super) fn redirect(status: u16, to: &str) -> Vec<u8> {
    answer(status, &[("location", to), ("content-length", "0")], "")
}
