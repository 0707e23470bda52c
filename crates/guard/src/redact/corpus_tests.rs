//! The corpus of the redaction tests: secrets, the ways they leak, and ordinary text.

use portcullis_core::Secret;
use serde::Deserialize;
use std::fmt::Write;
use std::path::{Path, PathBuf};

#[derive(Deserialize)]
pub(super) struct KnownSecret {
    pub(super) name: String,
    pub(super) value: String,
}

/// A text that holds a secret.
#[derive(Debug, Deserialize, PartialEq)]
pub(super) struct Leak {
    #[serde(rename = "secret")]
    pub(super) name: String,
    pub(super) encoding: String,
    pub(super) tier: Tier,
    pub(super) text: String,
}

#[derive(Debug, Clone, Copy, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
pub(super) enum Tier {
    Must,
    Should,
    DocumentedLimit,
}

/// Reads a file of the shared corpora, which are not in the repository; without them the test says so.
pub(super) fn shared<T: for<'d> Deserialize<'d>>(name: &str) -> Option<Vec<T>> {
    let sibling = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let root = std::env::var_os("PORTCULLIS_SHARED").map_or_else(sibling, PathBuf::from);
    let path = root.join("fixtures/corpora").join(name);
    let Ok(text) = std::fs::read_to_string(&path) else {
        println!("{} is not there; only our own cases are tested", path.display());
        return None;
    };
    let lines: Vec<T> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(!lines.is_empty());
    Some(lines)
}

pub(super) fn secrets(known: &[KnownSecret]) -> Vec<(String, Secret<String>)> {
    known.iter().map(|known| (known.name.clone(), Secret::new(known.value.clone()))).collect()
}

/// A deterministic pseudo-random generator.
pub(super) struct SeededRandom(pub(super) u64);

impl SeededRandom {
    pub(super) fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % sides as u64).unwrap()
    }

    pub(super) fn text(&mut self, alphabet: &str, length: usize) -> String {
        let alphabet: Vec<char> = alphabet.chars().collect();
        (0..length).map(|_| alphabet[self.roll(alphabet.len())]).collect()
    }
}

pub(super) const WORD: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

/// Secrets of many kinds, none real.
pub(super) fn own_secrets() -> Vec<KnownSecret> {
    let mut dice = SeededRandom(0x5EED_5EED_5EED);
    let mut known = Vec::new();
    let mut add = |name: &str, value: String| known.push(KnownSecret { name: name.to_owned(), value });
    add("SHORT", dice.text(WORD, 8));
    add("WORD", dice.text(WORD, 40));
    add("HEX", dice.text("0123456789abcdef", 64));
    add("DIGITS", dice.text("0123456789", 16));
    add("PHRASE", "seven quiet badgers walk Home 4417".to_owned());
    add("MARKS", format!("<{}>&\"'/{}\\", dice.text(WORD, 6), dice.text(WORD, 6)));
    add("BASE64", format!("{}+/{}==", dice.text(WORD, 20), dice.text(WORD, 20)));
    add("UMLAUTS", format!("größe-{}-ключ", dice.text(WORD, 8)));
    add("LINES", format!("{}\n{}", dice.text(WORD, 30), dice.text(WORD, 30)));
    add("URL", format!("https://me:{}@host.example/a?b=c", dice.text(WORD, 16)));
    add("LONG", dice.text(WORD, 3000));
    known
}

/// As many secrets as a busy hub has.
pub(super) fn hundred_secrets() -> Vec<KnownSecret> {
    let mut dice = SeededRandom(0xD1CE);
    let kinds = ["", "ghp_", "sk-", "xoxb-", "0x"];
    let value =
        |n: usize, dice: &mut SeededRandom| format!("{}{}", kinds[n % 5], dice.text(WORD, 16 + n % 48));
    (0..100).map(|n| KnownSecret { name: format!("SECRET_{n}"), value: value(n, &mut dice) }).collect()
}

/// Writes every secret in every known form.
pub(super) fn own_leaks(known: &[KnownSecret]) -> Vec<Leak> {
    let mut leaks = Vec::new();
    for known in known {
        for (encoding, tier, write) in WAYS {
            let (name, encoding) = (known.name.clone(), (*encoding).to_owned());
            let text = write(&known.value);
            if !text.is_empty() {
                leaks.push(Leak { name, encoding, tier: *tier, text });
            }
        }
    }
    leaks
}

type Way = (&'static str, Tier, fn(&str) -> String);

const WAYS: &[Way] = &[
    ("plain", Tier::Must, |v| v.to_owned()),
    ("lower", Tier::Must, str::to_lowercase),
    ("upper", Tier::Must, str::to_uppercase),
    ("json", Tier::Must, json),
    ("json in json", Tier::Must, |v| json(&json(v))),
    ("json key", Tier::Must, |v| format!("{{\"{}\": 1}}", json(v))),
    ("json slash", Tier::Must, |v| json(v).replace('/', "\\/")),
    ("json \\u", Tier::Must, |v| v.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect()),
    ("json \\U", Tier::Must, |v| v.encode_utf16().map(|unit| format!("\\u{unit:04X}")).collect()),
    ("html", Tier::Must, html),
    ("html decimal", Tier::Must, |v| v.chars().map(|c| format!("&#{};", c as u32)).collect()),
    ("html hex", Tier::Must, |v| v.chars().map(|c| format!("&#x{:X};", c as u32)).collect()),
    ("url", Tier::Must, |v| url(v, "-._~")),
    ("url with /", Tier::Must, |v| url(v, "-._~/")),
    ("url small", Tier::Must, |v| url(v, "-._~").chars().map(|c| c.to_ascii_lowercase()).collect()),
    ("url all", Tier::Must, |v| v.bytes().map(|b| format!("%{b:02x}")).collect()),
    ("url twice", Tier::Must, |v| url(&url(v, "-._~"), "-._~")),
    ("form", Tier::Must, |v| url(v, "-._~ ").replace(' ', "+")),
    ("hex", Tier::Must, |v| hex(v, "")),
    ("HEX", Tier::Must, |v| hex(v, "").to_uppercase()),
    ("\\x", Tier::Must, |v| v.bytes().map(|b| format!("\\x{b:02x}")).collect()),
    ("base64", Tier::Must, |v| base64(v.as_bytes())),
    ("base64 1", Tier::Must, |v| base64(format!("x{v}yy").as_bytes())),
    ("base64 2", Tier::Must, |v| base64(format!("xx{v}y").as_bytes())),
    ("base64 in bytes", Tier::Must, |v| base64(&[&[0xFF, 0xD8, 0x80], v.as_bytes(), &[0xFE; 4]].concat())),
    ("base64 url", Tier::Must, |v| base64(v.as_bytes()).replace('+', "-").replace('/', "_")),
    ("base64 wrapped", Tier::Must, |v| wrapped(&base64(v.as_bytes()), 76)),
    ("base64 wrapped 64", Tier::Must, |v| wrapped(&base64(format!("user:{v}").as_bytes()), 64)),
    ("base64 twice", Tier::Must, |v| base64(base64(v.as_bytes()).as_bytes())),
    ("base64 thrice", Tier::Must, |v| base64(base64(base64(v.as_bytes()).as_bytes()).as_bytes())),
    ("hex of base64", Tier::Must, |v| hex(&base64(v.as_bytes()), "")),
    ("base64 of hex", Tier::Must, |v| base64(hex(v, "").as_bytes())),
    ("base64 of json", Tier::Must, |v| base64(format!("{{\"password\":\"{}\"}}", json(v)).as_bytes())),
    ("url of base64", Tier::Must, |v| url(&base64(v.as_bytes()), "")),
    ("json of url of base64", Tier::Must, |v| json(&url(&base64(format!("a:{v}").as_bytes()), ""))),
    ("in a url", Tier::Must, |v| format!("git clone https://x:{}@host/r.git", url(v, "-._~"))),
    ("base32", Tier::Must, |v| base32(v.as_bytes())),
    ("base32 small", Tier::Must, |v| base32(v.as_bytes()).to_lowercase()),
    ("base32 1", Tier::Must, |v| base32(format!("x{v}y").as_bytes())),
    ("base32 2", Tier::Must, |v| base32(format!("xx{v}").as_bytes()).to_lowercase()),
    ("base32 3", Tier::Must, |v| base32(format!("xxx{v}y").as_bytes())),
    ("base32 4", Tier::Must, |v| base32(format!("xxxx{v}").as_bytes()).to_lowercase()),
    ("base58", Tier::Must, |v| base58(v.as_bytes())),
    ("base58 of base64", Tier::Must, |v| base58(base64(v.as_bytes()).as_bytes())),
    ("base64 of base58", Tier::Must, |v| base64(base58(v.as_bytes()).as_bytes())),
    ("ascii85", Tier::Should, |v| base85(v.as_bytes(), false)),
    ("base85", Tier::Must, |v| base85(v.as_bytes(), true)),
    ("ascii85 1", Tier::Should, |v| base85(format!("x{v}").as_bytes(), false)),
    ("base85 2", Tier::Should, |v| base85(format!("xx{v}").as_bytes(), true)),
    ("ascii85 3", Tier::Should, |v| base85(format!("xxx{v}").as_bytes(), false)),
    ("base85 of base64", Tier::Should, |v| base85(base64(v.as_bytes()).as_bytes(), true)),
    ("shell", Tier::Must, |v| format!("'{}'", v.replace('\'', r"'\''"))),
    ("shell \"", Tier::Must, |v| format!("'{}'", v.replace('\'', r#"'"'"'"#))),
    ("shell \\", Tier::Must, shell),
    ("sql", Tier::Must, |v| format!("'{}'", v.replace('\'', "''"))),
    ("csv", Tier::Must, |v| format!("\"{}\"", v.replace('"', "\"\""))),
    ("gzip", Tier::Must, |v| base64(&gzip(v.as_bytes()))),
    ("gzip of json", Tier::Must, |v| base64(&gzip(format!("{{\"password\":\"{}\"}}", json(v)).as_bytes()))),
    ("zlib", Tier::Must, |v| base64(&zlib(v.as_bytes()))),
    ("zlib in hex", Tier::Must, |v| zlib(v.as_bytes()).iter().map(|b| format!("{b:02x}")).collect()),
    ("deflate", Tier::Should, |v| base64(&deflate(v.as_bytes()))),
    ("spelled", Tier::Must, |v| apart(v, 1, " ")),
    ("spelled -", Tier::Must, |v| apart(v, 1, "-")),
    ("in pairs", Tier::Must, |v| apart(v, 2, " ")),
    ("in threes", Tier::Must, |v| apart(v, 3, "-")),
    ("in fours", Tier::Must, |v| apart(v, 4, " ")),
    ("in fours -", Tier::Must, |v| apart(v, 4, "-")),
    ("in eights", Tier::Must, |v| apart(v, 8, "-")),
    ("hex :", Tier::Should, |v| hex(v, ":")),
    ("hex space", Tier::Should, |v| hex(v, " ")),
    ("0x", Tier::DocumentedLimit, |v| format!("0x{}", hex(v, ", 0x"))),
    ("codes", Tier::Should, |v| format!("{:?}", v.chars().map(|c| c as u32).collect::<Vec<_>>())),
    ("bytes", Tier::Should, |v| format!("{:?}", v.as_bytes())),
    ("octal", Tier::Should, |v| v.bytes().map(|b| format!("\\{b:03o}")).collect()),
    ("lines", Tier::Should, |v| wrapped(v, 12)),
    ("hidden", Tier::Should, |v| v.chars().map(|c| format!("{c}\u{200b}")).collect()),
    ("wide", Tier::Should, |v| {
        v.chars().map(|c| if ('!'..='~').contains(&c) { wide(c) } else { c }).collect()
    }),
    ("utf-16", Tier::Should, |v| base64(&v.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<_>>())),
    ("reversed", Tier::Should, |v| v.chars().rev().collect()),
    ("rot13", Tier::Should, |v| v.chars().map(rot13).collect()),
    ("half", Tier::DocumentedLimit, |v| v.chars().take(v.chars().count() / 2).collect()),
];

fn json(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

fn html(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&quot;").replace('\'', "&#39;")
}

fn url(text: &str, plain: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        let c = char::from(byte);
        if c.is_ascii_alphanumeric() || plain.contains(c) {
            out.push(c);
        } else {
            write!(out, "%{byte:02X}").unwrap();
        }
        out
    })
}

fn hex(text: &str, between: &str) -> String {
    text.bytes().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(between)
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

fn base32(bytes: &[u8]) -> String {
    let bits: String = bytes.iter().map(|byte| format!("{byte:08b}")).collect();
    let digit = |group: &[u8]| {
        let number =
            group.iter().chain(b"0000").take(5).fold(0, |number, bit| number * 2 + usize::from(bit - b'0'));
        char::from(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"[number])
    };
    let text: String = bits.as_bytes().chunks(5).map(digit).collect();
    format!("{text}{}", "=".repeat(text.len().next_multiple_of(8) - text.len()))
}

/// Empty for long input, because the conversion is quadratic.
fn base58(bytes: &[u8]) -> String {
    if bytes.len() > 192 {
        return String::new();
    }
    let mut digits: Vec<u32> = Vec::new();
    for byte in bytes {
        let mut carry = u32::from(*byte);
        for digit in &mut digits {
            carry += *digit * 256;
            (*digit, carry) = (carry % 58, carry / 58);
        }
        while carry > 0 {
            digits.push(carry % 58);
            carry /= 58;
        }
    }
    let alphabet = b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
    digits.iter().rev().map(|digit| char::from(alphabet[*digit as usize])).collect()
}

/// In Python's or Adobe's alphabet.
fn base85(bytes: &[u8], python: bool) -> String {
    let alphabet = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";
    let mut text = String::new();
    for group in bytes.chunks(4) {
        let number =
            group.iter().chain(&[0; 3]).take(4).fold(0_u32, |number, byte| number << 8 | u32::from(*byte));
        let digit = |place: u32| (number / 85_u32.pow(4 - place) % 85) as u8;
        let shown = |digit: u8| char::from(if python { alphabet[digit as usize] } else { b'!' + digit });
        text.extend((0..=group.len() as u32).map(|place| shown(digit(place))));
    }
    text
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

pub(super) fn gzip_in_base64(bytes: &[u8]) -> String {
    base64(&gzip(bytes))
}

fn zlib(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut out = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

fn deflate(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut out = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

/// As `printf %q` writes it.
fn shell(text: &str) -> String {
    let quoted = |c: char| if c.is_ascii_punctuation() || c == ' ' { format!("\\{c}") } else { c.into() };
    if text.contains('\n') {
        return format!("$'{}'", text.replace('\\', "\\\\").replace('\'', "\\'").replace('\n', "\\n"));
    }
    text.chars().map(quoted).collect()
}

fn apart(text: &str, length: usize, between: &str) -> String {
    let characters: Vec<char> = text.chars().collect();
    let groups = characters.chunks(length).map(|group| group.iter().collect::<String>());
    groups.collect::<Vec<_>>().join(between)
}

fn wrapped(text: &str, width: usize) -> String {
    let characters: Vec<char> = text.chars().collect();
    characters.chunks(width).map(|line| line.iter().collect::<String>() + "\n").collect()
}

fn wide(character: char) -> char {
    char::from_u32(character as u32 + 0xFEE0).unwrap()
}

fn rot13(character: char) -> char {
    match character {
        'a'..='m' | 'A'..='M' => char::from(character as u8 + 13),
        'n'..='z' | 'N'..='Z' => char::from(character as u8 - 13),
        other => other,
    }
}

/// Minimum size of the ordinary text.
pub(super) const ORDINARY_BYTES: usize = 1 << 20;

/// Text without secrets: code and documents of this repository, and generated prose up to a mebibyte of each.
pub(super) fn ordinary() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    collect(&root, &mut files);
    files.push(("prose".to_owned(), prose(ORDINARY_BYTES, 8)));
    files
}

fn collect(dir: &Path, files: &mut Vec<(String, String)>) {
    let mut entries: Vec<_> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        // Tests hold tokens on purpose.
        if name.starts_with('.') || name.contains("test") || name == "target" {
            continue;
        }
        let kind = path.extension().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            collect(&path, files);
        } else if ["rs", "md", "toml", "lock", "json", "snap"].contains(&kind.as_str())
            && let Ok(text) = std::fs::read_to_string(&path)
        {
            files.push((path.display().to_string(), text));
        }
    }
}

/// Sentences of ordinary words; one in `one_in` holds something token-like that occurs in ordinary results.
pub(super) fn prose(bytes: usize, one_in: usize) -> String {
    const WORDS: &str = "the of and to in is that for it was on are as with his they at be this from have or by one \
        had not but what all were when we there can an your which their said if do will each about how up out them \
        then she many some so these would other into has more her two like him see time could no make than first \
        been its who now people my made over did down only way find use may water long little very after words \
        called just where most know password token secret key authorization bearer configuration";
    const ASIDES: &[&str] = &[
        "https://docs.example.org/reference/configuration.html#redaction",
        "crates/guard/src/redact/index_of_many_literals.rs",
        "2026-03-14T15:09:26Z",
        "3.14159, 2.71828, 1.41421",
        "550e8400-e29b-41d4-a716-446655440000",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "fn scrub_in_place(&mut self, text: &mut String) {",
        "if a && b || c % 2 == 0 { \"\\n\" }",
        "192.168.0.1:8080",
        "naïve café",
        "| 10 | 20 | 30 | 40 | 50 | 60 | 70 | 80 | 90 |",
        "task-based risk-free sk-learn desk-top",
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk",
        "A1B2:C3D4, 00:1A:2B:3C:4D:5E",
        "internationalization",
        "AT&T; R&D &amp; 100%",
    ];
    let words: Vec<&str> = WORDS.split_whitespace().collect();
    let (mut dice, mut text) = (SeededRandom(0xBEEF), String::new());
    while text.len() < bytes {
        for _ in 0..6 + dice.roll(12) {
            text.push_str(words[dice.roll(words.len())]);
            text.push(' ');
        }
        if one_in > 0 && dice.roll(one_in) == 0 {
            text.push_str(ASIDES[dice.roll(ASIDES.len())]);
        }
        text.push_str(if dice.roll(5) == 0 { ".\n\n" } else { ". " });
    }
    text
}
