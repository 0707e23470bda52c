//! Search index of the notes, with BM25 ranking.
//!
//! It is a forward index: each note keeps its terms as sorted numbers, and a search scans all notes. That is fast,
//! because the rarest term is checked first and few notes get further, and it makes updates cheap: an edited note is
//! replaced and nothing else changes. Tags, links, names and properties are terms of the same dictionary, told apart
//! by their first character. Positions are not stored: the few notes that are shown are read again.

use super::dictionary::{Dictionary, Term};
use super::note::{Note, without_extension};
use super::query::{Clause, Condition, Query};
use super::tokenizer::{each_word, fold};
use portcullis_core::root::{InodeStamp, RootedPath};
use portcullis_text::Bm25;
use std::collections::HashMap;

/// Indexed notes. Far more than people write.
pub(super) const NOTES_MAX: usize = 100_000;
/// Terms of all notes together, each counted once per note: 256 MB.
const POSTINGS_MAX: usize = 64_000_000;
/// Words that one prefix may expand to.
const BEGINNINGS_MAX: usize = 20_000;
/// A smaller dictionary is not worth rebuilding.
const WASTE_MIN: usize = 50_000;

/// A term and its frequency share one number.
const OFTEN_BITS: u32 = 6;
const OFTEN_MAX: u32 = (1 << OFTEN_BITS) - 1;

/// Field weights relative to the text.
const IN_NAME: u32 = 8;
const IN_TITLE: u32 = 6;
const IN_HEADING: u32 = 2;
const IN_TAG: u32 = 3;

/// One note.
struct NoteEntry {
    path: RootedPath,
    stamp: InodeStamp,
    /// Number of words in its text.
    length: u32,
    /// `term << OFTEN_BITS | often`, sorted.
    terms: Box<[u32]>,
}

/// A note that matches a query.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RankedNote {
    pub(super) path: RootedPath,
    pub(super) score: f64,
}

pub(super) struct NoteIndex {
    words: Dictionary,
    entries: Vec<Option<NoteEntry>>,
    free: Vec<u32>,
    places: HashMap<RootedPath, u32>,
    length_of_all: u64,
    postings: usize,
    scratch: Scratch,
}

/// Buffers that are reused for every note.
#[derive(Default)]
struct Scratch {
    terms: Vec<u32>,
    buffer: String,
}

/// A clause of a query, resolved to terms.
struct ResolvedClause<'q> {
    clause: &'q Clause,
    terms: Vec<Term>,
    /// Upper bound of the notes with one of these terms.
    notes: u32,
}

impl NoteIndex {
    pub(super) fn new() -> NoteIndex {
        NoteIndex {
            words: Dictionary::new(),
            entries: Vec::new(),
            free: Vec::new(),
            places: HashMap::new(),
            length_of_all: 0,
            postings: 0,
            scratch: Scratch::default(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn stamp(&self, path: &RootedPath) -> Option<InodeStamp> {
        self.entry(*self.places.get(path)?).map(|entry| entry.stamp)
    }

    pub(super) fn paths(&self) -> impl Iterator<Item = &RootedPath> {
        self.places.keys()
    }

    /// Adds or replaces a note. Returns whether there was room.
    pub(super) fn put(&mut self, path: &RootedPath, stamp: InodeStamp, text: &str) -> bool {
        self.remove(path);
        if self.places.len() >= NOTES_MAX || self.postings >= POSTINGS_MAX {
            return false;
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        let length = analyse(&mut self.words, &mut scratch, path, text);
        let terms = packed(&mut scratch.terms);
        self.scratch = scratch;
        terms.iter().for_each(|packed| self.words.count(term_of(*packed), 1));
        self.length_of_all += u64::from(length);
        self.postings += terms.len();
        let entry = Some(NoteEntry { path: path.clone(), stamp, length, terms });
        let slot = match self.free.pop() {
            Some(slot) => {
                self.entries[slot as usize] = entry;
                slot
            }
            None => {
                self.entries.push(entry);
                u32::try_from(self.entries.len() - 1).unwrap_or(u32::MAX)
            }
        };
        self.places.insert(path.clone(), slot);
        true
    }

    pub(super) fn remove(&mut self, path: &RootedPath) {
        let Some(slot) = self.places.remove(path) else { return };
        let Some(entry) = self.entries.get_mut(slot as usize).and_then(Option::take) else { return };
        entry.terms.iter().for_each(|packed| self.words.count(term_of(*packed), -1));
        self.length_of_all -= u64::from(entry.length);
        self.postings -= entry.terms.len();
        self.free.push(slot);
    }

    /// Returns whether most of the dictionary is unused, so that it should be rebuilt.
    pub(super) fn is_wasteful(&self) -> bool {
        self.words.len() >= WASTE_MIN && self.words.unused() * 2 > self.words.len()
    }

    pub(super) fn shrink(&mut self) {
        self.words.shrink();
        self.entries.shrink_to_fit();
        self.scratch = Scratch::default();
    }

    /// Returns every matching note, best first, and the words that no note has.
    ///
    /// For a phrase only its words are checked here; the caller checks their order in the text.
    pub(super) fn rank(&self, query: &Query) -> (Vec<RankedNote>, Vec<String>) {
        let mut unknown = Vec::new();
        let mut meant: Vec<ResolvedClause<'_>> = Vec::new();
        for clause in &query.clauses {
            let before = meant.len();
            self.understand(clause, &mut meant);
            let nothing = meant.iter().skip(before).any(|meant| meant.notes == 0);
            if nothing && !clause.excluded {
                unknown.push(clause.written.clone());
            }
        }
        if !unknown.is_empty() {
            return (Vec::new(), unknown);
        }
        meant.sort_by_key(|meant| (meant.clause.excluded, meant.notes));
        let bm25 = Bm25::new(self.len(), self.length_of_all as f64);
        let mut ranked: Vec<RankedNote> = self
            .entries
            .iter()
            .flatten()
            .filter_map(|entry| {
                let score = score(entry, &meant, &bm25)?;
                query.fits_path(entry.path.as_str()).then(|| RankedNote { path: entry.path.clone(), score })
            })
            .collect();
        ranked.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| a.path.cmp(&b.path)));
        (ranked, unknown)
    }

    /// Resolves a clause to terms.
    fn understand<'q>(&self, clause: &'q Clause, meant: &mut Vec<ResolvedClause<'q>>) {
        let mut add = |terms: Vec<Term>| {
            let notes = terms.iter().map(|term| self.words.notes_with(*term)).fold(0, u32::saturating_add);
            meant.push(ResolvedClause { clause, terms, notes });
        };
        let of = |word: &str| self.words.get(word).into_iter().collect::<Vec<_>>();
        match &clause.condition {
            Condition::Word(word) => add(of(word)),
            Condition::Beginning(prefix) => {
                let mut terms: Vec<Term> = self.words.beginning_with(prefix).take(BEGINNINGS_MAX).collect();
                terms.sort_unstable();
                add(terms);
            }
            // A note may have the words of a phrase without the phrase, so they do not exclude it.
            Condition::Phrase(_) if clause.excluded => {}
            Condition::Phrase(words) => words.iter().for_each(|word| add(of(word))),
            Condition::Tag(tag) => add(of(&tag_term(tag))),
            Condition::Property(key, value) => add(of(&property_term(key, value.as_deref()))),
            Condition::Link(target) => {
                let mut terms = match self.named(target).as_slice() {
                    [only] => self.link_terms(only),
                    _ => of(&link_term(target)),
                };
                terms.sort_unstable();
                add(terms);
            }
        }
    }

    /// Returns the notes with this name or path suffix, the target of a link first.
    pub(super) fn named(&self, name: &str) -> Vec<RootedPath> {
        let wanted = fold(without_extension(name.trim_matches('/')));
        let last = wanted.rsplit('/').next().unwrap_or_default();
        let Some(term) = self.words.get(&name_term(last)) else { return Vec::new() };
        let fits = |path: &RootedPath| {
            let path = fold(without_extension(path.as_str()));
            path.strip_suffix(&wanted).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
        };
        let mut found: Vec<RootedPath> =
            self.with_any(&[term]).map(|entry| &entry.path).filter(|path| fits(path)).cloned().collect();
        found.sort_by_key(|path| (path.names().count(), path.clone()));
        found
    }

    /// Returns the notes that link to this one, by path.
    pub(super) fn backlinks(&self, path: &RootedPath) -> Vec<RootedPath> {
        let mut terms = self.link_terms(path);
        terms.sort_unstable();
        let mut found: Vec<RootedPath> =
            self.with_any(&terms).map(|entry| entry.path.clone()).filter(|from| from != path).collect();
        found.sort();
        found
    }

    fn with_any<'s>(&'s self, terms: &'s [Term]) -> impl Iterator<Item = &'s NoteEntry> {
        self.entries.iter().flatten().filter(|entry| entry.often(terms) > 0)
    }

    /// Returns every link term that leads to this note: the suffixes of its path for which no other note is a closer
    /// match.
    fn link_terms(&self, path: &RootedPath) -> Vec<Term> {
        let folded = fold(without_extension(path.as_str()));
        let starts = std::iter::once(0).chain(folded.match_indices('/').map(|(at, _)| at + 1));
        let ways = starts.filter_map(|start| folded.get(start..)).filter_map(|way| {
            let term = self.words.get(&link_term(way))?;
            (self.named(way).first() == Some(path)).then_some(term)
        });
        ways.collect()
    }

    fn entry(&self, slot: u32) -> Option<&NoteEntry> {
        self.entries.get(slot as usize)?.as_ref()
    }
}

impl NoteEntry {
    /// Returns the total frequency of these terms, which are sorted.
    fn often(&self, terms: &[Term]) -> u32 {
        // Iterates over the shorter of the two lists.
        if terms.len() > self.terms.len() {
            let known = self.terms.iter().filter(|packed| terms.binary_search(&term_of(**packed)).is_ok());
            return known.map(|packed| packed & OFTEN_MAX).sum();
        }
        let often = |term: &Term| {
            let at = self.terms.partition_point(|packed| *packed >> OFTEN_BITS < term.0);
            let packed = self.terms.get(at).filter(|packed| **packed >> OFTEN_BITS == term.0);
            packed.map_or(0, |packed| packed & OFTEN_MAX)
        };
        terms.iter().map(often).sum()
    }
}

/// Returns the score of a note; `None` if it does not match.
fn score(entry: &NoteEntry, meant: &[ResolvedClause<'_>], bm25: &Bm25) -> Option<f64> {
    let mut score = 0.0;
    for meant in meant {
        let often = entry.often(&meant.terms);
        if (often == 0) != meant.clause.excluded {
            return None;
        }
        if often > 0 && meant.clause.is_about_words() {
            let weight = bm25.weight(f64::from(often), f64::from(entry.length));
            score += bm25.rarity(f64::from(meant.notes)) * weight;
        }
    }
    Some(score)
}

fn term_of(packed: u32) -> Term {
    Term(packed >> OFTEN_BITS)
}

/// Collects the terms of a note, repeated by weight, and returns the number of words in its text.
fn analyse(words: &mut Dictionary, scratch: &mut Scratch, path: &RootedPath, text: &str) -> u32 {
    let Scratch { terms, buffer } = scratch;
    terms.clear();
    let mut add = |word: &str, often: u32| {
        let Some(Term(term)) = words.add(word) else { return };
        terms.extend(std::iter::repeat_n(term, often as usize));
    };
    let note = Note::parse(text);
    let mut length: u32 = 0;
    each_word(text, buffer, |word| {
        length = length.saturating_add(1);
        add(word.folded, 1);
    });
    let name = without_extension(path.name().unwrap_or_default());
    each_word(name, buffer, |word| add(word.folded, IN_NAME));
    for title in note.title.iter().chain(&note.aliases) {
        each_word(title, buffer, |word| add(word.folded, IN_TITLE));
    }
    for heading in &note.headings {
        each_word(heading, buffer, |word| add(word.folded, IN_HEADING));
    }
    for tag in &note.tags {
        each_word(tag, buffer, |word| add(word.folded, IN_TAG));
        let folded = fold(tag);
        // A tag `a/b` counts as `a` too.
        let ends = folded.match_indices('/').map(|(at, _)| at).chain([folded.len()]);
        ends.filter_map(|end| folded.get(..end)).for_each(|tag| add(&tag_term(tag), 1));
    }
    note.links.iter().for_each(|target| add(&link_term(target), 1));
    for (key, value) in &note.properties {
        add(&property_term(key, None), 1);
        add(&property_term(key, Some(value)), 1);
    }
    add(&name_term(&fold(name)), 1);
    length
}

/// Counts each term and packs it with its frequency.
fn packed(terms: &mut [u32]) -> Box<[u32]> {
    terms.sort_unstable();
    let counted = terms.chunk_by(|a, b| a == b).filter_map(|same| {
        let often = u32::try_from(same.len()).unwrap_or(OFTEN_MAX).min(OFTEN_MAX);
        same.first().map(|term| term << OFTEN_BITS | often)
    });
    counted.collect()
}

fn tag_term(tag: &str) -> String {
    format!("#{}", fold(tag))
}

fn link_term(target: &str) -> String {
    format!("[{}", fold(target))
}

fn name_term(folded: &str) -> String {
    format!("/{folded}")
}

fn property_term(key: &str, value: Option<&str>) -> String {
    match value {
        None => format!("={}", fold(key)),
        Some(value) => format!("={}={}", fold(key), fold(value)),
    }
}
