//! What in the words of a command or in an address is nobody's business: told by how it is called, or by its shape.
//!
//! The redactor knows secrets that are in the store, and tokens by their shape. A password behind `--password` is
//! neither, and stands in configurations all the same; whoever shows such words shows them by way of this module.

use portcullis_guard::Redactor;
use serde_json::Value;
use std::sync::LazyLock;

/// Stands where something private is.
pub(crate) const HIDDEN: &str = "[HIDDEN]";

/// What is in the name of a variable or header whose value is nobody's business.
const SECRET_PARTS: [&str; 12] = [
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
/// Whole words that say so anywhere in a name, and those that say so where they come last.
const SECRET_WORDS: [&str; 2] = ["PASS", "PWD"];
const SECRET_LAST_WORDS: [&str; 3] = ["KEY", "PAT", "AUTH"];
/// Ends of names of which even a number is one. Others count something: how long a token lives, and how many there are.
const NUMBER_ENDS: [&str; 8] = ["PASSWORD", "PASSWD", "PASSPHRASE", "PASS", "PWD", "SECRET", "TOKEN", "KEY"];
/// What a password is called in the text by which programs connect to databases.
const CONNECTION_KEYS: [&str; 2] = ["PASSWORD", "PWD"];
/// What ends a name that says where something is, or how much of it, instead of what it is.
const NO_SECRET_ENDS: [&str; 8] = ["FILE", "PATH", "DIR", "URL", "NAME", "TYPE", "_ENV", "_ID"];
/// Such an end all the same of what is one: the second half of a login to some stores of secrets.
const SECRET_ENDS: [&str; 1] = ["SECRET_ID"];
/// A part of an address that is as long, with letters and digits in it, is a key more often than a name.
const KEY_CHARS_MIN: usize = 20;
/// A number of fewer digits is too short for a secret, and counts something.
const NUMBER_CHARS_MIN: usize = 8;

/// Returns whether the value of a variable or a header is nobody's business: its name says so, or what it holds.
pub(crate) fn is_private(key: &str, value: &str) -> bool {
    is_secret_of(key, value) || has_token(value) || has_password(value) || has_private_member(value)
}

/// Returns whether a value is an object in JSON with something private in it: headers are given to some servers so.
fn has_private_member(value: &str) -> bool {
    let Some(Value::Object(members)) =
        value.trim_start().starts_with('{').then(|| serde_json::from_str(value).ok()).flatten()
    else {
        return false;
    };
    members.iter().any(|(key, member)| match member {
        Value::String(text) => is_private(key, text),
        Value::Object(_) => is_private(key, &member.to_string()),
        _ => false,
    })
}

/// Returns whether a value is secret because its name says so.
fn is_secret_of(name: &str, value: &str) -> bool {
    let digits = |text: &str| text.chars().all(|c| c.is_ascii_digit());
    let is_number = value.len() >= NUMBER_CHARS_MIN && digits(value);
    let counts = || {
        let name = name.to_ascii_uppercase();
        !NUMBER_ENDS.iter().any(|end| name.trim_end_matches(|c: char| c.is_ascii_digit()).ends_with(end))
    };
    is_secret_name(name) && if is_number { !counts() } else { could_be_secret(value) }
}

/// Returns whether the name of a variable, a header, an option or a parameter says that its value is secret.
fn is_secret_name(name: &str) -> bool {
    let name = name.trim_start_matches('-').to_ascii_uppercase().replace('-', "_");
    // The second token is one, too.
    let words = name.split(|c: char| !c.is_ascii_alphanumeric());
    let words: Vec<&str> = words.map(|word| word.trim_end_matches(|c: char| c.is_ascii_digit())).collect();
    let says_so = SECRET_PARTS.iter().any(|part| name.contains(part))
        // Not of many: those are counted, and not those of a tokenizer.
        || words.iter().any(|word| word.ends_with("TOKEN") || SECRET_WORDS.contains(word))
        || words.last().is_some_and(|word| SECRET_LAST_WORDS.contains(word));
    let ends = |all: &[&str]| all.iter().any(|end| name.ends_with(end));
    says_so && (ends(&SECRET_ENDS) || !ends(&NO_SECRET_ENDS))
}

/// Returns whether a text holds a password by the way: an address with one, what a program connects with, or a header.
fn has_password(text: &str) -> bool {
    let in_address = text.split_once("://").is_some_and(|(_, rest)| {
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let user = authority.rsplit_once('@').map(|(user, _)| user);
        user.and_then(|user| user.split_once(':')).is_some_and(|(_, password)| is_given(password))
    });
    let in_settings = text.split([';', ',', '&', '?', ' ']).any(|setting| {
        setting.split_once('=').is_some_and(|(key, value)| {
            CONNECTION_KEYS.iter().any(|known| known.eq_ignore_ascii_case(key.trim())) && is_given(value)
        })
    });
    // The other schemes are ordinary words too.
    let in_header = text.split_once(' ').is_some_and(|(scheme, token)| {
        scheme.eq_ignore_ascii_case("Bearer") && !token.contains(' ') && is_given(text)
    });
    in_address || in_settings || in_header
}

/// Returns whether there is a value, and it does not stand for another.
fn is_given(value: &str) -> bool {
    !value.trim().is_empty() && value != HIDDEN && !value.contains("${") && !is_handle(value)
}

/// Returns whether a value refers to the secret store.
pub(crate) fn is_handle(value: &str) -> bool {
    handle(value).is_some()
}

/// Returns which secret a value refers to, and the one word, like `Bearer`, that it may do so after.
pub(crate) fn handle(value: &str) -> Option<(Option<&str>, &str)> {
    let after_word = value.split_once(' ').map(|(word, rest)| (Some(word), rest));
    [after_word, Some((None, value))]
        .into_iter()
        .flatten()
        .find_map(|(word, rest)| Some((word, rest.strip_prefix("secret:")?)))
}

/// Returns whether the redactor would mask something here without knowing any secret.
pub(crate) fn has_token(text: &str) -> bool {
    static SHAPES: LazyLock<Option<Redactor>> = LazyLock::new(|| Redactor::new(&[]).ok());
    // Without it nothing is known to be harmless.
    SHAPES.as_ref().is_none_or(|redactor| redactor.scrub(text) != text)
}

/// Returns the arguments of a program as they may be shown.
pub(crate) fn shown_args(args: &[String]) -> Vec<String> {
    let mut name = None::<&str>;
    let mut shown = Vec::with_capacity(args.len());
    for arg in args {
        if name.take().is_some_and(|name| !arg.starts_with('-') && is_secret_of(name, arg)) {
            shown.push(HIDDEN.to_owned());
            continue;
        }
        name = Some(arg.as_str()).filter(|arg| arg.starts_with('-') && !arg.contains('='));
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
        if is_key && is_secret_of(key, value.trim()) {
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
    match arg {
        arg if arg.contains("://") => shown_url(arg),
        arg if has_password(arg) => HIDDEN.to_owned(),
        arg => without_tokens(arg),
    }
}

/// Returns whether a value is one itself: no count, no file, no address of something, and nothing that stands for
/// something else.
fn could_be_secret(value: &str) -> bool {
    let is_file = ["/", "./", "../", "~/"].iter().any(|start| value.starts_with(start)) && !is_random(value);
    let is_plain_address = value.contains("://") && shown_url(value) == value;
    let is_word = matches!(value, "true" | "false");
    let is_count = value.chars().all(|c| c.is_ascii_digit());
    is_given(value) && !is_count && !is_file && !is_plain_address && !is_word
}

/// Returns whether a text that begins as a path does is more likely a key: those of some providers have slashes in them.
fn is_random(text: &str) -> bool {
    text.split('/').any(|part| {
        let has = |test: fn(&char) -> bool| part.chars().any(|c| test(&c));
        part.len() >= KEY_CHARS_MIN
            && part.chars().all(|c| c.is_ascii_alphanumeric() || "+=".contains(c))
            && has(char::is_ascii_digit)
            && has(char::is_ascii_uppercase)
            && has(char::is_ascii_lowercase)
    })
}

/// Returns variables or headers as they may be shown.
pub(crate) fn shown_pairs(pairs: &[(String, String)]) -> Vec<(String, String)> {
    let shown = |(key, value): &(String, String)| {
        let is_shown = is_handle(value) || !is_private(key, value);
        (key.clone(), if is_shown { value.clone() } else { HIDDEN.to_owned() })
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
            Some((key, value)) if is_secret_of(key, value) || could_be_key(value) => {
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
            ("--password 12345678 --retries 3", Some("--password [HIDDEN] --retries 3")),
            ("--conn Server=db;Password=Str0ngPassw0rd;", Some("--conn Server=[HIDDEN]")),
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
    fn a_variable_is_private_by_its_name_or_by_what_it_holds() {
        for (key, value) in [
            ("MYSQL_PASS", "hunter2pw"),
            ("DB_PWD", "hunter2pw"),
            ("PGPASSWORD", "12345678"),
            ("BOT_TOKEN", "1234567890"),
            ("VAULT_SECRET_ID", "0b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0"),
            ("GITHUB_TOKEN2", "hunter2pw"),
            ("REDIS", "cache:6379,password=hunter2pw,ssl=true"),
            ("apiKey", "hunter2pw"),
            ("X-Api-Key", "hunter2pw"),
            ("NPM_AUTHTOKEN", "hunter2pw"),
            ("AWS_SECRET_ACCESS_KEY", "/AbCdEfGhIjKlMnOpQrStUv0123456789+AbCd=="),
            ("SESSION_TOKEN", "a-secret:pw"),
            ("MONGODB_URI", "mongodb+srv://me:Sup3rS3cret@db.example.com/x"),
            ("DATABASE_URL", "postgres://me:hunter2pw@db/x"),
            ("CONN", "Server=db;User Id=me;Password=Str0ngPassw0rd;"),
            ("A", "Bearer hunter2hunter2"),
            ("API_HEADERS", r#"{"Authorization": "Bearer hunter2hunter2"}"#),
            ("SETTINGS", r#"{"db": {"password": "hunter2pw"}, "port": 1}"#),
            ("DSN", "host=db user=me password=hunter2pw"),
            ("JDBC", "jdbc:mysql://db/x?user=me&password=hunter2pw"),
        ] {
            assert!(is_private(key, value), "{key}={value}");
            assert_eq!(shown_pairs(&[(key.to_owned(), value.to_owned())])[0].1, HIDDEN);
        }
        for (key, value) in [
            ("GOOGLE_APPLICATION_CREDENTIALS", "/home/me/gcp.json"),
            ("TOKEN_FILE", "/home/me/token.json"),
            ("OAUTH_TOKEN_URL", "https://login.example.com/token"),
            ("AUTHORIZATION_SERVER", "https://login.example.com"),
            ("MAX_TOKENS_TOTAL", "100000000"),
            ("TOKENIZERS_PARALLELISM", "fork"),
            ("TOKEN_TTL", "86400000"),
            ("PWD", "/home/me"),
            ("PASSWORD", "${PW}"),
            ("AUTH", "Bearer secret:AUTH"),
            ("DATABASE_URL", "postgres://me@db/x"),
            ("DATABASE_URL", "postgres://me:${PW}@db/x"),
            ("CONN", "Server=db;Password=;Trusted=yes"),
            ("COMPASS", "north-west"),
            ("API_HEADERS", r#"{"Notion-Version": "2022-06-28", "Authorization": "Bearer ${TOKEN}"}"#),
            ("A", "Bearer of good news"),
            ("A", "Bearer ${TOKEN}"),
        ] {
            assert_eq!(shown_pairs(&[(key.to_owned(), value.to_owned())])[0].1, value, "{key}");
        }
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
