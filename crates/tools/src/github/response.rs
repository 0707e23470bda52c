//! The fields of GitHub's responses that are used.

use super::Issue;
use portcullis_core::hidden_chars::strip_hidden;
use portcullis_egress::{HeaderMap, Url, header};
use serde::Deserialize;

/// An issue, or a pull request.
#[derive(Deserialize)]
pub(super) struct RawIssue {
    number: u64,
    title: String,
    state: String,
    html_url: String,
    #[serde(default)]
    labels: Vec<RawLabel>,
    #[serde(default)]
    assignees: Vec<RawUser>,
    milestone: Option<RawMilestone>,
    user: Option<RawUser>,
    #[serde(default)]
    comments: u64,
    #[serde(default)]
    created_at: String,
    #[serde(default)]
    updated_at: String,
    /// Present if it is a pull request.
    pull_request: Option<serde::de::IgnoredAny>,
}

impl RawIssue {
    pub(super) fn is_issue(&self) -> bool {
        self.pull_request.is_none()
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum RawLabel {
    Named { name: String },
    Plain(String),
}

#[derive(Deserialize)]
struct RawUser {
    login: String,
}

#[derive(Deserialize)]
struct RawMilestone {
    title: String,
}

/// Returns the URL of the next page, if it is below the base URL: the token is sent along.
pub(super) fn next_page(headers: &HeaderMap, base_url: &Url) -> Option<Url> {
    let links = headers.get(header::LINK)?.to_str().ok()?;
    let next = links.split(',').find_map(|link| {
        let (address, parameters) = link.split_once(';')?;
        let is_next = parameters.split(';').any(|parameter| parameter.trim().replace('"', "") == "rel=next");
        is_next.then(|| address.trim().trim_start_matches('<').trim_end_matches('>'))
    })?;
    Url::parse(next).ok().filter(|next| next.origin() == base_url.origin())
}

impl From<RawIssue> for Issue {
    fn from(raw: RawIssue) -> Issue {
        let label = |label: RawLabel| match label {
            RawLabel::Named { name } | RawLabel::Plain(name) => strip_hidden_text(&name),
        };
        Issue {
            number: raw.number,
            title: strip_hidden_text(&raw.title),
            state: strip_hidden_text(&raw.state),
            labels: raw.labels.into_iter().map(label).collect(),
            assignees: raw.assignees.iter().map(|user| strip_hidden_text(&user.login)).collect(),
            milestone: raw.milestone.map(|milestone| strip_hidden_text(&milestone.title)),
            author: raw.user.map(|user| strip_hidden_text(&user.login)),
            comments: raw.comments,
            created_at: strip_hidden_text(&raw.created_at),
            updated_at: strip_hidden_text(&raw.updated_at),
            url: strip_hidden_text(&raw.html_url),
        }
    }
}

/// Removes hidden and control characters.
fn strip_hidden_text(text: &str) -> String {
    strip_hidden(text).replace(char::is_control, "")
}
