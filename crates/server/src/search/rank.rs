//! Which tools fit what somebody looks for.
//!
//! Okapi BM25 over the words of a tool's name, description and parameters; a word in the name counts most. A word that
//! only begins like the one looked for counts less than the word itself.

use portcullis_core::ToolDef;
use std::collections::{HashMap, HashSet};

/// The usual constants of BM25.
const SATURATION: f64 = 1.2;
const LENGTH_WEIGHT: f64 = 0.75;
/// How much more a word counts in the name, and in the names of parameters, than in a description.
const IN_NAME: f64 = 4.0;
const IN_PARAMETER: f64 = 1.5;
const IN_DESCRIPTION: f64 = 1.0;
/// What a word is worth that only begins like the one looked for.
const BEGINNING: f64 = 0.5;
/// Shorter words begin too many others.
const BEGINNING_CHARS_MIN: usize = 3;
/// How much of a description is looked at. The rest of a long one is examples.
const DESCRIPTION_CHARS_MAX: usize = 4_000;

/// Splits a text into words: at what is no letter or digit, and where small letters become large.
pub(super) fn words(text: &str) -> Vec<String> {
    let (mut words, mut word, mut was_small) = (Vec::new(), String::new(), false);
    for c in text.chars() {
        let ends = !c.is_alphanumeric() || (was_small && c.is_uppercase());
        if ends && !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
        if c.is_alphanumeric() {
            word.extend(c.to_lowercase());
        }
        was_small = c.is_lowercase() || c.is_numeric();
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

struct Document {
    weights: HashMap<String, f64>,
    length: f64,
}

impl Document {
    fn of(tool: &ToolDef) -> Document {
        let mut document = Document { weights: HashMap::new(), length: 0.0 };
        document.add(&tool.name, IN_NAME);
        document.add(&tool.title, IN_NAME / 2.0);
        let description: String = tool.description.chars().take(DESCRIPTION_CHARS_MAX).collect();
        document.add(&description, IN_DESCRIPTION);
        for (name, property) in tool.input_schema["properties"].as_object().into_iter().flatten() {
            document.add(name, IN_PARAMETER);
            document.add(property["description"].as_str().unwrap_or_default(), IN_DESCRIPTION / 2.0);
        }
        document
    }

    fn add(&mut self, text: &str, weight: f64) {
        for word in words(text) {
            *self.weights.entry(word).or_default() += weight;
            self.length += 1.0;
        }
    }

    fn weight(&self, wanted: &str) -> f64 {
        let whole = self.weights.get(wanted).copied().unwrap_or_default();
        if whole > 0.0 || wanted.chars().count() < BEGINNING_CHARS_MIN {
            return whole;
        }
        let alike = |word: &str| {
            word.starts_with(wanted) || (word.len() >= BEGINNING_CHARS_MIN && wanted.starts_with(word))
        };
        let begins = self.weights.iter().filter(|(word, _)| alike(word)).map(|(_, weight)| *weight);
        begins.fold(0.0, f64::max) * BEGINNING
    }
}

/// Returns the places of those that fit, best first.
pub(super) fn rank(tools: &[&ToolDef], query: &str) -> Vec<usize> {
    let documents: Vec<Document> = tools.iter().map(|tool| Document::of(tool)).collect();
    let wanted: HashSet<String> = words(query).into_iter().collect();
    let count = documents.len() as f64;
    let average = documents.iter().map(|document| document.length).sum::<f64>() / count.max(1.0);
    let mut scores = vec![0.0; documents.len()];
    for word in &wanted {
        let weights: Vec<f64> = documents.iter().map(|document| document.weight(word)).collect();
        let having = weights.iter().filter(|weight| **weight > 0.0).count() as f64;
        let rarity = ((count - having + 0.5) / (having + 0.5) + 1.0).ln();
        for ((score, weight), document) in scores.iter_mut().zip(&weights).zip(&documents) {
            let length = 1.0 - LENGTH_WEIGHT + LENGTH_WEIGHT * document.length / average.max(1.0);
            *score += rarity * weight * (SATURATION + 1.0) / (weight + SATURATION * length);
        }
    }
    let mut fitting: Vec<usize> = (0..tools.len()).filter(|at| scores[*at] > 0.0).collect();
    // Equal ones keep the order of the list, so the answer is always the same.
    fitting.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]).then(a.cmp(b)));
    fitting
}

/// Returns the words that tell best what the tools of one server are about.
pub(super) fn topics(tools: &[&ToolDef], server: &str, most: usize) -> Vec<String> {
    const GENERAL: [&str; 26] = [
        "get", "list", "set", "create", "update", "delete", "add", "remove", "read", "write", "search",
        "find", "query", "run", "make", "all", "by", "to", "from", "of", "the", "and", "for", "in", "with",
        "tool",
    ];
    let own: HashSet<String> = words(server).into_iter().collect();
    let (mut counts, mut order) = (HashMap::<String, usize>::new(), Vec::new());
    for tool in tools {
        for word in words(&tool.name) {
            if is_hash(&word) || word.len() < 3 || own.contains(&word) || GENERAL.contains(&word.as_str()) {
                continue;
            }
            let count = counts.entry(word.clone()).or_default();
            if *count == 0 {
                order.push(word);
            }
            *count += 1;
        }
    }
    order.sort_by_key(|word| std::cmp::Reverse(counts[word]));
    order.truncate(most);
    order
}

/// Returns whether a word is what a name ends in that had to be changed, and tells nobody anything.
fn is_hash(word: &str) -> bool {
    matches!(word.len(), 8 | 40) && word.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_core::{Definition, Effect, Limits, Reach};
    use serde_json::json;
    use serde_json::value::RawValue;

    #[test]
    fn no_topic_is_a_hash() {
        let named = |name: &str| {
            let nothing = Definition::new(RawValue::NULL.to_owned());
            let (title, text, schema) = (String::new(), String::new(), json!({ "type": "object" }));
            let (effect, reach, limits) = (Effect::Read, Reach::Outside, Limits::DEFAULT);
            let (server, name) = ("far".to_owned(), name.to_owned());
            ToolDef::foreign(server, name, title, text, effect, reach, limits, schema, None, nothing)
        };
        let tools = [named("far_a_bill_ed7f8c63"), named("far_facade"), named("far_12345678")];
        assert_eq!(topics(&tools.iter().collect::<Vec<_>>(), "far", 5), ["bill", "facade"]);
    }

    #[test]
    fn words_are_split_where_people_see_them() {
        assert_eq!(words("github_createIssue v2: Öffnet"), ["github", "create", "issue", "v2", "öffnet"]);
        assert!(words("—").is_empty());
    }
}
