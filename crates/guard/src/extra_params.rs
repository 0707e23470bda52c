//! Extra parameters of a call: members of `params` unknown to the hub, which are forwarded to the upstream server.
//!
//! Everything that shows or digests the arguments must include them.

use portcullis_core::{Call, Target};
use serde_json::value::RawValue;

/// Separates the arguments from the extra parameters in text.
pub(crate) const SEPARATOR: &str = " with extra parameters ";

/// Returns the members as the inside of an object, if any. For a completion they are part of the arguments.
pub(crate) fn members(call: &Call) -> Option<&str> {
    // The fast path for nearly every call.
    if call.passed.params.is_empty() || matches!(call.target, Target::Completion(_)) {
        return None;
    }
    Some(&call.passed.params)
}

/// Returns the members as an object, if any.
pub(crate) fn object(call: &Call) -> Option<serde_json::Result<Box<RawValue>>> {
    members(call).map(|members| RawValue::from_string(format!("{{{members}}}")))
}
