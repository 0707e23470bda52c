//! From a query to what a caller reads.

use super::excerpt::{self, Wanted};
use super::note::{Note, without_extension};
use super::notes::{Found, Notes};
use super::place::Place;
use super::query::Query;
use portcullis_core::root::{RootError, RootedPath};
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;

/// How many notes are read to see whether words stand together. Best first, so the rest is what fits worst.
const READ_MAX: usize = 2_000;
/// How much of a title is shown.
const TITLE_CHARS_MAX: usize = 200;

#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub(super) struct Excerpt {
    /// Number of the line, counted from 1.
    line: usize,
    /// The line, or the part of a long one around the word.
    text: String,
}

pub(super) struct Hit {
    pub(super) path: RootedPath,
    pub(super) title: String,
    pub(super) score: f64,
    pub(super) excerpts: Vec<Excerpt>,
}

pub(super) struct Hits {
    pub(super) hits: Vec<Hit>,
    pub(super) total: usize,
    pub(super) notices: Vec<String>,
}

/// Searches, and reads as many notes as are shown. What a note says now decides, not what the index remembers.
pub(super) fn run(notes: &Arc<Notes>, query: &Query, limit: usize) -> Hits {
    let Found { ranked, unknown, incomplete } = notes.find(query);
    let mut notices: Vec<String> = incomplete.map(str::to_owned).into_iter().collect();
    if !unknown.is_empty() {
        let quoted: Vec<String> = unknown.iter().map(|word| format!("`{word}`")).collect();
        notices.push(format!("no note has {}; `begin*` finds longer words", quoted.join(" or ")));
    }
    let wanted = Wanted::of(query);
    let (mut hits, mut total) = (Vec::new(), ranked.len());
    for (count, found) in ranked.into_iter().enumerate() {
        if hits.len() == limit {
            break;
        }
        if count == READ_MAX {
            notices.push(format!("only the best {READ_MAX} notes with these words were read; add a word"));
            break;
        }
        let Some(place) = Place::of(found.path.clone()) else { continue };
        match notes.text(&place) {
            Ok(text) if fits(&text, &found.path, query) => {
                let note = Note::parse(&text);
                let excerpts = excerpt::lines(&text, note.body, &wanted);
                let excerpts =
                    excerpts.into_iter().map(|line| Excerpt { line: line.number, text: line.text });
                let title = note.title.unwrap_or_else(|| name(&found.path).to_owned());
                let title = title.chars().take(TITLE_CHARS_MAX).collect();
                hits.push(Hit { path: found.path, title, score: found.score, excerpts: excerpts.collect() });
            }
            // The words do not stand together, here.
            Ok(_) => total -= 1,
            // It went since it was indexed.
            Err(RootError::NotFound) => {
                notes.look_at(&found.path);
                total -= 1;
            }
            // It cannot be read now, but its name is worth knowing.
            Err(_) => {
                let title = name(&found.path).to_owned();
                hits.push(Hit { path: found.path, title, score: found.score, excerpts: Vec::new() });
            }
        }
    }
    Hits { hits, total, notices }
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
