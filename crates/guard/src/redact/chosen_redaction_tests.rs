//! The attack: a word of the protocol chosen as a secret must not corrupt messages.

use super::Redactor;
use portcullis_core::{Output, Scrub, Secret};
use serde_json::value::RawValue;
use serde_json::{Value, json};

const CHOSEN: [&str; 6] =
    ["protocolVersion", "protocol", "serverInfo", "2025-06-18", "tools/list_changed", "resource_link"];

fn messages() -> Vec<Value> {
    vec![
        json!({ "protocolVersion": "2025-06-18", "serverInfo": { "name": "x" }, "capabilities": {} }),
        json!({ "method": "notifications/tools/list_changed" }),
        json!({ "content": [{ "type": "resource_link", "uri": "file:///a" }] }),
    ]
}

/// Returns whether every message is unchanged.
fn is_intact(scrub: impl Fn(&str, &mut Value)) -> bool {
    CHOSEN.iter().all(|chosen| {
        messages().into_iter().all(|message| {
            let mut scrubbed = message.clone();
            scrub(chosen, &mut scrubbed);
            scrubbed == message
        })
    })
}

fn knowing(value: &str) -> Redactor {
    Redactor::new(&[("CHOSEN".to_owned(), Secret::new(value.to_owned()))]).unwrap()
}

#[test]
fn keys_methods_and_fixed_values_stay_whatever_is_registered() {
    assert!(is_intact(|chosen, message| knowing(chosen).scrub_value(message)));
    // Also as text, the form in which upstream results are forwarded.
    assert!(is_intact(|chosen, message| {
        let raw = RawValue::from_string(message.to_string()).unwrap();
        let mut output = Output::Raw(raw);
        knowing(chosen).scrub_output(&mut output);
        let Output::Raw(raw) = output else { panic!("another kind of output") };
        *message = serde_json::from_str(raw.get()).unwrap();
    }));
    // Control: a redactor that looks at the text alone.
    assert!(!is_intact(|chosen, message| {
        let text = message.to_string().replace(chosen, "[REDACTED:CHOSEN]");
        *message = serde_json::from_str(&text).unwrap();
    }));
}

#[test]
fn what_is_no_word_of_the_protocol_is_masked_as_before() {
    let redactor = knowing("hunter2hunter2");
    let mut message = json!({ "protocolVersion": "hunter2hunter2", "hunter2hunter2": ["x hunter2hunter2"] });
    redactor.scrub_value(&mut message);
    let masked = "[REDACTED:CHOSEN]";
    assert_eq!(message, json!({ "protocolVersion": masked, masked: [format!("x {masked}")] }));
    // Also next to an escaped quote.
    assert_eq!(
        redactor.scrub(r#""hunter2hunter2 protocolVersion""#),
        format!(r#""{masked} protocolVersion""#)
    );
    assert_eq!(knowing("protocolVersion").scrub("the protocolVersion of it"), format!("the {masked} of it"));
}
