//! The text of a TOML file as sections, so that one can go and every other line stays.
//!
//! What a section means is not decided here: whoever changes a text reads it again and compares.

use super::inline;

/// What a line of a file is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    /// The parts of its name, as far as headings of servers go.
    Heading(Vec<String>),
    /// A key, or a further line of a value.
    Setting,
    Comment,
    Blank,
}

/// Returns the text without the sections of a server: their lines from the heading to the last setting, and the
/// comments right above the heading. What stands below the last setting may be about anything, and stays. Settings that
/// are in no section of its own go as well, each with the comments right above it.
pub(super) fn without(text: &str, name: &str) -> String {
    if let Some(rest) = inline::without(text, name) {
        return rest;
    }
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let kinds = kinds(&lines);
    let is_ours = |kind: &Kind| matches!(kind, Kind::Heading(parts) if parts.len() >= 2 && parts[0] == "mcp" && parts[1] == name);
    let mut goes = vec![false; lines.len()];
    for start in (0..lines.len()).filter(|at| is_ours(&kinds[*at])) {
        let next = (start + 1..lines.len()).find(|at| matches!(kinds[*at], Kind::Heading(_)));
        let section = start..next.unwrap_or(lines.len());
        let last = section.rev().find(|at| kinds[*at] == Kind::Setting).unwrap_or(start);
        let above = kinds[..start].iter().rev().take_while(|kind| **kind == Kind::Comment).count();
        goes[start - above..=last].fill(true);
    }
    // Those that stand under the heading of all servers, or under none, one by one.
    let line_of = |offset: usize| text.get(..offset).map_or(0, |before| before.matches('\n').count());
    for setting in inline::settings_of(text, name) {
        let (first, last) = (line_of(setting.start), line_of(setting.end));
        if goes.get(first).is_some_and(|goes| *goes) {
            continue;
        }
        let above = kinds[..first].iter().rev().take_while(|kind| **kind == Kind::Comment).count();
        goes[first - above..=last].fill(true);
    }
    close_gaps(&kinds, &mut goes);
    lines.iter().zip(goes).filter(|(_, goes)| !goes).map(|(line, _)| *line).collect()
}

/// Takes one blank line with every run of lines that go, where there would be one more than before between what
/// stays: the one that came with the section when it was added.
fn close_gaps(kinds: &[Kind], goes: &mut [bool]) {
    let mut at = 0;
    while at < kinds.len() {
        if !goes[at] {
            at += 1;
            continue;
        }
        let start = at;
        loop {
            at += goes[at..].iter().take_while(|goes| **goes).count();
            // What is blank between two sections that go is blank for nobody.
            let ahead = at + kinds[at..].iter().take_while(|kind| **kind == Kind::Blank).count();
            if ahead == at || !goes.get(ahead).is_some_and(|goes| *goes) {
                break;
            }
            goes[at..ahead].fill(true);
        }
        let after_blank = start > 0 && kinds[start - 1] == Kind::Blank;
        match kinds.get(at) {
            None if after_blank => goes[start - 1] = true,
            Some(Kind::Blank) if after_blank || start == 0 => goes[at] = true,
            _ => {}
        }
        at += 1;
    }
}

fn kinds(lines: &[&str]) -> Vec<Kind> {
    let mut within = Within::default();
    let kind = |line: &&str| {
        let text = line.trim();
        if within.is_open() {
            within.read(text);
            return Kind::Setting;
        }
        match text.chars().next() {
            None => Kind::Blank,
            Some('#') => Kind::Comment,
            Some('[') => Kind::Heading(heading(text)),
            Some(_) => {
                within.read(text);
                Kind::Setting
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

/// Where in a value a line ends, for values over several lines.
#[derive(Default)]
struct Within {
    /// The three quotes that end the text.
    quotes: Option<&'static str>,
    /// How many lists and tables are open.
    depth: usize,
}

impl Within {
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
                    // Up to two more of them belong to the text.
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

/// Returns what comes after a text on one line, given what comes after its first quote.
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
            // What has a blank line after it belongs to nobody, and what ends the file to the file.
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
            // Its other sections, wherever they are.
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
        let whole = crate::config::example();
        let used = whole.replace("## [mcp.NAME]", "[mcp.NAME]").replace("## command =", "command =");
        let rest = without(&used, "NAME");
        for line in whole.lines().filter(|line| !used.contains(*line)) {
            assert!(["## [mcp.NAME]", "## command = \"npx\""].contains(&line), "{line}");
        }
        let lost = used.lines().filter(|line| !rest.lines().any(|kept| kept == *line));
        insta::assert_snapshot!(lost.collect::<Vec<_>>().join("\n"), @r#"
        # Other MCP servers by name. Their tools appear as NAME_tool, behind the same guards.
        [mcp.NAME]
        # Program to start; it speaks MCP on its standard input and output. A name, looked up once, or a path, whole or from `~/` or `cwd`.
        command = "npx"
        "#);
    }
}
