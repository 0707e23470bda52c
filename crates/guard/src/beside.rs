//! What stands beside the arguments of a call: members of its parameters that mean nothing to the hub, and that another server is
//! sent with them. Whoever shows or counts the arguments shows and counts these.

use portcullis_core::{Call, Target};
use serde_json::value::RawValue;

/// What is said between the arguments and what stands beside them.
pub(crate) const AND_BESIDE: &str = " and beside them ";

/// Returns the members as the inside of an object, where there are any. Those of a completion are among its arguments.
pub(crate) fn members(call: &Call) -> Option<&str> {
    // Nearly every call ends here.
    if call.passed.params.is_empty() || matches!(call.target, Target::Completion(_)) {
        return None;
    }
    Some(&call.passed.params)
}

/// Returns the members as an object, where there are any.
pub(crate) fn object(call: &Call) -> Option<serde_json::Result<Box<RawValue>>> {
    members(call).map(|members| RawValue::from_string(format!("{{{members}}}")))
}
