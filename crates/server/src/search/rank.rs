//! Which tools fit what somebody looks for.
//!
//! Okapi BM25 over the words of a tool's name, server, description and parameters; a word in the name counts most. Another
//! form of the word looked for counts less than that word, and one that only begins alike still less.

use super::words::{Word, has_no_spaces, says_nothing, stem, words};
use portcullis_core::ToolDef;
use serde_json::Value;
use std::collections::{HashMap, VecDeque};

/// The usual constants of BM25.
const SATURATION: f64 = 1.2;
const LENGTH_WEIGHT: f64 = 0.75;
/// How much more a word counts in the name, and in the names of parameters, than in a description.
const IN_NAME: f64 = 4.0;
const IN_TITLE: f64 = 2.0;
const IN_PARAMETER: f64 = 1.5;
const IN_DESCRIPTION: f64 = 1.0;
/// What is said of a parameter, and which values it takes.
const OF_PARAMETER: f64 = 0.5;
/// What another form of the word looked for is worth, and a word that only begins alike.
const OTHER_FORM: f64 = 0.8;
const BEGINNING: f64 = 0.5;
/// Shorter words begin too many others.
const BEGINNING_CHARS_MIN: usize = 3;
/// Of a longer word that is looked for, at least so much must be there, and so many of a hundred letters.
const MOST_CHARS_MIN: usize = 5;
const MOST_PERCENT: usize = 60;
/// Whatever fits worse than this share of the best is left out: it has a word in common, and nothing to do with it.
const FITS_AT_LEAST: f64 = 0.2;
/// How much of a description is looked at. The rest of a long one is examples.
const DESCRIPTION_CHARS_MAX: usize = 4_000;
/// How much of a schema is looked at, from the top down: how many schemas in it, and how many letters.
const SCHEMAS_MAX: usize = 500;
const SCHEMA_CHARS_MAX: usize = 8_000;

/// A word, and which tools have it how often.
struct Entry {
    stem: String,
    places: Vec<(usize, f64)>,
}

/// The words of all tools.
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

    /// Returns how well each tool fits one word of the query.
    fn scores(&self, wanted: &Word) -> Vec<f64> {
        let mut scores = self.scores_of(&wanted.whole);
        // `createIssue` is found as what it is made of, unless somebody writes it just so.
        let share = 1.0 / wanted.parts.len().max(1) as f64;
        let mut in_parts = vec![0.0; scores.len()];
        for part in wanted.parts.iter().filter(|part| !says_nothing(part)) {
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
        // Where somebody has the word itself, `post` is hardly meant to be `postgres`.
        let is_known = alike.iter().any(|(likeness, _)| *likeness > BEGINNING);
        let count = self.lengths.len() as f64;
        let average = self.lengths.iter().sum::<f64>() / count.max(1.0);
        let mut scores = vec![0.0_f64; self.lengths.len()];
        for (likeness, entry) in alike {
            let worth = if is_known && likeness <= BEGINNING { likeness * BEGINNING } else { likeness };
            for (at, weight) in &entry.places {
                let length = 1.0 - LENGTH_WEIGHT + LENGTH_WEIGHT * self.lengths[*at] / average.max(1.0);
                let score = weight * (SATURATION + 1.0) / (weight + SATURATION * length);
                scores[*at] = scores[*at].max(score * worth);
            }
        }
        let having = scores.iter().filter(|score| **score > 0.0).count() as f64;
        let rarity = ((count - having + 0.5) / (having + 0.5) + 1.0).ln();
        scores.iter().map(|score| score * rarity).collect()
    }
}

/// Returns what a word is worth to somebody who looks for another, if anything.
fn likeness(wanted: &str, wanted_stem: &str, word: &str, word_stem: &str) -> Option<f64> {
    if word == wanted || is_letter_of(wanted, word) {
        Some(1.0)
    } else if word_stem == wanted_stem {
        Some(OTHER_FORM)
    } else {
        begins_alike(wanted, wanted_stem, word).then_some(BEGINNING)
    }
}

/// Returns whether what is looked for is a word of one letter, in a script where words are kept as pairs.
fn is_letter_of(wanted: &str, word: &str) -> bool {
    let mut letters = wanted.chars();
    letters.next().is_some_and(has_no_spaces) && letters.next().is_none() && word.contains(wanted)
}

fn begins_alike(wanted: &str, wanted_stem: &str, word: &str) -> bool {
    let chars = |text: &str| text.chars().count();
    if chars(wanted) < BEGINNING_CHARS_MIN {
        return false;
    }
    word.starts_with(wanted)
        // `repos` for `repository`. A short stem is no longer much of the word.
        || (chars(wanted_stem) > BEGINNING_CHARS_MIN && word.starts_with(wanted_stem))
        || (wanted.starts_with(word)
            && chars(word) >= MOST_CHARS_MIN
            && chars(word) * 100 >= chars(wanted) * MOST_PERCENT)
}

/// The words of one tool.
#[derive(Default)]
struct Document {
    weights: HashMap<String, f64>,
    length: f64,
}

impl Document {
    fn of(tool: &ToolDef) -> Document {
        let mut document = Document::default();
        document.add(&tool.name, IN_NAME);
        // Most names say already whose they are.
        for word in words(tool.server.as_deref().unwrap_or_default()) {
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
        for word in words(text) {
            self.add_word(&word, weight);
        }
    }

    fn add_word(&mut self, word: &Word, weight: f64) {
        for word in std::iter::once(&word.whole).chain(&word.parts).filter(|word| !says_nothing(word)) {
            *self.weights.entry(word.clone()).or_default() += weight;
            self.length += weight.min(1.0);
        }
    }

    /// Adds the names, descriptions and values of parameters, however deep. What is referred to is in the same schema, so
    /// that nothing has to be followed.
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

/// Returns the words of a query that say something.
pub(super) fn wanted(query: &str) -> Vec<Word> {
    let mut wanted: Vec<Word> = Vec::new();
    for word in words(query) {
        if !word.pieces().iter().all(|piece| says_nothing(piece)) && !wanted.contains(&word) {
            wanted.push(word);
        }
    }
    wanted
}

/// Returns the places of those that fit, best first.
pub(super) fn rank(tools: &[&ToolDef], wanted: &[Word]) -> Vec<usize> {
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
    // Equal ones keep the order of the list, so the answer is always the same.
    fitting.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]).then(a.cmp(b)));
    fitting
}

#[cfg(test)]
#[path = "rank_tests.rs"]
mod tests;
