//! Masks secrets in commands, URLs and settings for display, and nothing else.
//!
//! The author of a command must not be able to hide what it does. So the next shell word is shown whatever precedes it, and
//! nothing is masked that could be executable code.

use super::{HIDDEN, SHAPES, could_be_key, has_token, is_given, is_handle, is_mixed, is_secret_of};
use portcullis_core::json::parse_exact;
use portcullis_guard::MASK_BEGINS;
use serde_json::Value;

/// Characters that end a shell word.
const ENDS: [char; 10] = [';', '|', '&', '`', '(', ')', '<', '>', '\n', '\r'];
/// Nesting depth. Deeper text is shown unchanged.
const DEPTH_MAX: u8 = 12;
/// Minimum length of a key line: mixed-case letters and digits.
const KEY_LINE_CHARS_MIN: usize = 40;

/// Masks command arguments.
pub fn shown_args(args: &[String]) -> Vec<String> {
    let mut name = None::<&str>;
    let mut shown = Vec::with_capacity(args.len());
    for arg in args {
        if name.take().is_some_and(|name| !arg.starts_with('-') && is_secret_of(name, arg)) {
            shown.push(hidden(arg, is_end, DEPTH_MAX));
            continue;
        }
        name = Some(arg.as_str()).filter(|arg| arg.starts_with('-') && !arg.contains('='));
        shown.push(shown_text(arg));
    }
    shown
}

/// Masks variables or headers.
pub fn shown_pairs(pairs: &[(String, String)]) -> Vec<(String, String)> {
    let shown = |(key, value): &(String, String)| {
        let shown = match value {
            value if is_handle(value) => value.clone(),
            value if is_secret_of(key, value) => HIDDEN.to_owned(),
            value => shown_text(value),
        };
        (key.clone(), shown)
    };
    pairs.iter().map(shown).collect()
}

/// Masks passwords and keys in a URL.
pub fn shown_url(url: &str) -> String {
    shown_address(url, could_be_key)
}

/// The same, with `is_key` to detect keys.
pub(super) fn shown_address(url: &str, is_key: fn(&str) -> bool) -> String {
    let url = without_tokens(url);
    let Some((scheme, rest)) = url.split_once("://") else { return url };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, rest) = rest.split_at(end);
    let hide = |text: &str| hidden(text, is_end, DEPTH_MAX);
    let is_port = |text: &str| text.chars().all(|c| c.is_ascii_digit());
    let authority = match (authority.rsplit_once('@'), authority.split_once(':')) {
        (Some((user, host)), _) => match user.split_once(':') {
            Some((user, password)) if is_given(password) => format!("{user}:{}@{host}", hide(password)),
            None if is_key(user) => format!("{HIDDEN}@{host}"),
            _ => authority.to_owned(),
        },
        // The start of a password with a character that ends a URL.
        (None, Some((user, password)))
            if !authority.starts_with('[') && !is_port(password) && is_given(password) =>
        {
            format!("{user}:{}", hide(password))
        }
        _ => authority.to_owned(),
    };
    let (path, query) = rest.split_at(rest.find(['?', '#']).unwrap_or(rest.len()));
    let parts = path.split('/').map(|part| if is_key(part) { HIDDEN } else { part });
    let path = parts.collect::<Vec<_>>().join("/");
    let mut shown = format!("{scheme}://{authority}{path}");
    for pair in query.split_inclusive(['&', ';', '#', '?']) {
        let (pair, separator) = match pair.strip_suffix(['&', ';', '#', '?']) {
            Some(inner) => (inner, &pair[inner.len()..]),
            None => (pair, ""),
        };
        match pair.split_once('=') {
            Some((key, value)) if is_secret_of(key, value) || is_key(value) => {
                shown.push_str(&format!("{key}={}{separator}", hide(value)));
            }
            _ => shown.push_str(&format!("{pair}{separator}")),
        }
    }
    shown
}

/// Masks one argument, or another text with structure.
fn shown_text(text: &str) -> String {
    taken_apart(&without_tokens(text), DEPTH_MAX)
}

fn taken_apart(text: &str, depth: u8) -> String {
    let Some(depth) = depth.checked_sub(1) else { return text.to_owned() };
    if text.starts_with("secret:") {
        return text.to_owned();
    }
    if let Some(shown) = shown_json(text, depth) {
        return shown;
    }
    if let Some(shown) = shown_setting(text, ':', depth).or_else(|| shown_setting(text, '=', depth)) {
        return shown;
    }
    // Other schemes are ordinary words too.
    if let Some((scheme, token)) = text.split_once(' ')
        && scheme.eq_ignore_ascii_case("Bearer")
        && !token.split(is_end).next().unwrap_or_default().contains(' ')
        && is_given(token)
    {
        return format!("{scheme} {}", hidden(token, is_end, depth));
    }
    let is_comma = |c: char| is_end(c) || ",?".contains(c);
    if text.contains(char::is_whitespace) {
        return shown_words(text, char::is_whitespace, depth);
    }
    if text.contains("://") {
        let (address, rest) = text.split_at(end_of_address(text));
        return shown_url(address) + &shown_words(rest, is_comma, depth);
    }
    if text.contains(is_comma) { shown_words(text, is_comma, depth) } else { text.to_owned() }
}

fn is_end(c: char) -> bool {
    ENDS.contains(&c)
}

/// Returns where a URL ends for a shell. `&` between parameters does not count.
pub(super) fn end_of_address(text: &str) -> usize {
    let query = text.find('?').unwrap_or(text.len());
    let ends = text.char_indices().find(|(at, c)| is_end(*c) && !(*c == '&' && *at > query));
    ends.map_or(text.len(), |(at, _)| at)
}

/// Masks each word of a text.
fn shown_words(text: &str, separates: impl Fn(char) -> bool + Copy, depth: u8) -> String {
    let words = text.split_inclusive(separates).map(|piece| {
        let word = piece.trim_end_matches(separates);
        taken_apart(word, depth) + &piece[word.len()..]
    });
    words.collect()
}

/// Masks `--token=…`, `TOKEN=…` and `Authorization: …`, if it has such a form and contains a secret.
fn shown_setting(text: &str, separator: char, depth: u8) -> Option<String> {
    let (key, value) = text.split_once(separator)?;
    let is_key = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    if !is_key {
        return None;
    }
    // A header value may contain spaces; after `=`, a shell runs the text after a space as a command.
    let ends = |c: char| is_end(c) || (separator == '=' && c.is_whitespace());
    let first = value.split(ends).next().unwrap_or_default();
    if is_secret_of(key, first.trim()) {
        let gap = &value[..value.len() - value.trim_start().len()];
        let is_whole = is_cookies(key, value);
        let shown = if is_whole { HIDDEN.to_owned() } else { hidden(value.trim_start(), ends, depth) };
        return Some(format!("{key}{separator}{gap}{shown}"));
    }
    let shown = (separator == '=').then(|| taken_apart(value, depth))?;
    (shown != value).then(|| format!("{key}={shown}"))
}

/// Returns whether these are cookies, which are all private and never executed.
fn is_cookies(key: &str, value: &str) -> bool {
    let is_cookie =
        |text: &str| text.contains('=') && !text.contains(|c: char| c.is_whitespace() || is_end(c));
    key.to_ascii_uppercase().contains("COOKIE") && value.split(';').all(|text| is_cookie(text.trim()))
}

/// Masks a private value up to its end.
fn hidden(value: &str, ends: impl Fn(char) -> bool, depth: u8) -> String {
    match value.find(ends) {
        Some(end) => format!("{HIDDEN}{}", shown_words(&value[end..], is_end, depth)),
        None => HIDDEN.to_owned(),
    }
}

/// Masks private values in JSON, also in nested strings. A text with duplicate keys is not treated as JSON: part of it
/// would not be shown.
fn shown_json(text: &str, depth: u8) -> Option<String> {
    if !text.trim_start().starts_with(['{', '[', '"']) {
        return None;
    }
    let value = parse_exact(text).ok()?;
    let mut shown = value.clone();
    hide_members("", &mut shown, depth);
    (shown != value).then(|| shown.to_string())
}

fn hide_members(key: &str, value: &mut Value, depth: u8) {
    match value {
        Value::String(text) if is_secret_of(key, text) => *text = hidden(text, is_end, depth),
        Value::String(text) => *text = taken_apart(&without_tokens(text), depth),
        Value::Array(all) => all.iter_mut().for_each(|one| hide_members(key, one, depth)),
        Value::Object(members) => {
            members.iter_mut().for_each(|(key, member)| hide_members(key, member, depth))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Masks every token in a text, word by word, so that no match spans executable text.
fn without_tokens(text: &str) -> String {
    if !has_token(text) {
        return text.to_owned();
    }
    // The output redactor also detects PEM keys by their header line, and would hide the text in between.
    let (has_key, text) = (text.contains("-----BEGIN"), text.replace("-----BEGIN", "----BEGIN"));
    let separates = |c: char| c.is_whitespace() || is_end(c);
    let words = text.split_inclusive(separates).map(|piece| {
        let word = piece.trim_end_matches(separates);
        let shown = if has_key && is_key_line(word) { HIDDEN.to_owned() } else { without_token(word) };
        shown + &piece[word.len()..]
    });
    words.collect()
}

fn without_token(word: &str) -> String {
    let Some(redactor) = SHAPES.as_ref() else { return HIDDEN.to_owned() };
    let scrubbed = redactor.scrub(word);
    // A redaction mark in the input is not ours.
    if scrubbed == word || word.contains(MASK_BEGINS) {
        return word.to_owned();
    }
    let (mut shown, mut rest) = (String::new(), &*scrubbed);
    while let Some((before, after)) = rest.split_once(MASK_BEGINS) {
        shown.push_str(before);
        shown.push_str(HIDDEN);
        rest = after.split_once(']').map_or("", |(_, rest)| rest);
    }
    shown + rest
}

fn is_key_line(word: &str) -> bool {
    // In nested text, line breaks are escapes.
    word.split("\\n").any(|line| is_mixed(line, KEY_LINE_CHARS_MIN, "+/="))
}
