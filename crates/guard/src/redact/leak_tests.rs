//! Leak rates of every output channel against the targets.

use super::corpus_tests::{
    KnownSecret, Leak, Tier, hundred_secrets, ordinary, own_leaks, own_secrets, secrets, shared,
};
use super::*;
use crate::testing::RecordingClient;
use portcullis_core::{Content, LogLevel, ToolOutput};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// Tolerance for leaks that should be caught.
const SHOULD_MISSED_PERCENT_MAX: usize = 10;
/// A redacted leak must share fewer characters with the original.
const SHARED_CHARACTERS: usize = 10;
/// The context of the secret in the corpora; it may stay.
const AROUND: &str = "https://api.test/v1?key= git clone https://x: @host/r.git eyJwYXNzd29yZCI6I";

/// A redactor: the real one, or a weak one as a control.
trait Keeper {
    fn text(&self, text: &str) -> String;
    fn output(&self, output: &mut Output);
    fn error(&self, error: &mut ToolError);
    fn peer(&self, peer: Arc<RecordingClient>) -> Arc<dyn Peer>;
    fn stream(&self, text: &str) -> String;
}

impl Keeper for Redactor {
    fn text(&self, text: &str) -> String {
        self.scrub(text).into_owned()
    }
    fn output(&self, output: &mut Output) {
        self.scrub_output(output);
    }
    fn error(&self, error: &mut ToolError) {
        self.scrub_error(error);
    }
    fn peer(&self, peer: Arc<RecordingClient>) -> Arc<dyn Peer> {
        Arc::new(RedactedPeer { peer, redactor: self.clone() })
    }
    fn stream(&self, text: &str) -> String {
        let mut scrubber = self.scrubber();
        let mut out = Vec::new();
        for piece in text.as_bytes().chunks(7) {
            out.extend(scrubber.push(piece));
        }
        out.extend(scrubber.finish());
        String::from_utf8(out).unwrap()
    }
}

/// Replaces exact matches only.
struct Exact(Vec<KnownSecret>);

impl Keeper for Exact {
    fn text(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, known| {
            text.replace(&known.value, &format!("[REDACTED:{}]", known.name))
        })
    }
    fn output(&self, output: &mut Output) {
        output.visit_texts(&mut |text| *text = self.text(text));
    }
    fn error(&self, error: &mut ToolError) {
        error.message = self.text(&error.message);
        error.hints.iter_mut().for_each(|hint| *hint = self.text(hint));
    }
    fn peer(&self, peer: Arc<RecordingClient>) -> Arc<dyn Peer> {
        peer
    }
    fn stream(&self, text: &str) -> String {
        text.as_bytes().chunks(7).map(|piece| self.text(&String::from_utf8_lossy(piece))).collect()
    }
}

/// Sends a text through one output channel, and returns what came out.
type Sink = (&'static str, fn(&dyn Keeper, &str) -> String);

const SINKS: &[Sink] = &[
    ("text", |keeper, text| keeper.text(&format!("before {text} after"))),
    ("value", |keeper, text| {
        structured(keeper, json!({ "a": [{ "b": text }] }))["a"][0]["b"].as_str().unwrap().to_owned()
    }),
    ("key", |keeper, text| {
        let value = structured(keeper, json!({ "a": { text: 1 } }));
        value["a"].as_object().unwrap().keys().next().unwrap().clone()
    }),
    ("error", |keeper, text| scrubbed_error(keeper, text).message),
    ("hint", |keeper, text| scrubbed_error(keeper, text).hints.concat()),
    ("raw", |keeper, text| {
        let raw = json!({ "content": [{ "type": "text", "text": text }] }).to_string();
        let mut output = Output::Raw(RawValue::from_string(raw).unwrap());
        keeper.output(&mut output);
        let Output::Raw(raw) = output else { panic!() };
        let value: Value = serde_json::from_str(raw.get()).unwrap();
        value["content"][0]["text"].as_str().unwrap().to_owned()
    }),
    ("resource", |keeper, text| {
        let body = portcullis_core::ResourceBody::Text(text.to_owned());
        let resource = portcullis_core::ResourceContents { uri: "a:b".to_owned(), mime_type: None, body };
        let mut output = Output::Resource(vec![resource]);
        keeper.output(&mut output);
        let mut seen = String::new();
        output.visit_texts(&mut |text| seen.push_str(text));
        seen
    }),
    ("progress", |keeper, text| {
        said(keeper, |peer| {
            peer.progress(Progress::new(1.0, None, Some(text.to_owned())));
        })
    }),
    ("log", |keeper, text| {
        let received = said(keeper, |peer| {
            peer.log(LogMessage::new(LogLevel::Info, "it", text));
        });
        let value = received.trim().strip_prefix("info it: ").unwrap();
        serde_json::from_str::<String>(value).unwrap()
    }),
    ("what else is said", |keeper, text| {
        let received = said(keeper, |peer| {
            let said = json!({ "elicitationId": "e", "new": [{ "x": text }] });
            peer.elicitation_completed(said.as_object().unwrap().clone());
        });
        let value: Value = serde_json::from_str(received.trim()).unwrap();
        value["new"][0]["x"].as_str().unwrap().to_owned()
    }),
    ("stream", |keeper, text| keeper.stream(&format!("before {text} after"))),
];

fn structured(keeper: &dyn Keeper, value: Value) -> Value {
    let content = vec![Content::text("ok")];
    let mut output = Output::Tool(ToolOutput { content, structured: Some(value), ..ToolOutput::default() });
    keeper.output(&mut output);
    let Output::Tool(tool) = output else { panic!() };
    tool.structured.unwrap()
}

fn scrubbed_error(keeper: &dyn Keeper, text: &str) -> ToolError {
    let mut error = ToolError::invalid_args(format!("no {text}")).hint(text.to_owned());
    keeper.error(&mut error);
    error
}

fn said(keeper: &dyn Keeper, say: impl Fn(&dyn Peer)) -> String {
    let listener = RecordingClient::new(None);
    say(&*keeper.peer(listener.clone()));
    listener.received()
}

/// Returns whether the output still reveals the secret.
pub(super) fn tells(leak: &Leak, seen: &str) -> bool {
    if !seen.contains(&format!("[REDACTED:{}]", leak.name)) {
        return true;
    }
    let text = leak.text.as_bytes();
    text.windows(SHARED_CHARACTERS.min(text.len()))
        .any(|part| contains(seen.as_bytes(), part) && !contains(AROUND.as_bytes(), part))
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// Checks the targets: no channel leaks what must be caught, and few leak what should be.
fn check(keeper: &dyn Keeper, leaks: &[Leak]) -> Result<String, String> {
    let (mut must, mut should, mut count) = (Vec::new(), Vec::new(), [0, 0]);
    for leak in leaks {
        for (sink, send) in SINKS {
            let missed = match leak.tier {
                Tier::Must => &mut must,
                Tier::Should => &mut should,
                Tier::DocumentedLimit => continue,
            };
            count[usize::from(leak.tier == Tier::Should)] += 1;
            if tells(leak, &send(keeper, &leak.text)) {
                missed.push(format!("{} as {} by {sink}", leak.name, leak.encoding));
            }
        }
    }
    let figure = |what: &str, missed: usize, count: usize, most: usize| {
        let ok = if missed <= most { "ok" } else { "FAILED" };
        format!("figure:\tof {count} secrets that {what} be caught, missed\t{missed}\t≤ {most}\t{ok}")
    };
    let most = count[1] * SHOULD_MISSED_PERCENT_MAX / 100;
    let figures =
        [figure("must", must.len(), count[0], 0), figure("should", should.len(), count[1], most)].join("\n");
    let report = format!(
        "{figures}\nmust: {} of {} leak; should: {} of {} leak {should:?}",
        must.len(),
        count[0],
        should.len(),
        count[1]
    );
    assert!(count[0] > 0 && count[1] > 0);
    if !must.is_empty() || should.len() * 100 > count[1] * SHOULD_MISSED_PERCENT_MAX {
        return Err(format!("{report}\n{must:#?}"));
    }
    Ok(report)
}

/// Checks the real redactor, and that the weak one fails.
fn check_both(known: Vec<KnownSecret>, leaks: &[Leak]) {
    // Token shapes could hide that a secret itself was not recognized.
    let ours =
        Redactor::new(&secrets(&known)).unwrap_or_else(|e| panic!("{e}")).with_shapes(TokenShapes::Leave);
    println!("{}", check(&ours, leaks).unwrap_or_else(|report| panic!("{report}")));
    check(&Exact(known), leaks).expect_err("a weak redactor passes");
}

#[test]
fn our_own_leaks_are_caught() {
    let known = own_secrets();
    let leaks = own_leaks(&known);
    check_both(known, &leaks);
}

#[test]
fn the_shared_leaks_are_caught() {
    if let (Some(known), Some(leaks)) =
        (shared::<KnownSecret>("secrets.jsonl"), shared::<Leak>("secret_leaks.jsonl"))
    {
        check_both(known, &leaks);
    }
}

/// A line that looks like the continuation of the previous one, but is not.
#[test]
fn what_stands_below_another_long_word_is_caught() {
    let known = own_secrets();
    let ours = Redactor::new(&secrets(&known)).unwrap_or_else(|e| panic!("{e}"));
    for above in 40..=48 {
        for leak in own_leaks(&known).iter().filter(|leak| leak.encoding == "base64 twice") {
            for (before, after) in [("", ""), ("", "6"), ("", "60"), ("", "601"), ("TOKEN=", "\n012345")] {
                let text = format!("{before}{}\n{}{after}", "x".repeat(above), leak.text);
                assert!(!ours.text(&text).contains(&leak.text), "{} below {above} characters", leak.name);
            }
        }
    }
}

/// Returns the first false positive in ordinary text.
fn first_false_alarm(texts: &[(String, String)], scrub: &dyn Fn(&str) -> String) -> Option<String> {
    let bytes: usize = texts.iter().map(|(_, text)| text.len()).sum();
    assert!(bytes >= super::corpus_tests::ORDINARY_BYTES, "{bytes} bytes are too few");
    texts.iter().find_map(|(name, text)| {
        let scrubbed = scrub(text);
        let same = scrubbed.bytes().zip(text.bytes()).take_while(|(a, b)| a == b).count();
        let from = scrubbed.floor_char_boundary(same.saturating_sub(40));
        let to = scrubbed.ceil_char_boundary((same + 60).min(scrubbed.len()));
        (scrubbed != *text).then(|| format!("{name}: {}", &scrubbed[from..to]))
    })
}

#[test]
fn ordinary_text_is_left_alone() {
    let texts = ordinary();
    let known: Vec<KnownSecret> = hundred_secrets().into_iter().chain(own_secrets()).collect();
    let ours = Redactor::new(&secrets(&known)).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(first_false_alarm(&texts, &|text| ours.text(text)), None);
    // Control: a redactor that masks every long word fails.
    let eager = |text: &str| {
        let masked = |word: &str| if word.len() > 32 { "[REDACTED:IT]".to_owned() } else { word.to_owned() };
        text.split(' ').map(masked).collect::<Vec<_>>().join(" ")
    };
    assert!(first_false_alarm(&texts, &eager).is_some());
}

#[test]
fn what_costs_too_much_is_withheld() {
    // Every position of the text almost matches, to the last byte.
    let value = format!("{}b", "a".repeat(4_000));
    let redactor = Redactor::new(&[("KEY".to_owned(), Secret::new(value))]).unwrap_or_else(|e| panic!("{e}"));
    let text = "a".repeat(200_000);
    assert_eq!(redactor.scrub(&text), scan::WITHHELD);
    assert_eq!(scrubbed_error(&redactor, &text).hints, [scan::WITHHELD]);
    assert_eq!(structured(&redactor, json!({ "a": text })), json!({ "a": scan::WITHHELD }));
    let mut output = Output::Raw(RawValue::from_string(json!({ "a": text }).to_string()).unwrap());
    redactor.scrub_output(&mut output);
    assert!(matches!(&output, Output::Raw(raw) if raw.get().contains("[WITHHELD]")), "{output:?}");
    // The same text is cheap if no secret resembles it.
    let other = Redactor::new(&[]).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(other.scrub(&text), text);
}

/// A decompression bomb is neither decompressed without bound nor let through.
#[test]
fn what_unpacks_to_too_much_is_withheld() {
    let redactor = Redactor::new(&secrets(&hundred_secrets())).unwrap_or_else(|e| panic!("{e}"));
    for bytes in [1 << 22, 1 << 24] {
        let bomb = super::corpus_tests::gzip_in_base64(&vec![b'a'; bytes]);
        assert!(bomb.len() * 100 < bytes);
        assert_eq!(redactor.scrub(&bomb), scan::WITHHELD);
    }
    let small = super::corpus_tests::gzip_in_base64(&[b'a'; 1 << 18]);
    assert_eq!(redactor.scrub(&small), small);
    let many = [small.as_str(); 64].join(" ");
    assert_eq!(redactor.scrub(&many), scan::WITHHELD);
}

#[test]
fn anything_can_be_looked_through() {
    const PARTS: &[&str] = &[
        "%",
        "%4",
        "%41",
        "%u0041",
        "\\",
        "\\u",
        "\\ud83d\\ude00",
        "\\ud800",
        "\\x4",
        "\\u{41}",
        "\\101",
        "&",
        "&#",
        "&#x41;",
        "&amp;",
        "&#1114112;",
        "=",
        "\n",
        "\r\n",
        " ",
        "\u{200b}",
        "\u{308}",
        "a\u{308}",
        "é",
        "Ａ",
        "\u{e0041}",
        "ключ",
        "😀",
        "68, 74, ",
        "0x44",
        "44:4a:",
        "eyJ",
        "ghp_",
        ".",
        ":AA",
        "-----BEGIN PRIVATE KEY-----",
        "QUJDREVGR0hJSktMTU5PUA==",
        "MFRGGZDFMZTWQ2LKNNWG23TPOBYXE43U",
        "4142434445464748494a4b4c4d4e4f50",
        "a\0b\0",
        "YQBiAGMAZABlAGYAZwBoAA==",
        "hunter2-hunter2",
    ];
    let secret = ("KEY".to_owned(), Secret::new("hunter2-hunter2 ключ".to_owned()));
    let redactor = Redactor::new(&[secret]).unwrap_or_else(|e| panic!("{e}"));
    let mut dice = super::corpus_tests::SeededRandom(0xF00D);
    for _ in 0..20_000 {
        let text: String = (0..dice.roll(24)).map(|_| PARTS[dice.roll(PARTS.len())]).collect();
        let scrubbed = redactor.scrub(&text).into_owned();
        assert_eq!(redactor.stream(&text), scrubbed);
    }
}

/// Adversarially costly texts end soon: checked or withheld.
#[test]
fn bombs_are_checked_or_withheld_in_time() {
    let redactor = Redactor::new(&secrets(&hundred_secrets())).unwrap_or_else(|e| panic!("{e}"));
    let mut nested = "A".repeat(1000);
    for _ in 0..12 {
        use base64::Engine;
        nested = base64::engine::general_purpose::STANDARD.encode(&nested);
    }
    for unit in [
        "eyJ-", "%25", "\\\\", "&amp;", "QUFB", "41", "4141 ", "1,", "\u{200b}", "a\u{308}", "ghp_", ":AA",
        "xoxb-", &nested,
    ] {
        let text = unit.repeat((1 << 18) / unit.len() + 1);
        let started = std::time::Instant::now();
        let scrubbed = redactor.scrub(&text);
        println!(
            "{:.8}: {:?}, {:.20}",
            unit.escape_debug().to_string(),
            started.elapsed(),
            scrubbed.escape_debug().to_string()
        );
        assert!(started.elapsed().as_secs() < 20, "{unit:.20}");
    }
    for text in
        ["-----BEGIN PRIVATE KEY-----".repeat(10_000), "A".repeat(1 << 18), "MFRGGZDF".repeat(1 << 15)]
    {
        let started = std::time::Instant::now();
        redactor.scrub(&text);
        println!("{text:.8}: {:?}", started.elapsed());
        assert!(started.elapsed().as_secs() < 20, "{text:.20}");
    }
}
