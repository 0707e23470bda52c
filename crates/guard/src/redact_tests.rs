use super::*;
use crate::testing::{RecordingClient, call, gate, outcome_text};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use portcullis_core::{Content, KeyedInputRequest, ToolOutput};
use serde_json::json;
use serde_json::value::RawValue;

const TOKEN: &str = "pcl_0123456789abcdefghijklmnopqrstuvwxyzABCDEF-";

fn redactor(secrets: &[(&str, &str)]) -> Redactor {
    let secrets: Vec<_> =
        secrets.iter().map(|(name, value)| ((*name).to_owned(), Secret::new((*value).to_owned()))).collect();
    Redactor::new(&secrets).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn known_values_and_tokens_are_masked() {
    let redactor = redactor(&[
        ("KEY", "hunter2-hunter2"),
        ("LONG", "hunter2-hunter2-more"),
        ("PATH", "pass/with\"quote"),
        ("UMLAUT", "Schlüsselwörter"),
        ("INNER", "cl_inner-secret"),
    ]);
    let long_token = format!("{TOKEN}tail");
    for (text, expected) in [
        ("", ""),
        ("nothing here", "nothing here"),
        ("a hunter2-hunter2 b", "a [REDACTED:KEY] b"),
        ("hunter2-hunter2-more", "[REDACTED:LONG]"),
        ("hunter2-hunter2hunter2-hunter2", "[REDACTED:KEY][REDACTED:KEY]"),
        ("hunter2-hunter", "hunter2-hunter"),
        ("Schlüsselwörter!", "[REDACTED:UMLAUT]!"),
        (r#"{"a":"pass/with\"quote"}"#, r#"{"a":"[REDACTED:PATH]"}"#),
        (r#"{"a":"pass\/with\"quote"}"#, r#"{"a":"[REDACTED:PATH]"}"#),
        ("?q=pass%2Fwith%22quote&r", "?q=[REDACTED:PATH]&r"),
        (TOKEN, "[REDACTED:CLIENT_TOKEN]"),
        (&long_token, "[REDACTED:CLIENT_TOKEN]tail"),
        (&TOKEN[..46], &TOKEN[..46]),
        ("pcl_ö", "pcl_ö"),
        ("pcl_pcl_", "pcl_pcl_"),
        ("pcl_inner-secret", "p[REDACTED:INNER]"),
    ] {
        assert_eq!(redactor.scrub(text), expected);
    }
}

#[test]
fn base64_is_seen_at_any_alignment() {
    let secret = "s3cr3t-value/with+more";
    let redactor = redactor(&[("KEY", secret)]);
    for before in ["", "x", "xy", "xyz", "Basic user:"] {
        for after in ["", "1", "12", "123"] {
            for engine in [STANDARD_NO_PAD, URL_SAFE_NO_PAD] {
                let encoded = engine.encode(format!("{before}{secret}{after}"));
                let scrubbed = redactor.scrub(&encoded);
                assert!(scrubbed.contains("[REDACTED:KEY]"), "{before} {after} {encoded}");
                // The rest does not reveal the value: at most the bits of one byte at each end.
                assert!(
                    scrubbed.len() <= "[REDACTED:KEY]".len() + encoded.len() - (secret.len() * 8 - 10) / 6
                );
            }
        }
    }
}

#[test]
fn what_cannot_be_masked_is_refused_with_a_reason() {
    let refused = |name: &str, value: &str| {
        let error =
            Redactor::new(&[(name.to_owned(), Secret::new(value.to_owned()))]).err().unwrap().to_string();
        assert!(value.is_empty() || !error.contains(value), "{error}");
        error
    };
    assert_eq!(
        refused("PIN", "1234567"),
        "secret `PIN` has 7 bytes, at least 8 are needed to tell it from ordinary text"
    );
    assert_eq!(
        refused("a\"b", "long enough"),
        "`a\"b` is not a name for a secret; expected letters, digits, `_`, `-` and `.`"
    );
}

#[test]
fn clean_text_is_not_copied() {
    let redactor = redactor(&[("KEY", "hunter2-hunter2")]);
    let text = "clean ".repeat(1_000);
    assert!(matches!(redactor.scrub(&text), Cow::Borrowed(same) if same.as_ptr() == text.as_ptr()));
    let raw = RawValue::from_string(json!({ "content": [text] }).to_string()).unwrap();
    let address = raw.get().as_ptr();
    let mut output = Output::Raw(raw);
    redactor.scrub_output(&mut output);
    assert!(matches!(output, Output::Raw(same) if same.get().as_ptr() == address));
}

#[test]
fn every_part_of_an_output_is_scrubbed() {
    let redactor = redactor(&[("KEY", "hunter2-hunter2"), ("PIN", "1234567890")]);
    let mut content = Content::text("hunter2-hunter2");
    content.annotations = Some(json!({ "note": "hunter2-hunter2" }));
    let structured = json!({ "hunter2-hunter2": ["hunter2-hunter2", 1234567890, 5, { "b": 1, "a": 2 }] });
    let mut output = Output::Tool(ToolOutput {
        content: vec![content],
        structured: Some(structured),
        ..ToolOutput::default()
    });
    redactor.scrub_output(&mut output);
    let Output::Tool(tool) = output else { panic!() };
    assert_eq!(
        tool.structured.unwrap().to_string(),
        r#"{"[REDACTED:KEY]":["[REDACTED:KEY]","[REDACTED:PIN]",5,{"b":1,"a":2}]}"#
    );
    let mut expected = Content::text("[REDACTED:KEY]");
    expected.annotations = Some(json!({ "note": "[REDACTED:KEY]" }));
    assert_eq!(tool.content, [expected]);
}

#[test]
fn a_result_that_is_passed_on_is_scrubbed_or_withheld() {
    let redactor = redactor(&[("KEY", "hunter2-hunter2"), ("PIN", "1234567890")]);
    for (raw, expected) in [
        (
            r#"{"content":[{"text":"hunter2-hunter2"}],"x":1.0}"#,
            r#"{"content":[{"text":"[REDACTED:KEY]"}],"x":1.0}"#,
        ),
        (r#"{"pin":1234567890}"#, r#"{"content":[{"type":"text","text":"[WITHHELD]"}],"isError":true}"#),
    ] {
        let mut output = Output::Raw(RawValue::from_string(raw.to_owned()).unwrap());
        redactor.scrub_output(&mut output);
        assert!(matches!(&output, Output::Raw(raw) if raw.get() == expected), "{output:?}");
    }
}

#[test]
fn errors_and_their_questions_are_scrubbed() {
    let redactor = redactor(&[("KEY", "hunter2-hunter2")]);
    let ask = portcullis_core::InputRequest::elicit("is it hunter2-hunter2?", json!({}));
    let questions = vec![KeyedInputRequest { key: "q".to_owned(), ask }];
    let state = Some("state hunter2-hunter2".to_owned());
    let more = json!({ "_meta": { "x": "hunter2-hunter2" }, "hunter2-hunter2": 1 });
    let more = more.as_object().unwrap().clone();
    let input = InputRequired { questions, state, more, approved: None };
    let mut error = ToolError::input_required(input).hint("hunter2-hunter2");
    error.message = "failed with hunter2-hunter2".to_owned();
    redactor.scrub_error(&mut error);
    assert_eq!(error.message, "failed with [REDACTED:KEY]");
    assert_eq!(error.hints, ["[REDACTED:KEY]"]);
    let input = error.input.unwrap();
    assert_eq!(input.questions[0].ask.params["message"], "is it [REDACTED:KEY]?");
    assert_eq!(input.state.as_deref(), Some("state [REDACTED:KEY]"));
    let more = json!({ "_meta": { "x": "[REDACTED:KEY]" }, "[REDACTED:KEY]": 1 });
    assert_eq!(Some(&input.more), more.as_object());
}

#[tokio::test]
async fn nothing_that_a_call_says_holds_a_secret() {
    let lines = [
        r#"stub_echo {"text":"hunter2-hunter2"}"#,
        r#"stub_refuse {"text":"hunter2-hunter2"}"#,
        r#"stub_refuse {"text":"pcl_0123456789abcdefghijklmnopqrstuvwxyzABCDEF-"}"#,
        "hunter2-hunter2",
        "resource stub://hunter2-hunter2",
    ];
    let said = async |layers: Vec<Box<dyn Layer>>| {
        let (gate, _) = gate(layers);
        let mut said = String::new();
        for line in lines {
            let listener = RecordingClient::new(None);
            let mut call = call(line);
            call.ctx.peer = listener.clone();
            let outcome = gate.call(call).await;
            said.push_str(&format!("{}\n{}\n", listener.received(), outcome_text(&outcome)));
        }
        said
    };
    let redacted = said(vec![Box::new(RedactionLayer::new(
        redactor(&[("KEY", "hunter2-hunter2")]),
        CallLimits::DEFAULT,
    ))])
    .await;
    assert!(!redacted.contains("hunter2") && !redacted.contains("pcl_"), "{redacted}");
    assert!(redacted.contains("progress 1: [REDACTED:KEY]\ninfo stub: \"[REDACTED:KEY]\""), "{redacted}");
    // Control: without the layer, each of them leaks.
    let bare = said(vec![]).await;
    assert_eq!(bare.matches("hunter2-hunter2").count() + bare.matches("pcl_").count(), 11, "{bare}");
}

#[test]
fn other_secrets_can_be_learnt_and_a_bad_one_changes_nothing() {
    let redactor = redactor(&[("OLD", "old-old-old")]);
    let secret = |name: &str, value: &str| (name.to_owned(), Secret::new(value.to_owned()));
    assert!(redactor.replace(&[secret("NEW", "new-new-new"), secret("BAD", "x")]).is_err());
    assert_eq!(redactor.scrub("old-old-old new-new-new"), "[REDACTED:OLD] new-new-new");
    redactor.replace(&[secret("NEW", "new-new-new")]).unwrap();
    assert_eq!(redactor.scrub("old-old-old new-new-new"), "old-old-old [REDACTED:NEW]");
}
