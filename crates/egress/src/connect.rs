//! Outbound TCP, TLS and Unix socket connections. No other file opens a connection to the outside.
//!
//! Addresses are resolved and checked before they come here, or an administrator configured them. No name is resolved
//! here, so the address that was checked is the address that is connected to (no DNS rebinding).

use crate::checked_url::CheckedUrl;
use crate::error::EgressError;
use hyper_util::rt::TokioIo;
use portcullis_core::{TOGETHER_BYTES_MAX, coalesce};
use rustix::net::sockopt;
use std::io;
use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

/// Addresses of one host that are tried, one after the other.
const ATTEMPTS_MAX: usize = 4;
/// TCP keepalive: idle time before the first probe, interval, and number of probes.
const ALIVE_AFTER: Duration = Duration::from_secs(30);
const ALIVE_EVERY: Duration = Duration::from_secs(10);
const ALIVE_TRIES: u32 = 3;

/// Opens connections and verifies TLS certificates.
pub(crate) struct Connector {
    tls: TlsConnector,
    timeout: Duration,
}

/// A connection, with or without TLS.
pub(crate) enum EgressStream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    Unix(UnixStream),
}

impl Connector {
    pub(crate) fn new(
        extra_roots: Vec<CertificateDer<'static>>,
        timeout: Duration,
    ) -> Result<Connector, EgressError> {
        let setup = |why: String| EgressError::Setup { why };
        // Compiled in: an empty container has no certificate store.
        let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
        for root in extra_roots {
            roots.add(root).map_err(|error| setup(error.to_string()))?;
        }
        let mut config = ClientConfig::builder_with_provider(Arc::new(crypto::aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| setup(error.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Connector { tls: TlsConnector::from(Arc::new(config)), timeout })
    }

    /// Connects to the first reachable address. The addresses have been checked; no name is resolved here.
    pub(crate) async fn open(
        &self,
        target: &CheckedUrl,
        addresses: &[IpAddr],
    ) -> Result<TokioIo<EgressStream>, EgressError> {
        let opening = async {
            let tcp = self.reach(target, addresses).await?;
            if target.url.scheme() == "http" {
                return Ok(TokioIo::new(EgressStream::Plain(tcp)));
            }
            let failed = |why: String| EgressError::Tls { host: target.shown_host(), why };
            let name = server_name(target).map_err(|error| failed(error.to_string()))?;
            let tls = self.tls.connect(name, tcp).await.map_err(|error| failed(error.to_string()))?;
            Ok(TokioIo::new(EgressStream::Tls(Box::new(tls))))
        };
        let late =
            EgressError::Timeout { host: target.shown_host(), doing: "to connect", after: self.timeout };
        tokio::time::timeout(self.timeout, opening).await.unwrap_or(Err(late))
    }

    /// Connects to the first reachable address of a configured endpoint, for which private addresses are allowed.
    /// The certificate must be valid for `name`; without a name there is no TLS.
    pub(crate) async fn open_configured(
        &self,
        addresses: &[SocketAddr],
        name: Option<ServerName<'static>>,
    ) -> Result<EgressStream, String> {
        let mut why = "the host has no address".to_owned();
        let tried = addresses.iter().take(ATTEMPTS_MAX);
        let share = self.timeout / u32::try_from(tried.len().max(1)).unwrap_or(1);
        for address in tried {
            let stream = match tokio::time::timeout(share, connect(*address)).await {
                Ok(Ok(stream)) => stream,
                Ok(Err(error)) => {
                    why = error.to_string();
                    continue;
                }
                Err(_) => {
                    why = format!("connection timed out after {} s", share.as_secs());
                    continue;
                }
            };
            let Some(name) = name else { return Ok(EgressStream::Plain(stream)) };
            let shaking = tokio::time::timeout(self.timeout, self.tls.connect(name, stream)).await;
            let tls = shaking.map_err(|_| format!("no TLS within {} s", self.timeout.as_secs()))?;
            return Ok(EgressStream::Tls(Box::new(tls.map_err(|error| format!("TLS: {error}"))?)));
        }
        Err(why)
    }

    /// Connects to a Unix socket.
    pub(crate) async fn open_socket(&self, path: &Path) -> Result<EgressStream, String> {
        #[expect(clippy::disallowed_methods, reason = "a socket that a person configured")]
        let opening = tokio::time::timeout(self.timeout, UnixStream::connect(path)).await;
        let opened =
            opening.map_err(|_| format!("connection timed out after {} s", self.timeout.as_secs()))?;
        opened.map(EgressStream::Unix).map_err(|error| error.to_string())
    }

    async fn reach(&self, target: &CheckedUrl, addresses: &[IpAddr]) -> Result<TcpStream, EgressError> {
        let mut why = "the host has no address".to_owned();
        let tried = addresses.iter().take(ATTEMPTS_MAX);
        // An address that hangs must leave time for the others.
        let share = self.timeout / u32::try_from(tried.len().max(1)).unwrap_or(1);
        for address in tried {
            let address = SocketAddr::new(address.to_canonical(), target.port);
            match tokio::time::timeout(share, connect(address)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => why = error.to_string(),
                Err(_) => why = "connection timed out".to_owned(),
            }
        }
        Err(EgressError::Connect { host: target.shown_host(), why })
    }
}

async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    #[expect(clippy::disallowed_methods, reason = "this is the one place, and the address was checked")]
    let stream = TcpStream::connect(address).await?;
    // Nothing is sent to another peer, in case the system redirected the connection.
    let peer = stream.peer_addr()?;
    if peer.ip().to_canonical() != address.ip() || peer.port() != address.port() {
        return Err(io::Error::other(format!("connected to {peer} instead of {address}")));
    }
    stream.set_nodelay(true)?;
    // A stream that only receives would not notice a dead peer. Systems without these options do without.
    let _ = sockopt::set_socket_keepalive(&stream, true);
    let _ = sockopt::set_tcp_keepidle(&stream, ALIVE_AFTER);
    let _ = sockopt::set_tcp_keepintvl(&stream, ALIVE_EVERY);
    let _ = sockopt::set_tcp_keepcnt(&stream, ALIVE_TRIES);
    Ok(stream)
}

/// Returns the name that the certificate must be valid for: the host of the URL, not the address it resolved to.
fn server_name(target: &CheckedUrl) -> Result<ServerName<'static>, io::Error> {
    match target.literal() {
        Some(address) => Ok(ServerName::from(address)),
        None => {
            let host = target.shown_host();
            let name = host.strip_suffix('.').unwrap_or(&host);
            ServerName::try_from(name.to_owned()).map_err(io::Error::other)
        }
    }
}

impl AsyncRead for EgressStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            EgressStream::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            EgressStream::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
            EgressStream::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for EgressStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            EgressStream::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            EgressStream::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
            EgressStream::Unix(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            EgressStream::Plain(stream) => Pin::new(stream).poll_flush(cx),
            EgressStream::Tls(stream) => Pin::new(stream).poll_flush(cx),
            EgressStream::Unix(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            EgressStream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            EgressStream::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
            EgressStream::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }

    // Head and body leave in one write; large ones without a copy.
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let Some(whole) = coalesce(bufs, &mut [0; TOGETHER_BYTES_MAX]) {
            return self.poll_write(cx, whole);
        }
        match self.get_mut() {
            EgressStream::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            EgressStream::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            EgressStream::Unix(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            EgressStream::Plain(stream) => stream.is_write_vectored(),
            EgressStream::Tls(stream) => stream.is_write_vectored(),
            EgressStream::Unix(stream) => stream.is_write_vectored(),
        }
    }
}
