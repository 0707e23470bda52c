//! Parses one prompt file: front matter, and text with placeholders.

use portcullis_core::{PromptArgument, PromptDef};
use serde::Deserialize;
use std::collections::HashMap;
use std::sync::Arc;

/// Length of a prompt or argument name; clients show it in menus.
const NAME_BYTES_MAX: usize = 64;
/// Arguments of a prompt.
const ARGUMENTS_MAX: usize = 20;
/// The delimiter of the front matter.
const FENCE: &str = "---";

/// A parsed prompt.
#[derive(Debug, PartialEq)]
pub(super) struct PromptFile {
    pub(super) definition: Arc<PromptDef>,
    /// Completion values by argument. Other values are accepted too.
    pub(super) values: HashMap<String, Vec<String>>,
    pieces: Vec<PromptPiece>,
}

#[derive(Debug, PartialEq)]
enum PromptPiece {
    Text(String),
    Argument(String),
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct FrontMatter {
    title: Option<String>,
    description: Option<String>,
    #[serde(default)]
    arguments: Vec<WrittenArgument>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenArgument {
    name: String,
    description: Option<String>,
    #[serde(default)]
    required: bool,
    #[serde(default)]
    values: Vec<String>,
}

impl PromptFile {
    /// Parses a prompt file, or returns what is wrong with it.
    pub(super) fn parse(name: &str, text: &str) -> Result<PromptFile, String> {
        if !is_name(name) {
            return Err(format!("the name must have 1 to {NAME_BYTES_MAX} letters, digits, `-`, `_` or `.`"));
        }
        let (front_matter, body) = split(text)?;
        let front_matter = match front_matter {
            None => FrontMatter::default(),
            // Errors go to a log line, which has no room for a source snippet.
            Some(yaml) => {
                let options = serde_saphyr::options! { with_snippet: false };
                serde_saphyr::from_str_with_options(yaml, options).map_err(|error| error.to_string())?
            }
        };
        let arguments = front_matter.arguments;
        if arguments.len() > ARGUMENTS_MAX {
            return Err(format!("{} arguments, at most {ARGUMENTS_MAX} are allowed", arguments.len()));
        }
        for (at, argument) in arguments.iter().enumerate() {
            if !is_name(&argument.name) {
                return Err(format!("`{}` is not a name for an argument", argument.name));
            }
            if arguments.iter().take(at).any(|earlier| earlier.name == argument.name) {
                return Err(format!("argument `{}` is given twice", argument.name));
            }
        }
        if body.trim().is_empty() {
            return Err("it has no text".to_owned());
        }
        let pieces = pieces(body);
        for piece in &pieces {
            if let PromptPiece::Argument(used) = piece
                && !arguments.iter().any(|argument| argument.name == *used)
            {
                return Err(format!("`{{{{{used}}}}}` is in the text, but not among `arguments`"));
            }
        }
        let mut definition = PromptDef {
            name: name.to_owned(),
            title: front_matter.title,
            description: front_matter.description,
            arguments: Vec::new(),
            definition: None,
        };
        let mut values = HashMap::new();
        for WrittenArgument { name, description, required, values: proposed } in arguments {
            values.insert(name.clone(), proposed);
            definition.arguments.push(PromptArgument { name, description, required });
        }
        Ok(PromptFile { definition: Arc::new(definition), values, pieces })
    }

    /// Renders the text. Placeholders within arguments are not expanded.
    pub(super) fn fill<'a>(&self, value_of: impl Fn(&str) -> &'a str) -> String {
        let texts = self.pieces.iter().map(|piece| match piece {
            PromptPiece::Text(text) => text.as_str(),
            PromptPiece::Argument(name) => value_of(name),
        });
        texts.collect()
    }
}

fn is_name(text: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

/// Splits a file into front matter, if any, and text.
fn split(text: &str) -> Result<(Option<&str>, &str), String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = text.split_inclusive('\n');
    let Some(first) = lines.next().filter(|line| line.trim_end() == FENCE) else {
        return Ok((None, text));
    };
    let mut end = first.len();
    for line in lines {
        if line.trim_end() == FENCE {
            let (yaml, body) = (text.get(first.len()..end), text.get(end + line.len()..));
            return Ok((yaml, body.unwrap_or_default().trim_start_matches(['\r', '\n'])));
        }
        end += line.len();
    }
    Err("the front matter has no end; expected a line `---`".to_owned())
}

/// Splits a text at its `{{name}}` placeholders. Braces around anything else are text.
fn pieces(body: &str) -> Vec<PromptPiece> {
    let (mut pieces, mut text, mut rest) = (Vec::new(), String::new(), body);
    while let Some((before, after)) = rest.split_once("{{") {
        let place = after.split_once("}}").filter(|(name, _)| is_name(name.trim()));
        text.push_str(before);
        match place {
            Some((name, after)) => {
                pieces.push(PromptPiece::Text(std::mem::take(&mut text)));
                pieces.push(PromptPiece::Argument(name.trim().to_owned()));
                rest = after;
            }
            None => {
                text.push_str("{{");
                rest = after;
            }
        }
    }
    text.push_str(rest);
    pieces.push(PromptPiece::Text(text));
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(text: &str) -> String {
        let prompt = PromptFile::parse("test", text).unwrap();
        prompt.fill(|name| if name == "a" { "{{b}}" } else { "2" })
    }

    #[test]
    fn arguments_are_put_in_once() {
        let head = "---\narguments:\n- name: a\n- name: b\n---\n";
        for (body, expected) in [
            ("{{a}} {{ b }}{{b}}", "{{b}} 22"),
            ("no places", "no places"),
            ("{{ not a name }} {{}} {{a", "{{ not a name }} {{}} {{a"),
            ("{{{a}}}", "{{{a}}}"),
            ("{{ {{a}} }}", "{{ {{b}} }}"),
            ("\n\n# Title\n\ntext\n", "# Title\n\ntext\n"),
        ] {
            assert_eq!(filled(&format!("{head}{body}")), expected, "{body}");
        }
        assert_eq!(filled("just text"), "just text");
        assert_eq!(filled("\u{feff}---\r\ntitle: T\r\n---\r\ntext"), "text");
    }

    #[test]
    fn a_mistake_is_named() {
        let check = |name: &str, text: &str| PromptFile::parse(name, text).unwrap_err();
        let errors = [
            check("a b", "x"),
            check("p", ""),
            check("p", "---\ntitle: x\n"),
            check("p", "---\ntitel: x\n---\ntext"),
            check("p", "---\ntitle: [\n---\ntext"),
            check("p", "---\ntitle: a\ntitle: b\n---\ntext"),
            check("p", "---\narguments:\n- name: a\n- name: a\n---\ntext"),
            check("p", "---\narguments:\n- name: a b\n---\ntext"),
            check("p", "hello {{who}}"),
        ];
        insta::assert_snapshot!(errors.join("\n"), @"
        the name must have 1 to 64 letters, digits, `-`, `_` or `.`
        it has no text
        the front matter has no end; expected a line `---`
        unknown field `titel`, expected one of title, description, arguments at line 1, column 1
        expected string scalar at line 1, column 8
        duplicate mapping key: title, set DuplicateKeyPolicy in Options if acceptable at line 2, column 1
        argument `a` is given twice
        `a b` is not a name for an argument
        `{{who}}` is in the text, but not among `arguments`
        ");
    }

    #[test]
    fn a_bomb_is_refused() {
        let mut yaml = "---\nx0: &x0 [a, a, a, a, a, a, a, a, a]\n".to_owned();
        for level in 1..10 {
            let alias = format!("*x{}", level - 1);
            yaml += &format!("x{level}: &x{level} [{}]\n", vec![alias; 9].join(", "));
        }
        assert!(PromptFile::parse("p", &format!("{yaml}---\ntext")).is_err());
        assert!(PromptFile::parse("p", &format!("---\ntitle: {}\n---\ntext", "[".repeat(100_000))).is_err());
    }
}
