//! How a call ended, in one word: the same word in the audit record and in the metrics.

use portcullis_core::{ErrorKind, Outcome, Output};
use serde::Deserialize;

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    Ok,
    /// The tool ran and says itself that it failed.
    ToolError,
    Failed(ErrorKind),
}

impl Ending {
    /// How many endings there are.
    pub(crate) const COUNT: usize = 2 + ErrorKind::ALL.len();

    pub(crate) fn of(outcome: &Outcome) -> Ending {
        match outcome {
            Ok(Output::Tool(output)) if output.is_error => Ending::ToolError,
            Ok(Output::Raw(raw)) if says_error(raw.get()) => Ending::ToolError,
            Ok(_) => Ending::Ok,
            Err(error) => Ending::Failed(error.kind),
        }
    }

    /// Returns how a call ends whose future goes before it has an outcome.
    pub(crate) fn without_outcome() -> Ending {
        if std::thread::panicking() {
            Ending::Failed(ErrorKind::Internal)
        } else {
            // Nobody waits for the answer any more.
            Ending::Failed(ErrorKind::Cancelled)
        }
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Ending::Ok => "ok",
            Ending::ToolError => "tool_error",
            Ending::Failed(kind) => kind.code(),
        }
    }

    /// Returns a number below [`Ending::COUNT`], another one for each ending.
    pub(crate) fn index(self) -> usize {
        match self {
            Ending::Ok => 0,
            Ending::ToolError => 1,
            Ending::Failed(kind) => 2 + kind as usize,
        }
    }
}

/// Returns whether an upstream's own result object says `isError`. Most do not hold the word, so most are not read.
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
        let all = [Ending::Ok, Ending::ToolError].into_iter().chain(ErrorKind::ALL.map(Ending::Failed));
        assert_eq!(all.map(Ending::index).collect::<Vec<_>>(), (0..Ending::COUNT).collect::<Vec<_>>());
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
            assert_eq!(Ending::of(&outcome).as_str(), expected, "{outcome:?}");
        }
    }
}
