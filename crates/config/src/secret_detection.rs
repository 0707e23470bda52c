//! Heuristic detection of secrets in commands, URLs and settings, by name or shape.
//!
//! The redactor knows stored secrets, and tokens by their shape. A password after `--password` is neither, yet appears in
//! configurations; code that displays such text goes through this module.

mod commands;
mod masked_display;

pub use commands::{ValueDisplay, is_command_name, shortened};
pub use masked_display::{shown_args, shown_pairs, shown_url};

use masked_display::{end_of_address, shown_address};
use portcullis_guard::Redactor;
use serde_json::Value;
use std::sync::LazyLock;

/// Replacement of a private value.
pub(crate) const HIDDEN: &str = "[HIDDEN]";

/// Parts of names whose values are secret.
const SECRET_PARTS: [&str; 15] = [
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "APIKEY",
    "API_KEY",
    "ACCESS_KEY",
    "ACCESSKEY",
    "ACCOUNTKEY",
    "PRIVATE_KEY",
    "PRIVATEKEY",
    "CREDENTIAL",
    "AUTHORIZATION",
    "COOKIE",
    "BEARER",
];
/// Words that mark a secret anywhere in a name, or as its last word.
const SECRET_WORDS: [&str; 2] = ["PASS", "PWD"];
const SECRET_LAST_WORDS: [&str; 3] = ["KEY", "PAT", "AUTH"];
/// Name endings for which even a number is a secret. With others, a number is a count or lifetime.
const NUMBER_ENDS: [&str; 8] = ["PASSWORD", "PASSWD", "PASSPHRASE", "PASS", "PWD", "SECRET", "TOKEN", "KEY"];
/// Password keys in database connection strings.
const CONNECTION_KEYS: [&str; 4] = ["PASSWORD", "PWD", "ACCOUNTKEY", "SHAREDACCESSKEY"];
/// Name endings of locations and amounts, which are not secrets.
const NO_SECRET_ENDS: [&str; 8] = ["FILE", "PATH", "DIR", "URL", "NAME", "TYPE", "_ENV", "_ID"];
/// Exceptions: such endings that are secrets, as in logins of some secret stores.
const SECRET_ENDS: [&str; 1] = ["SECRET_ID"];
/// A URL part of this length with letters and digits is likelier a key than a name.
const KEY_CHARS_MIN: usize = 20;
/// The same for one word of a part; names consist of shorter words.
const KEY_WORD_CHARS_MIN: usize = 16;
/// A number with fewer digits is a count, not a secret.
const NUMBER_CHARS_MIN: usize = 8;

/// Redactor by token shapes only.
static SHAPES: LazyLock<Option<Redactor>> = LazyLock::new(|| Redactor::new(&[]).ok());

/// Returns whether a variable or header is secret, by name or value.
pub fn is_private(key: &str, value: &str) -> bool {
    !is_command_name(key) && (is_secret_of(key, value) || holds_private(value))
}

/// Returns whether a value contains a secret, whatever its name.
pub fn holds_private(value: &str) -> bool {
    has_token(value) || has_password(value) || has_private_member(value) || has_key(value)
}

/// Returns whether a value is a URL with a key.
fn has_key(value: &str) -> bool {
    let address = &value[..end_of_address(value)];
    address.contains("://") && shown_address(address, is_surely_key) != address
}

/// Returns whether a value is a JSON object with a secret; some servers take headers so.
fn has_private_member(value: &str) -> bool {
    let Some(Value::Object(members)) =
        value.trim_start().starts_with('{').then(|| serde_json::from_str(value).ok()).flatten()
    else {
        return false;
    };
    // Commands are shown, with private parts masked.
    if members.keys().any(|key| is_command_name(key)) {
        return false;
    }
    members.iter().any(|(key, member)| match member {
        Value::String(text) => is_private(key, text),
        Value::Object(_) => is_private(key, &member.to_string()),
        _ => false,
    })
}

/// Returns whether a value is secret by its name.
fn is_secret_of(name: &str, value: &str) -> bool {
    let digits = |text: &str| text.chars().all(|c| c.is_ascii_digit());
    let is_number = value.len() >= NUMBER_CHARS_MIN && digits(value);
    let counts = || {
        let name = name.to_ascii_uppercase();
        !NUMBER_ENDS.iter().any(|end| name.trim_end_matches(|c: char| c.is_ascii_digit()).ends_with(end))
    };
    !is_command_name(name)
        && is_secret_name(name)
        && if is_number { !counts() } else { could_be_secret(value) }
}

/// Returns whether a name of a variable, header, option or parameter marks a secret.
fn is_secret_name(name: &str) -> bool {
    let name = name.trim_start_matches('-').to_ascii_uppercase().replace('-', "_");
    // `TOKEN2` is a secret too.
    let words = name.split(|c: char| !c.is_ascii_alphanumeric());
    let words: Vec<&str> = words.map(|word| word.trim_end_matches(|c: char| c.is_ascii_digit())).collect();
    let says_so = SECRET_PARTS.iter().any(|part| name.contains(part))
        // Not plurals, which are counts, and not tokenizer settings.
        || words.iter().any(|word| word.ends_with("TOKEN") || SECRET_WORDS.contains(word))
        || words.last().is_some_and(|word| SECRET_LAST_WORDS.contains(word));
    let ends = |all: &[&str]| all.iter().any(|end| name.ends_with(end));
    says_so && (ends(&SECRET_ENDS) || !ends(&NO_SECRET_ENDS))
}

/// Returns whether a text contains a password: in a URL, a connection string or a header.
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
    // Other schemes are ordinary words too.
    let in_header = text.split_once(' ').is_some_and(|(scheme, token)| {
        scheme.eq_ignore_ascii_case("Bearer") && !token.contains(' ') && is_given(text)
    });
    in_address || in_settings || in_header
}

/// Returns whether a value is set and literal.
fn is_given(value: &str) -> bool {
    !value.trim().is_empty() && value != HIDDEN && !value.contains("${") && !is_handle(value)
}

/// Returns whether a value refers to the secret store.
pub fn is_handle(value: &str) -> bool {
    handle(value).is_some()
}

/// Returns the secret that a value refers to, and the scheme before it, like `Bearer`.
pub fn handle(value: &str) -> Option<(Option<&str>, &str)> {
    let after_word = value.split_once(' ').map(|(word, rest)| (Some(word), rest));
    [after_word, Some((None, value))]
        .into_iter()
        .flatten()
        .find_map(|(word, rest)| Some((word, rest.strip_prefix("secret:")?)))
}

/// Returns a secret reference inside a longer text, where it is not resolved. Names are upper-case, so false positives are
/// rare.
pub fn buried_handle(value: &str) -> Option<&str> {
    let found = value.match_indices("secret:").find_map(|(at, start)| {
        let rest = &value[at + start.len()..];
        let name = &rest[..rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len())];
        let is_word = !value[..at].ends_with(|c: char| c.is_ascii_alphanumeric() || "-_".contains(c));
        let is_name = name.starts_with(|c: char| c.is_ascii_uppercase()) && name == name.to_ascii_uppercase();
        (is_word && is_name).then_some(name)
    });
    found.filter(|_| handle(value).is_none())
}

/// Returns whether a text contains a token by shape.
pub(crate) fn has_token(text: &str) -> bool {
    // Without a redactor, everything counts as secret.
    SHAPES.as_ref().is_none_or(|redactor| redactor.scrub(text) != text)
}

/// Returns whether a value is itself a secret: not a count, path, plain URL or reference.
fn could_be_secret(value: &str) -> bool {
    let is_file = ["/", "./", "../", "~/"].iter().any(|start| value.starts_with(start)) && !is_random(value);
    let is_plain_address = value.contains("://") && shown_url(value) == value;
    let is_word = matches!(value, "true" | "false");
    let is_count = value.chars().all(|c| c.is_ascii_digit());
    is_given(value) && !is_count && !is_file && !is_plain_address && !is_word
}

/// Returns whether a path-like text is likelier a key: keys of some providers contain slashes.
fn is_random(text: &str) -> bool {
    text.split('/').any(|part| is_mixed(part, KEY_CHARS_MIN, "+="))
}

/// Returns whether a text has this length, mixed-case letters and digits, and only the given other characters.
fn is_mixed(text: &str, chars_min: usize, signs: &str) -> bool {
    let has = |test: fn(&char) -> bool| text.chars().any(|c| test(&c));
    text.len() >= chars_min
        && text.chars().all(|c| c.is_ascii_alphanumeric() || signs.contains(c))
        && has(char::is_ascii_digit)
        && has(char::is_ascii_uppercase)
        && has(char::is_ascii_lowercase)
}

fn could_be_key(part: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || "-_.~%=+".contains(c);
    part.len() >= KEY_CHARS_MIN
        && part.chars().all(legal)
        && part.chars().any(|c| c.is_ascii_digit())
        && part.chars().any(|c| c.is_ascii_alphabetic())
}

/// Returns whether a URL part is a key, not just a long name with a number.
fn is_surely_key(part: &str) -> bool {
    let is_random = |word: &str| {
        let has = |test: fn(&char) -> bool| word.chars().any(|c| test(&c));
        word.len() >= KEY_WORD_CHARS_MIN && has(char::is_ascii_digit) && has(char::is_ascii_alphabetic)
    };
    could_be_key(part) && part.split(['-', '_', '.', '~', '%', '=', '+']).any(is_random)
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
            ("--conn Server=db;Password=Str0ngPassw0rd;", Some("--conn Server=db;Password=[HIDDEN];")),
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
        for (arg, shown) in [
            ("Cookie: a=b; session=c", "Cookie: [HIDDEN]"),
            (
                "jdbc:sqlserver://db:1433;user=sa;password=hunter2",
                "jdbc:sqlserver://db:1433;user=sa;password=[HIDDEN]",
            ),
            (
                "Endpoint=sb://x.example.com/;SharedAccessKeyName=Root;SharedAccessKey=hunter2=",
                "Endpoint=sb://x.example.com/;SharedAccessKeyName=Root;SharedAccessKey=[HIDDEN]",
            ),
            ("--privateKey=0x4c08", "--privateKey=[HIDDEN]"),
            (
                r#"{"client_id":"abc","client_secret":"hunter2"}"#,
                r#"{"client_id":"abc","client_secret":"[HIDDEN]"}"#,
            ),
            (r#""{\"apiKey\":\"hunter2\"}""#, r#""{\"apiKey\":\"[HIDDEN]\"}""#),
        ] {
            assert_eq!(shown_args(&[arg.to_owned()]), [shown]);
        }
    }

    #[test]
    fn nothing_that_may_be_run_is_hidden_with_what_is_private() {
        let token = format!("ghp_{}", "a1B2c3D4e5".repeat(4).get(..36).unwrap());
        for before in [
            "API_KEY=abcdefgh1",
            "--api-key=abcdefgh1",
            "Authorization: Bearer abcdefgh1",
            "Bearer abcdefgh1",
            "Cookie: a=b; c=d",
            "Server=db;Password=abcdefgh1",
            "https://me:abcdefgh1@db/x",
            "https://x.example.com/mcp?api_key=abcdefgh1",
            &token,
        ] {
            for run in [
                "; touch /tmp/x",
                ";/tmp/x",
                "`/tmp/x`",
                "|sh",
                "&/tmp/x",
                "$(/tmp/x)",
                "\n/tmp/x",
                " # ;/tmp/x",
            ] {
                if before.starts_with("Bearer") && run.starts_with(' ') {
                    // Could be a sentence.
                    continue;
                }
                let shown = shown_args(&["-c".to_owned(), format!("{before}{run}")]).concat();
                let word = run.rsplit(' ').next().unwrap().trim_start_matches('$');
                assert!(shown.ends_with(word), "{before}{run}: {shown}");
                assert!(!shown.contains("abcdefgh1") && !shown.contains(&token), "{before}{run}: {shown}");
            }
        }
        for (args, shown) in [
            // What the redactor would write, and what it would take for one long key.
            (
                vec![format!("echo {token}; : [REDACTED ; touch /tmp/x")],
                "echo [HIDDEN]; : [REDACTED ; touch /tmp/x",
            ),
            (
                vec![format!(
                    "echo -----BEGIN PRIVATE KEY-----; touch /tmp/x{}; echo -----END PRIVATE KEY-----",
                    "y".repeat(80)
                )],
                &format!(
                    "echo ----BEGIN PRIVATE KEY-----; touch /tmp/x{}; echo -----END PRIVATE KEY-----",
                    "y".repeat(80)
                ),
            ),
            (vec![r#"{"token":"$(touch /tmp/x)"}"#.to_owned()], r#"{"token":"[HIDDEN](touch /tmp/x)"}"#),
            (
                vec![r#"{"a":"$(touch /tmp/x)","a":"b","token":"abcdef"}"#.to_owned()],
                r#"{"a":"$(touch /tmp/x)","a":"b","token":"abcdef"}"#,
            ),
            (vec!["--token".to_owned(), "a;touch /tmp/x".to_owned()], "--token [HIDDEN];touch /tmp/x"),
            (vec!["x://y;/tmp/abcdefghij0123456789abc".to_owned()], "x://y;/tmp/abcdefghij0123456789abc"),
        ] {
            assert_eq!(shown_args(&args).join(" "), shown);
        }
        // Nor does it take long, or end the program.
        let deep = "a=".repeat(50_000);
        assert_eq!(shown_args(std::slice::from_ref(&deep)).concat(), deep);
        // A password that is none.
        let shown = shown_args(&["x://me:;/tmp/x;@db".to_owned()]).concat();
        assert!(shown.contains("/tmp/x"), "{shown}");
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
            ("RPC_URL", "https://rpc.example.com/v3/0b1c2d3e4f5061728394a5b6c7d8e9f0"),
            ("SENTRY_DSN", "https://0b1c2d3e4f5061728394a5b6c7d8e9f0@errors.example.com/1"),
            ("ENDPOINT", "https://x.example.com/mcp?api_key=hunter2"),
            ("STORE", "DefaultEndpointsProtocol=https;AccountName=x;AccountKey=hunter2==;Suffix=y"),
            ("BUS", "Endpoint=sb://x.example.com/;SharedAccessKeyName=Root;SharedAccessKey=hunter2="),
        ] {
            assert!(is_private(key, value), "{key}={value}");
            let shown = &shown_pairs(&[(key.to_owned(), value.to_owned())])[0].1;
            let secrets =
                ["hunter2", "Sup3r", "Str0ng", "12345678", "1234567890", "0b1c2d3e", "AbCdEf", ":pw"];
            assert!(
                shown.contains(HIDDEN) && secrets.iter().all(|secret| !shown.contains(secret)),
                "{shown}"
            );
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
        // What only might be one is hidden, and not taken for one.
        assert!(!is_private("RELEASE", "https://example.com/releases/server-filesystem-v2025"));
    }

    #[test]
    fn a_secret_that_is_named_where_none_is_put_in_is_found() {
        for value in ["token=secret:NOPE", "Bearer  secret:NOPE", "postgres://u:secret:NOPE@db/x"] {
            assert_eq!(buried_handle(value), Some("NOPE"), "{value}");
        }
        for value in
            ["secret:NOPE", "Bearer secret:NOPE", "a-secret:pw", "client_secret:NO", "top secret: NO"]
        {
            assert_eq!(buried_handle(value), None, "{value}");
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
