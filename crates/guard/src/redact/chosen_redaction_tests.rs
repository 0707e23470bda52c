//! A stranger chooses a word of the protocol as a secret: messages stay what they are.

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

/// Whether every message comes out as it was.
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
    // As text too, which is what another server's result is passed on as.
    assert!(is_intact(|chosen, message| {
        let raw = RawValue::from_string(message.to_string()).unwrap();
        let mut output = Output::Raw(raw);
        knowing(chosen).scrub_output(&mut output);
        let Output::Raw(raw) = output else { panic!("another kind of output") };
        *message = serde_json::from_str(raw.get()).unwrap();
    }));
    // The weak variant: what looks at the text alone.
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
    // Beside a quote that somebody put there, too.
    assert_eq!(
        redactor.scrub(r#""hunter2hunter2 protocolVersion""#),
        format!(r#""{masked} protocolVersion""#)
    );
    assert_eq!(knowing("protocolVersion").scrub("the protocolVersion of it"), format!("the {masked} of it"));
}
