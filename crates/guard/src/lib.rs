//! The guards on the road.
//!
//! Each layer does one thing and has its own file; [`stack()`] puts them in order and says why. No layer knows
//! of another: what an inner one leaves for an outer one goes through [`portcullis_core::Trail`], and nothing
//! else.

mod approve;
pub mod audit;
mod authorize;
mod beside;
mod commit;
mod contain;
mod ending;
mod live;
mod metrics;
mod policy;
mod rate;
mod redact;
mod stack;
#[cfg(test)]
mod testing;
mod validate;

pub use approve::{ApprovalDesk, ApprovalTimes};
pub use audit::{AuditHandle, AuditSettings};
pub use authorize::Authorize;
pub use live::{LiveCall, LiveCalls, LiveEnd, LiveEvent, MinuteCount};
pub use metrics::{Metrics, ServerNumbers};
pub use policy::{
    Days, Explanation, Hours, Part, Policy, Rule, Verdict, When, announce_windows, default_for,
};
pub use rate::{Rate, RateSettings};
pub use redact::{GuessAlert, MASK_BEGINS, RedactError, Redactor, Scrubber, TokenShapes};
pub use stack::{GuardError, GuardSettings, Handles, stack};
pub use validate::check_arguments;
