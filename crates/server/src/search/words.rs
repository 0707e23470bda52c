//! What the words of a text are, for whoever looks for them.

/// Where a word has this many letters left, an ending may be taken off it.
const STEM_CHARS_MIN: usize = 3;

/// A word as it is written, with what it is made of where that can be seen: `getURLContent`, `e-mail`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) whole: String,
    pub(super) parts: Vec<String>,
}

impl Word {
    fn plain(whole: String) -> Word {
        Word { whole, parts: Vec::new() }
    }

    /// Returns its parts, or itself where it has none.
    pub(super) fn pieces(&self) -> &[String] {
        if self.parts.is_empty() { std::slice::from_ref(&self.whole) } else { &self.parts }
    }
}

/// Splits a text into words, all in small letters. What is written without spaces becomes pairs of letters, which are found
/// in any longer text that holds them in a row.
pub(super) fn words(text: &str) -> Vec<Word> {
    let (mut words, mut run) = (Vec::new(), Vec::new());
    for c in text.chars() {
        let begins_another = run.last().is_some_and(|last| has_no_spaces(*last) != has_no_spaces(c));
        if begins_another || !(is_letter(c) || c == '-') {
            take(&mut run, &mut words);
        }
        // A hyphen belongs to a word only inside of it.
        if is_letter(c) || (c == '-' && run.last().is_some_and(|last| *last != '-')) {
            run.push(c);
        }
    }
    take(&mut run, &mut words);
    words
}

/// Makes words of letters in a row.
fn take(run: &mut Vec<char>, words: &mut Vec<Word>) {
    if run.last() == Some(&'-') {
        run.pop();
    }
    match run.as_slice() {
        [] => {}
        [first, _, ..] if has_no_spaces(*first) => {
            words.extend(run.windows(2).map(|pair| Word::plain(pair.iter().collect())));
        }
        letters => words.push(taken_apart(letters)),
    }
    run.clear();
}

/// Takes a word apart at its hyphens, and where capital letters say so.
fn taken_apart(letters: &[char]) -> Word {
    let (mut whole, mut parts, mut part) = (String::new(), Vec::new(), String::new());
    let mut capitals = 0;
    for (at, c) in letters.iter().enumerate() {
        let before = at.checked_sub(1).map(|before| letters[before]);
        let humps =
            c.is_uppercase() && before.is_some_and(|before| before.is_lowercase() || before.is_numeric());
        let ends_acronym = c.is_uppercase() && capitals > 1 && begins_small_word(&letters[at + 1..]);
        if (*c == '-' || humps || ends_acronym) && !part.is_empty() {
            parts.push(std::mem::take(&mut part));
        }
        capitals = if c.is_uppercase() { capitals + 1 } else { 0 };
        if *c != '-' {
            part.extend(c.to_lowercase());
            whole.extend(c.to_lowercase());
        }
    }
    if !parts.is_empty() {
        parts.push(part);
    }
    Word { whole, parts }
}

/// Returns whether small letters follow that are more than the ending of several: `Content` after `URL`, but not `URLs`.
fn begins_small_word(rest: &[char]) -> bool {
    match rest {
        ['s', after, ..] => after.is_lowercase(),
        ['s'] | [] => false,
        [next, ..] => next.is_lowercase(),
    }
}

fn is_letter(c: char) -> bool {
    c.is_alphanumeric() || has_no_spaces(c)
}

/// Returns whether a letter is of a script that does not set words apart, or sets endings to them: Han, Kana, Hangul, Thai, Lao,
/// Burmese, Khmer.
pub(super) fn has_no_spaces(c: char) -> bool {
    matches!(u32::from(c),
        0x0E01..=0x0E3A | 0x0E40..=0x0E4E | 0x0E81..=0x0ECD | 0x1000..=0x109F | 0x1780..=0x17D3
        | 0x1100..=0x11FF | 0x3130..=0x318F | 0xAC00..=0xD7AF
        | 0x3005..=0x3007 | 0x3041..=0x3096 | 0x309D..=0x309F | 0x30A1..=0x30FA | 0x30FC..=0x30FF
        | 0x31F0..=0x31FF | 0xFF66..=0xFF9D
        | 0x3400..=0x4DBF | 0x4E00..=0x9FFF | 0xF900..=0xFAFF | 0x20000..=0x3FFFF)
}

/// Returns whether a word stands in any text, whatever it is about.
pub(super) fn says_nothing(word: &str) -> bool {
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

/// Returns what the usual forms of an English word have in common: `replies` and `reply`, `creating` and `create`. It is only
/// compared, and need not be a word.
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

/// Takes the ending of several off.
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
        words(text).iter().flat_map(|word| word.pieces().to_vec()).collect::<Vec<_>>().join(" ")
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
        let both = Word { whole: "email".to_owned(), parts: vec!["e".to_owned(), "mail".to_owned()] };
        assert_eq!(words("E-Mail"), [both]);
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
