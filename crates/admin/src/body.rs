//! Reading what is sent, with a bound on everything.

use crate::problem::{Code, Problem};
use axum::body::{Body, HttpBody};
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use portcullis_core::Limit;
use std::time::Duration;

/// More than the largest script, configuration to take over, or secret.
pub(crate) const BODY_BYTES_MAX: usize = 1024 * 1024;
/// How long a body may take.
const BODY_WITHIN: Duration = Duration::from_secs(12);

/// Reads a body to its end.
pub(crate) async fn read(body: Body) -> Result<Bytes, Problem> {
    let too_large = || {
        Limit::BodyBytes.hit();
        Problem::new(Code::TooLarge, format!("the body is larger than {BODY_BYTES_MAX} bytes"))
    };
    // A length that is too large is refused as it is announced, not when all of it has come.
    if body.size_hint().lower() > BODY_BYTES_MAX as u64 {
        return Err(too_large());
    }
    match tokio::time::timeout(BODY_WITHIN, Limited::new(body, BODY_BYTES_MAX).collect()).await {
        Err(_) => {
            Limit::BodyTime.hit();
            Err(Problem::invalid("the body did not arrive in time").hint("send it again, faster"))
        }
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(_)) => Err(Problem::invalid("the body could not be read")),
    }
}
