//! One HTTP request and its response, on one connection.

use crate::decode::{BodyDecoder, ContentEncoding};
use crate::error::EgressError;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::{HeaderMap, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use std::time::Duration;
use tokio::task::JoinHandle;

/// Status line and headers of a response together.
const HEAD_BYTES_MAX: usize = 32 * 1024;
/// More than servers send.
const HEADERS_MAX: usize = 128;

/// The head of a response whose body is not read yet.
pub(crate) struct ResponseHead {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    body: Incoming,
    _connection: ConnectionDriver,
}

/// The task that drives the connection while a response is read. Dropping it aborts the task.
struct ConnectionDriver(JoinHandle<()>);

impl Drop for ConnectionDriver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Sends a request and waits for the head of the response.
pub(crate) async fn send<S>(
    stream: TokioIo<S>,
    request: Request<Full<Bytes>>,
    host: &str,
    timeout: Duration,
) -> Result<ResponseHead, EgressError>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static,
{
    let broken =
        |error: hyper::Error| EgressError::BadResponse { host: host.to_owned(), why: error.to_string() };
    let exchange = async {
        #[expect(
            clippy::disallowed_methods,
            reason = "this is the one place, on a connection that was checked"
        )]
        let (mut sender, connection) = http1::Builder::new()
            .max_buf_size(HEAD_BYTES_MAX)
            .max_headers(HEADERS_MAX)
            .handshake(stream)
            .await
            .map_err(broken)?;
        let driver = ConnectionDriver(tokio::spawn(async move {
            // An error surfaces in the request or body future.
            let _ = connection.await;
        }));
        let response: Response<Incoming> = sender.send_request(request).await.map_err(broken)?;
        let (head, body) = response.into_parts();
        // hyper's buffer limit is approximate: headers that arrive in one read may exceed it.
        let bytes: usize = head.headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
        if bytes > HEAD_BYTES_MAX {
            let why = format!("{bytes} bytes of headers");
            return Err(EgressError::BadResponse { host: host.to_owned(), why });
        }
        Ok(ResponseHead { status: head.status, headers: head.headers, body, _connection: driver })
    };
    let late = || EgressError::Timeout { host: host.to_owned(), doing: "to respond", after: timeout };
    tokio::time::timeout(timeout, exchange).await.unwrap_or_else(|_| Err(late()))
}

impl ResponseHead {
    /// Reads and decompresses the body, up to `bytes_max`.
    pub(crate) async fn read(
        mut self,
        host: &str,
        bytes_max: usize,
    ) -> Result<(HeaderMap, Vec<u8>), EgressError> {
        let packing =
            ContentEncoding::parse(self.headers.get(header::CONTENT_ENCODING).map(|value| value.as_bytes()))?;
        let mut decoder = BodyDecoder::new(packing, bytes_max);
        while let Some(frame) = self.body.frame().await {
            let broken = |error: hyper::Error| EgressError::BadResponse {
                host: host.to_owned(),
                why: error.to_string(),
            };
            if let Ok(piece) = frame.map_err(broken)?.into_data() {
                decoder.take(&piece)?;
            }
        }
        Ok((self.headers, decoder.finish()?))
    }
}
