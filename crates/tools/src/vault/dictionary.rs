//! Term dictionary of the index: every distinct word as a number.

use hashbrown::HashTable;
use std::hash::{BuildHasher, RandomState};

/// Term numbers have 26 bits, so that a number and a frequency fit into a `u32`.
pub(super) const TERMS_MAX: usize = 1 << 26;

/// The words in one string with their offsets, and the document frequency of each.
pub(super) struct Dictionary {
    text: String,
    /// One more than there are terms: the end of one is the beginning of the next.
    starts: Vec<u32>,
    notes_with: Vec<u32>,
    places: HashTable<u32>,
    /// Randomly keyed: notes are untrusted text, and must not cause hash collisions (hash flooding).
    hasher: RandomState,
}

/// The number of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Term(pub(super) u32);

impl Dictionary {
    pub(super) fn new() -> Dictionary {
        Dictionary {
            text: String::new(),
            starts: vec![0],
            notes_with: Vec::new(),
            places: HashTable::new(),
            hasher: RandomState::new(),
        }
    }

    /// Returns the term of a word, if it exists.
    pub(super) fn get(&self, word: &str) -> Option<Term> {
        let found = self.places.find(self.hasher.hash_one(word), |at| self.word(Term(*at)) == word);
        found.copied().map(Term)
    }

    /// Returns the term of a word, adding it if needed; `None` if the dictionary is full.
    pub(super) fn add(&mut self, word: &str) -> Option<Term> {
        let hash = self.hasher.hash_one(word);
        if let Some(known) = self.places.find(hash, |at| of(&self.text, &self.starts, *at) == word) {
            return Some(Term(*known));
        }
        let end = u32::try_from(self.text.len() + word.len()).ok()?;
        let at = u32::try_from(self.notes_with.len()).ok().filter(|at| (*at as usize) < TERMS_MAX)?;
        self.text.push_str(word);
        self.starts.push(end);
        self.notes_with.push(0);
        let (text, starts, hasher) = (&self.text, &self.starts, &self.hasher);
        self.places.insert_unique(hash, at, |at| hasher.hash_one(of(text, starts, *at)));
        Some(Term(at))
    }

    pub(super) fn word(&self, term: Term) -> &str {
        of(&self.text, &self.starts, term.0)
    }

    /// Returns every word with a prefix.
    pub(super) fn beginning_with(&self, prefix: &str) -> impl Iterator<Item = Term> {
        let all = (0..self.len()).filter_map(|at| u32::try_from(at).ok()).map(Term);
        all.filter(move |term| self.notes_with(*term) > 0 && self.word(*term).starts_with(prefix))
    }

    pub(super) fn notes_with(&self, term: Term) -> u32 {
        self.notes_with.get(term.0 as usize).copied().unwrap_or(0)
    }

    /// Adjusts the number of notes that have this word.
    pub(super) fn count(&mut self, term: Term, change: i32) {
        if let Some(count) = self.notes_with.get_mut(term.0 as usize) {
            *count = count.saturating_add_signed(change);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.notes_with.len()
    }

    /// Returns the number of words that no note has any more.
    pub(super) fn unused(&self) -> usize {
        self.notes_with.iter().filter(|count| **count == 0).count()
    }

    /// Releases spare capacity.
    pub(super) fn shrink(&mut self) {
        self.text.shrink_to_fit();
        self.starts.shrink_to_fit();
        self.notes_with.shrink_to_fit();
    }
}

fn of<'t>(text: &'t str, starts: &[u32], at: u32) -> &'t str {
    let at = at as usize;
    match (starts.get(at), starts.get(at + 1)) {
        (Some(start), Some(end)) => text.get(*start as usize..*end as usize).unwrap_or_default(),
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_get_numbers_and_numbers_words() {
        let mut dictionary = Dictionary::new();
        let all: Vec<String> = (0..5_000).map(|n| format!("word{n}")).collect();
        let terms: Vec<Term> = all.iter().map(|word| dictionary.add(word).unwrap()).collect();
        for (word, term) in all.iter().zip(&terms) {
            assert_eq!((dictionary.get(word), dictionary.add(word)), (Some(*term), Some(*term)));
            assert_eq!(dictionary.word(*term), word);
        }
        assert_eq!((dictionary.get("wor"), dictionary.len()), (None, 5_000));
        dictionary.count(terms[42], 1);
        assert_eq!(dictionary.beginning_with("word4").collect::<Vec<_>>(), [terms[42]]);
        assert_eq!(dictionary.unused(), 4_999);
    }
}
