//! Finds and parses the file: TOML, YAML or JSON to a JSON value, with line numbers.

use super::errors::{ConfigError, ConfigErrors, Finding, PROBLEMS_MAX, join, key_path};
use super::excerpt::{ConfigExcerpt, FaultyPart, KeySpans, Place, line_span};
use portcullis_core::hidden_chars::is_invisible;
use portcullis_core::json::{parse_strict, printable};
use rustix::fs::OFlags;
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::Spanned;
use std::collections::HashMap;
use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};

/// File names; at most one may exist.
pub const FILE_NAMES: [&str; 4] = ["portcullis.toml", "portcullis.yaml", "portcullis.yml", "portcullis.json"];
/// Far larger than any hand-written configuration.
const FILE_BYTES_MAX: u64 = 1024 * 1024;
/// Length limit of a parser's message.
const MESSAGE_CHARS_MAX: usize = 300;
const WRITABLE_BY_ALL: u32 = 0o002;

/// A parsed file.
#[derive(Debug, Default)]
pub(super) struct Document {
    pub(super) value: Value,
    /// Places in the text, by JSON pointer. Empty for JSON, whose parser does not report them.
    places: HashMap<String, Place>,
    text: String,
}

impl Document {
    pub(super) fn empty() -> Document {
        Document { value: Value::Object(Map::new()), ..Document::default() }
    }

    /// Returns the line of a key, or of its nearest parent with one.
    pub(super) fn line(&self, pointer: &str) -> Option<usize> {
        self.place(pointer).map(|place| place.line)
    }

    fn place(&self, pointer: &str) -> Option<&Place> {
        let mut pointer = pointer;
        loop {
            if let Some(place) = self.places.get(pointer) {
                return Some(place);
            }
            pointer = &pointer[..pointer.rfind('/')?];
        }
    }

    /// Returns the line of a finding, with its faulty part.
    pub(super) fn excerpt(&self, finding: &Finding, part: &FaultyPart) -> Option<ConfigExcerpt> {
        let place = self.place(&finding.pointer)?;
        let Some(spans) = &place.spans else {
            return ConfigExcerpt::of(&self.text, &line_span(&self.text, place.line)?, &finding.text, None);
        };
        let (at, correct) = match part {
            // Of a missing key, only a parent has a place.
            _ if !self.places.contains_key(&finding.pointer) => (&spans.key, None),
            FaultyPart::Key { correct } => (&spans.key, correct.as_deref()),
            FaultyPart::Value { correct } => (&spans.value, correct.as_deref()),
        };
        ConfigExcerpt::of(&self.text, at, &finding.text, correct)
    }
}

/// A file that was read but not parsed yet.
pub(super) struct ConfigFile {
    pub(super) path: PathBuf,
    pub(super) name: &'static str,
    pub(super) text: String,
    pub(super) writable_by_all: bool,
}

/// Finds and reads the configuration of a home folder.
pub(super) fn find(home: &Path) -> Result<Option<ConfigFile>, ConfigErrors> {
    let exists = |name: &&str| std::fs::symlink_metadata(home.join(name)).is_ok();
    let found: Vec<&'static str> = FILE_NAMES.into_iter().filter(exists).collect();
    let name = match found.as_slice() {
        [] => return Ok(None),
        [name] => *name,
        [first, others @ ..] => {
            let others = others.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" and ");
            return Err(ConfigErrors::one(*first, format!("{others} exists too; keep only one of them")));
        }
    };
    let path = home.join(name);
    // Opening a FIFO would block until a writer comes.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let unreadable = |e: io::Error| ConfigErrors::one(name, format!("cannot be read: {e}"));
    let file = OpenOptions::new().read(true).custom_flags(flags).open(&path).map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(ConfigErrors::one(name, "is not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(ConfigErrors::one(name, format!("is larger than {FILE_BYTES_MAX} bytes")));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        let text = "is not UTF-8 text".to_owned();
        let problem = ConfigError { place: name.to_owned(), line: Some(line), text, excerpt: None };
        ConfigErrors { problems: vec![problem] }
    })?;
    Ok(Some(ConfigFile { path, name, text, writable_by_all: metadata.mode() & WRITABLE_BY_ALL != 0 }))
}

/// Parses a file by its extension.
pub(super) fn parse(name: &str, text: &str) -> Result<Document, ConfigErrors> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let parsed = match name.rsplit('.').next() {
        Some("toml") => parse_toml(text),
        Some("yaml" | "yml") => parse_yaml(text),
        _ => parse_json(text),
    };
    parsed.map_err(|faults| {
        let problem = |Fault { line, text: said, at }: Fault| {
            let excerpt = at.and_then(|at| ConfigExcerpt::of(text, &at, &said, None));
            ConfigError { place: name.to_owned(), line, text: said, excerpt }
        };
        ConfigErrors::new(faults.into_iter().map(problem).collect())
    })
}

/// Format of another program's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForeignFormat {
    Toml,
    Yaml,
}

/// Parses the file of another program, which may hold what a configuration here may not, such as dates.
pub fn parse_foreign(text: &str, format: ForeignFormat) -> Result<Value, String> {
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("it is larger than {FILE_BYTES_MAX} bytes"));
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    match format {
        ForeignFormat::Toml => toml::from_str(text).map_err(|error| one_line(error.message())),
        ForeignFormat::Yaml => {
            serde_saphyr::from_str(text).map_err(|error| one_line(&error.without_snippet().to_string()))
        }
    }
}

/// Why a text is not parsed, and where.
struct Fault {
    line: Option<usize>,
    text: String,
    at: Option<Range<usize>>,
}

fn parse_toml(text: &str) -> Result<Document, Vec<Fault>> {
    let (table, errors) = DeTable::parse_recoverable(text);
    let line_starts: Vec<usize> = text.match_indices('\n').map(|(offset, _)| offset).collect();
    let line_of = |offset: usize| 1 + line_starts.partition_point(|newline| *newline < offset);
    if !errors.is_empty() {
        let fault = |error: &toml::de::Error| {
            let quoted = error.span().and_then(|span| text.get(span));
            let said = match (error.message(), quoted) {
                // Without its name the key is hard to find.
                ("duplicate key", Some(key)) => format!("key `{}` is given twice", printable(key)),
                (message, _) => one_line(message),
            };
            Fault { line: error.span().map(|span| line_of(span.start)), text: said, at: error.span() }
        };
        return Err(errors.iter().take(PROBLEMS_MAX).map(fault).collect());
    }
    let mut document = Document::empty();
    let mut faults = Vec::new();
    document.value = from_table(table.get_ref(), "", &mut |pointer, key, value, fault| {
        let (line, at) = (line_of(key.start), value.clone());
        let place = Place { line, spans: Some(KeySpans { key, value }) };
        faults.extend(fault.map(|text| Fault {
            line: Some(line),
            text: format!("`{}` is {text}", key_path(pointer)),
            at: Some(at),
        }));
        document.places.insert(pointer.to_owned(), place);
    });
    document.text = text.to_owned();
    if faults.is_empty() { Ok(document) } else { Err(faults) }
}

/// Receives every value: pointer, places of key and value, and error if any.
type Note<'a> = &'a mut dyn FnMut(&str, Range<usize>, Range<usize>, Option<String>);

fn from_table(table: &DeTable<'_>, pointer: &str, note: Note<'_>) -> Value {
    let mut members: Vec<_> = table.iter().collect();
    members.sort_by_key(|(key, _)| key.span().start);
    let mut object = Map::new();
    for (key, value) in members {
        let inner = join(pointer, key.get_ref());
        note(&inner, key.span(), value.span(), None);
        object.insert(key.get_ref().to_string(), from_toml(value, &inner, note));
    }
    Value::Object(object)
}

fn from_toml(value: &toml::Spanned<DeValue<'_>>, pointer: &str, note: Note<'_>) -> Value {
    let mut refuse = |text: String| {
        note(pointer, value.span(), value.span(), Some(text));
        Value::Null
    };
    match value.get_ref() {
        DeValue::String(text) => Value::String(text.to_string()),
        DeValue::Boolean(flag) => Value::Bool(*flag),
        // TOML has native timestamps, for the one setting that is a time.
        DeValue::Datetime(time) if is_time(pointer) => Value::String(time.to_string()),
        DeValue::Datetime(_) => {
            refuse("an unquoted date or time, which is allowed for `until` of a rule only".to_owned())
        }
        DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => Value::Number(number.into()),
            Err(_) => refuse(format!("{}, which is too large a number", printable(&number.to_string()))),
        },
        DeValue::Float(number) => match number.as_str().parse().ok().and_then(Number::from_f64) {
            Some(number) => Value::Number(number),
            None => refuse(format!("{}, expected a finite number", printable(number.as_str()))),
        },
        DeValue::Array(items) => {
            let mut array = Vec::new();
            for (index, item) in items.iter().enumerate() {
                let inner = join(pointer, &index.to_string());
                note(&inner, item.span(), item.span(), None);
                array.push(from_toml(item, &inner, note));
            }
            Value::Array(array)
        }
        DeValue::Table(table) => from_table(table, pointer, note),
    }
}

fn is_time(pointer: &str) -> bool {
    pointer.starts_with("/policy/") && pointer.ends_with("/until")
}

fn parse_yaml(text: &str) -> Result<Document, Vec<Fault>> {
    let options = serde_saphyr::options! {
        strict_booleans: true,
        with_snippet: false,
        merge_keys: serde_saphyr::MergeKeyPolicy::Error,
        reject_unsupported_tags: true,
    };
    let tree: Option<Spanned<Tree>> =
        serde_saphyr::from_str_with_options(text, options).map_err(|error| {
            let line = error.location().and_then(|location| usize::try_from(location.line()).ok());
            let said = match error.without_snippet() {
                serde_saphyr::Error::DuplicateMappingKey { key: Some(key), .. } => {
                    format!("key `{}` is given twice", printable(key))
                }
                other => one_line(&other.to_string()),
            };
            // The location is shown in front instead.
            let end = said.rfind(" at line ").unwrap_or(said.len());
            vec![Fault {
                line,
                text: said[..end].to_owned(),
                at: line.and_then(|line| line_span(text, line)),
            }]
        })?;
    let mut document = Document::empty();
    if let Some(tree) = tree {
        document.value = from_yaml(tree, String::new(), &mut document.places);
    }
    document.text = text.to_owned();
    Ok(document)
}

/// A YAML value with line numbers.
enum Tree {
    Scalar(Value),
    List(Vec<Spanned<Tree>>),
    Table(Vec<(Spanned<String>, Spanned<Tree>)>),
}

fn from_yaml(tree: Spanned<Tree>, pointer: String, places: &mut HashMap<String, Place>) -> Value {
    match tree.value {
        Tree::Scalar(value) => value,
        Tree::List(items) => {
            let mut array = Vec::new();
            for (index, item) in items.into_iter().enumerate() {
                let inner = join(&pointer, &index.to_string());
                remember(places, &inner, &item);
                array.push(from_yaml(item, inner, places));
            }
            Value::Array(array)
        }
        Tree::Table(members) => {
            let mut object = Map::new();
            for (key, value) in members {
                let inner = join(&pointer, &key.value);
                remember(places, &inner, &key);
                object.insert(key.value, from_yaml(value, inner, places));
            }
            Value::Object(object)
        }
    }
}

fn remember<T>(places: &mut HashMap<String, Place>, pointer: &str, at: &Spanned<T>) {
    if let Ok(line) = usize::try_from(at.referenced.line()) {
        places.insert(pointer.to_owned(), Place { line, spans: None });
    }
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Tree, D::Error> {
        deserializer.deserialize_any(TreeVisitor)
    }
}

struct TreeVisitor;

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree::Scalar(Value::Null))
    }

    fn visit_none<E>(self) -> Result<Tree, E> {
        Ok(Tree::Scalar(Value::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Tree, D::Error> {
        deserializer.deserialize_any(TreeVisitor)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Tree, E> {
        Ok(Tree::Scalar(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Tree, E> {
        Ok(Tree::Scalar(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Tree, E> {
        Ok(Tree::Scalar(value.into()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Tree, E> {
        let number = Number::from_f64(value).ok_or_else(|| E::custom("not a finite number"))?;
        Ok(Tree::Scalar(Value::Number(number)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Tree, E> {
        Ok(Tree::Scalar(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Tree, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Tree::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tree, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(Tree::Table(members))
    }
}

fn parse_json(text: &str) -> Result<Document, Vec<Fault>> {
    let value = parse_strict(text).map_err(|error| {
        // The parser's message ends with the location, which is shown in front instead.
        let said = error.to_string();
        let place = format!(" at line {} column {}", error.line(), error.column());
        let said = one_line(said.strip_suffix(&place).unwrap_or(&said));
        vec![Fault { line: Some(error.line()), text: said, at: line_span(text, error.line()) }]
    })?;
    Ok(Document { value, ..Document::default() })
}

/// Sanitizes a parser's message for one terminal line; it may quote the file.
fn one_line(message: &str) -> String {
    let words: Vec<&str> = message.split_whitespace().collect();
    let mut line: String = words.join(" ").chars().take(MESSAGE_CHARS_MAX).collect();
    if line.contains(|c: char| c.is_control() || is_invisible(c)) {
        line = line.chars().flat_map(char::escape_default).collect();
    }
    line
}
