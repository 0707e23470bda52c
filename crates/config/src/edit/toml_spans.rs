//! Finds entries in a TOML text by the spans of its parser, and cuts the text there.
//!
//! The text is not written anew: `toml_edit` would move dotted keys and change line ends. The caller parses the result
//! again and compares.

use std::ops::Range;
use toml_edit::{Decor, Document, InlineTable, Item, Key, RawString, Table, Value};

/// Adds a server to `mcp = { … }`, if the servers are written so.
pub(super) fn with_member(text: &str, key: &str, server: &str) -> Option<String> {
    let document = Document::parse(text).ok()?;
    let servers = document.get("mcp")?.as_inline_table()?;
    let members = members(servers)?;
    let (at, before, after) = match members.last() {
        Some((_, last)) => (last.end, ", ", ""),
        None => (servers.span()?.start + 1, " ", " "),
    };
    let (head, tail) = (text.get(..at)?, text.get(at..)?);
    let tail = if members.is_empty() { tail.trim_start_matches([' ', '\t']) } else { tail };
    Some(format!("{head}{before}{key} = {server}{after}{tail}"))
}

/// Removes a server: its sections, from the comments right above the heading to the last setting, and its settings
/// elsewhere, each with the comments right above it. Text below the last setting of a section is kept.
pub(super) fn without_server(text: &str, name: &str) -> Option<String> {
    let document = Document::parse(text).ok()?;
    let servers = document.get("mcp")?;
    if let Some(servers) = servers.as_inline_table() {
        return without_members(text, servers, name);
    }
    let (key, server) = servers.as_table()?.get_key_value(name)?;
    let mut found = Vec::new();
    match server {
        Item::Value(value) => found.extend(setting(text, key, value)),
        Item::Table(table) => sections(text, table, &mut found),
        Item::ArrayOfTables(_) | Item::None => return None,
    }
    Some(without_lines(text, found))
}

/// Returns the place of every rule, from the comments right above it to the next section. `None` if the rules are not
/// `[[policy]]` tables.
pub(super) fn rules(text: &str) -> Option<Vec<Range<usize>>> {
    let document = Document::parse(text).ok()?;
    let Some(rules) = document.get("policy") else { return Some(Vec::new()) };
    let mut starts = Vec::new();
    section_starts(text, &document, &mut starts);
    starts.sort_unstable();
    let rules = rules.as_array_of_tables()?.iter().map(|rule| {
        let start = section_start(text, rule)?;
        let next = starts.get(starts.partition_point(|other| *other <= start));
        Some(start..*next.unwrap_or(&text.len()))
    });
    rules.collect()
}

/// Returns the members of an inline table in the order of the text, each with its first key. With dotted keys, a first
/// key has several.
fn members(table: &InlineTable) -> Option<Vec<(&str, Range<usize>)>> {
    let mut members = Vec::new();
    for (path, value) in table.get_values() {
        let start = path.last()?.leaf_decor().prefix()?.span()?.end;
        members.push((path.first().copied()?.get(), start..value.span()?.end));
    }
    members.sort_by_key(|(_, at)| at.start);
    Some(members)
}

fn without_members(text: &str, table: &InlineTable, name: &str) -> Option<String> {
    let (members, all) = (members(table)?, table.span()?);
    let runs: Vec<_> = members.chunk_by(|(one, _), (other, _)| (*one == name) == (*other == name)).collect();
    let ends = |at: usize| -> Option<(&str, Range<usize>)> {
        let run = runs.get(at)?;
        let ((key, first), (_, last)) = (run.first()?, run.last()?);
        Some((key, first.start..last.end))
    };
    let mut rest = text.to_owned();
    // From the end, so that places stay.
    for at in (0..runs.len()).rev() {
        let (key, own) = ends(at)?;
        if key != name {
            continue;
        }
        let before = at.checked_sub(1).and_then(ends).map(|(_, before)| before.end);
        let next = ends(at + 1).map(|(_, next)| next.start);
        // A comment between two servers may belong to either; left to a person.
        let around = [before.unwrap_or(all.start)..own.start, own.end..next.unwrap_or(all.end)];
        if around.into_iter().any(|gap| text.get(gap).is_none_or(|gap| gap.contains('#'))) {
            return None;
        }
        let goes = match (before, next) {
            (_, Some(next)) => own.start..next,
            (Some(before), None) => before..own.end,
            (None, None) => own,
        };
        rest.replace_range(goes, "");
    }
    (rest != text).then_some(rest)
}

/// Collects the lines of a table: its own section, if it has one, and those below it. They may overlap.
fn sections(text: &str, table: &Table, found: &mut Vec<Range<usize>>) {
    let settings =
        table.get_values().into_iter().filter_map(|(path, value)| setting(text, path.last()?, value));
    let settings: Vec<Range<usize>> = settings.collect();
    match (section_start(text, table), table.span()) {
        // Between its settings, everything is its own.
        (Some(start), Some(heading)) => {
            let last = settings.iter().map(|setting| setting.end).max();
            found.push(start..last.unwrap_or_else(|| line_end(text, heading.end)));
        }
        _ => found.extend(settings),
    }
    for (_, item) in table {
        if let Item::Table(inner) = item {
            sections(text, inner, found);
        }
    }
}

fn section_starts(text: &str, table: &Table, starts: &mut Vec<usize>) {
    let mut visit = |table: &Table| {
        starts.extend(section_start(text, table));
        section_starts(text, table, starts);
    };
    for (_, item) in table {
        match item {
            Item::Table(table) => visit(table),
            Item::ArrayOfTables(tables) => tables.iter().for_each(&mut visit),
            Item::Value(_) | Item::None => {}
        }
    }
}

/// Returns where a section begins, if the table has a heading.
fn section_start(text: &str, table: &Table) -> Option<usize> {
    let has_heading = !table.is_implicit() && !table.is_dotted();
    has_heading.then(|| Some(start_with_comment(text, table.span()?.start, table.decor()))).flatten()
}

/// Returns the lines of a setting.
fn setting(text: &str, key: &Key, value: &Value) -> Option<Range<usize>> {
    let start = start_with_comment(text, key.span()?.start, key.leaf_decor());
    Some(start..line_end(text, value.span()?.end))
}

/// Returns the start of the line, or of the comments right above it.
fn start_with_comment(text: &str, at: usize, decor: &Decor) -> usize {
    let line = text[..at].rfind('\n').map_or(0, |end| end + 1);
    let gap = decor.prefix().and_then(RawString::span).map_or(line, |gap| gap.start.min(line));
    let lines = text[gap..line].split_inclusive('\n').rev();
    line - lines.take_while(|line| line.trim_start().starts_with('#')).map(str::len).sum::<usize>()
}

fn line_end(text: &str, at: usize) -> usize {
    text[at..].find('\n').map_or(text.len(), |end| at + end + 1)
}

/// Removes lines, each time with one blank line if there would be one more than before: the one added with the section.
fn without_lines(text: &str, mut lines: Vec<Range<usize>>) -> String {
    lines.sort_by_key(|lines| lines.start);
    let mut merged: Vec<Range<usize>> = Vec::new();
    for lines in lines {
        match merged.last_mut() {
            // Blank lines between two removed sections are removed.
            Some(last) if text[last.end.min(lines.start)..lines.start].trim().is_empty() => {
                last.end = last.end.max(lines.end);
            }
            _ => merged.push(lines),
        }
    }
    let is_blank = |line: &str| line.trim().is_empty();
    let (mut rest, mut at) = (String::with_capacity(text.len()), 0);
    for lines in merged {
        rest.push_str(&text[at..lines.start]);
        at = lines.end;
        let blank_before = rest.split_inclusive('\n').next_back().filter(|line| is_blank(line)).map(str::len);
        match (text[at..].split_inclusive('\n').next(), blank_before) {
            (None, Some(blank)) => rest.truncate(rest.len() - blank),
            (Some(next), before) if is_blank(next) && (before.is_some() || rest.is_empty()) => {
                at += next.len()
            }
            _ => {}
        }
    }
    rest.push_str(&text[at..]);
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_lines_of_the_section_and_the_comment_above_it_go() {
        for (text, rest) in [
            // A comment followed by a blank line, or at the end of the file, belongs to no section.
            (
                "[a]\nx = 1\n\n# one\n[mcp.one]\ncommand = 'a'\n\n# on rules\n\n[[policy]]\n",
                "[a]\nx = 1\n\n# on rules\n\n[[policy]]\n",
            ),
            ("# one\n[mcp.one]\ncommand = 'a'\n\n# the end\n## [[policy]]\n", "# the end\n## [[policy]]\n"),
            ("[mcp.one]\ncommand = 'a'\n# args = []\n## cwd = 'x'\n", "# args = []\n## cwd = 'x'\n"),
            // Between its settings everything is its own.
            ("[mcp.one]\n# what it is\n\ncommand = 'a'\n[b]\n", "[b]\n"),
            ("[a]\nx = 1\n[mcp.one]\ncommand = 'a'\n", "[a]\nx = 1\n"),
            ("[a]\nx = 1\n[mcp.one]\ncommand = 'a'\n\n[b]\n", "[a]\nx = 1\n\n[b]\n"),
            ("[a]\n\n\n[mcp.one]\ncommand = 'a'\n", "[a]\n\n"),
            ("[mcp.one]\n", ""),
            // Without a section of its own.
            (
                "[mcp]\n# one\none = { command = 'a' } # here\ntwo = { command = 'b' }\n",
                "[mcp]\ntwo = { command = 'b' }\n",
            ),
            (
                "[mcp]\none.command = 'a'\none.args = [\n'x',\n]\n\n# two\ntwo.command = 'b'\n",
                "[mcp]\n\n# two\ntwo.command = 'b'\n",
            ),
            ("mcp.one.command = 'a'\n\n[mcp.one.env]\nX = '1'\n\n[b]\n", "[b]\n"),
            (
                "mcp = { one = { command = 'a' }, two = { command = 'b' } }\n",
                "mcp = { two = { command = 'b' } }\n",
            ),
            // Its other sections, anywhere in the file.
            (
                "[mcp.one]\ncommand = 'a'\n\n[b]\n\n# its variables\n[ mcp . \"one\" . env ] # here\nX = '1'\n\n# c\n[c]\n",
                "[b]\n\n# c\n[c]\n",
            ),
            ("[a]\n\n[mcp.one]\ncommand = 'a'\n\n[mcp.one.env]\nX = '1'\n\n# b\n[b]\n", "[a]\n\n# b\n[b]\n"),
            // Values over several lines, with what looks like headings and comments in them.
            (
                "[mcp.one]\nargs = [ # list\n  '[b]', \"\\\"#\",\n\n  # more\n  '''\n[mcp.two]\n''''',\n]\nenv = { A = \"\"\"\n[c]\\\"\n\"\"\" }\n[b]\n",
                "[b]\n",
            ),
            (
                "[mcp.two]\nargs = [\n'''\n[mcp.one]\ncommand = 1\n'''\n]\n",
                "[mcp.two]\nargs = [\n'''\n[mcp.one]\ncommand = 1\n'''\n]\n",
            ),
        ] {
            assert_eq!(without_server(text, "one").as_deref().unwrap_or(text), rest, "{text}");
        }
    }

    #[test]
    fn the_file_of_init_keeps_all_it_says_of_other_things() {
        let whole = crate::example();
        let used = whole.replace("## [mcp.NAME]", "[mcp.NAME]").replace("## command =", "command =");
        let rest = without_server(&used, "NAME").unwrap();
        for line in whole.lines().filter(|line| !used.contains(*line)) {
            assert!(["## [mcp.NAME]", "## command = \"npx\""].contains(&line), "{line}");
        }
        let lost = used.lines().filter(|line| !rest.lines().any(|kept| kept == *line));
        insta::assert_snapshot!(lost.collect::<Vec<_>>().join("\n"), @r#"
        # Upstream MCP servers by name. Their tools appear as NAME_tool and pass the same checks.
        [mcp.NAME]
        # Command of a local server (stdio): a name looked up in PATH once, or a path, absolute or relative to `~/` or `cwd`.
        command = "npx"
        "#);
    }

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
            // With dotted keys, several members are one server.
            (
                "mcp = { one.command = 'a', x.command = 'b', one.args = [] } # mine\n",
                "mcp = { one.command = 'a', x.command = 'b', one.args = [], two = {} } # mine\n",
                Some("mcp = { x.command = 'b' } # mine\n"),
            ),
            // A comment may belong to the server before it or after it.
            (
                "mcp = {\n  one = { command = 'a' }, # here\n  x = { command = 'b' }, # mine\n}\n",
                "mcp = {\n  one = { command = 'a' }, # here\n  x = { command = 'b' }, two = {}, # mine\n}\n",
                None,
            ),
        ] {
            assert_eq!(with_member(text, "two", "{}").as_deref(), Some(with_two));
            assert_eq!(without_server(text, "one").as_deref(), without_one);
        }
        assert_eq!(with_member("[mcp.one]\ncommand = 'a'\n", "two", "{}"), None);
        for text in ["mcp = 3\n", "[x\n"] {
            assert_eq!((with_member(text, "two", "{}"), without_server(text, "one")), (None, None), "{text}");
        }
    }
}
