//! The layers of the gate: audit, metrics, redaction, containment, rate limit, authorization, validation, approval.
//!
//! Each layer does one thing and has its own file; [`stack()`] orders them and says why. Layers do not know each other: an
//! inner layer reports to outer ones through [`portcullis_core::Trail`] only.

mod approve;
pub mod audit;
mod authorize;
mod commit;
mod contain;
mod extra_params;
mod live;
mod metrics;
mod outcome_kind;
mod policy;
mod rate;
mod redact;
mod stack;
#[cfg(test)]
mod testing;
mod validate;

pub use approve::{ApprovalDesk, ApprovalTimes};
pub use audit::{AuditHandle, AuditSettings};
pub use authorize::ActivePolicy;
pub use live::{
    EndedCall, LiveCall, LiveCalls, LiveEnd, LiveEvent, PeriodStats, RangeStats, StatsRange, StatsSnapshot,
};
pub use metrics::{Metrics, ServerStats};
pub use outcome_kind::outcome_names;
pub use policy::{
    Days, Explanation, Hours, Policy, PolicyRule, RuleAction, RuleCondition, RuleSchedule, announce_windows,
    default_action,
};
pub use rate::{ClientRateLimiter, RateSettings};
pub use redact::{GuessAlert, MASK_BEGINS, RedactError, Redactor, StreamRedactor, TokenShapes};
pub use stack::{GuardError, GuardHandles, GuardSettings, stack};
pub use validate::check_arguments;
