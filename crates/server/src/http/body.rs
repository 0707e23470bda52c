//! Reads a request body, with bounds on size and time.

use super::response::{plain, rpc_error};
use crate::hub::Hub;
use axum::BoxError;
use axum::body::HttpBody;
use axum::http::StatusCode;
use axum::response::Response;
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use portcullis_core::Limit;
use portcullis_wire::RpcError;
use portcullis_wire::mapped_buffer::{LARGE_BYTES, MappedBuffer};

/// A body that can be read.
pub(super) trait Readable: HttpBody<Data = Bytes, Error: Into<BoxError>> + Unpin {}

impl<B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Unpin> Readable for B {}

/// Reads the whole body.
pub(super) async fn read_body(hub: &Hub, body: impl Readable) -> Result<Bytes, Response> {
    let bytes_max = hub.limits.body_bytes_max;
    let too_large = || {
        Limit::BodyBytes.hit();
        let reason = format!("the body is larger than {bytes_max} bytes");
        Err(rpc_error(&hub.outgoing, StatusCode::PAYLOAD_TOO_LARGE, None, RpcError::invalid_request(&reason)))
    };
    // A `Content-Length` over the limit is refused before the body arrives.
    if body.size_hint().lower() > bytes_max as u64 {
        return too_large();
    }
    match tokio::time::timeout(hub.limits.body_within, collect(Limited::new(body, bytes_max))).await {
        Err(_) => {
            Limit::BodyTime.hit();
            Err(plain(StatusCode::REQUEST_TIMEOUT, "the request body timed out; send it again, faster\n"))
        }
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) if error.is::<LengthLimitError>() => too_large(),
        Ok(Err(_)) => Err(plain(StatusCode::BAD_REQUEST, "the body could not be read\n")),
    }
}

/// Reads as many bytes as `Content-Length` says. Waiting for the end of the stream would cost another poll.
async fn collect(mut body: Limited<impl Readable>) -> Result<Bytes, BoxError> {
    // The announced length is within the limit, and its memory is committed only when bytes arrive.
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(0);
    let (mut first, mut all) = (Bytes::new(), None);
    while !body.is_end_stream()
        && let Some(frame) = body.frame().await
    {
        match frame?.into_data() {
            Ok(data) if first.is_empty() && all.is_none() => first = data,
            // Appended chunk by chunk: collecting them first would hold the body twice.
            Ok(data) => {
                let all = all.get_or_insert_with(|| {
                    let mut all = BodyBuffer::with_room(announced.max(first.len() + data.len()));
                    all.add(&std::mem::take(&mut first));
                    all
                });
                all.add(&data);
            }
            // Trailers are ignored.
            Err(_) => {}
        }
    }
    Ok(all.map_or(first, BodyBuffer::into_bytes))
}

/// The buffer of a body.
enum BodyBuffer {
    Few(Vec<u8>),
    Large(MappedBuffer),
}

impl BodyBuffer {
    fn with_room(bytes: usize) -> BodyBuffer {
        if bytes > LARGE_BYTES
            && let Some(room) = MappedBuffer::new(bytes)
        {
            return BodyBuffer::Large(room);
        }
        BodyBuffer::Few(Vec::with_capacity(bytes))
    }

    fn add(&mut self, piece: &[u8]) {
        match self {
            BodyBuffer::Few(all) => all.extend_from_slice(piece),
            BodyBuffer::Large(room) => {
                if !room.add(piece) {
                    // Longer than announced.
                    *self = BodyBuffer::Few([room.as_ref(), piece].concat());
                }
            }
        }
    }

    fn into_bytes(self) -> Bytes {
        match self {
            BodyBuffer::Few(all) => all.into(),
            BodyBuffer::Large(room) => Bytes::from_owner(room),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use futures::stream;

    fn gathered(room: usize, pieces: &[Vec<u8>]) -> (bool, Bytes) {
        let mut all = BodyBuffer::with_room(room);
        pieces.iter().for_each(|piece| all.add(piece));
        (matches!(all, BodyBuffer::Large(_)), all.into_bytes())
    }

    #[test]
    fn pieces_make_the_same_whole_wherever_they_are_kept() {
        let pieces: Vec<Vec<u8>> = (0..8).map(|n| vec![n; 50_000]).collect();
        let whole = pieces.concat();
        for (room, is_large) in [(400_000, true), (500_000, true), (LARGE_BYTES, false), (300_000, false)] {
            let (large, bytes) = gathered(room, &pieces);
            assert_eq!((large, &*bytes == whole.as_slice()), (is_large, true), "{room}");
        }
    }

    #[tokio::test]
    async fn a_body_in_pieces_is_read_whole() {
        for pieces in [1, 2, 9] {
            let parts: Vec<Result<Bytes, std::io::Error>> =
                (0..pieces).map(|n| Ok(Bytes::from(vec![n; 100_000]))).collect();
            let body = Body::from_stream(stream::iter(parts));
            let whole = collect(Limited::new(body, 1_000_000)).await.unwrap();
            assert_eq!(whole.len(), usize::from(pieces) * 100_000);
            assert!(whole.chunks(100_000).zip(0..).all(|(part, n)| part.iter().all(|byte| *byte == n)));
        }
    }
}
