//! Parses a search query.

use super::note::link_target;
use super::tokenizer::{fold, words};
use portcullis_core::ToolError;
use portcullis_core::json::printable;

/// Longer than people write.
pub(super) const QUERY_BYTES_MAX: usize = 1_000;
const CLAUSES_MAX: usize = 32;

/// Words and conditions, all of which must match.
#[derive(Debug, PartialEq)]
pub(super) struct Query {
    pub(super) clauses: Vec<Clause>,
    paths: Vec<PathClause>,
}

#[derive(Debug, PartialEq)]
pub(super) struct Clause {
    pub(super) condition: Condition,
    /// Whether it must not match.
    pub(super) excluded: bool,
    /// As written, to report a clause without matches.
    pub(super) written: String,
}

/// All texts but those of links are folded.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Condition {
    Word(String),
    Beginning(String),
    Phrase(Vec<String>),
    Tag(String),
    Link(String),
    Property(String, Option<String>),
}

#[derive(Debug, PartialEq)]
struct PathClause {
    prefix: String,
    excluded: bool,
}

impl Query {
    pub(super) fn parse(text: &str) -> Result<Query, ToolError> {
        if text.len() > QUERY_BYTES_MAX {
            return Err(ToolError::too_large("`query`", text.len(), QUERY_BYTES_MAX)
                .hint("search for a few words that matter"));
        }
        let mut query = Query { clauses: Vec::new(), paths: Vec::new() };
        for piece in pieces(text)? {
            query.add(piece)?;
            if query.clauses.len() + query.paths.len() > CLAUSES_MAX {
                return Err(ToolError::invalid_args(format!(
                    "`query` has more than {CLAUSES_MAX} words and conditions"
                ))
                .hint("search for a few words that matter"));
            }
        }
        if query.clauses.is_empty() && query.paths.is_empty() {
            return Err(ToolError::invalid_args("`query` has no words to look for").hint(SYNTAX));
        }
        Ok(query)
    }

    fn add(&mut self, piece: &str) -> Result<(), ToolError> {
        let (excluded, rest) = match piece.strip_prefix('-') {
            Some(rest) if !rest.is_empty() => (true, rest),
            _ => (false, piece),
        };
        if rest == "OR" || rest == "|" {
            return Err(ToolError::invalid_args(
                "`query` has an `OR`; all words of a search must be in a note",
            )
            .hint("search once for each of the alternatives"));
        }
        if let Some(path) = operator(rest, "path:") {
            let prefix = fold(unquoted(path).trim_start_matches("./").trim_start_matches('/'));
            self.paths.push(PathClause { prefix, excluded });
            return Ok(());
        }
        let condition = if let Some(tag) = operator(rest, "tag:").or_else(|| rest.strip_prefix('#')) {
            let tag = fold(unquoted(tag).trim_start_matches('#').trim_matches('/'));
            if tag.is_empty() {
                return Err(ToolError::invalid_args("`tag:` needs a name, like `tag:#project`"));
            }
            Some(Condition::Tag(tag))
        } else if let Some(link) = rest.strip_prefix("[[") {
            let target = link_target(link.strip_suffix("]]").unwrap_or(link));
            (!target.is_empty()).then(|| Condition::Link(target.to_owned()))
        } else if let Some(property) = rest.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            let (key, value) =
                property.split_once(':').map_or((property, None), |(key, value)| (key, Some(value)));
            let value = value.map(|value| fold(unquoted(value.trim())));
            Some(Condition::Property(fold(unquoted(key.trim())), value.filter(|value| !value.is_empty())))
        } else {
            of_words(rest)
        };
        // A piece without letters, like a dash between words, is ignored.
        if let Some(condition) = condition {
            self.clauses.push(Clause { condition, excluded, written: printable(rest) });
        }
        Ok(())
    }

    /// Returns whether a path matches the path clauses.
    pub(super) fn fits_path(&self, path: &str) -> bool {
        if self.paths.is_empty() {
            return true;
        }
        let folded = fold(path);
        self.paths.iter().all(|clause| folded.starts_with(&clause.prefix) != clause.excluded)
    }

    /// Restricts the query to a folder.
    pub(super) fn within(&mut self, folder: &str) {
        self.paths.push(PathClause { prefix: format!("{}/", fold(folder)), excluded: false });
    }

    pub(super) fn phrases(&self) -> impl Iterator<Item = (&[String], bool)> {
        self.clauses.iter().filter_map(|clause| match &clause.condition {
            Condition::Phrase(words) => Some((words.as_slice(), clause.excluded)),
            _ => None,
        })
    }
}

impl Clause {
    /// Returns whether the clause contributes to the score.
    pub(super) fn is_about_words(&self) -> bool {
        match self.condition {
            Condition::Word(_) | Condition::Beginning(_) | Condition::Phrase(_) => true,
            Condition::Tag(_) | Condition::Link(_) | Condition::Property(..) => false,
        }
    }
}

pub(super) const SYNTAX: &str = "use words, \"a phrase\", begin*, tag:#name, path:Folder/, [[Note]], [property:value], and - before what must not be";

/// Returns the text after an operator, ignoring case.
fn operator<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let (head, rest) = (text.get(..name.len())?, text.get(name.len()..)?);
    head.eq_ignore_ascii_case(name).then_some(rest)
}

fn unquoted(text: &str) -> &str {
    text.strip_prefix('"').map_or(text, |inner| inner.strip_suffix('"').unwrap_or(inner))
}

fn of_words(text: &str) -> Option<Condition> {
    let mut found = words(text);
    match found.len() {
        0 => None,
        1 if text.ends_with('*') => found.pop().map(Condition::Beginning),
        1 => found.pop().map(Condition::Word),
        // `e-mail` is a phrase of two words.
        _ => Some(Condition::Phrase(found)),
    }
}

/// Splits a query at blanks outside of quotes and brackets.
fn pieces(text: &str) -> Result<Vec<&str>, ToolError> {
    let mut pieces = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let end = end_of_piece(rest).map_err(|open| {
            ToolError::invalid_args(format!("`query` has a {open} that is not closed")).hint(SYNTAX)
        })?;
        let (piece, after) = rest.split_at(end);
        pieces.push(piece);
        rest = after.trim_start();
    }
    Ok(pieces)
}

fn end_of_piece(text: &str) -> Result<usize, &'static str> {
    let mut at = 0;
    while let Some(c) = text.get(at..).and_then(|rest| rest.chars().next()) {
        let rest = &text[at..];
        let is_begin = text[..at].chars().all(|c| c == '-');
        at += match c {
            c if c.is_whitespace() => return Ok(at),
            '"' => 2 + rest[1..].find('"').ok_or("quote")?,
            '[' if rest.starts_with("[[") && is_begin => 2 + rest.find("]]").ok_or("`[[`")?,
            '[' if is_begin => 1 + rest.find(']').ok_or("`[`")?,
            c => c.len_utf8(),
        };
    }
    Ok(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> String {
        match Query::parse(text) {
            Err(error) => error.to_string(),
            Ok(query) => {
                let not = |excluded| if excluded { "not " } else { "" };
                let clauses = query.clauses.iter().map(|c| format!("{}{:?}", not(c.excluded), c.condition));
                let paths = query.paths.iter().map(|p| format!("{}path {:?}", not(p.excluded), p.prefix));
                clauses.chain(paths).collect::<Vec<_>>().join(", ")
            }
        }
    }

    #[test]
    fn queries_are_understood() {
        let mut said = String::new();
        for text in [
            "Hello wörld",
            "\"to be\" or",
            "tag:#Project/Alpha tag:done #x",
            "path:Projects/ path:\"My Notes/\" -path:/Archive",
            "[[Some Note#Part|shown]] [status: Active] [due]",
            "-draft -tag:#old -\"not this\" gard*",
            "e-mail 日本 foo:bar - …",
            "TAG:#x Path:y",
            "",
            "…",
            "tag:",
            "a OR b",
            "\"open",
            "[[open",
            "[open",
            "a\"b c\"d",
        ] {
            said += &format!("{text} => {}\n", check(text));
        }
        insta::assert_snapshot!(said, @r#"
        Hello wörld => Word("hello"), Word("world")
        "to be" or => Phrase(["to", "be"]), Word("or")
        tag:#Project/Alpha tag:done #x => Tag("project/alpha"), Tag("done"), Tag("x")
        path:Projects/ path:"My Notes/" -path:/Archive => path "projects/", path "my notes/", not path "archive"
        [[Some Note#Part|shown]] [status: Active] [due] => Link("Some Note"), Property("status", Some("active")), Property("due", None)
        -draft -tag:#old -"not this" gard* => not Word("draft"), not Tag("old"), not Phrase(["not", "this"]), Beginning("gard")
        e-mail 日本 foo:bar - … => Phrase(["e", "mail"]), Phrase(["日", "本"]), Phrase(["foo", "bar"])
        TAG:#x Path:y => Tag("x"), path "y"
         => invalid_args: `query` has no words to look for
        … => invalid_args: `query` has no words to look for
        tag: => invalid_args: `tag:` needs a name, like `tag:#project`
        a OR b => invalid_args: `query` has an `OR`; all words of a search must be in a note
        "open => invalid_args: `query` has a quote that is not closed
        [[open => invalid_args: `query` has a `[[` that is not closed
        [open => invalid_args: `query` has a `[` that is not closed
        a"b c"d => Phrase(["a", "b", "c", "d"])
        "#);
        assert!(check(&"x".repeat(1_001)).starts_with("too_large"));
        assert!(check(&"x ".repeat(33)).starts_with("invalid_args: `query` has more than 32"));
    }
}
