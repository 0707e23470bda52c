//! The hint that a server may fail because it starts without the user's environment.

use crate::config::McpServerSettings;
use portcullis_upstream::{ServerStatus, StatusKind};
use std::ffi::OsString;

/// Variables by which programs find certificates, proxies and package registries. Upper or lower case.
const NETWORK_VARIABLES: [&str; 10] = [
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NO_PROXY",
    "npm_config_registry",
    "PIP_INDEX_URL",
    "UV_INDEX_URL",
];

/// What programs write when they miss one of them. Lower case.
const NETWORK_FAILURES: [&str; 14] = [
    "certificate",
    "self-signed",
    "self signed",
    "econnrefused",
    "econnreset",
    "enotfound",
    "etimedout",
    "eai_again",
    "connection refused",
    "name resolution",
    "proxy",
    "network",
    "fetch failed",
    "failed to fetch",
];

/// Where a variable is passed to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnvRemedy {
    /// As an option of `mcp add`: the server is not in the configuration yet.
    Option,
    /// In the configuration.
    Setting,
}

/// Returns how to pass the variables that a local server may miss, if it failed as one without them does. The values are
/// not shown: a proxy's URL may hold a password.
pub fn cleared_environment_hint(
    server: &McpServerSettings,
    status: &ServerStatus,
    environment: &dyn Fn(&str) -> Option<OsString>,
    remedy: EnvRemedy,
) -> Option<String> {
    if !server.is_local() || status.kind != StatusKind::Failed || !is_network_failure(status) {
        return None;
    }
    let is_passed = |name: &str| server.env.iter().any(|(passed, _)| passed.eq_ignore_ascii_case(name));
    let is_set = |name: &String| environment(name).is_some_and(|value| !value.is_empty());
    let missed: Vec<String> = NETWORK_VARIABLES
        .iter()
        .filter(|name| !is_passed(name))
        .flat_map(|name| [name.to_ascii_uppercase(), name.to_ascii_lowercase()])
        .filter(is_set)
        .collect();
    if missed.is_empty() {
        return None;
    }
    let how = match remedy {
        EnvRemedy::Option => {
            let options = missed.iter().map(|name| format!("--env '{name}=${{{name}}}'"));
            format!("add {}", options.collect::<Vec<_>>().join(" "))
        }
        EnvRemedy::Setting => {
            let pairs = missed.iter().map(|name| format!("{name} = \"${{{name}}}\""));
            format!("add to `mcp.{}.env`: {}", server.name, pairs.collect::<Vec<_>>().join(", "))
        }
    };
    let these = if missed.len() == 1 { "this variable" } else { "these variables" };
    Some(format!(
        "servers start with a cleared environment, and this failure looks like one without {these} of yours; {how}"
    ))
}

fn is_network_failure(status: &ServerStatus) -> bool {
    status.reason.iter().chain(&status.stderr).any(|line| {
        let line = line.to_ascii_lowercase();
        NETWORK_FAILURES.iter().any(|failure| line.contains(failure))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, NewServer, preview_servers};

    const OWN: [(&str, &str); 4] = [
        ("SSL_CERT_FILE", "/ca.pem"),
        ("https_proxy", "http://me:hunter2@proxy"),
        ("NO_PROXY", ""),
        ("TERM", "xterm"),
    ];

    fn own(name: &str) -> Option<OsString> {
        OWN.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into())
    }

    fn with_env(env: &[(&str, &str)]) -> Config {
        let folder = tempfile::tempdir().unwrap();
        let new = NewServer {
            name: "npm".to_owned(),
            command: Some("npx".to_owned()),
            env: env.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            ..NewServer::default()
        };
        preview_servers(folder.path(), &|_| None, &[new]).unwrap()
    }

    fn failed(stderr: &str) -> ServerStatus {
        ServerStatus { stderr: vec![stderr.to_owned()], ..ServerStatus::of(StatusKind::Failed) }
    }

    #[test]
    fn a_network_failure_names_the_set_variables_that_are_not_passed() {
        let check = |env: &[(&str, &str)], stderr: &str, remedy| {
            cleared_environment_hint(&with_env(env).mcp[0], &failed(stderr), &own, remedy)
        };
        let said = "servers start with a cleared environment, and this failure looks like one without";
        for stderr in [
            "npm error code SELF_SIGNED_CERT_IN_CHAIN: self-signed certificate",
            "npm error connect ECONNREFUSED 127.0.0.1:4873",
            "getaddrinfo ENOTFOUND registry.npmjs.org",
            "npm error network request failed",
            "TypeError: fetch failed",
        ] {
            assert_eq!(
                check(&[], stderr, EnvRemedy::Option).unwrap(),
                format!(
                    "{said} these variables of yours; add --env 'SSL_CERT_FILE=${{SSL_CERT_FILE}}' --env 'https_proxy=${{https_proxy}}'"
                ),
                "{stderr}"
            );
        }
        let passed = [("HTTPS_PROXY", "http://other")];
        assert_eq!(
            check(&passed, "invalid peer certificate", EnvRemedy::Setting).unwrap(),
            format!(
                "{said} this variable of yours; add to `mcp.npm.env`: SSL_CERT_FILE = \"${{SSL_CERT_FILE}}\""
            )
        );
        let both = [("HTTPS_PROXY", "x"), ("SSL_CERT_FILE", "/ca.pem")];
        assert_eq!(check(&both, "invalid peer certificate", EnvRemedy::Option), None);
        assert_eq!(check(&[], "no such database", EnvRemedy::Option), None);
    }

    #[test]
    fn a_failure_elsewhere_is_not_the_environment() {
        let config = with_env(&[]);
        let check = |status: &ServerStatus, environment: &dyn Fn(&str) -> Option<OsString>| {
            cleared_environment_hint(&config.mcp[0], status, environment, EnvRemedy::Option)
        };
        let failure = failed("fetch failed");
        assert!(check(&failure, &own).is_some());
        assert_eq!(check(&failure, &|_| None), None);
        let connected = ServerStatus { kind: StatusKind::Connected, ..failure };
        assert_eq!(check(&connected, &own), None);
    }
}
