//! URI templates: whether a URI matches one that a server advertises.

/// How many parts a template may have.
const PARTS_MAX: usize = 32;

/// A URI template: fixed text and placeholders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UriTemplate(Vec<TemplatePart>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum TemplatePart {
    Fixed(String),
    /// At least one character, without a slash.
    Segment,
    /// Anything, also nothing.
    Anything,
    /// The same, with unescaped slashes.
    Path,
}

impl UriTemplate {
    pub(crate) fn new(template: &str) -> UriTemplate {
        let (mut parts, mut rest) = (Vec::new(), template);
        while let Some((before, after)) = rest.split_once('{') {
            let Some((expression, after)) = after.split_once('}') else { break };
            if !before.is_empty() {
                parts.push(TemplatePart::Fixed(before.to_owned()));
            }
            let simple = expression.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.'));
            parts.push(match expression.as_bytes().first() {
                _ if simple => TemplatePart::Segment,
                Some(b'+' | b'#') => TemplatePart::Path,
                _ => TemplatePart::Anything,
            });
            rest = after;
        }
        if !rest.is_empty() {
            parts.push(TemplatePart::Fixed(rest.to_owned()));
        }
        // More placeholders than any real template has would only cost time.
        if parts.len() > PARTS_MAX {
            parts.clear();
        }
        // A template that begins with a placeholder would claim every URI of every other server.
        if !matches!(parts.first(), Some(TemplatePart::Fixed(_))) {
            parts.clear();
        }
        UriTemplate(parts)
    }

    pub(crate) fn matches(&self, uri: &str) -> bool {
        !self.0.is_empty() && matches(&self.0, uri) && is_plain(uri)
    }
}

/// Returns whether a URI is in canonical form. Rules match URIs as text, and many servers normalise them: another
/// spelling of a denied URI would pass the rules (path traversal).
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
    // Most servers collapse two slashes; but not in a URI within the URI.
    let is_doubled = path.match_indices("//").any(|(at, _)| !path[..at].ends_with(':'));
    !is_doubled && !path.split(['/', '?', '#']).any(is_turn)
}

fn matches(parts: &[TemplatePart], text: &str) -> bool {
    // The positions where the parts so far can end; at most one set per part, so matching is not exponential.
    let mut ends = vec![0];
    for part in parts {
        let mut next = Vec::new();
        match part {
            TemplatePart::Fixed(fixed) => {
                next.extend(
                    ends.iter()
                        .filter(|at| text[**at..].starts_with(fixed.as_str()))
                        .map(|at| at + fixed.len()),
                );
            }
            TemplatePart::Segment | TemplatePart::Anything | TemplatePart::Path => {
                let Some(first) = ends.first().copied() else { return false };
                if *part != TemplatePart::Segment {
                    next.push(first);
                }
                let mut reachable = false;
                for (at, c) in text.char_indices().skip_while(|(at, _)| *at < first) {
                    reachable |= ends.binary_search(&at).is_ok();
                    let is_escaped =
                        || text[at..].get(1..3).is_some_and(|digits| digits.eq_ignore_ascii_case("2f"));
                    let is_slash = match part {
                        TemplatePart::Segment => c == '/',
                        // Where slashes are unescaped, none may be escaped.
                        TemplatePart::Path => c == '%' && is_escaped(),
                        TemplatePart::Anything | TemplatePart::Fixed(_) => false,
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
            // Another spelling of a URI that may be denied.
            ("file:///{+path}", "file:///public/../private/k", false),
            ("file:///{+path}", "file:///public/%2e%2e/private/k", false),
            ("file:///{+path}", "file:///./private/k", false),
            ("file:///{+path}", "file:////private/k", false),
            ("file:///{+path}", "file:///private%2fk", false),
            ("file:///{+path}", "file:///private\\k", false),
            ("note://{place}/{id}", "note://%73ecret/x", false),
            ("docs://{name}", "docs://..%2F..%2Fetc", false),
        ] {
            assert_eq!(UriTemplate::new(template).matches(uri), expected, "{template} {uri}");
        }
    }

    #[test]
    fn a_hostile_form_does_not_take_long() {
        let template = UriTemplate::new(&format!("a:{}z", "{x}{+y}".repeat(15)));
        assert!(!template.matches(&format!("a:{}", "b".repeat(8_000))));
    }
}
