//! Ranking of tools for a query.
//!
//! Okapi BM25 over the words of a tool's name, server, description and parameters; a word in the name weighs most. A
//! word with the same stem scores less than an exact match, and a common prefix still less.

use super::tokenize::{SearchTerm, is_stop_word, is_unsegmented_script, stem, tokenize};
use portcullis_core::ToolDef;
use portcullis_text::Bm25;
use serde_json::Value;
use std::collections::{HashMap, VecDeque};

/// Field weights.
const IN_NAME: f64 = 4.0;
const IN_TITLE: f64 = 2.0;
const IN_PARAMETER: f64 = 1.5;
const IN_DESCRIPTION: f64 = 1.0;
/// Descriptions and enum values of parameters.
const OF_PARAMETER: f64 = 0.5;
/// Weight of a match by stem, and by prefix.
const OTHER_FORM: f64 = 0.8;
const BEGINNING: f64 = 0.5;
/// A shorter word is a prefix of too many others.
const BEGINNING_CHARS_MIN: usize = 3;
/// If the query word is longer than the matching prefix: its minimum length, and its share of the query word.
const MOST_CHARS_MIN: usize = 5;
const MOST_PERCENT: usize = 60;
/// Results with less than this share of the best score are dropped: they share a word, but are unrelated.
const FITS_AT_LEAST: f64 = 0.2;
/// Length of a description that is indexed. The rest of a long one is examples.
const DESCRIPTION_CHARS_MAX: usize = 4_000;
/// How much of a schema is indexed, breadth first: subschemas, and characters.
const SCHEMAS_MAX: usize = 500;
const SCHEMA_CHARS_MAX: usize = 8_000;

/// The postings of a word.
struct Entry {
    stem: String,
    places: Vec<(usize, f64)>,
}

/// An inverted index of all tools.
#[derive(Default)]
struct Index {
    words: HashMap<String, Entry>,
    lengths: Vec<f64>,
}

impl Index {
    fn of(tools: &[&ToolDef]) -> Index {
        let mut index = Index::default();
        for (at, tool) in tools.iter().enumerate() {
            let document = Document::of(tool);
            index.lengths.push(document.length);
            for (word, weight) in document.weights {
                let entry = index.words.entry(word);
                let entry = entry.or_insert_with_key(|word| Entry { stem: stem(word), places: Vec::new() });
                entry.places.push((at, weight));
            }
        }
        index
    }

    /// Returns the score of each tool for one query word.
    fn scores(&self, wanted: &SearchTerm) -> Vec<f64> {
        let mut scores = self.scores_of(&wanted.whole);
        // `createIssue` matches by its parts, unless a tool has it as a whole.
        let share = 1.0 / wanted.parts.len().max(1) as f64;
        let mut in_parts = vec![0.0; scores.len()];
        for part in wanted.parts.iter().filter(|part| !is_stop_word(part)) {
            for (sum, score) in in_parts.iter_mut().zip(self.scores_of(part)) {
                *sum += score * share;
            }
        }
        for (score, parts) in scores.iter_mut().zip(in_parts) {
            *score = score.max(parts);
        }
        scores
    }

    fn scores_of(&self, wanted: &str) -> Vec<f64> {
        let wanted_stem = stem(wanted);
        let alike: Vec<(f64, &Entry)> = self
            .words
            .iter()
            .filter_map(|(word, entry)| Some((likeness(wanted, &wanted_stem, word, &entry.stem)?, entry)))
            .collect();
        // If a tool has the word itself, a prefix match like `postgres` for `post` is unlikely to be meant.
        let is_known = alike.iter().any(|(likeness, _)| *likeness > BEGINNING);
        let bm25 = Bm25::new(self.lengths.len(), self.lengths.iter().sum());
        let mut scores = vec![0.0_f64; self.lengths.len()];
        for (likeness, entry) in alike {
            let worth = if is_known && likeness <= BEGINNING { likeness * BEGINNING } else { likeness };
            for (at, weight) in &entry.places {
                let score = bm25.weight(*weight, self.lengths[*at]);
                scores[*at] = scores[*at].max(score * worth);
            }
        }
        let having = scores.iter().filter(|score| **score > 0.0).count() as f64;
        let rarity = bm25.rarity(having);
        scores.iter().map(|score| score * rarity).collect()
    }
}

/// Returns the weight of a word for a query word, if they match.
fn likeness(wanted: &str, wanted_stem: &str, word: &str, word_stem: &str) -> Option<f64> {
    if word == wanted || is_letter_of(wanted, word) {
        Some(1.0)
    } else if word_stem == wanted_stem {
        Some(OTHER_FORM)
    } else {
        begins_alike(wanted, wanted_stem, word).then_some(BEGINNING)
    }
}

/// Returns whether the query is a single character of a script that is indexed as pairs.
fn is_letter_of(wanted: &str, word: &str) -> bool {
    let mut letters = wanted.chars();
    letters.next().is_some_and(is_unsegmented_script) && letters.next().is_none() && word.contains(wanted)
}

fn begins_alike(wanted: &str, wanted_stem: &str, word: &str) -> bool {
    let chars = |text: &str| text.chars().count();
    if chars(wanted) < BEGINNING_CHARS_MIN {
        return false;
    }
    word.starts_with(wanted)
        // `repos` for `repository`. A short stem would match too much.
        || (chars(wanted_stem) > BEGINNING_CHARS_MIN && word.starts_with(wanted_stem))
        || (wanted.starts_with(word)
            && chars(word) >= MOST_CHARS_MIN
            && chars(word) * 100 >= chars(wanted) * MOST_PERCENT)
}

/// The indexed words of one tool.
#[derive(Default)]
struct Document {
    weights: HashMap<String, f64>,
    length: f64,
}

impl Document {
    fn of(tool: &ToolDef) -> Document {
        let mut document = Document::default();
        document.add(&tool.name, IN_NAME);
        // Most names contain the server already.
        for word in tokenize(tool.server.as_deref().unwrap_or_default()) {
            if !document.weights.contains_key(&word.whole) {
                document.add_word(&word, IN_NAME);
            }
        }
        document.add(&tool.title, IN_TITLE);
        let description: String = tool.description.chars().take(DESCRIPTION_CHARS_MAX).collect();
        document.add(&description, IN_DESCRIPTION);
        document.add_schema(&tool.input_schema);
        document
    }

    fn add(&mut self, text: &str, weight: f64) {
        for word in tokenize(text) {
            self.add_word(&word, weight);
        }
    }

    fn add_word(&mut self, word: &SearchTerm, weight: f64) {
        for word in std::iter::once(&word.whole).chain(&word.parts).filter(|word| !is_stop_word(word)) {
            *self.weights.entry(word.clone()).or_default() += weight;
            self.length += weight.min(1.0);
        }
    }

    /// Adds names, descriptions and values of parameters at any depth. A `$ref` need not be followed, because its
    /// target is in the same schema.
    fn add_schema(&mut self, schema: &Value) {
        let (mut schemas, mut chars_left) = (VecDeque::from([schema]), SCHEMA_CHARS_MAX);
        let mut add = |text: &str, weight: f64| {
            let text: String = text.chars().take(chars_left).collect();
            chars_left -= text.chars().count();
            self.add(&text, weight);
        };
        for _ in 0..SCHEMAS_MAX {
            let Some(schema) = schemas.pop_front() else { break };
            let Some(members) = schema.as_object() else { continue };
            for (member, value) in members {
                match (member.as_str(), value) {
                    ("description" | "const", Value::String(text)) => add(text, OF_PARAMETER),
                    ("enum", Value::Array(values)) => {
                        values.iter().filter_map(Value::as_str).for_each(|text| add(text, OF_PARAMETER));
                    }
                    ("properties", Value::Object(parameters)) => {
                        parameters.keys().for_each(|name| add(name, IN_PARAMETER));
                        schemas.extend(parameters.values());
                    }
                    (
                        "$defs" | "definitions" | "patternProperties" | "dependentSchemas",
                        Value::Object(named),
                    ) => {
                        schemas.extend(named.values());
                    }
                    ("allOf" | "anyOf" | "oneOf" | "prefixItems" | "items", Value::Array(several)) => {
                        schemas.extend(several);
                    }
                    ("items" | "additionalProperties" | "if" | "then" | "else", one) => {
                        schemas.push_back(one)
                    }
                    _ => {}
                }
            }
        }
    }
}

/// Returns the words of a query without stop words.
pub(super) fn wanted(query: &str) -> Vec<SearchTerm> {
    let mut wanted: Vec<SearchTerm> = Vec::new();
    for word in tokenize(query) {
        if !word.pieces().iter().all(|piece| is_stop_word(piece)) && !wanted.contains(&word) {
            wanted.push(word);
        }
    }
    wanted
}

/// Returns the indices of the matching tools, best first.
pub(super) fn rank(tools: &[&ToolDef], wanted: &[SearchTerm]) -> Vec<usize> {
    let index = Index::of(tools);
    let mut scores = vec![0.0; tools.len()];
    for word in wanted {
        for (sum, score) in scores.iter_mut().zip(index.scores(word)) {
            *sum += score;
        }
    }
    let best = scores.iter().copied().fold(0.0, f64::max);
    let fits = |at: &usize| scores[*at] > 0.0 && scores[*at] >= best * FITS_AT_LEAST;
    let mut fitting: Vec<usize> = (0..tools.len()).filter(fits).collect();
    // Ties keep the order of the list, so results are deterministic.
    fitting.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]).then(a.cmp(b)));
    fitting
}

#[cfg(test)]
#[path = "rank_tests.rs"]
mod tests;
