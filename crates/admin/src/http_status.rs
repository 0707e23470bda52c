//! Errors of operations as HTTP status codes.

use axum::http::StatusCode;
use portcullis_ops::ProblemCode;

pub(crate) fn http_status(code: ProblemCode) -> StatusCode {
    match code {
        ProblemCode::Invalid => StatusCode::BAD_REQUEST,
        ProblemCode::SignInNeeded => StatusCode::UNAUTHORIZED,
        ProblemCode::Forbidden => StatusCode::FORBIDDEN,
        ProblemCode::NotFound => StatusCode::NOT_FOUND,
        ProblemCode::Conflict | ProblemCode::Changed => StatusCode::CONFLICT,
        ProblemCode::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        ProblemCode::TooMany => StatusCode::TOO_MANY_REQUESTS,
        ProblemCode::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        ProblemCode::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
