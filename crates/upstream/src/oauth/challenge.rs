//! `WWW-Authenticate` challenge of a refusal.

/// Longer than any header that servers send.
const CHALLENGE_BYTES_MAX: usize = 8 * 1024;

/// The parameters of a bearer challenge.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Challenge {
    pub(super) resource_metadata: Option<String>,
    pub(super) scope: Option<String>,
    pub(super) error: Option<String>,
}

impl Challenge {
    /// Parses a header. What is not understood is ignored: it is untrusted, and only adds to the flow.
    pub(super) fn parse(header: &str) -> Challenge {
        let mut challenge = Challenge::default();
        if header.len() > CHALLENGE_BYTES_MAX {
            return challenge;
        }
        let (mut rest, mut is_bearer) = (header, false);
        while let Some((word, after)) = word(rest) {
            let Some(value) = after.trim_start().strip_prefix('=') else {
                // A word without a value begins the next challenge.
                is_bearer = word.eq_ignore_ascii_case("bearer");
                rest = after;
                continue;
            };
            let (value, after) = value_of(value.trim_start());
            rest = after;
            if !is_bearer {
                continue;
            }
            let part = match word.to_ascii_lowercase().as_str() {
                "resource_metadata" => &mut challenge.resource_metadata,
                "scope" => &mut challenge.scope,
                "error" => &mut challenge.error,
                _ => continue,
            };
            // The first counts: a second one may be injected.
            part.get_or_insert(value);
        }
        challenge
    }
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c)
}

/// Takes the next word, and returns the rest.
fn word(text: &str) -> Option<(&str, &str)> {
    let start = text.find(is_word)?;
    let text = &text[start..];
    Some(text.split_at(text.find(|c| !is_word(c)).unwrap_or(text.len())))
}

/// Takes a value, quoted or not.
fn value_of(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([',', ' ', '\t']).unwrap_or(text.len());
        return (text[..end].to_owned(), &text[end..]);
    };
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (value, &quoted[at + 1..]),
            '\\' => value.extend(chars.next().map(|(_, c)| c)),
            c => value.push(c),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(header: &str) -> [Option<String>; 3] {
        let Challenge { resource_metadata, scope, error } = Challenge::parse(header);
        [resource_metadata, scope, error]
    }

    #[test]
    fn only_what_belongs_to_bearer_tokens_is_read() {
        let some = |text: &str| Some(text.to_owned());
        let cases: [(&str, [Option<String>; 3]); 9] = [
            ("Bearer", [None, None, None]),
            (
                r#"Bearer error="insufficient_scope", scope="a b", resource_metadata="https://x.test/m""#,
                [some("https://x.test/m"), some("a b"), some("insufficient_scope")],
            ),
            (r#"bearer Scope=a,ERROR=invalid_token"#, [None, some("a"), some("invalid_token")]),
            (r#"Basic scope="no", Bearer scope="yes", DPoP scope="no""#, [None, some("yes"), None]),
            (r#"Bearer realm="a, scope=\"x\"", scope = "y" "#, [None, some("y"), None]),
            (r#"Bearer scope="first", scope="second""#, [None, some("first"), None]),
            (r#"Bearer scope="open"#, [None, some("open"), None]),
            (r#"Bearer scope="\"#, [None, some(""), None]),
            ("=,\"\\", [None, None, None]),
        ];
        for (header, expected) in cases {
            assert_eq!(read(header), expected, "{header}");
        }
        let long = format!(r#"Bearer scope="{}""#, "a".repeat(CHALLENGE_BYTES_MAX));
        assert_eq!(read(&long), [None, None, None]);
    }
}
