//! Tokens that can be told by their shape: those of providers that mark what they issue.
//!
//! The list is ours, written from what the providers publish about their tokens. A token is looked for where a word
//! begins inside a long run; three bytes decide whether any shape is tried there.

use super::TokenShapes;
use super::budget::{Budget, OverBudget};
use super::index::{Hit, is_base64};

/// One kind of token.
pub(super) struct Shape {
    /// What the mask says.
    pub(super) name: &'static str,
    /// What a token begins with.
    prefix: &'static str,
    body: Body,
}

/// What follows the prefix.
enum Body {
    /// As many characters of the set, no fewer and, if nothing of the set may follow, no more.
    Of(Set, usize, usize),
    /// The same, whatever follows.
    Exactly(Set, usize),
    Check(fn(&[u8]) -> Option<usize>),
}

#[derive(Clone, Copy)]
enum Set {
    /// Letters and digits.
    Word,
    /// Letters, digits, `-` and `_`.
    Url,
    Hex,
    Upper,
    /// Letters, digits, `-`, `_` and `.`.
    Dotted,
    /// Letters, digits, `+`, `/`, `-`, `_` and `=`.
    Base64,
}

impl Set {
    fn has(self, byte: u8) -> bool {
        match self {
            Set::Word => byte.is_ascii_alphanumeric(),
            Set::Url => byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'),
            Set::Hex => byte.is_ascii_hexdigit(),
            Set::Upper => byte.is_ascii_uppercase() || byte.is_ascii_digit(),
            Set::Dotted => byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'),
            Set::Base64 => is_base64(byte) || byte == b'=',
        }
    }

    fn length(self, bytes: &[u8]) -> usize {
        bytes.iter().take_while(|byte| self.has(**byte)).count()
    }
}

/// No token is longer; what is, is something else.
const TOKEN_BYTES_MAX: usize = 4096;
/// A private key with its frame; those of 8192 bits take 6400 bytes.
const PEM_BYTES_MAX: usize = 16 * 1024;

/// The shortest token of Discord.
const DISCORD_BYTES_MIN: usize = 24 + 1 + 6 + 1 + 27;

const fn shape(name: &'static str, prefix: &'static str, body: Body) -> Shape {
    Shape { name, prefix, body }
}

const fn of(set: Set, min: usize, max: usize) -> Body {
    Body::Of(set, min, max)
}

/// How many of the shapes are our own, and looked for in any case.
pub(super) const OWN: usize = 1;

/// At most 64: a bit for each.
pub(super) const SHAPES: &[Shape] = &[
    // Ours: 32 random bytes.
    shape("CLIENT_TOKEN", "pcl_", Body::Exactly(Set::Url, 43)),
    shape("GITHUB_TOKEN", "ghp_", of(Set::Word, 36, 251)),
    shape("GITHUB_TOKEN", "gho_", of(Set::Word, 36, 251)),
    shape("GITHUB_TOKEN", "ghu_", of(Set::Word, 36, 251)),
    shape("GITHUB_TOKEN", "ghs_", of(Set::Dotted, 36, 1024)),
    shape("GITHUB_TOKEN", "ghr_", of(Set::Word, 36, 251)),
    shape("GITHUB_TOKEN", "github_pat_", of(Set::Url, 60, 251)),
    shape("GITLAB_TOKEN", "glpat-", of(Set::Dotted, 20, 300)),
    shape("GITLAB_TOKEN", "gldt-", of(Set::Dotted, 20, 300)),
    shape("GITLAB_TOKEN", "glrt-", of(Set::Dotted, 20, 300)),
    shape("GITLAB_TOKEN", "glptt-", of(Set::Dotted, 20, 300)),
    shape("GITLAB_TOKEN", "glcbt-", of(Set::Dotted, 20, 300)),
    shape("SLACK_TOKEN", "xox", Body::Check(slack)),
    shape("SLACK_TOKEN", "xapp-", of(Set::Url, 30, 300)),
    shape("AWS_KEY_ID", "AKIA", of(Set::Upper, 16, 16)),
    shape("AWS_KEY_ID", "ASIA", of(Set::Upper, 16, 16)),
    shape("GOOGLE_API_KEY", "AIza", of(Set::Url, 35, 35)),
    shape("GOOGLE_OAUTH_SECRET", "GOCSPX-", of(Set::Url, 28, 28)),
    shape("GOOGLE_OAUTH_TOKEN", "ya29.", of(Set::Url, 30, 2048)),
    shape("STRIPE_KEY", "sk_live_", of(Set::Word, 16, 256)),
    shape("STRIPE_KEY", "rk_live_", of(Set::Word, 16, 256)),
    shape("STRIPE_KEY", "sk_test_", of(Set::Word, 16, 256)),
    shape("STRIPE_WEBHOOK_SECRET", "whsec_", of(Set::Base64, 32, 128)),
    shape("ANTHROPIC_KEY", "sk-ant-", of(Set::Url, 32, 256)),
    shape("OPENROUTER_KEY", "sk-or-v1-", of(Set::Hex, 64, 64)),
    shape("OPENAI_KEY", "sk-proj-", of(Set::Url, 40, 256)),
    shape("OPENAI_KEY", "sk-svcacct-", of(Set::Url, 40, 256)),
    shape("OPENAI_KEY", "sk-", of(Set::Word, 32, 64)),
    shape("NPM_TOKEN", "npm_", of(Set::Word, 36, 36)),
    shape("PYPI_TOKEN", "pypi-AgE", of(Set::Url, 50, 1024)),
    shape("CRATES_IO_TOKEN", "cio", of(Set::Word, 32, 32)),
    shape("RUBYGEMS_KEY", "rubygems_", of(Set::Hex, 48, 48)),
    shape("DOCKER_TOKEN", "dckr_pat_", of(Set::Url, 27, 64)),
    shape("DIGITALOCEAN_TOKEN", "dop_v1_", of(Set::Hex, 64, 64)),
    shape("DATABRICKS_TOKEN", "dapi", of(Set::Hex, 32, 32)),
    shape("HUGGINGFACE_TOKEN", "hf_", of(Set::Word, 34, 40)),
    shape("SENDGRID_KEY", "SG.", Body::Check(sendgrid)),
    shape("SHOPIFY_TOKEN", "shpat_", of(Set::Hex, 32, 32)),
    shape("SHOPIFY_TOKEN", "shpss_", of(Set::Hex, 32, 32)),
    shape("TWILIO_KEY", "SK", of(Set::Hex, 32, 32)),
    shape("MAILGUN_KEY", "key-", of(Set::Hex, 32, 32)),
    shape("LINEAR_KEY", "lin_api_", of(Set::Word, 40, 40)),
    shape("NOTION_TOKEN", "ntn_", of(Set::Word, 40, 50)),
    shape("VAULT_TOKEN", "hvs.", of(Set::Url, 24, 256)),
    shape("TERRAFORM_TOKEN", "atlasv1.", of(Set::Url, 60, 80)),
    shape("GRAFANA_TOKEN", "glsa_", of(Set::Url, 41, 41)),
    shape("ATLASSIAN_TOKEN", "ATATT3", of(Set::Base64, 100, 300)),
    shape("AGE_KEY", "AGE-SECRET-KEY-1", of(Set::Upper, 58, 58)),
    shape("JWT", "eyJ", Body::Check(jwt)),
];

/// The labels that have no prefix to go by, in the order in which they follow those of `SHAPES`.
pub(super) const UNPREFIXED: [&str; 3] = ["TELEGRAM_TOKEN", "DISCORD_TOKEN", "PRIVATE_KEY"];
const TELEGRAM: usize = SHAPES.len();
const DISCORD: usize = SHAPES.len() + 1;
const PRIVATE_KEY: usize = SHAPES.len() + 2;

/// For each byte, the shapes that have it in the first, second and third place.
static PLACES: [[u64; 256]; 3] = {
    let mut places = [[0; 256]; 3];
    let mut number = 0;
    while number < SHAPES.len() {
        let prefix = SHAPES[number].prefix.as_bytes();
        let mut place = 0;
        while place < 3 {
            let mut byte = 0;
            while byte < 256 {
                if place >= prefix.len() || prefix[place] as usize == byte {
                    places[place][byte] |= 1 << number;
                }
                byte += 1;
            }
            place += 1;
        }
        number += 1;
    }
    places
};

const _: () = assert!(SHAPES.len() <= 64);

/// Finds the tokens in a run; those of others only if they are to be masked.
pub(super) fn find(
    text: &[u8],
    start: usize,
    end: usize,
    wanted: TokenShapes,
    hits: &mut Vec<Hit>,
    budget: &mut Budget,
) -> Result<(), OverBudget> {
    let all = wanted == TokenShapes::Mask;
    let mut after = start;
    for (at, three) in (start..).zip(text[start..end].windows(3)) {
        let tried =
            PLACES[0][three[0] as usize] & PLACES[1][three[1] as usize] & PLACES[2][three[2] as usize];
        if tried != 0 && at >= after && (at == after || begins_word(text, at)) {
            let token = &text[at..end.min(at + TOKEN_BYTES_MAX)];
            budget.compare(Set::Dotted.length(token))?;
            if let Some((number, length)) = token_at(token, tried, all) {
                hits.push(hit(at, at + length, number));
                after = at + length;
            }
        }
        if all && three == b":AA" {
            hits.extend(telegram(text, start, at, end));
        }
    }
    if all && end - start >= DISCORD_BYTES_MIN && text[start..end].contains(&b'.') {
        discord(text, start, end, hits);
    }
    Ok(())
}

/// Whether what stands before is not part of the same word; an escape is not.
fn begins_word(text: &[u8], at: usize) -> bool {
    match text[..at] {
        [.., b'\\', b'n' | b'r' | b't' | b'b' | b'f'] => true,
        [.., before] => !before.is_ascii_alphanumeric(),
        [] => true,
    }
}

fn hit(start: usize, end: usize, number: usize) -> Hit {
    Hit { start, end, label: u32::try_from(number).unwrap_or(u32::MAX) }
}

/// Returns which of the tried shapes stands at the beginning, and its length.
fn token_at(text: &[u8], mut tried: u64, all: bool) -> Option<(usize, usize)> {
    while tried != 0 {
        let number = tried.trailing_zeros() as usize;
        tried &= tried - 1;
        let shape = &SHAPES[number];
        if number >= OWN && !all {
            return None;
        }
        let Some(rest) = text.strip_prefix(shape.prefix.as_bytes()) else { continue };
        let length = match shape.body {
            Body::Exactly(set, count) => {
                rest.get(..count).filter(|b| set.length(b) == count).map(<[u8]>::len)
            }
            Body::Of(set, min, max) => {
                let length = set.length(rest);
                ((min..=max).contains(&length) && is_random(&rest[..length])).then_some(length)
            }
            Body::Check(check) => check(rest),
        };
        if let Some(length) = length {
            return Some((number, shape.prefix.len() + length));
        }
    }
    None
}

/// Whether the characters could have been drawn: names are in small letters, and placeholders repeat themselves.
fn is_random(body: &[u8]) -> bool {
    let distinct = body.iter().fold(0_u128, |seen, b| seen | 1 << (b & 127)).count_ones();
    distinct >= 8 && body.iter().any(|b| b.is_ascii_digit() || b.is_ascii_uppercase())
}

/// `xoxb-`, `xoxp-` and their relatives: numbers and a secret, joined by `-`.
fn slack(rest: &[u8]) -> Option<usize> {
    let (kind, rest) = rest.split_first()?;
    let body = rest.strip_prefix(b"-").or(rest.strip_prefix(b"e-")).or(rest.strip_prefix(b"e.xoxp-"))?;
    let length = Set::Dotted.length(body);
    let fits = b"abceoprs".contains(kind) && length >= 20 && is_random(&body[..length]);
    fits.then(|| 1 + rest.len() - body.len() + length)
}

fn sendgrid(rest: &[u8]) -> Option<usize> {
    let (id, key) = rest.split_at_checked(22)?;
    let key = key.strip_prefix(b".")?;
    (Set::Url.length(id) == 22 && Set::Url.length(key) == 43 && is_random(key)).then_some(22 + 1 + 43)
}

/// Three parts, of which the first two are JSON objects: `eyJ` is `{"` in Base64.
fn jwt(rest: &[u8]) -> Option<usize> {
    let head = Set::Url.length(rest);
    let claims = rest.get(head..)?.strip_prefix(b".")?;
    let body = Set::Url.length(claims);
    let signature = claims.get(body..)?.strip_prefix(b".")?;
    let length = Set::Url.length(signature);
    (head >= 12 && body >= 12 && claims.starts_with(b"eyJ") && length >= 16)
        .then_some(head + 1 + body + 1 + length)
}

/// The number of a bot, a colon, and 35 characters that begin with `AA`.
fn telegram(text: &[u8], start: usize, colon: usize, end: usize) -> Option<Hit> {
    let digits = text[start..colon].iter().rev().take_while(|b| b.is_ascii_digit()).count();
    let key = &text[colon + 1..end];
    let fits = (8..=10).contains(&digits) && key.starts_with(b"AA") && Set::Url.length(key) == 35;
    fits.then(|| hit(colon - digits, colon + 1 + 35, TELEGRAM))
}

/// Three parts joined by dots, of which the first is a number in Base64.
fn discord(text: &[u8], start: usize, end: usize, hits: &mut Vec<Hit>) {
    for (at, _) in text[start..end].iter().enumerate().filter(|(_, byte)| **byte == b'.') {
        let dot = start + at;
        let id = text[start..dot].iter().rev().take_while(|b| Set::Word.has(**b)).count();
        // The letter of an escape is not part of it.
        let id = id - usize::from(id > 0 && text[..dot - id].last() == Some(&b'\\'));
        let Some(rest) = text[dot + 1..end].split_at_checked(7) else { continue };
        let key = Set::Url.length(rest.1);
        let shaped = (24..=28).contains(&id) && Set::Url.length(rest.0) == 6 && rest.0[6] == b'.';
        if shaped && (27..=40).contains(&key) && is_number_in_base64(&text[dot - id..dot]) {
            hits.push(hit(dot - id, dot + 1 + 7 + key, DISCORD));
        }
    }
}

fn is_number_in_base64(text: &[u8]) -> bool {
    use base64::Engine;
    let engine = base64::engine::general_purpose::STANDARD_NO_PAD;
    engine.decode(text).is_ok_and(|id| id.len() >= 17 && id.iter().all(u8::is_ascii_digit))
}

/// Finds private keys in their frame. One whose end is missing is masked as far as it goes.
pub(super) fn private_keys(
    text: &[u8],
    marks: impl Iterator<Item = usize>,
    hits: &mut Vec<Hit>,
    budget: &mut Budget,
) -> Result<(), OverBudget> {
    const FRAME: &[u8] = b"PRIVATE KEY";
    const RULE: &[u8] = b"-----";
    // What kind of key it is stands before its mark.
    const HEAD_BYTES_MAX: usize = 128;
    let is = |window: &[u8], text: &[u8]| window.eq_ignore_ascii_case(text);
    let mut at = 0;
    for mark in marks {
        let from = mark.saturating_sub(HEAD_BYTES_MAX).max(at);
        let Some(head) = text.get(from..mark) else { continue };
        let Some(begin) = head.windows(RULE.len() + 5).rposition(|w| is(w, b"-----BEGIN")) else { continue };
        let start = from + begin;
        if head[begin + RULE.len()..].windows(RULE.len()).any(|w| w == RULE) {
            continue;
        }
        let body = &text[mark..text.len().min(start + PEM_BYTES_MAX)];
        budget.compare(body.len())?;
        let end = body.windows(9).position(|w| is(w, b"-----END "));
        let end = end.and_then(|end| {
            let last = body[end + 9..].windows(RULE.len()).position(|w| w == RULE)?;
            Some(end + 9 + last + RULE.len())
        });
        // The words alone, as in a manual, are not a key.
        let key = body.iter().skip(FRAME.len()).take(end.unwrap_or(body.len()));
        if key.filter(|b| Set::Base64.has(**b)).count() < 40 + RULE.len() * 4 {
            continue;
        }
        let end = end.unwrap_or_else(|| {
            let fits =
                |b: &u8| Set::Base64.has(*b) || b.is_ascii_whitespace() || matches!(b, b'\\' | b':' | b',');
            FRAME.len() + body[FRAME.len()..].iter().take_while(|b| fits(b)).count()
        });
        hits.push(hit(start, mark + end, PRIVATE_KEY));
        at = mark + end;
    }
    Ok(())
}

/// What tells that a private key may be there; looked for together with the secrets.
pub(super) const PRIVATE_KEY_MARKS: [&[u8]; 2] = [b"private key-----", b"private key block-----"];
