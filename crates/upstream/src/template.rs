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
            parts.push(if simple { Part::Segment } else { Part::Anything });
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
        !self.0.is_empty() && matches(&self.0, uri)
    }
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
            Part::Segment | Part::Anything => {
                let Some(first) = ends.first().copied() else { return false };
                if *part == Part::Anything {
                    next.push(first);
                }
                let mut reachable = false;
                for (at, c) in text.char_indices().skip_while(|(at, _)| *at < first) {
                    reachable |= ends.binary_search(&at).is_ok();
                    if *part == Part::Segment && c == '/' {
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
