//! The tokenizer of the tool search, with compounds, stop words and a stemmer.
//!
//! Names of tools are compounds (`getURLContent`), and their descriptions are mostly English, so their words are taken
//! apart and compared by their stems. Accents count.

use portcullis_text::{Folding, Hangul, Hyphens, Tokenizer, UnspacedTerms};

const TOKENIZER: Tokenizer = Tokenizer {
    folding: Folding::Case,
    unspaced: UnspacedTerms::Pairs,
    hangul: Hangul::Unspaced,
    hyphens: Hyphens::Join,
    // What is indexed of a tool has a bound of its own, and so has a query.
    term_bytes_max: usize::MAX,
};

/// A suffix is removed only if this many letters remain.
const STEM_CHARS_MIN: usize = 3;

/// A word, with its parts if it is a compound: `getURLContent`, `e-mail`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SearchTerm {
    pub(super) whole: String,
    pub(super) parts: Vec<String>,
}

impl SearchTerm {
    /// Returns the parts, or the word itself if it has none.
    pub(super) fn pieces(&self) -> &[String] {
        if self.parts.is_empty() { std::slice::from_ref(&self.whole) } else { &self.parts }
    }
}

/// Splits a text into lower-case words. Scripts without spaces become pairs of characters (bigrams), which match in
/// any longer text.
pub(super) fn tokenize(text: &str) -> Vec<SearchTerm> {
    let mut words = Vec::new();
    TOKENIZER.each(text, &mut String::new(), |token| {
        words.push(SearchTerm { whole: token.folded.to_owned(), parts: parts(token.written) });
    });
    words
}

/// Splits a word at hyphens and camel case. Returns nothing if it is not a compound.
fn parts(word: &str) -> Vec<String> {
    let letters: Vec<char> = word.chars().collect();
    let (mut parts, mut part, mut capitals) = (Vec::new(), String::new(), 0);
    for (at, c) in letters.iter().enumerate() {
        let before = at.checked_sub(1).map(|before| letters[before]);
        let humps =
            c.is_uppercase() && before.is_some_and(|before| before.is_lowercase() || before.is_numeric());
        let ends_acronym = c.is_uppercase() && capitals > 1 && begins_small_word(&letters[at + 1..]);
        if (*c == '-' || humps || ends_acronym) && !part.is_empty() {
            parts.push(std::mem::take(&mut part));
        }
        capitals = if c.is_uppercase() { capitals + 1 } else { 0 };
        part.extend(c.to_lowercase().filter(|c| c.is_alphanumeric()));
    }
    if !parts.is_empty() && !part.is_empty() {
        parts.push(part);
    }
    parts
}

/// Returns whether lower-case letters follow that are more than a plural `s`: `Content` after `URL`, but not `URLs`.
fn begins_small_word(rest: &[char]) -> bool {
    match rest {
        ['s', after, ..] => after.is_lowercase(),
        ['s'] | [] => false,
        [next, ..] => next.is_lowercase(),
    }
}

/// Returns whether a character is of a script without spaces between words, or with attached particles: Han, Kana,
/// Hangul, Thai, Lao, Burmese, Khmer.
pub(super) fn is_unsegmented_script(c: char) -> bool {
    TOKENIZER.is_unspaced(c)
}

/// Returns whether a word is too common to be useful.
pub(super) fn is_stop_word(word: &str) -> bool {
    matches!(
        word,
        "a" | "about"
            | "all"
            | "am"
            | "an"
            | "and"
            | "any"
            | "are"
            | "as"
            | "at"
            | "be"
            | "been"
            | "but"
            | "by"
            | "can"
            | "could"
            | "did"
            | "do"
            | "does"
            | "for"
            | "from"
            | "had"
            | "has"
            | "have"
            | "how"
            | "i"
            | "if"
            | "in"
            | "into"
            | "is"
            | "it"
            | "its"
            | "just"
            | "me"
            | "my"
            | "no"
            | "not"
            | "of"
            | "on"
            | "or"
            | "our"
            | "please"
            | "s"
            | "should"
            | "so"
            | "some"
            | "somebody"
            | "someone"
            | "something"
            | "such"
            | "t"
            | "than"
            | "that"
            | "the"
            | "their"
            | "them"
            | "then"
            | "there"
            | "these"
            | "they"
            | "this"
            | "those"
            | "to"
            | "tool"
            | "tools"
            | "us"
            | "use"
            | "used"
            | "uses"
            | "using"
            | "via"
            | "want"
            | "was"
            | "we"
            | "were"
            | "what"
            | "when"
            | "where"
            | "whether"
            | "which"
            | "who"
            | "will"
            | "with"
            | "would"
            | "you"
            | "your"
    )
}

/// Returns the stem of an English word: `replies` and `reply`, `creating` and `create`. Stems are only compared, and
/// need not be words.
pub(super) fn stem(word: &str) -> String {
    if word.len() <= STEM_CHARS_MIN || !word.bytes().all(|byte| byte.is_ascii_lowercase()) {
        return word.to_owned();
    }
    let mut stem = singular(word);
    for ending in ["ing", "ed", "ion"] {
        if let Some(rest) = stem.strip_suffix(ending)
            && rest.len() >= STEM_CHARS_MIN
            && rest.bytes().any(|byte| b"aeiouy".contains(&byte))
        {
            stem = rest;
            // `running`, but not `calling`.
            if let [.., one, other] = rest.as_bytes()
                && one == other
                && !b"aeioulsz".contains(one)
            {
                stem = &rest[..rest.len() - 1];
            }
            break;
        }
    }
    let is_long = stem.len() > STEM_CHARS_MIN;
    match stem.strip_suffix("ie").or_else(|| stem.strip_suffix(['i', 'y'])) {
        Some(rest) if is_long => format!("{rest}y"),
        _ if is_long => stem.strip_suffix('e').unwrap_or(stem).to_owned(),
        _ => stem.to_owned(),
    }
}

/// Removes a plural suffix.
fn singular(word: &str) -> &str {
    if let Some(rest) = word.strip_suffix("es")
        && rest.len() >= STEM_CHARS_MIN
        && ["s", "x", "z", "ch", "sh"].iter().any(|hissing| rest.ends_with(hissing))
    {
        return rest;
    }
    match word.strip_suffix('s') {
        Some(rest) if !rest.ends_with(['s', 'u', 'i']) || rest.ends_with("api") => rest,
        _ => word,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(text: &str) -> String {
        tokenize(text).iter().flat_map(|word| word.pieces().to_vec()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn words_are_split_where_people_see_them() {
        for (text, expected) in [
            ("github_createIssue v2: Öffnet", "github create issue v2 öffnet"),
            ("getURLContent HTTPServer", "get url content http server"),
            ("PRs and URLs, OAuth2", "prs and urls oauth2"),
            ("an e-mail -- read-only-", "an e mail read only"),
            ("—", ""),
        ] {
            assert_eq!(pieces(text), expected);
        }
        let both = SearchTerm { whole: "email".to_owned(), parts: vec!["e".to_owned(), "mail".to_owned()] };
        assert_eq!(tokenize("E-Mail"), [both]);
    }

    #[test]
    fn what_is_written_without_spaces_is_found_by_any_part() {
        assert_eq!(pieces("的天气预报, MCP服务器"), "的天 天气 气预 预报 mcp 服务 务器");
        assert_eq!(pieces("天気を調べる"), "天気 気を を調 調べ べる");
        assert_eq!(pieces("날씨를 雨"), "날씨 씨를 雨");
        assert!(pieces("พยากรณ์อากาศ").contains("อา"));
    }

    #[test]
    fn forms_of_a_word_have_one_stem() {
        for forms in [
            "reply replies replied",
            "entity entities",
            "create creates created creating creation",
            "search searches searching",
            "issue issues",
            "run runs running",
            "file files filing",
            "movie movies",
            "database databases",
            "call calls calling",
            "api apis",
            "box boxes",
            "delete deletes deletion",
            "address addresses",
            "cache caches cached",
            "status",
            "string strings",
        ] {
            let stems: Vec<String> = forms.split(' ').map(stem).collect();
            assert!(stems.iter().all(|stem| *stem == stems[0]), "{forms}: {stems:?}");
        }
        assert_ne!(stem("news"), stem("newer"));
        assert_eq!(stem("öffnet"), "öffnet");
    }
}
