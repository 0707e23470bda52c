//! One request and its answer, on one connection.

use crate::decode::{Decoder, Packing};
use crate::error::EgressError;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::{HeaderMap, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use std::time::Duration;
use tokio::task::JoinHandle;

/// All headers of an answer together, with its first line.
const HEAD_BYTES_MAX: usize = 32 * 1024;
/// More than any page sends.
const HEADERS_MAX: usize = 128;

/// The head of an answer; its body is still to come.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    body: Incoming,
    _connection: Driver,
}

/// Moves bytes while an answer is read; ends with it.
struct Driver(JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Sends a request and waits for the head of the answer.
pub(crate) async fn ask<S>(
    stream: TokioIo<S>,
    request: Request<Full<Bytes>>,
    host: &str,
    patience: Duration,
) -> Result<Answer, EgressError>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static,
{
    let broken =
        |error: hyper::Error| EgressError::BadResponse { host: host.to_owned(), why: error.to_string() };
    let asking = async {
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
        let driver = Driver(tokio::spawn(async move {
            // How it ends is told to whoever waits for the answer.
            let _ = connection.await;
        }));
        let answer: Response<Incoming> = sender.send_request(request).await.map_err(broken)?;
        let (head, body) = answer.into_parts();
        // The buffer's bound is rough: what comes in one piece is taken in.
        let bytes: usize = head.headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
        if bytes > HEAD_BYTES_MAX {
            let why = format!("{bytes} bytes of headers");
            return Err(EgressError::BadResponse { host: host.to_owned(), why });
        }
        Ok(Answer { status: head.status, headers: head.headers, body, _connection: driver })
    };
    let late = || EgressError::Timeout { host: host.to_owned(), doing: "to answer", after: patience };
    tokio::time::timeout(patience, asking).await.unwrap_or_else(|_| Err(late()))
}

impl Answer {
    /// Reads the body, unpacked, up to `bytes_max`.
    pub(crate) async fn read(
        mut self,
        host: &str,
        bytes_max: usize,
    ) -> Result<(HeaderMap, Vec<u8>), EgressError> {
        let packing =
            Packing::parse(self.headers.get(header::CONTENT_ENCODING).map(|value| value.as_bytes()))?;
        let mut decoder = Decoder::new(packing, bytes_max);
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
