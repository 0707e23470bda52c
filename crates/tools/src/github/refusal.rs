//! Maps GitHub's error responses to tool errors.

use super::names::RepositoryName;
use portcullis_core::json::printable;
use portcullis_core::{ErrorKind, ToolError};
use portcullis_egress::{HeaderMap, reason};
use serde::Deserialize;
use std::time::Duration;

/// The wait for a secondary rate limit without `Retry-After`.
const SECONDARY_WAIT: Duration = Duration::from_secs(60);
/// Validation errors that are reported.
const FAULTS_MAX: usize = 10;

/// The operation that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IssueOperation {
    Listing,
    Creating,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct GithubErrorBody {
    message: String,
    errors: Vec<serde_json::Value>,
}

/// An error response.
pub(super) struct GithubRefusal<'a> {
    pub(super) status: u16,
    pub(super) headers: &'a HeaderMap,
    pub(super) body: &'a [u8],
    pub(super) repository: &'a RepositoryName,
    pub(super) doing: IssueOperation,
    /// The name of the token's secret.
    pub(super) token: &'a str,
    /// Since the epoch.
    pub(super) now: Duration,
}

impl GithubRefusal<'_> {
    pub(super) fn to_tool_error(&self) -> ToolError {
        let said: GithubErrorBody = serde_json::from_slice(self.body).unwrap_or_default();
        let repository = self.repository;
        match self.status {
            401 => ToolError::denied("GitHub does not accept the token").hint(format!(
                "tell the user: it may have expired; a new one is set with `portcullis secrets set {}`",
                self.token
            )),
            403 | 429 => self.forbidden(&said),
            404 => ToolError::new(ErrorKind::NotFound, format!("repository `{repository}` not found")).hint(
                match self.doing {
                    IssueOperation::Listing => {
                        "check the spelling; a private repository looks the same to a token that may not see it"
                    }
                    IssueOperation::Creating => {
                        "check the spelling; a private repository, or one where the token may not create issues, looks the same"
                    }
                },
            ),
            410 => ToolError::denied(format!("`{repository}` has issues turned off, or this one was deleted"))
                .hint("choose another repository, or ask its owner"),
            422 => ToolError::invalid_args(format!("GitHub does not take this: {}", faults(&said)))
                .hint("correct what is named; labels, users and milestones must exist in the repository"),
            451 => ToolError::denied(format!("`{repository}` is not available for legal reasons"))
                .hint("choose another repository"),
            500.. => self.server_error(),
            status => ToolError::new(ErrorKind::Upstream, format!("GitHub answered {status}{}", reason(status)))
                .hint("check owner and repository; the repository may have moved"),
        }
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    fn seconds(&self, name: &str) -> Option<Duration> {
        self.header(name)?.trim().parse().ok().map(Duration::from_secs)
    }

    /// 403 and 429 mean rate limit, secondary rate limit or missing permission.
    fn forbidden(&self, said: &GithubErrorBody) -> ToolError {
        let text = said.message.to_ascii_lowercase();
        let wait = self.seconds("retry-after");
        if self.header("x-ratelimit-remaining") == Some("0") {
            let reset = self.seconds("x-ratelimit-reset").map(|reset| reset.saturating_sub(self.now));
            return ToolError::busy_outside("the token's rate limit at GitHub is used up", wait.or(reset));
        }
        if self.status == 429
            || wait.is_some()
            || text.contains("secondary rate limit")
            || text.contains("abuse")
        {
            let wait = wait.or(Some(SECONDARY_WAIT));
            return ToolError::busy_outside(
                "GitHub wants fewer requests at once (secondary rate limit)",
                wait,
            );
        }
        let repository = self.repository;
        if self.header("x-github-sso").is_some_and(|sso| sso.starts_with("required")) {
            return ToolError::denied(format!(
                "the token is not authorized for the single sign-on of `{}`",
                repository.owner
            ))
            .hint(
                "tell the user: authorize it for the organization in the settings of GitHub, under tokens",
            );
        }
        if text.contains("archived") {
            return ToolError::denied(format!("`{repository}` is archived and takes nothing new"))
                .hint("choose another repository");
        }
        let what = match self.doing {
            IssueOperation::Listing => "read issues",
            IssueOperation::Creating => "create issues",
        };
        let needed = self.header("x-accepted-github-permissions").unwrap_or(match self.doing {
            IssueOperation::Listing => "issues=read",
            IssueOperation::Creating => "issues=write",
        });
        ToolError::denied(format!("the token may not {what} in `{repository}`"))
            .hint(format!("tell the user: the token needs the permission `{}`", printable(needed)))
    }

    fn server_error(&self) -> ToolError {
        let error = ToolError::new(
            ErrorKind::Upstream,
            format!("GitHub has a problem: it answered {}{}", self.status, reason(self.status)),
        );
        match self.doing {
            IssueOperation::Listing => error.hint("try again in a minute"),
            IssueOperation::Creating => error.hint(UNSURE),
        }
    }
}

/// A hint for an unknown outcome.
pub(super) const UNSURE: &str = "the issue may exist anyway: check with `github_list_issues` before retrying";

/// Returns the validation errors by field.
fn faults(said: &GithubErrorBody) -> String {
    let fault = |fault: &serde_json::Value| match fault {
        serde_json::Value::String(text) => printable(text),
        fault => {
            let part = |key: &str| fault[key].as_str().map(printable);
            match (part("field"), part("message"), part("code")) {
                (Some(field), Some(message), _) => format!("`{field}`: {message}"),
                (Some(field), None, Some(code)) => format!("`{field}` is {code}"),
                (None, Some(message), _) => message,
                _ => "something".to_owned(),
            }
        }
    };
    let faults: Vec<String> = said.errors.iter().take(FAULTS_MAX).map(fault).collect();
    match faults.is_empty() {
        true => printable(&said.message),
        false => faults.join("; "),
    }
}
