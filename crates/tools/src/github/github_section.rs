//! The `[github]` section.
//!
//! The token is a credential. Errors do not quote it, because the file may contain the value itself instead of
//! `secret:NAME`.

use super::names::is_repository_pattern;
use portcullis_egress::{SecretRef, Url};
use portcullis_family::{AbsentSection, ConfigSection, SectionChecks};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// GitHub issues. This section enables the github_* tools.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GithubSection {
    /// Token as `secret:NAME`; it needs a grant for the host of `base_url`.
    #[schemars(example = &"secret:GITHUB_TOKEN")]
    token: String,
    /// API URL; for GitHub Enterprise it ends with /api/v3.
    #[schemars(example = &"https://github.example.com/api/v3")]
    base_url: String,
    /// Allowed repositories, as owner/name or owner/*; empty allows all.
    #[schemars(example = ["octocat/hello-world"])]
    repositories: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GithubSettings {
    pub token: SecretRef,
    /// The base URL of the API.
    pub base_url: Url,
    /// `owner/name` or `owner/*`; any if empty.
    pub repositories: Vec<String>,
}

impl Default for GithubSection {
    fn default() -> Self {
        GithubSection {
            token: "secret:GITHUB_TOKEN".to_owned(),
            base_url: "https://api.github.com".to_owned(),
            repositories: Vec::new(),
        }
    }
}

impl ConfigSection for GithubSection {
    const KEY: &'static str = "github";
    const ABSENT: AbsentSection = AbsentSection::Off;
    type Settings = GithubSettings;

    fn resolve(&self, checks: &mut SectionChecks<'_>) -> Option<GithubSettings> {
        let token = self.token.parse::<SecretRef>();
        if token.is_err() {
            let expected = "secret:NAME, stored with `portcullis secrets set NAME`";
            checks.unexpected_secret("/github/token", expected);
        }
        let base_url = Url::parse(&self.base_url).ok().filter(is_api);
        if base_url.is_none() {
            let expected = "a URL like https://github.example.com/api/v3";
            checks.unexpected("/github/base_url", &self.base_url, expected);
        }
        for (index, repository) in self.repositories.iter().enumerate() {
            if !is_repository_pattern(repository) {
                let pointer = format!("/github/repositories/{index}");
                checks.unexpected(&pointer, repository, "a repository like octocat/hello-world or octocat/*");
            }
        }
        Some(GithubSettings {
            token: token.ok()?,
            base_url: base_url?,
            repositories: self.repositories.clone(),
        })
    }
}

fn is_api(url: &Url) -> bool {
    matches!(url.scheme(), "https" | "http")
        && url.has_host()
        && url.username().is_empty()
        && url.password().is_none()
        && url.query().is_none()
        && url.fragment().is_none()
}
