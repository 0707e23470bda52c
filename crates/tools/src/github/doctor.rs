//! Check of the GitHub tools: whether the token is there and granted.

use super::GithubSection;
use portcullis_core::BoxFuture;
use portcullis_family::{CheckState, DoctorParts, HealthCheck};
use portcullis_store::secrets::SecretError;

pub(super) fn checks<'a>(parts: &'a DoctorParts<'a>) -> BoxFuture<'a, Vec<HealthCheck>> {
    Box::pin(async { vec![check(parts).of("github")] })
}

fn check(parts: &DoctorParts<'_>) -> CheckState {
    let Some(github) = parts.section::<GithubSection>() else {
        return CheckState::Good(
            "off; `[github]` in the configuration enables the github_* tools on".to_owned(),
        );
    };
    let secrets = match parts.secrets {
        Ok(secrets) => secrets,
        Err(error) => return CheckState::unreadable(error),
    };
    let host = github.base_url.host_str().unwrap_or_default();
    let name = github.token.name();
    match secrets.get(&github.token) {
        Err(SecretError::Locked(_)) => {
            CheckState::Warning(format!("{} cannot be checked; the secret store is locked", github.token))
        }
        Err(error) => CheckState::bad(
            format!("no token: {error}"),
            format!(
                "create a GitHub token that can read and write issues, then run `portcullis secrets set {name} --grant {host}`"
            ),
        ),
        Ok(secret) if !secret.grants.iter().any(|grant| grant.covers(host, "Authorization")) => {
            CheckState::bad(
                format!("secret `{name}` is not granted for {host}"),
                format!("run `portcullis secrets grant {name} {host}`"),
            )
        }
        Ok(_) => {
            let which = match github.repositories.as_slice() {
                [] => "any repository".to_owned(),
                some => some.join(", "),
            };
            CheckState::Good(format!("on, at {host} with {}, for {which}", github.token))
        }
    }
}
