//! What a person is asked about: which call it is, exactly, and how it is shown.

use crate::redact::Redactor;
use portcullis_core::json::visible;
use portcullis_core::{Call, Reach, ToolError};
use portcullis_store::approvals::{ARGUMENTS_BYTES_MAX, Asked};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Returns what is to be decided about a call.
pub(super) fn asked(call: &Call, rule: &str, redactor: &Redactor) -> Result<Asked, ToolError> {
    let definition = call.tool().map_or([0; 32], |tool| tool.digest());
    let (client, origin) = (&call.caller.client.name, call.caller.origin.as_str());
    let mut hash = Sha256::new();
    for part in [client, origin, call.target.kind(), call.target.name()] {
        add(&mut hash, b'p', part);
    }
    hash.update(definition);
    // Was parsed before, by the layer that validates.
    add_value(&mut hash, call.arguments.raw()).map_err(ToolError::internal)?;
    let (arguments, more) = shown(call, redactor);
    Ok(Asked {
        digest: hex(&hash.finalize()),
        client: client.clone(),
        origin: origin.to_owned(),
        kind: call.target.kind().to_owned(),
        target: visible(&redactor.scrub(call.target.name())),
        effect: call.effect().as_str().to_owned(),
        reach: call.tool().map_or(Reach::Local, |tool| tool.reach).as_str().to_owned(),
        rule: rule.to_owned(),
        definition: hex(&definition),
        // Not the id itself: whoever has it has the session.
        session: call.ctx.peer.session().map(|id| hex(&Sha256::digest(id))),
        arguments,
        more,
    })
}

fn add(hash: &mut Sha256, kind: u8, text: &str) {
    hash.update([kind]);
    hash.update((text.len() as u64).to_le_bytes());
    hash.update(text);
}

/// Adds a JSON value so that two ways to write the same one count the same: spaces, the order of keys and escapes do
/// not matter. Numbers count as they are written, because whoever runs the call may read more digits than we do.
fn add_value(hash: &mut Sha256, raw: &RawValue) -> serde_json::Result<()> {
    let text = raw.get().trim();
    match text.as_bytes().first() {
        Some(b'{') => {
            let members: BTreeMap<Cow<'_, str>, &RawValue> = serde_json::from_str(text)?;
            add(hash, b'o', &members.len().to_string());
            for (key, value) in members {
                add(hash, b'k', &key);
                add_value(hash, value)?;
            }
        }
        Some(b'[') => {
            let items: Vec<&RawValue> = serde_json::from_str(text)?;
            add(hash, b'a', &items.len().to_string());
            items.into_iter().try_for_each(|item| add_value(hash, item))?;
        }
        Some(b'"') => add(hash, b's', &serde_json::from_str::<String>(text)?),
        _ => add(hash, b'n', text),
    }
    Ok(())
}

/// Returns the arguments as a person can trust them, and how many characters of them are left out: without secrets,
/// and with everything visible that could mislead.
fn shown(call: &Call, redactor: &Redactor) -> (String, usize) {
    let raw = call.arguments.raw().get();
    let text = if raw.contains("\\u") {
        // Any character can be written as an escape, and so can those of a secret.
        match call.arguments.value() {
            Ok(value) => Cow::Owned(value.to_string()),
            Err(_) => return ("[withheld: not readable]".to_owned(), 0),
        }
    } else {
        Cow::Borrowed(raw)
    };
    // First scrubbed, then cut: half a secret is not recognised.
    let text = visible(&redactor.scrub(&text));
    let kept = text.floor_char_boundary(ARGUMENTS_BYTES_MAX);
    (text[..kept].to_owned(), text[kept..].chars().count())
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a text does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::call;

    fn digest(arguments: &str) -> String {
        let call = call(&format!("stub_send {arguments}"));
        asked(&call, "rule", &Redactor::new(&[]).unwrap()).unwrap().digest
    }

    #[test]
    fn the_digest_is_of_what_the_arguments_mean() {
        let one = digest(r#"{"text":"a\u0062c","limit":3,"list":[1,{"x":null}]}"#);
        assert_eq!(one, digest(r#"{ "list" : [1, {"x": null}], "limit":3, "text":"abc" }"#));
        for other in [
            r#"{"text":"abd","limit":3,"list":[1,{"x":null}]}"#,
            r#"{"text":"abc","limit":3.0,"list":[1,{"x":null}]}"#,
            r#"{"text":"abc","limit":"3","list":[1,{"x":null}]}"#,
            r#"{"text":"abc","limit":3,"list":[{"x":null},1]}"#,
            r#"{"text":"abc","limit":3,"list":[1],"x":null}"#,
            r#"{"text":"abc","limit":3,"list":[1,{"x":false}]}"#,
            r#"{"text":"abc","limit":3}"#,
        ] {
            assert_ne!(one, digest(other), "{other}");
        }
    }

    #[test]
    fn what_is_shown_hides_nothing_and_has_a_bound() {
        let redactor =
            Redactor::new(&[("KEY".to_owned(), portcullis_core::Secret::new("hunter2hunter2".to_owned()))])
                .unwrap();
        let shown_of = |arguments: &str| shown(&call(&format!("stub_send {arguments}")), &redactor);
        assert_eq!(shown_of("{\"to\":\"a\u{202e}b\u{200b}\"}").0, "{\"to\":\"a\\u{202e}b\\u{200b}\"}");
        assert_eq!(shown_of(r#"{"to":"a\u202eb"}"#).0, "{\"to\":\"a\\u{202e}b\"}");
        assert_eq!(shown_of(r#"{"to":"hunter2hunter2"}"#).0, r#"{"to":"[REDACTED:KEY]"}"#);
        // A secret on the edge of what is shown is not shown in half.
        let long = format!("{{\"to\":\"{}hunter2hunter2\"}}", "ä".repeat(ARGUMENTS_BYTES_MAX / 2 - 8));
        let (text, more) = shown_of(&long);
        assert!(text.len() <= ARGUMENTS_BYTES_MAX && more > 0 && !text.contains("hunt"), "{more}");
    }
}
