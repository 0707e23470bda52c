//! What GitHub sends, as far as we look.

use super::Issue;
use portcullis_core::text::cleaned;
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
    /// There if it is not an issue.
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

/// Returns where the next page is, if GitHub names one below its own address: the token goes along.
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
            RawLabel::Named { name } | RawLabel::Plain(name) => seen(&name),
        };
        Issue {
            number: raw.number,
            title: seen(&raw.title),
            state: seen(&raw.state),
            labels: raw.labels.into_iter().map(label).collect(),
            assignees: raw.assignees.iter().map(|user| seen(&user.login)).collect(),
            milestone: raw.milestone.map(|milestone| seen(&milestone.title)),
            author: raw.user.map(|user| seen(&user.login)),
            comments: raw.comments,
            created_at: seen(&raw.created_at),
            updated_at: seen(&raw.updated_at),
            url: seen(&raw.html_url),
        }
    }
}

/// Returns what a reader would see of a text.
fn seen(text: &str) -> String {
    cleaned(text).replace(char::is_control, "")
}
