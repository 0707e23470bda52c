//! The forms in which secrets leak: the shared corpus where it is there, a few of our own where it is not.

use crate::support::corpus;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use data_encoding::HEXLOWER;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeakTier {
    Must,
    Should,
}

/// A text that a secret stands in.
pub(super) struct LeakCase {
    pub(super) name: String,
    pub(super) encoding: String,
    pub(super) tier: LeakTier,
    pub(super) text: String,
}

/// How long the name of a file can be on any file system.
const NAME_BYTES_MAX: usize = 200;

impl LeakCase {
    pub(super) fn is_file_name(&self) -> bool {
        let visible = |c: char| {
            !c.is_control() && !portcullis_core::hidden_chars::is_invisible(c) && !"/\\".contains(c)
        };
        self.text.len() <= NAME_BYTES_MAX && self.text.trim() == self.text && self.text.chars().all(visible)
    }
}

const OWN: [(&str, &str); 3] = [
    ("WORDS", "seven quiet badgers walk Home 4417"),
    ("MARKS", "<q8Zr\"T/'x\\Lm>&%2"),
    ("TOKEN", "k3yNp0sT9vWb2XcQ7rJdHf5MzGa8LuEi"),
];

/// The secrets by name.
pub(super) fn secrets() -> Vec<(String, String)> {
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    match corpus("secrets.jsonl") {
        Some(lines) => lines.iter().map(|line| (text(&line["name"]), text(&line["value"]))).collect(),
        None => OWN.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(),
    }
}

/// Every form that must or should be caught.
pub(super) fn leaks() -> Vec<LeakCase> {
    let Some(lines) = corpus("secret_leaks.jsonl") else { return own() };
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let leak = |line: &serde_json::Value| {
        let tier = match line["tier"].as_str().unwrap() {
            "must" => LeakTier::Must,
            "should" => LeakTier::Should,
            _ => return None,
        };
        let (name, encoding, text) = (text(&line["secret"]), text(&line["encoding"]), text(&line["text"]));
        Some(LeakCase { name, encoding, tier, text })
    };
    lines.iter().filter_map(leak).collect()
}

fn own() -> Vec<LeakCase> {
    type Form = (&'static str, LeakTier, fn(&str) -> String);
    let forms: [Form; 5] = [
        ("plain", LeakTier::Must, str::to_owned),
        ("upper", LeakTier::Must, str::to_uppercase),
        ("hex", LeakTier::Must, |text| HEXLOWER.encode(text.as_bytes())),
        ("base64", LeakTier::Must, |text| STANDARD.encode(text)),
        ("zwsp", LeakTier::Should, |text| text.chars().map(|c| format!("{c}\u{200b}")).collect()),
    ];
    let write = |(name, value): (&str, &str), (encoding, tier, form): &Form| LeakCase {
        name: name.to_owned(),
        encoding: (*encoding).to_owned(),
        tier: *tier,
        text: form(value),
    };
    OWN.into_iter().flat_map(|secret| forms.iter().map(move |form| write(secret, form))).collect()
}
