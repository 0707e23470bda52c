//! The topics of a server, from the names and descriptions of its tools.

use super::tokenize::{is_stop_word, is_unsegmented_script, stem, tokenize};
use portcullis_core::{NAME_HASH_CHARS, ToolDef};
use std::collections::{HashMap, HashSet};

/// Length of a word. Longer ones are not words, or whole sentences without spaces.
const WORD_CHARS_MIN: usize = 3;
const WORD_CHARS_MAX: usize = 20;
/// Words of a description that are considered. It begins with the tool's purpose.
const DESCRIPTION_WORDS_MAX: usize = 60;

/// Returns the most descriptive words: from the names of the tools, or from their descriptions if the names add
/// nothing to the server's own name.
pub(super) fn topics(tools: &[&ToolDef], server: &str, most: usize) -> Vec<String> {
    let in_names = || tools.iter().flat_map(|tool| name_words(&tool.name));
    let in_descriptions = tools.iter().flat_map(|tool| described_by(&tool.description));
    let own: HashSet<String> = tokenize(server)
        .iter()
        .flat_map(|word| [vec![word.whole.clone()], word.parts.clone()].concat())
        .collect();
    let own: HashSet<String> = own.iter().map(|word| stem(word)).collect();
    let tells = |word: &String| !is_general(word) && !own.contains(&stem(word));
    let mut topics = most_frequent(in_names().filter(tells), most);
    if topics.is_empty() {
        topics = most_frequent(in_descriptions.filter(tells), most);
    }
    if topics.is_empty() {
        topics = most_frequent(in_names(), most);
    }
    topics
}

/// Returns the most frequent words; of equally frequent ones, the first.
fn most_frequent(words: impl Iterator<Item = String>, most: usize) -> Vec<String> {
    let (mut counts, mut order) = (HashMap::<String, usize>::new(), Vec::new());
    for word in words {
        let count = counts.entry(word.clone()).or_default();
        if *count == 0 {
            order.push(word);
        }
        *count += 1;
    }
    order.sort_by_key(|word| std::cmp::Reverse(counts[word]));
    order.truncate(most);
    order
}

fn name_words(name: &str) -> Vec<String> {
    let is_hash =
        |end: &str| NAME_HASH_CHARS.contains(&end.len()) && end.bytes().all(|byte| byte.is_ascii_hexdigit());
    let name = name.rsplit_once('_').filter(|(_, end)| is_hash(end)).map_or(name, |(name, _)| name);
    let pieces = tokenize(name).into_iter().flat_map(|word| word.pieces().to_vec());
    pieces.filter(|word| is_word(word)).collect()
}

/// Returns the plain words of a description, each as a whole: part of a longer string may be part of a secret.
fn described_by(description: &str) -> impl Iterator<Item = String> {
    let ends =
        |c: char| c.is_whitespace() || !(c.is_ascii() || c.is_alphanumeric() || is_unsegmented_script(c));
    let written = description.split(ends).filter(|word| !word.is_empty()).take(DESCRIPTION_WORDS_MAX);
    let plain = written.map(|word| word.trim_matches(|c: char| c.is_ascii_punctuation()).to_lowercase());
    plain.filter(|word| is_word(word) && word.chars().all(|c| c.is_alphabetic() || is_unsegmented_script(c)))
}

fn is_word(word: &str) -> bool {
    let chars_min = if word.chars().any(is_unsegmented_script) { 1 } else { WORD_CHARS_MIN };
    (chars_min..=WORD_CHARS_MAX).contains(&word.chars().count())
}

/// Returns whether a word is a general verb that many tools share.
fn is_general(word: &str) -> bool {
    is_stop_word(word)
        || matches!(
            word,
            "get"
                | "gets"
                | "list"
                | "lists"
                | "set"
                | "sets"
                | "create"
                | "creates"
                | "update"
                | "updates"
                | "delete"
                | "deletes"
                | "add"
                | "adds"
                | "remove"
                | "removes"
                | "read"
                | "reads"
                | "write"
                | "writes"
                | "search"
                | "searches"
                | "find"
                | "finds"
                | "query"
                | "run"
                | "runs"
                | "make"
                | "makes"
                | "return"
                | "returns"
                | "provide"
                | "provides"
                | "perform"
                | "performs"
                | "given"
                | "optional"
                | "optionally"
                | "specific"
                | "new"
        )
}

#[cfg(test)]
#[path = "topics_tests.rs"]
mod tests;
