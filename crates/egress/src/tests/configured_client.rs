//! Configured endpoints: pooled connections, TLS, bounds.

use super::site::{LoopbackSite, answer, head};
use super::tls::{acceptor, authority};
use crate::configured_client::{
    ConfiguredClient, ConfiguredEndpoint, ConfiguredRequest, ConfiguredResponse, Method, Uri,
};
use crate::{CertificateDer, HeaderMap};
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

fn own(url: &str, roots: Vec<CertificateDer<'static>>) -> Arc<ConfiguredClient> {
    Arc::new(ConfiguredClient::new(url.parse::<ConfiguredEndpoint>().unwrap(), roots).unwrap())
}

async fn get(own: &Arc<ConfiguredClient>) -> Result<(u16, Bytes), String> {
    let ask = ConfiguredRequest {
        method: Method::POST,
        to: Uri::from_static("/"),
        headers: HeaderMap::new(),
        body: Bytes::from_static(b"{}"),
    };
    let mut reply: ConfiguredResponse = own.send(ask).await.map_err(|error| error.why)?;
    let body = reply.read(1_000).await.map_err(|error| error.to_string())?;
    Ok((reply.status, body))
}

/// A server that responds to `per_connection` requests on each connection, with these headers.
async fn keeping(per_connection: usize, header: &'static str) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = connections.clone();
    tokio::spawn(async move {
        while let Ok((mut visitor, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(async move {
                for _ in 0..per_connection {
                    head(&mut visitor).await;
                    let text = format!("HTTP/1.1 200 OK\r\n{header}Content-Length: 2\r\n\r\nok");
                    if visitor.write_all(text.as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    (url, connections)
}

#[tokio::test]
async fn a_connection_is_used_again_as_long_as_the_server_keeps_it() {
    for (per_connection, header, expected) in [
        (100, "", 1),
        (100, "Keep-Alive: timeout=5\r\n", 1),
        (100, "Keep-Alive: timeout=1\r\n", 6),
        (100, "Connection: close\r\n", 6),
    ] {
        let (url, connections) = keeping(per_connection, header).await;
        let own = own(&url, Vec::new());
        for _ in 0..6 {
            assert_eq!(get(&own).await.unwrap(), (200, Bytes::from_static(b"ok")));
        }
        assert_eq!(connections.load(Ordering::Relaxed), expected, "{header}");
    }
}

#[tokio::test]
async fn only_a_certificate_that_is_trusted_will_do() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((visitor, _)) = listener.accept().await {
            let Ok(mut visitor) = acceptor().accept(visitor).await else { continue };
            head(&mut visitor).await;
            visitor.write_all(&answer(200, &[], "safe")).await.unwrap();
            let _ = visitor.shutdown().await;
        }
    });
    assert_eq!(get(&own(&url, vec![authority()])).await.unwrap().1, "safe");
    let error = get(&own(&url, Vec::new())).await.unwrap_err();
    assert!(error.contains("TLS"), "{error}");
}

#[tokio::test]
async fn sizes_have_bounds() {
    let long = LoopbackSite::open(|_| answer(200, &[], "x".repeat(1_001))).await;
    let error = get(&own(&long.url("/"), Vec::new())).await.unwrap_err();
    assert_eq!(error, "the response is larger than the limit");
    let fits = LoopbackSite::open(|_| answer(200, &[], "x".repeat(1_000))).await;
    assert_eq!(get(&own(&fits.url("/"), Vec::new())).await.unwrap().1.len(), 1_000);
    let heads =
        LoopbackSite::open(|_| format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "y".repeat(70_000)).into_bytes())
            .await;
    let error = get(&own(&heads.url("/"), Vec::new())).await.unwrap_err();
    assert!(error.contains("bytes of headers"), "{error}");
}
