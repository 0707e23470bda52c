//! Parses a note: front matter, headings, tags and links.

use super::tokenizer::fold;
use serde_json::Value;
use std::collections::BTreeMap;

/// Length of the front matter. More is not written by hand.
const FRONT_BYTES_MAX: usize = 64 * 1024;
/// Tags, links and other parts of each kind. Further ones are ignored.
const PARTS_MAX: usize = 2_000;
/// Length of a tag, link or property value. Longer ones are ignored.
const PART_BYTES_MAX: usize = 512;
/// The delimiter of the front matter.
const FENCE: &str = "---";

/// The parsed parts of a note.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Note<'a> {
    /// From the front matter, or the first heading.
    pub(super) title: Option<String>,
    pub(super) aliases: Vec<String>,
    /// Without `#`, each once.
    pub(super) tags: Vec<String>,
    /// Link targets: names or paths of notes, without heading or alias, unique.
    pub(super) links: Vec<String>,
    /// Scalar values of the front matter by key; a list repeats its key.
    pub(super) properties: Vec<(String, String)>,
    pub(super) headings: Vec<&'a str>,
    /// Byte offset of the text after the front matter.
    pub(super) body: usize,
}

impl<'a> Note<'a> {
    pub(super) fn parse(text: &'a str) -> Note<'a> {
        let mut note = Note::default();
        if let Some((front, body)) = front_matter(text) {
            note.body = body;
            note.read_front(front);
        }
        let mut fence: Option<&str> = None;
        for line in text[note.body..].lines() {
            let trimmed = line.trim_start();
            if let Some(mark) = ["```", "~~~"].into_iter().find(|mark| trimmed.starts_with(mark)) {
                fence = match fence {
                    None => Some(mark),
                    Some(open) if open == mark => None,
                    open => open,
                };
                continue;
            }
            // Code blocks are skipped.
            if fence.is_none() {
                note.read_line(trimmed);
            }
        }
        note
    }

    fn read_front(&mut self, yaml: &str) {
        let options = serde_saphyr::options! { with_snippet: false };
        // Invalid front matter, as while a person is typing, counts as none.
        let Ok(read) = serde_saphyr::from_str_with_options::<BTreeMap<String, Value>>(yaml, options) else {
            return;
        };
        for (key, value) in read {
            let values = plain_values(&value);
            match fold(&key).as_str() {
                "tags" | "tag" => {
                    // One string may have several tags, separated by commas or blanks.
                    let each = values.iter().flat_map(|text| text.split([',', ' ']));
                    each.for_each(|tag| self.add_tag(tag.trim().trim_start_matches('#')));
                }
                "aliases" | "alias" => self.aliases.extend(values.iter().take(PARTS_MAX).cloned()),
                "title" => self.title = values.first().cloned(),
                _ => {}
            }
            // A property may contain a link.
            values.iter().for_each(|value| self.read_links(value));
            for value in values.into_iter().filter(|value| value.len() <= PART_BYTES_MAX) {
                if self.properties.len() < PARTS_MAX && key.len() <= PART_BYTES_MAX {
                    self.properties.push((key.clone(), value));
                }
            }
        }
    }

    fn read_line(&mut self, line: &'a str) {
        let level = line.bytes().take_while(|byte| *byte == b'#').count();
        if let Some(heading) =
            line.get(level..).filter(|rest| (1..=6).contains(&level) && rest.starts_with(' '))
        {
            let heading = heading.trim().trim_end_matches('#').trim_end();
            if self.title.is_none() && level == 1 && !heading.is_empty() {
                self.title = Some(heading.to_owned());
            }
            if self.headings.len() < PARTS_MAX {
                self.headings.push(heading);
            }
        }
        if line.contains(['#', '[']) {
            // Inline code is skipped.
            for (at, piece) in line.split('`').enumerate() {
                if at % 2 == 0 {
                    self.read_tags(piece);
                    self.read_links(piece);
                }
            }
        }
    }

    fn read_tags(&mut self, text: &str) {
        for (at, _) in text.match_indices('#') {
            let before = text[..at].chars().next_back();
            if before.is_none_or(|c| c.is_whitespace() || "(,;\"'".contains(c)) {
                let rest = &text[at + 1..];
                let end =
                    rest.find(|c: char| !(c.is_alphanumeric() || "_-/".contains(c))).unwrap_or(rest.len());
                self.add_tag(&rest[..end]);
            }
        }
    }

    fn add_tag(&mut self, tag: &str) {
        let tag = tag.trim_matches('/');
        // `#1` is a number, not a tag.
        let is_tag = tag.len() <= PART_BYTES_MAX && tag.chars().any(|c| !c.is_numeric());
        if is_tag && self.tags.len() < PARTS_MAX && !self.tags.iter().any(|known| known == tag) {
            self.tags.push(tag.to_owned());
        }
    }

    fn read_links(&mut self, text: &str) {
        let mut rest = text;
        while let Some(at) = rest.find('[') {
            rest = &rest[at + 1..];
            if let Some(inner) = rest.strip_prefix('[') {
                let Some(end) = nearby(inner).find("]]") else { continue };
                self.add_link(link_target(&inner[..end]));
                rest = &inner[end + 2..];
            } else if let Some(target) = markdown_target(nearby(rest)) {
                self.add_link(link_target(&target));
            }
        }
    }

    fn add_link(&mut self, target: &str) {
        let fits = !target.is_empty() && target.len() <= PART_BYTES_MAX && self.links.len() < PARTS_MAX;
        if fits && !self.links.iter().any(|known| known == target) {
            self.links.push(target.to_owned());
        }
    }
}

/// Returns a prefix of the longest link's length. Searching further would be quadratic with many open brackets.
fn nearby(text: &str) -> &str {
    let end = (0..=text.len().min(2 * PART_BYTES_MAX)).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}

/// Returns the target of a link from the text between its brackets: `[[Note#Heading|shown]]`.
pub(super) fn link_target(written: &str) -> &str {
    // In a table the bar is escaped as `\|`.
    let end = written.find(['|', '#', '^']).unwrap_or(written.len());
    let target = written[..end].trim_end_matches('\\').trim();
    without_extension(target.trim_start_matches("../").trim_start_matches("./").trim_start_matches('/'))
}

/// Returns a path without the extension of notes.
pub(super) fn without_extension(path: &str) -> &str {
    match path.rsplit_once('.') {
        Some((stem, extension)) if is_note_extension(extension) => stem,
        _ => path,
    }
}

pub(super) fn is_note_extension(extension: &str) -> bool {
    extension.eq_ignore_ascii_case("md") || extension.eq_ignore_ascii_case("markdown")
}

/// Returns the front matter, and the offset of the text after it.
fn front_matter(text: &str) -> Option<(&str, usize)> {
    let from = text.strip_prefix('\u{feff}').map_or(0, |rest| text.len() - rest.len());
    let mut lines = text[from..].split_inclusive('\n');
    let begin = from + lines.next().filter(|line| line.trim_end() == FENCE)?.len();
    let mut end = begin;
    for line in lines {
        if line.trim_end() == FENCE {
            return Some((&text[begin..end], end + line.len()));
        }
        end += line.len();
        if end - begin > FRONT_BYTES_MAX {
            break;
        }
    }
    None
}

/// Returns a scalar, or the scalars of a list, as strings.
fn plain_values(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Number(_) | Value::Bool(_) => vec![value.to_string()],
        Value::Array(items) => {
            let plain = items.iter().filter(|item| !item.is_array() && !item.is_object());
            plain.take(PARTS_MAX).flat_map(plain_values).collect()
        }
        Value::Null | Value::Object(_) => Vec::new(),
    }
}

/// Returns the target of `text](target)`, if it is a local note.
fn markdown_target(after_bracket: &str) -> Option<String> {
    let (_, rest) = after_bracket.split_once("](")?;
    let (target, _) = rest.split_once(')')?;
    let target = target.trim().trim_start_matches('<').trim_end_matches('>');
    let target = percent_encoding::percent_decode_str(target).decode_utf8().ok()?;
    let path = target.split('#').next().unwrap_or_default();
    let is_note = path.rsplit_once('.').is_some_and(|(_, extension)| is_note_extension(extension));
    (is_note && !path.contains("://")).then(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_taken_apart() {
        let text = "---\ntitle: The Title\ntags: [project/alpha, '#Done']\naliases:\n  - Other\nstatus: active\n\
                    rating: 4\nup: '[[Home]]'\n---\n# Heading one\nText #inline, see [[Folder/Note#Part|shown]] and [x](sub/other%20note.md).\n\
                    `#not [[Code]]` and a#b (#paren) #42\n## Second ##\n```\n#code [[Hidden]]\n```\n![[image.png]] [web](https://example.com/a.md)\n";
        let note = Note::parse(text);
        assert_eq!(note.title.as_deref(), Some("The Title"));
        assert_eq!(note.aliases, ["Other"]);
        assert_eq!(note.tags, ["project/alpha", "Done", "inline", "paren"]);
        assert_eq!(note.links, ["Home", "Folder/Note", "sub/other note", "image.png"]);
        assert_eq!(note.headings, ["Heading one", "Second"]);
        assert!(note.properties.contains(&("status".to_owned(), "active".to_owned())));
        assert!(note.properties.contains(&("rating".to_owned(), "4".to_owned())));
        assert!(text[note.body..].starts_with("# Heading one"));
    }

    #[test]
    fn what_is_half_written_is_text() {
        for text in [
            "---\ntags: [a\n",
            "---\n: : :\n---\nbody",
            "---",
            "--- x\n---\n",
            "[[",
            "[[a",
            "[a](",
            "#",
            "# ",
        ] {
            let note = Note::parse(text);
            assert_eq!((note.tags.len(), note.links.len()), (0, 0), "{text}");
        }
        assert_eq!(Note::parse("# First\n# Second").title.as_deref(), Some("First"));
        assert_eq!(Note::parse("---\ntags: one, two three\n---\n").tags, ["one", "two", "three"]);
    }

    #[test]
    fn links_lead_to_names() {
        for (written, target) in [
            ("Note", "Note"),
            ("Note|shown", "Note"),
            ("Note#Heading", "Note"),
            ("Note^block", "Note"),
            ("a/Note.md", "a/Note"),
            ("../Note.MD", "Note"),
            ("Note\\|in a table", "Note"),
            ("#only here", ""),
            ("v1.2", "v1.2"),
        ] {
            assert_eq!(link_target(written), target, "{written}");
        }
    }
}
