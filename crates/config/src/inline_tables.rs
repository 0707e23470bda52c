//! Edits servers in inline tables and dotted keys of a TOML file.
//!
//! Offsets come from the TOML parser. The caller parses the result again and compares.

use std::ops::Range;
use toml::de::{DeTable, DeValue};

type Member<'t, 's> = (&'t toml::Spanned<toml::de::DeString<'s>>, &'t toml::Spanned<DeValue<'s>>);

/// Adds a server to `mcp = { … }`, if the servers are written so.
pub(super) fn with(text: &str, key: &str, server: &str) -> Option<String> {
    let table = parsed(text)?;
    let (members, all) = in_braces(text, &table)?;
    let (at, before, after) = match members.last() {
        Some(last) => (last.end, ", ", ""),
        None => (all.start + 1, " ", " "),
    };
    let (head, tail) = (text.get(..at)?, text.get(at..)?);
    let tail = if members.is_empty() { tail.trim_start_matches([' ', '\t']) } else { tail };
    Some(format!("{head}{before}{key} = {server}{after}{tail}"))
}

/// Removes a server from `mcp = { … }`, if it is written so.
pub(super) fn without(text: &str, name: &str) -> Option<String> {
    let table = parsed(text)?;
    let (members, _) = in_braces(text, &table)?;
    let at = members.iter().position(|member| member.name == name)?;
    let own = members.get(at)?;
    let goes = match (members.get(at + 1), at.checked_sub(1).and_then(|before| members.get(before))) {
        (Some(next), _) => own.start..next.start,
        (None, Some(before)) => before.end..own.end,
        (None, None) => own.start..own.end,
    };
    // A comment between two servers may belong to either; left to a person.
    let between = [text.get(goes.start..own.start), text.get(own.end..goes.end)];
    if between.into_iter().flatten().any(|between| between.contains('#')) {
        return None;
    }
    Some(format!("{}{}", text.get(..goes.start)?, text.get(goes.end..)?))
}

/// Returns the spans of a server's settings, from key to end of value.
pub(super) fn settings_of(text: &str, name: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let Some(table) = parsed(text) else { return found };
    let server = member(table.get_ref(), "mcp").and_then(|(_, mcp)| match mcp.get_ref() {
        DeValue::Table(mcp) => member(mcp, name),
        _ => None,
    });
    if let Some(server) = server {
        leaves(text, server, &mut found);
    }
    found
}

/// A server as an inline table.
struct InlineServer {
    name: String,
    /// Start of the key.
    start: usize,
    /// End of the value.
    end: usize,
}

fn parsed(text: &str) -> Option<toml::Spanned<DeTable<'_>>> {
    let (table, errors) = DeTable::parse_recoverable(text);
    errors.is_empty().then_some(table)
}

fn member<'t, 's>(table: &'t DeTable<'s>, name: &str) -> Option<Member<'t, 's>> {
    table.iter().find(|(key, _)| key.get_ref() == name)
}

/// Returns the servers in `mcp = { … }` in file order, and the offsets of the braces.
fn in_braces(text: &str, table: &toml::Spanned<DeTable<'_>>) -> Option<(Vec<InlineServer>, Range<usize>)> {
    let (_, mcp) = member(table.get_ref(), "mcp")?;
    let DeValue::Table(servers) = mcp.get_ref() else { return None };
    if !is_in_braces(text, &mcp.span()) {
        return None;
    }
    let mut members = Vec::new();
    for (key, value) in servers.iter() {
        // Dotted keys in inline tables are not edited.
        if !is_in_braces(text, &value.span()) {
            return None;
        }
        let (start, end) = (key.span().start, value.span().end);
        members.push(InlineServer { name: key.get_ref().to_string(), start, end });
    }
    members.sort_by_key(|member| member.start);
    Some((members, mcp.span()))
}

fn is_in_braces(text: &str, span: &Range<usize>) -> bool {
    text.get(span.clone()).is_some_and(|text| text.starts_with('{') && text.ends_with('}'))
}

fn leaves(text: &str, (key, value): Member<'_, '_>, found: &mut Vec<Range<usize>>) {
    match value.get_ref() {
        DeValue::Table(table) if !is_in_braces(text, &value.span()) => {
            table.iter().for_each(|inner| leaves(text, inner, found));
        }
        _ => found.push(key.span().start..value.span().end),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_in_braces_comes_and_goes_alone() {
        for (text, with_two, without_one) in [
            ("mcp = {}\n", "mcp = { two = {} }\n", None),
            ("mcp = { }\n", "mcp = { two = {} }\n", None),
            (
                "a = 1\nmcp = { one = { command = 'a' } } # mine\n",
                "a = 1\nmcp = { one = { command = 'a' }, two = {} } # mine\n",
                Some("a = 1\nmcp = {  } # mine\n"),
            ),
            (
                "mcp = { zero = { command = '}' }, \"one\" = { command = 'a' }, x = { command = 'b' } }",
                "mcp = { zero = { command = '}' }, \"one\" = { command = 'a' }, x = { command = 'b' }, two = {} }",
                Some("mcp = { zero = { command = '}' }, x = { command = 'b' } }"),
            ),
            (
                "mcp = { zero = { command = 'b' }, one = { command = 'a' } }\n",
                "mcp = { zero = { command = 'b' }, one = { command = 'a' }, two = {} }\n",
                Some("mcp = { zero = { command = 'b' } }\n"),
            ),
        ] {
            assert_eq!(with(text, "two", "{}").as_deref(), Some(with_two));
            assert_eq!(without(text, "one").as_deref(), without_one);
        }
        for text in ["[mcp.one]\ncommand = 'a'\n", "mcp = { one.command = 'a' }\n", "mcp = 3\n", "[x\n"] {
            assert_eq!((with(text, "two", "{}"), without(text, "one")), (None, None), "{text}");
        }
    }
}
