//! Extracts secrets from imported entries, and notes what must stay in plain text.

use super::ExtractedSecret;
use super::program::is_bridge;
use portcullis_config::secret_detection;
use portcullis_core::Secret;
use portcullis_egress::configured_client::ConfiguredEndpoint;
use portcullis_store::secrets::{VALUE_BYTES_MIN, is_secret_name};

/// Authentication schemes in headers.
const SCHEMES: [&str; 3] = ["Bearer", "Basic", "token"];

/// A value to move out of the configuration.
pub(super) struct SecretCandidate {
    /// The scheme that stays before the secret, like `Bearer`.
    pub(super) scheme: Option<String>,
    /// `None` if the application prompts for it.
    pub(super) value: Option<String>,
}

impl SecretCandidate {
    /// Takes a whole value. The scheme is not part of the secret: elsewhere the token appears without it, and could not be
    /// redacted.
    pub(super) fn of(value: String) -> SecretCandidate {
        match value.split_once(' ') {
            Some((word, token)) if is_scheme(word) && is_one_word(token.trim()) => {
                SecretCandidate { scheme: Some(word.to_owned()), value: Some(token.trim().to_owned()) }
            }
            _ => SecretCandidate { scheme: None, value: Some(value) },
        }
    }

    /// Takes a value that the application prompts for, with the text around it.
    pub(super) fn prompted(before: &str, after: &str) -> SecretCandidate {
        let scheme = before.strip_suffix(' ').filter(|word| is_scheme(word) && after.is_empty());
        SecretCandidate { scheme: scheme.map(str::to_owned), value: None }
    }

    /// Returns the secret for the store.
    pub(super) fn extract(self, server: &str, key: &str, grant: String) -> ExtractedSecret {
        let SecretCandidate { scheme, value } = self;
        let (key, name) = (key.to_owned(), secret_name(server, key));
        ExtractedSecret { key, name, scheme, value: value.map(Secret::new), grant, refused: None }
    }
}

fn is_scheme(word: &str) -> bool {
    SCHEMES.iter().any(|scheme| scheme.eq_ignore_ascii_case(word))
}

fn is_one_word(token: &str) -> bool {
    token.len() >= VALUE_BYTES_MIN && !token.contains(char::is_whitespace)
}

/// Moves secrets from arguments to `env`, for commands that also read them from the environment.
pub(super) fn extract_arg_secrets(
    server: &str,
    command: &str,
    args: &mut [String],
    env: &mut Vec<(String, String)>,
    secrets: &mut Vec<ExtractedSecret>,
) {
    let program = command.rsplit('/').next().unwrap_or_default();
    let is_container = matches!(program, "docker" | "podman");
    let is_bridge = program == "mcp-remote" || is_bridge(args);
    for at in 1..args.len() {
        let (option, word) = (args[at - 1].as_str(), args[at].clone());
        let worth = |key: &str, value: &str| is_secret(key, value) && value.len() >= VALUE_BYTES_MIN;
        let (variable, value, rest) = match (option, word.split_once('='), word.split_once(':')) {
            ("-e" | "--env", Some((key, value)), _) if is_container && worth(key, value) => {
                (key.to_owned(), value, key.to_owned())
            }
            ("--header", _, Some((header, value))) if is_bridge && worth(header, value.trim()) => {
                let variable = secret_name(server, header);
                let rest = format!("{header}:${{{variable}}}");
                (variable, value.trim(), rest)
            }
            _ => continue,
        };
        if env.iter().any(|(known, _)| *known == variable) {
            continue;
        }
        let candidate = SecretCandidate::of(value.to_owned());
        let secret = candidate.extract(server, &variable, format!("mcp.{server}:env"));
        env.push((variable, secret.reference()));
        secrets.push(secret);
        args[at] = rest;
    }
}

/// Notes secrets that stay in plain text, because arguments and URLs cannot refer to the secret store.
pub fn in_clear(
    server: &str,
    args: &[String],
    url: Option<&str>,
    notes: &mut Vec<String>,
) -> Result<(), String> {
    let shown = secret_detection::shown_args(args);
    let places = args.iter().zip(&shown).enumerate().filter(|(_, (arg, shown))| arg != shown);
    let places: Vec<String> = places.map(|(at, _)| (at + 1).to_string()).collect();
    if !places.is_empty() {
        let looks = match places.as_slice() {
            [one] => format!("argument {one} looks like a secret"),
            all => format!("arguments {} look like secrets", all.join(" and ")),
        };
        notes.push(format!(
            "{looks} and stays in the configuration in plain text: arguments cannot refer to the secret store. \
             If the program also reads it from a variable, remove the argument and: \
             portcullis secrets set NAME --grant 'mcp.{server}:env', then `env = {{ VARIABLE = \"secret:NAME\" }}`"
        ));
    }
    let Some(url) = url.filter(|url| secret_detection::shown_url(url) != **url) else { return Ok(()) };
    // Free secret names are unknown here, and an existing secret must not be overwritten.
    let instead = |scheme: &str| {
        format!(
            "portcullis secrets set NAME --grant '{}:authorization', then `headers = {{ Authorization = \"{scheme} secret:NAME\" }}`",
            host_of(url)
        )
    };
    let authority = url.split_once("://").map_or(url, |(_, rest)| rest);
    if authority.split(['/', '?', '#']).next().is_some_and(|authority| authority.contains('@')) {
        return Err(format!(
            "its URL contains a user name or password; move `USER:PASSWORD`, in base64, to a header: {}",
            instead("Basic")
        ));
    }
    notes.push(format!(
        "its URL seems to contain a key. It stays in the configuration in plain text: URLs cannot refer to the secret store. \
         If the server also accepts it in a header: {}",
        instead("Bearer")
    ));
    Ok(())
}

/// Returns whether a value belongs in the secret store.
pub fn is_secret(key: &str, value: &str) -> bool {
    !value.contains("${") && secret_detection::is_private(key, value)
}

pub(super) fn secret_name(server: &str, key: &str) -> String {
    let upper = |text: &str| {
        text.to_ascii_uppercase().replace(|c: char| !c.is_ascii_uppercase() && !c.is_ascii_digit(), "_")
    };
    // Many servers have that ending in their names only, and not in those of their variables.
    let (server, key) = (upper(server.strip_suffix("-mcp").unwrap_or(server)), upper(key));
    let names_server = key.strip_prefix(&server).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'));
    let name = if names_server { key } else { format!("{server}_{key}") };
    let name: String = name.chars().take(60).collect();
    if is_secret_name(&name) { name } else { format!("S_{name}") }
}

/// Returns the host for a grant.
pub fn host_of(url: &str) -> String {
    let Ok(place) = url.parse::<ConfiguredEndpoint>() else { return host_written(url) };
    // The trailing dot of a FQDN is not part of a grant.
    let host = place.host();
    host.strip_suffix('.').unwrap_or(host).to_owned()
}

/// Returns the host of an otherwise invalid URL. It appears in commands that people paste, so it must be a plain host.
fn host_written(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let authority = authority.rsplit('@').next().unwrap_or_default();
    let host = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => format!("[{address}]"),
        None => authority.split(':').next().unwrap_or_default().to_ascii_lowercase(),
    };
    let is_host = |c: char| c.is_ascii_alphanumeric() || ".-:[]".contains(c);
    if !host.is_empty() && host.chars().all(is_host) { host } else { "HOST".to_owned() }
}
