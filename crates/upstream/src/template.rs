//! Whether an address is of the form that a server described.

/// How many parts a form may have.
const PARTS_MAX: usize = 32;

/// A described form of addresses: fixed text, and places where something stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Template(Vec<Part>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Fixed(String),
    /// At least one character, without a slash.
    Segment,
    /// Anything, also nothing.
    Anything,
    /// The same, where slashes stand as they are.
    Path,
}

impl Template {
    pub(crate) fn new(template: &str) -> Template {
        let (mut parts, mut rest) = (Vec::new(), template);
        while let Some((before, after)) = rest.split_once('{') {
            let Some((expression, after)) = after.split_once('}') else { break };
            if !before.is_empty() {
                parts.push(Part::Fixed(before.to_owned()));
            }
            let simple = expression.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.'));
            parts.push(match expression.as_bytes().first() {
                _ if simple => Part::Segment,
                Some(b'+' | b'#') => Part::Path,
                _ => Part::Anything,
            });
            rest = after;
        }
        if !rest.is_empty() {
            parts.push(Part::Fixed(rest.to_owned()));
        }
        // More places than any real form has would only cost time.
        if parts.len() > PARTS_MAX {
            parts.clear();
        }
        // A form that begins with anything at all would claim every address of every other server.
        if !matches!(parts.first(), Some(Part::Fixed(_))) {
            parts.clear();
        }
        Template(parts)
    }

    pub(crate) fn matches(&self, uri: &str) -> bool {
        !self.0.is_empty() && matches(&self.0, uri) && is_plain(uri)
    }
}

/// Returns whether an address is written as filling in a form leaves it. Rules match addresses as text, and many servers take
/// apart what they get: another spelling of what is denied would be let through, and mean the same to them.
fn is_plain(uri: &str) -> bool {
    let rest = uri.split_once("://").map_or(uri, |(_, rest)| rest);
    let escapes = rest.match_indices('%').filter_map(|(at, _)| rest.get(at + 1..at + 3));
    let mut escaped = escapes.filter_map(|digits| u8::from_str_radix(digits, 16).ok());
    let needs_none = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~\\".contains(&byte);
    if rest.contains('\\') || escaped.any(needs_none) {
        return false;
    }
    let pairs = [("%2f", "/"), ("%2F", "/"), ("%3a", ":"), ("%3A", ":")];
    let path = pairs.iter().fold(rest.to_owned(), |path, (escape, meant)| path.replace(escape, meant));
    let is_turn = |step: &str| matches!(step, "." | "..");
    // Two slashes are one to most; but not in an address within the address.
    let is_doubled = path.match_indices("//").any(|(at, _)| !path[..at].ends_with(':'));
    !is_doubled && !path.split(['/', '?', '#']).any(is_turn)
}

fn matches(parts: &[Part], text: &str) -> bool {
    // Which places in the text the parts so far can end at; at most one set per part, so no form takes long.
    let mut ends = vec![0];
    for part in parts {
        let mut next = Vec::new();
        match part {
            Part::Fixed(fixed) => {
                next.extend(
                    ends.iter()
                        .filter(|at| text[**at..].starts_with(fixed.as_str()))
                        .map(|at| at + fixed.len()),
                );
            }
            Part::Segment | Part::Anything | Part::Path => {
                let Some(first) = ends.first().copied() else { return false };
                if *part != Part::Segment {
                    next.push(first);
                }
                let mut reachable = false;
                for (at, c) in text.char_indices().skip_while(|(at, _)| *at < first) {
                    reachable |= ends.binary_search(&at).is_ok();
                    let is_escaped =
                        || text[at..].get(1..3).is_some_and(|digits| digits.eq_ignore_ascii_case("2f"));
                    let is_slash = match part {
                        Part::Segment => c == '/',
                        // Where slashes stand as they are, none is to be written otherwise.
                        Part::Path => c == '%' && is_escaped(),
                        Part::Anything | Part::Fixed(_) => false,
                    };
                    if is_slash {
                        reachable = false;
                    }
                    if reachable {
                        next.push(at + c.len_utf8());
                    }
                }
                next.dedup();
            }
        }
        if next.is_empty() {
            return false;
        }
        ends = next;
    }
    ends.contains(&text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_the_form_or_has_not() {
        for (template, uri, expected) in [
            ("demo://text/{id}", "demo://text/1", true),
            ("demo://text/{id}", "demo://text/", false),
            ("demo://text/{id}", "demo://text/1/2", false),
            ("demo://text/{id}/data", "demo://text/ä/data", true),
            ("file:///{+path}", "file:///a/b/c", true),
            ("file:///{path*}", "file:///", true),
            ("{any}", "workspace://x", false),
            ("{+any}", "workspace://x", false),
            ("a:{x}-{y}", "a:1-2-3", true),
            ("a:{x}", "b:1", false),
            ("a:b", "a:b", true),
            ("a:{x", "a:{x", true),
            ("repo://{project}", "repo://group%2Fname", true),
            ("file:///{+path}", "file:///a%20b/%C3%A9", true),
            ("web://{+url}", "web://https://example.com/a?b=c", true),
            ("web://{url}", "web://https%3A%2F%2Fexample.com%2Fa", true),
            ("items://all{?path}", "items://all?path=src%2Fmain.rs", true),
            ("repo://contents{/path*}", "repo://contents/src%2Fmain.rs", true),
            // Another spelling of what may be denied.
            ("file:///{+path}", "file:///public/../private/k", false),
            ("file:///{+path}", "file:///public/%2e%2e/private/k", false),
            ("file:///{+path}", "file:///./private/k", false),
            ("file:///{+path}", "file:////private/k", false),
            ("file:///{+path}", "file:///private%2fk", false),
            ("file:///{+path}", "file:///private\\k", false),
            ("note://{place}/{id}", "note://%73ecret/x", false),
            ("docs://{name}", "docs://..%2F..%2Fetc", false),
        ] {
            assert_eq!(Template::new(template).matches(uri), expected, "{template} {uri}");
        }
    }

    #[test]
    fn a_hostile_form_does_not_take_long() {
        let template = Template::new(&format!("a:{}z", "{x}{+y}".repeat(15)));
        assert!(!template.matches(&format!("a:{}", "b".repeat(8_000))));
    }
}
