//! Request bodies, bounded in size and time.

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use portcullis_core::Limit;
use portcullis_ops::{Problem, ProblemCode};
use std::time::Duration;

/// Larger than any script, imported configuration or secret.
pub(crate) const BODY_BYTES_MAX: usize = 1024 * 1024;
/// Timeout of a body.
const BODY_WITHIN: Duration = Duration::from_secs(12);

/// Reads a body to its end.
pub(crate) async fn read(body: Body) -> Result<Bytes, Problem> {
    let too_large = || {
        Limit::BodyBytes.hit();
        Problem::new(ProblemCode::TooLarge, format!("the body is larger than {BODY_BYTES_MAX} bytes"))
    };
    // A `Content-Length` over the limit is refused before the body is read.
    if body.size_hint().lower() > BODY_BYTES_MAX as u64 {
        return Err(too_large());
    }
    match tokio::time::timeout(BODY_WITHIN, Limited::new(body, BODY_BYTES_MAX).collect()).await {
        Err(_) => {
            Limit::BodyTime.hit();
            Err(Problem::invalid("timed out reading the request body").hint("send it again"))
        }
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(_)) => Err(Problem::invalid("the request body could not be read")),
    }
}
