//! One call to an upstream server, from the request to the result: input rounds, tasks, suspended calls.

mod driver;
mod input_required;
mod request;
mod round;
mod sent_request;
mod suspended_calls;
mod task;

pub(crate) use driver::{CallFailure, start_or_resume};
pub(crate) use request::CallRequest;
pub(crate) use suspended_calls::SuspendedCalls;
