//! Edits one entry of a JSONC file and preserves the rest byte for byte.
//!
//! Such files may contain comments, trailing commas, key order and number formats that a parse and rewrite would lose. So
//! the text is edited in place. Afterwards both texts are parsed, and an edit that changed anything but the entry is
//! rejected.

use portcullis_core::json::{DEPTH_MAX, parse_strict};
use serde::Serialize;
use serde_json::ser::PrettyFormatter;
use serde_json::{Map, Value};
use std::ops::Range;

const DEFAULT_INDENT: &str = "  ";
const BYTE_ORDER_MARK: char = '\u{feff}';

/// Inserts or replaces `entry` at `path`.
pub fn put(text: &str, path: &[&str], entry: &Value) -> Result<String, String> {
    let before = parse(text)?;
    let text = if text.trim_start_matches(BYTE_ORDER_MARK).trim().is_empty() { "{}\n" } else { text };
    let after = edit(text, path, entry)?;
    let mut expected = before;
    insert(&mut expected, path, entry)?;
    match parse(&after) {
        Ok(value) if value == expected => Ok(after),
        _ => Err("its layout is not supported".to_owned()),
    }
}

/// Removes the entry at `path`, with the text up to the next one.
pub fn take(text: &str, path: &[&str]) -> Result<String, String> {
    let mut expected = parse(text)?;
    let [outer @ .., key] = path else { return Err("the path is empty".to_owned()) };
    let mut scanner = Scanner::new(text);
    let (mut object, mut value) = (scanner.root()?, &mut expected);
    for key in outer {
        let member = object.members.iter().rev().find(|member| member.key == *key);
        object = scanner.object_at(member.ok_or_else(|| format!("no such key: `{key}`"))?.value.start)?;
        value = &mut value[*key];
    }
    let at = object.members.iter().rposition(|member| member.key == *key);
    let own = at.and_then(|at| Some((at, object.members.get(at)?)));
    let (at, own) = own.ok_or_else(|| format!("no such key: `{key}`"))?;
    let goes = match (object.members.get(at + 1), at.checked_sub(1).and_then(|at| object.members.get(at))) {
        (Some(next), _) => own.start..next.start,
        (None, Some(before)) => before.value.end..own.value.end,
        (None, None) => object.open..object.close,
    };
    let after = format!("{}{}", &text[..goes.start], &text[goes.end..]);
    value.as_object_mut().and_then(|members| members.remove(*key));
    match parse(&after) {
        Ok(value) if value == expected => Ok(after),
        _ => Err("its layout is not supported".to_owned()),
    }
}

/// Parses JSON with comments and trailing commas. An empty text is an empty object.
pub fn parse(text: &str) -> Result<Value, String> {
    let plain = plain_json(text);
    if plain.trim().is_empty() {
        return Ok(Value::Object(Map::new()));
    }
    parse_strict(&plain).map_err(|e| e.to_string())
}

/// As [`parse`], but accepts duplicate keys, as the applications do: the last one wins. Reports the duplicates.
pub fn parse_as_others(text: &str) -> Result<(Value, Option<String>), String> {
    let strict = parse(text);
    match strict {
        Err(said) if said.contains("is given twice") => {
            let value = serde_json::from_str(&plain_json(text)).map_err(|e| e.to_string())?;
            Ok((value, Some(said)))
        }
        other => other.map(|value| (value, None)),
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

/// Replaces comments and trailing commas by spaces. All offsets stay the same.
fn plain_json(text: &str) -> String {
    let mut scanner = Scanner::new(text);
    let mut plain = text.as_bytes().to_vec();
    if text.starts_with(BYTE_ORDER_MARK) {
        plain[..BYTE_ORDER_MARK.len_utf8()].fill(b' ');
    }
    let mut comma = None;
    while let Some(byte) = scanner.peek() {
        let start = scanner.at;
        if scanner.comment() {
            plain[start..scanner.at].fill(b' ');
            continue;
        }
        match byte {
            b'"' => {
                // An unterminated string is left to the parser.
                let _ = scanner.string();
            }
            _ => scanner.at += 1,
        }
        match (byte, comma) {
            (b'}' | b']', Some(comma)) => plain[comma..=comma].fill(b' '),
            (b',', _) => {
                comma = Some(start);
                continue;
            }
            _ if byte.is_ascii_whitespace() => continue,
            _ => {}
        }
        comma = None;
    }
    // Only whole comments and ASCII bytes were replaced, so this is still UTF-8.
    String::from_utf8(plain).unwrap_or_default()
}

fn edit(text: &str, path: &[&str], entry: &Value) -> Result<String, String> {
    let mut scanner = Scanner::new(text);
    let mut object = scanner.root()?;
    // Indentation of a member relative to its object.
    let outer = line_indent(text, object.open);
    let first = object.members.first().and_then(|first| indent_of(text, first.start));
    let unit = first
        .and_then(|indent| indent.strip_prefix(outer))
        .filter(|unit| !unit.is_empty())
        .unwrap_or(DEFAULT_INDENT);
    let mut rest = path;
    while let [key, deeper @ ..] = rest {
        let Some(member) = object.members.iter().rev().find(|member| member.key == *key) else { break };
        if deeper.is_empty() {
            let value = pretty(entry, unit, line_indent(text, member.start))?.replace('\n', newline_of(text));
            return Ok(format!("{}{value}{}", &text[..member.value.start], &text[member.value.end..]));
        }
        if !text[member.value.clone()].starts_with('{') {
            return Err(format!("`{key}` is not an object"));
        }
        object = scanner.object_at(member.value.start)?;
        rest = deeper;
    }
    let [key, deeper @ ..] = rest else { return Err("the path is empty".to_owned()) };
    let value = deeper
        .iter()
        .rev()
        .fold(entry.clone(), |inner, key| Value::Object(Map::from_iter([((*key).to_owned(), inner)])));
    append(text, &object, key, &value, unit)
}

/// Appends a member to an object.
fn append(text: &str, object: &Object, key: &str, value: &Value, unit: &str) -> Result<String, String> {
    let newline = newline_of(text);
    let outer = line_indent(text, object.open);
    let own_line = object.members.last().and_then(|last| indent_of(text, last.start));
    let indent = own_line.map_or_else(|| format!("{outer}{unit}"), str::to_owned);
    let key = serde_json::to_string(key).map_err(|e| e.to_string())?;
    let value = pretty(value, unit, &indent)?.replace('\n', newline);
    let body_end = object.open + text[object.open..object.close].trim_end().len();
    let closing = text[body_end..object.close].rsplit_once('\n').map_or(outer, |(_, indent)| indent);
    // The comma goes right after the last value, before a trailing comment.
    let (head, tail, comma_after) = match object.members.last() {
        Some(last) if object.trailing_comma => (last.value.end, "", ","),
        Some(last) => (last.value.end, ",", ""),
        None => (object.open, "", ""),
    };
    Ok(format!(
        "{}{tail}{}{newline}{indent}{key}: {value}{comma_after}{newline}{closing}{}",
        &text[..head],
        &text[head..body_end],
        &text[object.close..],
    ))
}

/// Returns indented JSON; lines after the first start with `indent`.
fn pretty(value: &Value, unit: &str, indent: &str) -> Result<String, String> {
    let mut bytes = Vec::new();
    let formatter = PrettyFormatter::with_indent(unit.as_bytes());
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, formatter);
    value.serialize(&mut serializer).map_err(|e| e.to_string())?;
    let text = String::from_utf8(bytes).map_err(|e| e.to_string())?;
    Ok(text.replace('\n', &format!("\n{indent}")))
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

/// Offsets of an object and its members.
struct Object {
    /// After the opening brace.
    open: usize,
    /// At the closing brace.
    close: usize,
    members: Vec<Member>,
    trailing_comma: bool,
}

struct Member {
    key: String,
    /// Start of the key.
    start: usize,
    value: Range<usize>,
}

/// Scans JSON text for offsets. It need not detect every error: the parser does.
struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scanner<'a> {
    fn new(text: &'a str) -> Scanner<'a> {
        Scanner { text, at: 0 }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// Skips a comment, if one starts here.
    fn comment(&mut self) -> bool {
        // Inside a multi-byte character no comment can start.
        let Some(rest) = self.text.get(self.at..) else { return false };
        let length = if rest.starts_with("//") {
            rest.find('\n')
        } else if rest.starts_with("/*") {
            rest.find("*/").map(|end| end + 2)
        } else {
            return false;
        };
        self.at += length.unwrap_or(rest.len());
        true
    }

    fn space(&mut self) {
        loop {
            let rest = self.rest();
            self.at += rest.len() - rest.trim_start_matches([' ', '\t', '\r', '\n']).len();
            if !self.comment() {
                return;
            }
        }
    }

    fn expect(&mut self, byte: u8) -> Result<(), String> {
        if self.peek() != Some(byte) {
            return Err(format!("`{}` was expected at byte {}", byte as char, self.at));
        }
        self.at += 1;
        Ok(())
    }

    /// Skips a string and returns it verbatim.
    fn string(&mut self) -> Result<&'a str, String> {
        let start = self.at;
        self.expect(b'"')?;
        while let Some(byte) = self.peek() {
            self.at += 1;
            match byte {
                b'"' => return Ok(&self.text[start..self.at]),
                b'\\' => self.at += 1,
                _ => {}
            }
        }
        self.at = self.text.len();
        Err(format!("the string at byte {start} has no end"))
    }

    fn root(&mut self) -> Result<Object, String> {
        if self.rest().starts_with(BYTE_ORDER_MARK) {
            self.at += BYTE_ORDER_MARK.len_utf8();
        }
        self.space();
        if self.peek() != Some(b'{') {
            return Err("it is not an object".to_owned());
        }
        self.object_at(self.at)
    }

    fn object_at(&mut self, at: usize) -> Result<Object, String> {
        self.at = at;
        self.object(DEPTH_MAX)
    }

    fn object(&mut self, depth_left: usize) -> Result<Object, String> {
        self.expect(b'{')?;
        let mut object = Object { open: self.at, close: self.at, members: Vec::new(), trailing_comma: false };
        loop {
            self.space();
            if self.peek() == Some(b'}') {
                object.close = self.at;
                self.at += 1;
                return Ok(object);
            }
            let start = self.at;
            let key = serde_json::from_str(self.string()?).map_err(|e| e.to_string())?;
            self.space();
            self.expect(b':')?;
            self.space();
            let value = self.at;
            self.value(depth_left)?;
            object.members.push(Member { key, start, value: value..self.at });
            self.space();
            object.trailing_comma = self.peek() == Some(b',');
            if object.trailing_comma {
                self.at += 1;
            }
        }
    }

    fn value(&mut self, depth_left: usize) -> Result<(), String> {
        let depth_left = depth_left.checked_sub(1).ok_or("it is nested too deeply")?;
        match self.peek() {
            Some(b'{') => self.object(depth_left).map(|_| ()),
            Some(b'"') => self.string().map(|_| ()),
            Some(b'[') => {
                self.at += 1;
                loop {
                    self.space();
                    match self.peek() {
                        Some(b']') => {
                            self.at += 1;
                            return Ok(());
                        }
                        Some(b',') => self.at += 1,
                        _ => self.value(depth_left)?,
                    }
                }
            }
            _ => {
                let rest = self.rest();
                let plain = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
                let length = rest.find(|c| !plain(c)).unwrap_or(rest.len());
                if length == 0 {
                    return Err(format!("a value was expected at byte {}", self.at));
                }
                self.at += length;
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests;
