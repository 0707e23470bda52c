//! The attack: redaction as an oracle. A client reads back guesses of a weak secret and sees which one is masked.

use super::encoded_forms::forms_by_kind;
use super::guesses::GUESSES_MAX;
use super::look_alikes::LookAlikes;
use super::*;
use crate::testing::{call_by, caller, gate};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use portcullis_core::{Content, Gate};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

const PIN: &str = "49382716";
/// Separates guesses. No match spans it.
const BETWEEN: &str = " ;\t.;.;.;.;.;.;.;.;.; ";

fn masks(secret: &str) -> Arc<Masks> {
    Arc::new(Masks::new(&[("PIN".to_owned(), Secret::new(secret.to_owned()))]).unwrap())
}

fn redactor(secret: &str, guesses_max: usize) -> Redactor {
    redactor_with(masks(secret), guesses_max)
}

fn redactor_with(masks: Arc<Masks>, guesses_max: usize) -> Redactor {
    let known = RedactorState {
        masks: ArcSwap::from(masks),
        leaves_shapes: AtomicBool::new(false),
        generation: AtomicU64::new(0),
        guesses: Guesses::new(guesses_max),
    };
    Redactor { known: Arc::new(known), reader: None }
}

fn guarded(redactor: &Redactor) -> Gate {
    gate(vec![Box::new(RedactionLayer::new(redactor.clone(), CallLimits::DEFAULT))]).0
}

async fn read(gate: &Gate, client: &str, text: &str) -> String {
    let apart = format!("{BETWEEN}{text}");
    let call = call_by(caller(client), &format!("stub_read {}", json!({ "text": apart })));
    let Output::Tool(tool) = gate.call(call).await.unwrap() else { panic!() };
    let [Content { body: portcullis_core::ContentBody::Text(text), .. }] = tool.content.as_slice() else {
        panic!()
    };
    text.strip_prefix("did ").and_then(|text| text.strip_prefix(BETWEEN)).unwrap().to_owned()
}

/// What a client learns from reading guesses back.
#[derive(Debug, Default)]
struct Learnt {
    /// The masked ones: one of them is the secret.
    suspects: BTreeSet<String>,
    /// Those masked differently from the others.
    told_apart: BTreeSet<String>,
}

impl Learnt {
    /// Returns whether a client can single out the secret, or narrow it down to `few`.
    fn finds(&self, secret: &str, few: usize) -> bool {
        let is_alone = self.told_apart.contains(secret);
        assert!(self.suspects.contains(secret), "it is masked in any case");
        is_alone || self.suspects.len() <= few
    }
}

async fn learnt(gate: &Gate, guesses: &[String], per_call: usize) -> Learnt {
    let mut by_way: BTreeMap<(String, usize), BTreeSet<String>> = BTreeMap::new();
    for guesses in guesses.chunks(per_call) {
        let text = read(gate, "eve", &guesses.join(BETWEEN)).await;
        let read: Vec<&str> = text.split(BETWEEN).collect();
        assert_eq!(read.len(), guesses.len());
        for (guess, read) in guesses.iter().zip(read).filter(|(guess, read)| *guess != read) {
            by_way.entry(way(read)).or_default().insert(guess.clone());
        }
    }
    let told_apart = by_way.values().filter(|guesses| guesses.len() == 1).flatten().cloned().collect();
    Learnt { suspects: by_way.into_values().flatten().collect(), told_apart }
}

/// Returns how a guess is masked: the mask, and how much is left.
fn way(read: &str) -> (String, usize) {
    let mask = read.find(MASK_BEGINS).map(|at| &read[at..]).unwrap_or_default();
    (mask.split_inclusive(']').next().unwrap_or_default().to_owned(), read.len())
}

/// Guesses around a PIN, `before` of which come first.
fn guesses(before: usize, after: usize) -> Vec<String> {
    let pin: usize = PIN.parse().unwrap();
    (pin - before..=pin + after).map(|guess| format!("{guess:08}")).collect()
}

#[tokio::test]
async fn a_client_does_not_find_a_pin_by_reading_back_guesses() {
    let tried = guesses(GUESSES_MAX, 1_000);
    let counted = redactor(PIN, GUESSES_MAX);
    let known = learnt(&guarded(&counted), &tried, 2_000).await;
    // All reads over the quota: nothing is known of them. Each counts twice, also for its reverse.
    assert!(known.suspects.iter().eq(&tried[GUESSES_MAX / 2..]), "{} left", known.suspects.len());
    assert!(!known.finds(PIN, 1) && known.told_apart.is_empty(), "{:?}", known.told_apart);
    let alerts: Vec<String> = counted.alerts().into_iter().map(|alert| alert.client).collect();
    assert_eq!(alerts, ["eve"]);
    // Control: an unlimited quota.
    let free = redactor(PIN, usize::MAX);
    assert!(learnt(&guarded(&free), &tried, 2_000).await.finds(PIN, 1));
    assert_eq!(free.alerts(), []);
}

#[tokio::test]
async fn no_form_of_a_guess_is_free() {
    let max = 20;
    let letter = |n: u8| char::from(b'a' + n % 26);
    for (secret, others) in [
        (PIN.to_owned(), guesses(59, 20)),
        ("k7-mx2q9".to_owned(), (0..80).map(|n| format!("k{}-mx{}q9", n / 10, n % 10)).collect()),
        (
            "hunter2-hunter2".to_owned(),
            (0..80).map(|n| format!("hun{}er{}-hunter2", letter(n), 3 + n % 7)).collect(),
        ),
    ] {
        let masks = masks(&secret);
        // The secret comes late, when the quota is exhausted.
        let tried: Vec<String> =
            others.iter().filter(|other| **other != secret).chain([&secret]).cloned().collect();
        for (kind, _) in forms_by_kind(&secret) {
            let form = |guess: &String| {
                let form = forms_by_kind(guess).into_iter().find(|(known, _)| *known == kind);
                form.map(|(_, form)| String::from_utf8(form.bytes).unwrap())
            };
            let written: Vec<String> = tried.iter().filter_map(form).collect();
            let own = form(&secret).unwrap();
            for per_call in [1, written.len()] {
                let known = learnt(&guarded(&redactor_with(masks.clone(), max)), &written, per_call).await;
                assert!(!known.finds(&own, 1), "{secret} in form {kind}: {known:?}");
            }
            // Control: an unlimited quota.
            let known = learnt(&guarded(&redactor_with(masks.clone(), usize::MAX)), &written, 40).await;
            assert!(known.finds(&own, 1), "{secret} in form {kind}: {known:?}");
        }
    }
}

#[tokio::test]
async fn guesses_that_are_escaped_or_encoded_with_others_count_too() {
    let escaped =
        |guess: &String| guess.chars().map(|c| format!("\\u{:04x}", u32::from(c))).collect::<String>();
    let within = |guess: &String| STANDARD.encode(format!("the number is {guess}, or so"));
    let numbers = |guess: &String| guess.bytes().map(|byte| byte.to_string()).collect::<Vec<_>>().join(",");
    let writings: [&dyn Fn(&String) -> String; 4] =
        [&escaped, &within, &|guess| STANDARD.encode(within(guess)), &numbers];
    let masks = masks(PIN);
    for (number, writing) in writings.iter().enumerate() {
        let tried: Vec<String> = guesses(60, 20).iter().map(writing).collect();
        let own = writing(&PIN.to_owned());
        let known = learnt(&guarded(&redactor_with(masks.clone(), 20)), &tried, 10).await;
        assert!(!known.finds(&own, 10), "{number}: {known:?}");
        // Control: an unlimited quota. In Base64 some digits look alike.
        let known = learnt(&guarded(&redactor_with(masks.clone(), usize::MAX)), &tried, 10).await;
        assert!(known.finds(&own, 10), "{number}: {known:?}");
    }
}

#[tokio::test]
async fn guesses_with_space_in_them_and_in_one_run_count_too() {
    let tried: Vec<String> =
        guesses(60, 20).iter().map(|guess| format!("{}\n {}", &guess[..7], &guess[7..])).collect();
    let known = learnt(&guarded(&redactor(PIN, 20)), &tried, 10).await;
    assert!(!known.finds(&tried[60], 1), "{known:?}");
    // Every eight digits of a run are a guess.
    let counted = redactor(PIN, 20);
    let gate = guarded(&counted);
    let run = "0918273645546372819049382716102938";
    assert!(read(&gate, "eve", run).await.len() < run.len());
    assert_eq!(counted.alerts().len(), 1);
}

#[tokio::test]
async fn guesses_that_are_split_count_too() {
    let secret = "k7-mx2q94".to_owned();
    let tried: Vec<String> = (0..80).map(|n| format!("k{}-mx{}q94", n / 10, n % 10)).collect();
    let split = |between: &str, guess: &String| {
        let kept = guess.replace('-', "");
        kept.chars().map(String::from).collect::<Vec<_>>().join(between)
    };
    let masks = masks(&secret);
    for between in ["", " ", "-", ", ", "\n"] {
        let written: Vec<String> = tried
            .iter()
            .filter(|guess| **guess != secret)
            .chain([&secret])
            .map(|guess| split(between, guess))
            .collect();
        let own = split(between, &secret);
        for per_call in [1, written.len()] {
            let counted = redactor_with(masks.clone(), 20);
            let known = learnt(&guarded(&counted), &written, per_call).await;
            assert!(!known.finds(&own, 1), "{between:?}: {known:?}");
        }
        // Control: an unlimited quota.
        let known = learnt(&guarded(&redactor_with(masks.clone(), usize::MAX)), &written, 40).await;
        assert!(known.finds(&own, 1), "{between:?}: {known:?}");
    }
}

#[tokio::test]
async fn what_a_call_says_on_its_way_and_in_errors_counts_too() {
    for tool in ["stub_echo", "stub_refuse"] {
        let counted = redactor(PIN, 20);
        let gate = guarded(&counted);
        for guess in guesses(25, 0) {
            let _ = gate.call(call_by(caller("eve"), &format!("{tool} {}", json!({ "text": guess })))).await;
        }
        assert_eq!(counted.alerts().len(), 1, "{tool}");
    }
    // Messages outside calls share one account.
    let counted = redactor(PIN, 20);
    let messages = counted.for_messages();
    let read = |guess: &String| messages.scrub(guess).into_owned();
    let masked = guesses(25, 5).iter().filter(|guess| read(guess) != **guess).count();
    assert_eq!((masked, counted.alerts().len()), (21, 1));
}

#[tokio::test(start_paused = true)]
async fn the_next_day_a_client_may_read_on() {
    let counted = redactor(PIN, 20);
    let gate = guarded(&counted);
    let text = "10000001, 10000002, 10000003";
    assert!(!learnt(&gate, &guesses(30, 0), 40).await.finds(PIN, 1));
    assert_eq!(read(&gate, "eve", text).await, "[REDACTED], [REDACTED], [REDACTED]");
    // Another client has its own account.
    assert_eq!(read(&gate, "ada", text).await, text);
    tokio::time::advance(std::time::Duration::from_secs(24 * 60 * 60)).await;
    assert_eq!(counted.alerts(), []);
    assert_eq!(read(&gate, "eve", text).await, text);
}

#[tokio::test]
async fn who_reads_the_same_file_again_and_again_is_not_slowed_down() {
    let counted = redactor(PIN, 40);
    let gate = guarded(&counted);
    let numbers: Vec<String> = (0..15).map(|n| format!("2026{n:04}")).collect();
    let file = format!("pin: {PIN}\nothers: {}", numbers.join(", "));
    for _ in 0..100 {
        assert_eq!(read(&gate, "ada", &file).await, file.replace(PIN, "[REDACTED:PIN]"));
    }
    assert_eq!(counted.alerts(), []);
}

/// Returns the number of distinct look-alikes of a secret in a text.
fn look_alikes_in(text: &str, secret: &str) -> usize {
    let counted = redactor(secret, usize::MAX);
    let (look_alikes, mut said) = (LookAlikes::new([secret].into_iter()), BTreeSet::new());
    let masks = counted.known.masks.load();
    let mut budget = counted.scan(&masks).budget;
    budget.admit(text.len()).unwrap();
    let found = look_alikes.find(text.as_bytes(), &mut budget, |one| {
        said.insert(one.said.1.to_vec());
    });
    found.unwrap();
    said.len()
}

#[test]
fn ordinary_texts_have_few_look_alikes() {
    let texts = [
        include_str!("../../../../SECURITY.md"),
        include_str!("../../../../CHANGELOG.md"),
        include_str!("../../../../Cargo.lock"),
        include_str!("token_shapes.rs"),
        include_str!("decoded_view.rs"),
    ];
    for secret in [PIN, "k7-mx2q9", "hunter2-hunter2", "P4ssw0rd!"] {
        let found: usize = texts.iter().map(|text| look_alikes_in(text, secret)).sum();
        // Nearly all of them are digits within checksums.
        assert!(found < GUESSES_MAX / 8, "{secret}: {found}");
    }
    // Control: the measure counts each of these.
    assert_eq!(look_alikes_in(&guesses(10, 10).join(", "), PIN), 21);
}

#[test]
fn a_form_that_leaves_something_out_counts_as_all_that_it_stands_for() {
    let counted_as = |text: &str| {
        let mut counts = Vec::new();
        let masks = masks(PIN);
        let mut budget = redactor_with(masks.clone(), 0).scan(&masks).budget;
        let look_alikes = LookAlikes::new([PIN].into_iter());
        look_alikes.find(text.as_bytes(), &mut budget, |one| counts.push(one.guesses)).unwrap();
        counts
    };
    assert_eq!(counted_as(PIN), [2]);
    // Only the upper half of the last digit is included.
    let base64 = STANDARD.encode("49382716");
    assert_eq!(counted_as(base64.trim_end_matches('=')), [10]);
}

#[test]
fn strong_secrets_and_words_have_no_look_alikes() {
    for secret in ["e3b0c44298fc1c149afb", "ghp_correct-horse-battery-staple", "sunshine"] {
        assert!(!LookAlikes::covers(secret), "{secret}");
    }
    assert!(LookAlikes::covers(PIN) && LookAlikes::covers("hunter2-hunter2"));
}
