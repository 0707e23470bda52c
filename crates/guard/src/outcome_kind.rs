//! The outcome of a call as one word, shared by the audit record and the metrics.

use portcullis_core::{ErrorKind, Outcome, Output};
use serde::Deserialize;

/// The outcome of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutcomeKind {
    Ok,
    /// The tool ran and reported a failure.
    ToolError,
    Failed(ErrorKind),
}

impl OutcomeKind {
    /// The number of outcomes.
    pub(crate) const COUNT: usize = 2 + ErrorKind::ALL.len();

    pub(crate) fn of(outcome: &Outcome) -> OutcomeKind {
        match outcome {
            Ok(Output::Tool(output)) if output.is_error => OutcomeKind::ToolError,
            Ok(Output::Raw(raw)) if says_error(raw.get()) => OutcomeKind::ToolError,
            Ok(_) => OutcomeKind::Ok,
            Err(error) => OutcomeKind::Failed(error.kind),
        }
    }

    /// Returns the outcome of a call whose future is dropped before it completes.
    pub(crate) fn without_outcome() -> OutcomeKind {
        if std::thread::panicking() {
            OutcomeKind::Failed(ErrorKind::Internal)
        } else {
            // The caller disconnected or cancelled.
            OutcomeKind::Failed(ErrorKind::Cancelled)
        }
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            OutcomeKind::Ok => "ok",
            OutcomeKind::ToolError => "tool_error",
            OutcomeKind::Failed(kind) => kind.code(),
        }
    }

    /// Returns a distinct number below [`OutcomeKind::COUNT`].
    pub(crate) fn index(self) -> usize {
        match self {
            OutcomeKind::Ok => 0,
            OutcomeKind::ToolError => 1,
            OutcomeKind::Failed(kind) => 2 + kind as usize,
        }
    }
}

/// Returns the outcomes that a record may have.
pub fn outcome_names() -> impl Iterator<Item = &'static str> {
    let failed = ErrorKind::ALL.into_iter().map(OutcomeKind::Failed);
    [OutcomeKind::Ok, OutcomeKind::ToolError].into_iter().chain(failed).map(OutcomeKind::as_str)
}

/// Returns whether an upstream result has `isError: true`. Most lack the word, so most are not parsed.
fn says_error(result: &str) -> bool {
    #[derive(Deserialize)]
    struct Result {
        #[serde(rename = "isError", default)]
        is_error: bool,
    }
    result.contains("\"isError\"")
        && serde_json::from_str::<Result>(result).is_ok_and(|result| result.is_error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_core::{ToolError, ToolOutput};
    use serde_json::value::RawValue;

    #[test]
    fn every_ending_has_its_own_index() {
        let all = [OutcomeKind::Ok, OutcomeKind::ToolError]
            .into_iter()
            .chain(ErrorKind::ALL.map(OutcomeKind::Failed));
        assert_eq!(
            all.map(OutcomeKind::index).collect::<Vec<_>>(),
            (0..OutcomeKind::COUNT).collect::<Vec<_>>()
        );
    }

    #[test]
    fn endings_are_told_apart() {
        let raw = |text: &str| Ok(Output::Raw(RawValue::from_string(text.to_owned()).unwrap()));
        let failed = ToolOutput { is_error: true, ..ToolOutput::text("no") };
        for (outcome, expected) in [
            (Ok(Output::Tool(ToolOutput::text("yes"))), "ok"),
            (Ok(Output::Tool(failed)), "tool_error"),
            (raw(r#"{"content":[]}"#), "ok"),
            (raw(r#"{"content":[],"isError":false}"#), "ok"),
            (raw(r#"{"content":[],"isError":true}"#), "tool_error"),
            (raw(r#"{"content":[{"text":"\"isError\":true"}]}"#), "ok"),
            (Err(ToolError::cancelled()), "cancelled"),
            (Err(ToolError::internal("x")), "internal"),
        ] {
            assert_eq!(OutcomeKind::of(&outcome).as_str(), expected, "{outcome:?}");
        }
    }
}
