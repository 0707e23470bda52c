//! The body of a request, read whole: with a bound on its size and on the time that it takes.

use super::reply::{plain, rpc_error};
use crate::hub::Hub;
use axum::BoxError;
use axum::body::HttpBody;
use axum::http::StatusCode;
use axum::response::Response;
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use portcullis_core::Limit;
use portcullis_wire::RpcError;
use portcullis_wire::room::{LARGE_BYTES, Room};

/// What a body can be read from.
pub(super) trait Readable: HttpBody<Data = Bytes, Error: Into<BoxError>> + Unpin {}

impl<B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Unpin> Readable for B {}

/// Reads a body.
pub(super) async fn read_body(hub: &Hub, body: impl Readable) -> Result<Bytes, Response> {
    let bytes_max = hub.limits.body_bytes_max;
    let too_large = || {
        Limit::BodyBytes.hit();
        let reason = format!("the body is larger than {bytes_max} bytes");
        Err(rpc_error(&hub.outgoing, StatusCode::PAYLOAD_TOO_LARGE, None, RpcError::invalid_request(&reason)))
    };
    // A length that is too large is refused as it is announced, not when all of it has come.
    if body.size_hint().lower() > bytes_max as u64 {
        return too_large();
    }
    match tokio::time::timeout(hub.limits.body_within, collect(Limited::new(body, bytes_max))).await {
        Err(_) => {
            Limit::BodyTime.hit();
            Err(plain(
                StatusCode::REQUEST_TIMEOUT,
                "the body did not arrive in time; send it again, faster\n",
            ))
        }
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) if error.is::<LengthLimitError>() => too_large(),
        Ok(Err(_)) => Err(plain(StatusCode::BAD_REQUEST, "the body could not be read\n")),
    }
}

/// Reads to the end that the length tells. Waiting for the end itself would take the connection another turn.
async fn collect(mut body: Limited<impl Readable>) -> Result<Bytes, BoxError> {
    // What was announced is within the bound, and costs nothing before it comes.
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(0);
    let (mut first, mut all) = (Bytes::new(), None);
    while !body.is_end_stream()
        && let Some(frame) = body.frame().await
    {
        match frame?.into_data() {
            Ok(data) if first.is_empty() && all.is_none() => first = data,
            // Piece by piece: all of them and the whole together would be there twice.
            Ok(data) => {
                let all = all.get_or_insert_with(|| {
                    let mut all = Pieces::with_room(announced.max(first.len() + data.len()));
                    all.add(&std::mem::take(&mut first));
                    all
                });
                all.add(&data);
            }
            // Trailers tell nothing here.
            Err(_) => {}
        }
    }
    Ok(all.map_or(first, Pieces::into_bytes))
}

/// The pieces of a body, one after the other.
enum Pieces {
    Few(Vec<u8>),
    Large(Room),
}

impl Pieces {
    fn with_room(bytes: usize) -> Pieces {
        if bytes > LARGE_BYTES
            && let Some(room) = Room::new(bytes)
        {
            return Pieces::Large(room);
        }
        Pieces::Few(Vec::with_capacity(bytes))
    }

    fn add(&mut self, piece: &[u8]) {
        match self {
            Pieces::Few(all) => all.extend_from_slice(piece),
            Pieces::Large(room) => {
                if !room.add(piece) {
                    // Longer than it said that it was.
                    *self = Pieces::Few([room.as_ref(), piece].concat());
                }
            }
        }
    }

    fn into_bytes(self) -> Bytes {
        match self {
            Pieces::Few(all) => all.into(),
            Pieces::Large(room) => Bytes::from_owner(room),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use futures::stream;

    fn gathered(room: usize, pieces: &[Vec<u8>]) -> (bool, Bytes) {
        let mut all = Pieces::with_room(room);
        pieces.iter().for_each(|piece| all.add(piece));
        (matches!(all, Pieces::Large(_)), all.into_bytes())
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
