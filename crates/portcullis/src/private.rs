//! What in the words of a command or in an address is nobody's business: told by how it is called, or by its shape.
//!
//! The redactor knows secrets that are in the store, and tokens by their shape. A password behind `--password` is
//! neither, and stands in configurations all the same; whoever shows such words shows them by way of this module.

use portcullis_guard::Redactor;
use std::sync::LazyLock;

/// Stands where something private is.
pub(crate) const HIDDEN: &str = "[HIDDEN]";

/// What is in the name of a variable or header whose value is nobody's business.
const SECRET_WORDS: [&str; 13] = [
    "TOKEN",
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "APIKEY",
    "API_KEY",
    "ACCESS_KEY",
    "PRIVATE_KEY",
    "CREDENTIAL",
    "AUTHORIZATION",
    "COOKIE",
    "BEARER",
];
/// What ends the name of an option that says where something is, or how much of it, instead of what it is.
const NO_SECRET_ENDS: [&str; 8] = ["FILE", "PATH", "DIR", "URL", "NAME", "TYPE", "_ENV", "_ID"];
/// A part of an address that is as long, with letters and digits in it, is a key more often than a name.
const KEY_CHARS_MIN: usize = 20;

/// Returns whether the name of a variable, a header or a parameter says that its value is secret.
pub(crate) fn is_secret_key(key: &str) -> bool {
    let key = key.to_ascii_uppercase().replace('-', "_");
    SECRET_WORDS.iter().any(|word| key.contains(word))
        || key.ends_with("_KEY")
        || key == "KEY"
        || key.ends_with("_PAT")
        || key == "AUTH"
        || key.ends_with("_AUTH")
}

/// Returns whether the redactor would mask something here without knowing any secret.
pub(crate) fn has_token(text: &str) -> bool {
    static SHAPES: LazyLock<Option<Redactor>> = LazyLock::new(|| Redactor::new(&[]).ok());
    // Without it nothing is known to be harmless.
    SHAPES.as_ref().is_none_or(|redactor| redactor.scrub(text) != text)
}

/// Returns the arguments of a program as they may be shown.
pub(crate) fn shown_args(args: &[String]) -> Vec<String> {
    let mut is_value = false;
    let mut shown = Vec::with_capacity(args.len());
    for arg in args {
        let was_named = std::mem::take(&mut is_value);
        if was_named && !arg.starts_with('-') && could_be_secret(arg) {
            shown.push(HIDDEN.to_owned());
            continue;
        }
        is_value = arg.starts_with('-') && !arg.contains('=') && is_secret_option(arg);
        shown.push(shown_arg(arg));
    }
    shown
}

fn shown_arg(arg: &str) -> String {
    if arg.starts_with("secret:") {
        return arg.to_owned();
    }
    for separator in ['=', ':'] {
        // `--token=…`, `TOKEN=…` and `Authorization: …`.
        let Some((key, value)) = arg.split_once(separator) else { continue };
        let is_key = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
        if is_key && is_secret_option(key) && could_be_secret(value.trim()) {
            let gap = if value.starts_with(' ') { " " } else { "" };
            return format!("{key}{separator}{gap}{HIDDEN}");
        }
        // `--header=Authorization: …`.
        if separator == '=' && is_key {
            let inner = shown_arg(value);
            if inner != value {
                return format!("{key}={inner}");
            }
        }
    }
    if arg.contains("://") { shown_url(arg) } else { without_tokens(arg) }
}

fn is_secret_option(name: &str) -> bool {
    let name = name.trim_start_matches('-').to_ascii_uppercase().replace('-', "_");
    is_secret_key(&name) && !NO_SECRET_ENDS.iter().any(|end| name.ends_with(end))
}

/// Returns whether a value is one itself: no number, no file, and nothing that stands for something else.
fn could_be_secret(value: &str) -> bool {
    let is_number = value.chars().all(|c| c.is_ascii_digit());
    let is_file = ["/", "./", "../", "~"].iter().any(|start| value.starts_with(start));
    let is_word = matches!(value, "true" | "false" | HIDDEN);
    !is_number && !is_file && !is_word && !value.contains("${") && !value.contains("secret:")
}

/// Returns variables or headers as they may be shown.
pub(crate) fn shown_pairs(pairs: &[(String, String)]) -> Vec<(String, String)> {
    let shown = |(key, value): &(String, String)| {
        let is_private = is_secret_key(key) && could_be_secret(value);
        (key.clone(), if is_private { HIDDEN.to_owned() } else { value.clone() })
    };
    pairs.iter().map(shown).collect()
}

/// Returns an address as it may be shown: without a password, and without what looks like a key.
pub(crate) fn shown_url(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return without_tokens(url) };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, rest) = rest.split_at(end);
    let authority = match authority.rsplit_once('@') {
        Some((user, host)) => match user.split_once(':') {
            Some((user, _)) => format!("{user}:{HIDDEN}@{host}"),
            None if could_be_key(user) => format!("{HIDDEN}@{host}"),
            None => authority.to_owned(),
        },
        None => authority.to_owned(),
    };
    let (path, query) = rest.split_at(rest.find(['?', '#']).unwrap_or(rest.len()));
    let parts = path.split('/').map(|part| if could_be_key(part) { HIDDEN } else { part });
    let path = parts.collect::<Vec<_>>().join("/");
    let mut shown = format!("{scheme}://{authority}{path}");
    for pair in query.split_inclusive(['&', ';', '#', '?']) {
        let (pair, separator) = match pair.strip_suffix(['&', ';', '#', '?']) {
            Some(inner) => (inner, &pair[inner.len()..]),
            None => (pair, ""),
        };
        match pair.split_once('=') {
            Some((key, value)) if is_secret_key(key) && could_be_secret(value) || could_be_key(value) => {
                shown.push_str(&format!("{key}={HIDDEN}{separator}"));
            }
            _ => shown.push_str(&format!("{pair}{separator}")),
        }
    }
    without_tokens(&shown)
}

fn could_be_key(part: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || "-_.~%=+".contains(c);
    part.len() >= KEY_CHARS_MIN
        && part.chars().all(legal)
        && part.chars().any(|c| c.is_ascii_digit())
        && part.chars().any(|c| c.is_ascii_alphabetic())
}

fn without_tokens(text: &str) -> String {
    if has_token(text) { HIDDEN.to_owned() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_private_in_the_words_of_a_command_is_hidden_and_nothing_else() {
        let token = format!("ghp_{}", "a1B2c3D4e5".repeat(4).get(..36).unwrap());
        for (args, shown) in [
            ("-y server /home/me --max-tokens 4096 --token-file /x --port 80", None),
            ("--api-key hunter2", Some("--api-key [HIDDEN]")),
            ("--api-key=hunter2 next", Some("--api-key=[HIDDEN] next")),
            ("-e GITHUB_TOKEN=x -e LANG=de", Some("-e GITHUB_TOKEN=[HIDDEN] -e LANG=de")),
            ("-e GITHUB_TOKEN image", None),
            ("--token --verbose", None),
            ("--ssh-key ~/.ssh/id --secret ${X} --password secret:X", None),
            ("--header X-Api-Key:abc", Some("--header X-Api-Key:[HIDDEN]")),
            ("--header=Authorization:abc", Some("--header=Authorization:[HIDDEN]")),
            (&token, Some("[HIDDEN]")),
            ("postgres://me:hunter2@db/x", Some("postgres://me:[HIDDEN]@db/x")),
            ("postgres://me@db/x https://example.com/a?b=c#d", None),
        ] {
            let words: Vec<String> = args.split(' ').map(str::to_owned).collect();
            assert_eq!(shown_args(&words).join(" "), shown.unwrap_or(args));
        }
        let header = ["--header".to_owned(), "Authorization: Bearer abc def".to_owned()];
        assert_eq!(shown_args(&header)[1], "Authorization: [HIDDEN]");
    }

    #[test]
    fn what_is_private_in_an_address_is_hidden_and_nothing_else() {
        for (url, shown) in [
            ("https://mcp.example.com/v1/mcp?team=red&limit=20250101", None),
            ("https://mcp.example.com/@modelcontextprotocol/server-filesystem", None),
            ("unix:/run/some.sock:/mcp", None),
            (
                "https://x.example.com/mcp?a=b&api_key=c&d=e",
                Some("https://x.example.com/mcp?a=b&api_key=[HIDDEN]&d=e"),
            ),
            (
                "https://x.example.com/s/abc0123456789abcdefg/mcp",
                Some("https://x.example.com/s/[HIDDEN]/mcp"),
            ),
            ("https://me:pw@x.example.com/mcp", Some("https://me:[HIDDEN]@x.example.com/mcp")),
        ] {
            assert_eq!(shown_url(url), shown.unwrap_or(url));
        }
    }
}
