//! Full-text search: what the vault search and the tool search share.
//!
//! The [`Tokenizer`] splits a text into words and folds them; its fields are what the two do differently on purpose.
//! [`Bm25`] is the ranking formula. The indexes are not here: the vault's is incremental and compact, for a hundred
//! thousand notes, and the tool search builds a small one for each query. Nor are stop words and the stemmer, which are
//! for English tool descriptions; notes are in any language, and a person searches them for the words as written.

mod bm25;
mod folding;
mod nearest;
mod tokenizer;

pub use bm25::Bm25;
pub use folding::Folding;
pub use nearest::nearest_names;
pub use tokenizer::{Hangul, Hyphens, TextToken, Tokenizer, UnspacedTerms};
