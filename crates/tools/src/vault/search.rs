//! Runs a search: ranking, phrase check, excerpts.

use super::excerpt::{self, ExcerptTerms};
use super::note::{Note, without_extension};
use super::note_store::{NoteStore, RankedNotes};
use super::query::Query;
use super::vault_path::VaultPath;
use portcullis_core::root::{RootError, RootedPath};
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;

/// Notes that are read to check phrases. Best first, so the rest matches worst.
const READ_MAX: usize = 2_000;
/// Length of a title.
const TITLE_CHARS_MAX: usize = 200;

#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub(super) struct Excerpt {
    /// Number of the line, counted from 1.
    line: usize,
    /// The line, or the part of a long one around the word.
    text: String,
}

pub(super) struct SearchHit {
    pub(super) path: RootedPath,
    pub(super) title: String,
    pub(super) score: f64,
    pub(super) excerpts: Vec<Excerpt>,
}

pub(super) struct SearchHits {
    pub(super) hits: Vec<SearchHit>,
    pub(super) total: usize,
    pub(super) notices: Vec<String>,
}

/// Searches, and reads the notes that are shown. Their current text decides, not the index.
pub(super) fn run(notes: &Arc<NoteStore>, query: &Query, limit: usize) -> SearchHits {
    let RankedNotes { ranked, unknown, incomplete } = notes.find(query);
    let mut notices: Vec<String> = incomplete.map(str::to_owned).into_iter().collect();
    if !unknown.is_empty() {
        let quoted: Vec<String> = unknown.iter().map(|word| format!("`{word}`")).collect();
        notices.push(format!("no note has {}; `begin*` finds longer words", quoted.join(" or ")));
    }
    let wanted = ExcerptTerms::of(query);
    let (mut hits, mut total) = (Vec::new(), ranked.len());
    for (count, found) in ranked.into_iter().enumerate() {
        if hits.len() == limit {
            break;
        }
        if count == READ_MAX {
            notices.push(format!("only the best {READ_MAX} notes with these words were read; add a word"));
            break;
        }
        let Some(place) = VaultPath::of(found.path.clone()) else { continue };
        match notes.text(&place) {
            Ok(text) if fits(&text, &found.path, query) => {
                let note = Note::parse(&text);
                let excerpts = excerpt::lines(&text, note.body, &wanted);
                let excerpts =
                    excerpts.into_iter().map(|line| Excerpt { line: line.number, text: line.text });
                let title = note.title.unwrap_or_else(|| name(&found.path).to_owned());
                let title = title.chars().take(TITLE_CHARS_MAX).collect();
                hits.push(SearchHit {
                    path: found.path,
                    title,
                    score: found.score,
                    excerpts: excerpts.collect(),
                });
            }
            // The note has the words, but not the phrase.
            Ok(_) => total -= 1,
            // Removed since it was indexed.
            Err(RootError::NotFound) => {
                notes.reindex_path(&found.path);
                total -= 1;
            }
            // Not readable at the moment, but its name is useful.
            Err(_) => {
                let title = name(&found.path).to_owned();
                hits.push(SearchHit { path: found.path, title, score: found.score, excerpts: Vec::new() });
            }
        }
    }
    SearchHits { hits, total, notices }
}

fn fits(text: &str, path: &RootedPath, query: &Query) -> bool {
    query.phrases().all(|(phrase, excluded)| {
        let there = excerpt::has_phrase(text, phrase) || excerpt::has_phrase(name(path), phrase);
        there != excluded
    })
}

fn name(path: &RootedPath) -> &str {
    without_extension(path.name().unwrap_or_default())
}
