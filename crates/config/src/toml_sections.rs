//! Removes sections of a TOML file, preserving every other line.
//!
//! The caller parses the result again and compares.

use super::inline_tables;

/// Kind of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
enum LineKind {
    /// A heading, with the parts of its name.
    Heading(Vec<String>),
    /// A key, or a continuation line of a value.
    Setting,
    Comment,
    Blank,
}

/// Removes the sections of a server, from the comments right above the heading to the last setting. Text below the last
/// setting is kept. Settings outside its own section are removed too, each with the comments right above it.
pub(super) fn without(text: &str, name: &str) -> String {
    if let Some(rest) = inline_tables::without(text, name) {
        return rest;
    }
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let kinds = kinds(&lines);
    let is_ours = |kind: &LineKind| matches!(kind, LineKind::Heading(parts) if parts.len() >= 2 && parts[0] == "mcp" && parts[1] == name);
    let mut goes = vec![false; lines.len()];
    for start in (0..lines.len()).filter(|at| is_ours(&kinds[*at])) {
        let next = (start + 1..lines.len()).find(|at| matches!(kinds[*at], LineKind::Heading(_)));
        let section = start..next.unwrap_or(lines.len());
        let last = section.rev().find(|at| kinds[*at] == LineKind::Setting).unwrap_or(start);
        let above = kinds[..start].iter().rev().take_while(|kind| **kind == LineKind::Comment).count();
        goes[start - above..=last].fill(true);
    }
    // Settings under `[mcp]` or at the top level, one by one.
    let line_of = |offset: usize| text.get(..offset).map_or(0, |before| before.matches('\n').count());
    for setting in inline_tables::settings_of(text, name) {
        let (first, last) = (line_of(setting.start), line_of(setting.end));
        if goes.get(first).is_some_and(|goes| *goes) {
            continue;
        }
        let above = kinds[..first].iter().rev().take_while(|kind| **kind == LineKind::Comment).count();
        goes[first - above..=last].fill(true);
    }
    close_gaps(&kinds, &mut goes);
    lines.iter().zip(goes).filter(|(_, goes)| !goes).map(|(line, _)| *line).collect()
}

/// Removes one blank line with every removed run, if there would be one more than before: the one added with the section.
fn close_gaps(kinds: &[LineKind], goes: &mut [bool]) {
    let mut at = 0;
    while at < kinds.len() {
        if !goes[at] {
            at += 1;
            continue;
        }
        let start = at;
        loop {
            at += goes[at..].iter().take_while(|goes| **goes).count();
            // Blank lines between two removed sections are removed.
            let ahead = at + kinds[at..].iter().take_while(|kind| **kind == LineKind::Blank).count();
            if ahead == at || !goes.get(ahead).is_some_and(|goes| *goes) {
                break;
            }
            goes[at..ahead].fill(true);
        }
        let after_blank = start > 0 && kinds[start - 1] == LineKind::Blank;
        match kinds.get(at) {
            None if after_blank => goes[start - 1] = true,
            Some(LineKind::Blank) if after_blank || start == 0 => goes[at] = true,
            _ => {}
        }
        at += 1;
    }
}

fn kinds(lines: &[&str]) -> Vec<LineKind> {
    let mut within = ValueScanner::default();
    let kind = |line: &&str| {
        let text = line.trim();
        if within.is_open() {
            within.read(text);
            return LineKind::Setting;
        }
        match text.chars().next() {
            None => LineKind::Blank,
            Some('#') => LineKind::Comment,
            Some('[') => LineKind::Heading(heading(text)),
            Some(_) => {
                within.read(text);
                LineKind::Setting
            }
        }
    };
    lines.iter().map(kind).collect()
}

fn heading(text: &str) -> Vec<String> {
    let inner = text.split('#').next().unwrap_or_default().trim();
    let Some(inner) = inner.strip_prefix('[').and_then(|text| text.strip_suffix(']')) else {
        return Vec::new();
    };
    inner.split('.').map(|part| part.trim().trim_matches(['"', '\'']).to_owned()).collect()
}

/// Parser state at the end of a line of a multi-line value.
#[derive(Default)]
struct ValueScanner {
    /// The closing triple quotes.
    quotes: Option<&'static str>,
    /// Open brackets.
    depth: usize,
}

impl ValueScanner {
    fn is_open(&self) -> bool {
        self.quotes.is_some() || self.depth > 0
    }

    fn read(&mut self, line: &str) {
        let mut rest = line;
        while let Some(first) = rest.chars().next() {
            if let Some(quotes) = self.quotes {
                if quotes == BASIC && first == '\\' {
                    rest = after_escape(rest);
                } else if let Some(after) = rest.strip_prefix(quotes) {
                    // Up to two more quotes belong to the string.
                    let more = after.chars().take(2).take_while(|c| quotes.starts_with(*c)).count();
                    self.quotes = None;
                    rest = &after[more..];
                } else {
                    rest = &rest[first.len_utf8()..];
                }
                continue;
            }
            if let Some(quotes) = [BASIC, LITERAL].into_iter().find(|quotes| rest.starts_with(quotes)) {
                self.quotes = Some(quotes);
                rest = &rest[quotes.len()..];
                continue;
            }
            rest = &rest[first.len_utf8()..];
            match first {
                '#' => return,
                '"' | '\'' => rest = after_text(rest, first),
                '[' | '{' => self.depth += 1,
                ']' | '}' => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
        }
    }
}

const BASIC: &str = "\"\"\"";
const LITERAL: &str = "'''";

/// Returns the rest after a single-line string, given the text after its first quote.
fn after_text(mut rest: &str, quote: char) -> &str {
    while let Some(first) = rest.chars().next() {
        if first == '\\' && quote == '"' {
            rest = after_escape(rest);
            continue;
        }
        rest = &rest[first.len_utf8()..];
        if first == quote {
            break;
        }
    }
    rest
}

fn after_escape(rest: &str) -> &str {
    rest.char_indices().nth(2).map_or("", |(at, _)| &rest[at..])
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
            assert_eq!(without(text, "one"), rest, "{text}");
        }
    }

    #[test]
    fn the_file_of_init_keeps_all_it_says_of_other_things() {
        let whole = crate::example();
        let used = whole.replace("## [mcp.NAME]", "[mcp.NAME]").replace("## command =", "command =");
        let rest = without(&used, "NAME");
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
}
