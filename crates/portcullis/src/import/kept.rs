//! What goes into the secret store, and what has to stay in the configuration in clear.

use super::Lifted;
use super::program::is_bridge;
use crate::private;
use portcullis_core::Secret;
use portcullis_egress::own::Place;
use portcullis_store::secrets::is_secret_name;

/// A secret that is shorter cannot be masked.
pub(super) const SECRET_BYTES_MIN: usize = 8;
/// What comes before a token in a header.
const SCHEMES: [&str; 3] = ["Bearer", "Basic", "token"];

/// A value that is not written into the configuration.
pub(super) struct Kept {
    /// The word that stays there before the secret, like `Bearer`.
    pub(super) scheme: Option<String>,
    /// `None` where a person was asked for it.
    pub(super) value: Option<String>,
}

impl Kept {
    /// Takes a whole value. What comes before a token says what it is, and is no part of it: nobody else writes the two
    /// together, so they could not be masked together either.
    pub(super) fn of(value: String) -> Kept {
        match value.split_once(' ') {
            Some((word, token)) if is_scheme(word) && is_one_word(token.trim()) => {
                Kept { scheme: Some(word.to_owned()), value: Some(token.trim().to_owned()) }
            }
            _ => Kept { scheme: None, value: Some(value) },
        }
    }

    /// Takes what a person was asked for, with what is around it there.
    pub(super) fn asked(before: &str, after: &str) -> Kept {
        let scheme = before.strip_suffix(' ').filter(|word| is_scheme(word) && after.is_empty());
        Kept { scheme: scheme.map(str::to_owned), value: None }
    }

    /// Returns how the configuration refers to it.
    pub(super) fn written(&self, name: &str) -> String {
        let scheme = self.scheme.iter().map(|word| format!("{word} ")).collect::<String>();
        format!("{scheme}secret:{name}")
    }
}

fn is_scheme(word: &str) -> bool {
    SCHEMES.iter().any(|scheme| scheme.eq_ignore_ascii_case(word))
}

fn is_one_word(token: &str) -> bool {
    token.len() >= SECRET_BYTES_MIN && !token.contains(char::is_whitespace)
}

/// Moves secrets from the arguments of programs that take them from their environment as well to where they can be
/// referred to.
pub(super) fn move_out(
    server: &str,
    command: &str,
    args: &mut [String],
    env: &mut Vec<(String, String)>,
    secrets: &mut Vec<Lifted>,
) {
    let program = command.rsplit('/').next().unwrap_or_default();
    let is_container = matches!(program, "docker" | "podman");
    let is_bridge = program == "mcp-remote" || is_bridge(args);
    for at in 1..args.len() {
        let (option, word) = (args[at - 1].as_str(), args[at].clone());
        let worth = |key: &str, value: &str| is_secret(key, value) && value.len() >= SECRET_BYTES_MIN;
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
        let name = secret_name(server, &variable);
        let kept = Kept::of(value.to_owned());
        env.push((variable.clone(), kept.written(&name)));
        let Kept { scheme, value } = kept;
        let (value, grant) = (value.map(Secret::new), format!("mcp.{server}:env"));
        secrets.push(Lifted { key: variable, name, scheme, value, grant, refused: None });
        args[at] = rest;
    }
}

/// Says what stays in the configuration in clear, because nothing there can refer to the secret store.
pub(crate) fn in_clear(
    server: &str,
    args: &[String],
    url: Option<&str>,
    notes: &mut Vec<String>,
) -> Result<(), String> {
    let shown = private::shown_args(args);
    let places = args.iter().zip(&shown).enumerate().filter(|(_, (arg, shown))| arg != shown);
    let places: Vec<String> = places.map(|(at, _)| (at + 1).to_string()).collect();
    if !places.is_empty() {
        let looks = match places.as_slice() {
            [one] => format!("argument {one} looks like a secret"),
            all => format!("arguments {} look like secrets", all.join(" and ")),
        };
        notes.push(format!(
            "{looks}; what is there stays in the configuration in clear: arguments cannot refer to the secret store. \
             If the program takes it from a variable too, take it out there, and: \
             portcullis secrets set NAME --grant 'mcp.{server}:env', then `env = {{ VARIABLE = \"secret:NAME\" }}`"
        ));
    }
    let Some(url) = url.filter(|url| private::shown_url(url) != **url) else { return Ok(()) };
    // Which names are free is not known here, and one that is not must not be set again.
    let instead = |scheme: &str| {
        format!(
            "portcullis secrets set NAME --grant '{}:authorization', then `headers = {{ Authorization = \"{scheme} secret:NAME\" }}`",
            host_of(url)
        )
    };
    let authority = url.split_once("://").map_or(url, |(_, rest)| rest);
    if authority.split(['/', '?', '#']).next().is_some_and(|authority| authority.contains('@')) {
        return Err(format!(
            "its address holds a user name or password; `USER:PASSWORD`, in base64, belongs into a header: {}",
            instead("Basic")
        ));
    }
    notes.push(format!(
        "its address looks as if a key were in it. It stays in the configuration in clear: addresses cannot refer to the secret store. \
         If the server takes it in a header too: {}",
        instead("Bearer")
    ));
    Ok(())
}

/// Returns whether a value belongs into the secret store.
pub(crate) fn is_secret(key: &str, value: &str) -> bool {
    !value.contains("${") && private::is_private(key, value)
}

pub(super) fn secret_name(server: &str, key: &str) -> String {
    let upper = |text: &str| {
        text.to_ascii_uppercase().replace(|c: char| !c.is_ascii_uppercase() && !c.is_ascii_digit(), "_")
    };
    let (server, key) = (upper(server), upper(key));
    let names_server = key.strip_prefix(&server).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'));
    let name = if names_server { key } else { format!("{server}_{key}") };
    let name: String = name.chars().take(60).collect();
    if is_secret_name(&name) { name } else { format!("S_{name}") }
}

/// Returns the host as a secret is granted for it.
pub(crate) fn host_of(url: &str) -> String {
    let Ok(place) = url.parse::<Place>() else { return host_written(url) };
    // The dot of a name that is complete as it stands is no part of a grant.
    let host = place.host();
    host.strip_suffix('.').unwrap_or(host).to_owned()
}

/// Returns what stands where the host does, in an address that cannot be used as it is. It is put into commands that a person
/// may copy, so it is nothing but a host.
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
