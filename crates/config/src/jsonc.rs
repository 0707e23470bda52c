//! Edits one entry of a JSONC file and preserves the rest byte for byte.
//!
//! Such files may contain comments, trailing commas, key order and number formats that a parse and rewrite would lose. So
//! the text is edited in place, at the offsets of `jsonc-parser`. Where the entry goes and how it is indented is decided
//! here: the editor of that crate (`cst`) breaks objects of one line into lines, which takes quadratic time, removes blank
//! lines and comments beside the entry, and writes short arrays on one line. Afterwards the new text is parsed, and an edit
//! that changed anything but the entry is rejected.

use jsonc_parser::ast::{self, Object, ObjectProp};
use jsonc_parser::common::Ranged;
use jsonc_parser::errors::ParseErrorKind;
use jsonc_parser::tokens::Token;
use jsonc_parser::{CollectOptions, ParseOptions, Scanner, ScannerOptions, parse_to_ast};
use portcullis_core::json::parse_strict;
use serde::Serialize;
use serde_json::ser::PrettyFormatter;
use serde_json::{Map, Value};
use std::ops::Range;

const DEFAULT_INDENT: &str = "  ";
const BYTE_ORDER_MARK: char = '\u{feff}';

/// Inserts or replaces `entry` at `path`.
pub fn put(text: &str, path: &[&str], entry: &Value) -> Result<String, String> {
    let is_empty = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text).trim().is_empty();
    let text = if is_empty { "{}\n" } else { text };
    let plain = plain_json(text);
    let mut expected = parse_plain(&plain)?;
    let after = edit(text, &root(&plain)?, path, entry)?;
    insert(&mut expected, path, entry)?;
    verified(after, &expected)
}

/// Removes the entry at `path`, with the text up to the next one.
pub fn take(text: &str, path: &[&str]) -> Result<String, String> {
    let plain = plain_json(text);
    let mut expected = parse_plain(&plain)?;
    let [outer @ .., key] = path else { return Err("the path is empty".to_owned()) };
    let root = root(&plain)?;
    let (mut object, mut value) = (&root, &mut expected);
    for key in outer {
        object = object_of(object.get(key).ok_or_else(|| no_such(key))?)?;
        value = &mut value[*key];
    }
    let members = &object.properties;
    let at = members.iter().position(|member| member.name.as_str() == *key).ok_or_else(|| no_such(key))?;
    let goes = match (members.get(at + 1), at.checked_sub(1).map(|at| &members[at])) {
        (Some(next), _) => members[at].start()..next.start(),
        (None, Some(before)) => before.end()..members[at].end(),
        (None, None) => inside(object),
    };
    let after = format!("{}{}", &text[..goes.start], &text[goes.end..]);
    value.as_object_mut().and_then(|members| members.remove(*key));
    verified(after, &expected)
}

/// Parses JSON with comments and trailing commas. An empty text is an empty object.
pub fn parse(text: &str) -> Result<Value, String> {
    parse_plain(&plain_json(text))
}

/// As [`parse`], but accepts duplicate keys, as the applications do: the last one wins. Reports the duplicates.
pub fn parse_as_others(text: &str) -> Result<(Value, Option<String>), String> {
    let plain = plain_json(text);
    match parse_plain(&plain) {
        Err(said) if said.contains("is given twice") => {
            let value = serde_json::from_str(&plain).map_err(|e| e.to_string())?;
            Ok((value, Some(said)))
        }
        other => other.map(|value| (value, None)),
    }
}

fn parse_plain(plain: &str) -> Result<Value, String> {
    if plain.trim().is_empty() {
        return Ok(Value::Object(Map::new()));
    }
    parse_strict(plain).map_err(|e| e.to_string())
}

/// Returns the root object with the offsets of its members. The parser recurses, so [`parse_plain`] must have limited the
/// depth before.
fn root(plain: &str) -> Result<Object<'_>, String> {
    let parsed = parse_to_ast(plain, &CollectOptions::default(), &ParseOptions::default());
    match parsed.map_err(|e| e.to_string())?.value {
        Some(ast::Value::Object(object)) => Ok(object),
        _ => Err("it is not an object".to_owned()),
    }
}

fn object_of<'m, 't>(member: &'m ObjectProp<'t>) -> Result<&'m Object<'t>, String> {
    member.value.as_object().ok_or_else(|| format!("`{}` is not an object", member.name.as_str()))
}

/// Returns the place between the braces.
fn inside(object: &Object<'_>) -> Range<usize> {
    object.start() + 1..object.end() - 1
}

fn no_such(key: &str) -> String {
    format!("no such key: `{key}`")
}

/// Returns the edited text, if nothing but the entry changed.
fn verified(after: String, expected: &Value) -> Result<String, String> {
    match parse(&after) {
        Ok(value) if value == *expected => Ok(after),
        _ => Err("its layout is not supported".to_owned()),
    }
}

fn insert(value: &mut Value, path: &[&str], entry: &Value) -> Result<(), String> {
    match path {
        [] => *value = entry.clone(),
        [key, rest @ ..] => {
            let members = value.as_object_mut().ok_or("an object was expected around the entry")?;
            let inner = members.entry(*key).or_insert_with(|| Value::Object(Map::new()));
            insert(inner, rest, entry)?;
        }
    }
    Ok(())
}

/// Replaces a byte order mark, comments and trailing commas by spaces. All offsets stay the same.
fn plain_json(text: &str) -> String {
    let body = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    let mark_bytes = text.len() - body.len();
    let mut plain = body.as_bytes().to_vec();
    let mut comma = None;
    for (token, place) in tokens(body) {
        let goes = match token {
            Token::CommentLine(_) | Token::CommentBlock(_) => Some(place),
            Token::CloseBrace | Token::CloseBracket => comma.take(),
            token => {
                comma = (token == Token::Comma).then_some(place);
                None
            }
        };
        if let Some(goes) = goes {
            plain[goes].fill(b' ');
        }
    }
    // Only whole tokens were replaced, so this is still UTF-8.
    format!("{:mark_bytes$}{}", "", String::from_utf8(plain).unwrap_or_default())
}

/// Returns the tokens up to the first that is not JSON with comments, which is left to [`parse_strict`].
fn tokens(text: &str) -> impl Iterator<Item = (Token<'_>, Range<usize>)> {
    let mut scanner = Scanner::new(text, &ScannerOptions::default());
    std::iter::from_fn(move || {
        let token = match scanner.scan() {
            Ok(token) => token?,
            Err(error) if matches!(error.kind(), ParseErrorKind::UnterminatedCommentBlock) => {
                Token::CommentBlock("")
            }
            Err(_) => return None,
        };
        Some((token, scanner.token_start()..scanner.token_end()))
    })
}

fn edit(text: &str, root: &Object<'_>, path: &[&str], entry: &Value) -> Result<String, String> {
    // Indentation of a member relative to its object.
    let outer = line_indent(text, root.start());
    let first = root.properties.first().and_then(|first| indent_of(text, first.start()));
    let unit = first
        .and_then(|indent| indent.strip_prefix(outer))
        .filter(|unit| !unit.is_empty())
        .unwrap_or(DEFAULT_INDENT);
    let (mut object, mut rest) = (root, path);
    while let [key, deeper @ ..] = rest {
        let Some(member) = object.get(key) else { break };
        if deeper.is_empty() {
            let (head, tail) = (&text[..member.value.start()], &text[member.value.end()..]);
            let value = pretty(entry, unit, line_indent(text, member.start()), newline_of(text))?;
            return Ok(format!("{head}{value}{tail}"));
        }
        object = object_of(member)?;
        rest = deeper;
    }
    let [key, deeper @ ..] = rest else { return Err("the path is empty".to_owned()) };
    let value = deeper
        .iter()
        .rev()
        .fold(entry.clone(), |inner, key| Value::Object(Map::from_iter([((*key).to_owned(), inner)])));
    append(text, object, key, &value, unit)
}

/// Appends a member to an object.
fn append(text: &str, object: &Object<'_>, key: &str, value: &Value, unit: &str) -> Result<String, String> {
    let newline = newline_of(text);
    let outer = line_indent(text, object.start());
    let Range { start: open, end: close } = inside(object);
    let last = object.properties.last();
    let own_line = last.and_then(|last| indent_of(text, last.start()));
    let indent = own_line.map_or_else(|| format!("{outer}{unit}"), str::to_owned);
    let key = serde_json::to_string(key).map_err(|e| e.to_string())?;
    let value = pretty(value, unit, &indent, newline)?;
    let body_end = open + text[open..close].trim_end().len();
    let closing = text[body_end..close].rsplit_once('\n').map_or(outer, |(_, indent)| indent);
    // The comma goes right after the last value, before a trailing comment.
    let head = last.map_or(open, Ranged::end);
    let has_comma = tokens(&text[head..close]).any(|(token, _)| token == Token::Comma);
    let (comma, comma_after) = match last {
        Some(_) if has_comma => ("", ","),
        Some(_) => (",", ""),
        None => ("", ""),
    };
    Ok(format!(
        "{}{comma}{}{newline}{indent}{key}: {value}{comma_after}{newline}{closing}{}",
        &text[..head],
        &text[head..body_end],
        &text[close..],
    ))
}

/// Returns indented JSON; lines after the first start with `indent`.
fn pretty(value: &Value, unit: &str, indent: &str, newline: &str) -> Result<String, String> {
    let mut bytes = Vec::new();
    let formatter = PrettyFormatter::with_indent(unit.as_bytes());
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, formatter);
    value.serialize(&mut serializer).map_err(|e| e.to_string())?;
    let text = String::from_utf8(bytes).map_err(|e| e.to_string())?;
    Ok(text.replace('\n', &format!("{newline}{indent}")))
}

fn newline_of(text: &str) -> &'static str {
    if text.contains("\r\n") { "\r\n" } else { "\n" }
}

/// Returns the indentation before `at`, if only whitespace precedes it on the line.
fn indent_of(text: &str, at: usize) -> Option<&str> {
    let line = text[..at].rfind('\n')? + 1;
    let indent = &text[line..at];
    indent.chars().all(|c| c == ' ' || c == '\t').then_some(indent)
}

/// Returns the indentation of the line of `at`.
fn line_indent(text: &str, at: usize) -> &str {
    let line = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
    let rest = &text[line..at];
    &rest[..rest.len() - rest.trim_start_matches([' ', '\t']).len()]
}

#[cfg(test)]
mod tests;
