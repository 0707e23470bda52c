//! TLS certificate verification. The certificates next to this file are for tests; nothing else trusts them.

use super::site::{answer, head};
use super::{NoNames, UNHURRIED};
use crate::{CertificateDer, EgressClient, EgressSettings, NoSecrets};
use portcullis_core::SystemClock;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::{ServerConfig, crypto};

pub(super) fn authority() -> CertificateDer<'static> {
    CertificateDer::from(include_bytes!("certificates/authority.der").to_vec())
}

pub(super) fn acceptor() -> TlsAcceptor {
    let certificate = CertificateDer::from(include_bytes!("certificates/leaf.der").to_vec());
    let key = PrivateKeyDer::try_from(include_bytes!("certificates/leaf-key.der").to_vec()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(crypto::aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

async fn site() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((visitor, _)) = listener.accept().await {
            let Ok(mut visitor) = acceptor().accept(visitor).await else { continue };
            head(&mut visitor).await;
            visitor.write_all(&answer(200, &[], "safe")).await.unwrap();
            visitor.shutdown().await.unwrap();
        }
    });
    address
}

fn client(place: &str, roots: Vec<CertificateDer<'static>>) -> EgressClient {
    let settings = EgressSettings {
        exceptions: vec![place.parse().unwrap()],
        per_host: UNHURRIED,
        extra_roots: roots,
        ..EgressSettings::default()
    };
    EgressClient::new(settings, Arc::new(NoNames), Arc::new(NoSecrets), Arc::new(SystemClock)).unwrap()
}

#[tokio::test]
async fn only_a_certificate_that_is_trusted_will_do() {
    let place = site().await.to_string();
    let url = format!("https://{place}/");
    let trusting = client(&place, vec![authority()]);
    assert_eq!(trusting.get(&url).send().await.unwrap().body.unwrap(), b"safe");
    let error = client(&place, Vec::new()).get(&url).send().await.unwrap_err();
    assert_eq!(error.to_string(), "`127.0.0.1` failed TLS certificate verification");
}

#[test]
fn a_root_that_is_none_is_told() {
    let settings = EgressSettings {
        extra_roots: vec![CertificateDer::from(vec![1, 2, 3])],
        ..EgressSettings::default()
    };
    assert!(
        EgressClient::new(settings, Arc::new(NoNames), Arc::new(NoSecrets), Arc::new(SystemClock)).is_err()
    );
}
