//! The approval request of a call: a digest that identifies it, and the text that a person reads.

use crate::extra_params;
use crate::redact::Redactor;
use data_encoding::HEXLOWER;
use portcullis_core::json::{visible, visible_json};
use portcullis_core::{Call, Origin, PolicySubject, Target, ToolError};
use portcullis_store::approvals::{ARGUMENTS_BYTES_MAX, ApprovalRequest};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

/// How much of a long text is shown: its start and its end.
const TEXT_BEGIN_CHARS: usize = 1_500;
const TEXT_END_CHARS: usize = 300;

/// Returns the approval request for a call.
pub(super) fn approval_request(
    call: &Call,
    rule: &str,
    redactor: &Redactor,
) -> Result<ApprovalRequest, ToolError> {
    // Targets other than tools have no definition but their name.
    let named = || Sha256::digest(format!("{} {}", call.target.kind(), call.target.name())).into();
    let definition: [u8; 32] = call.tool().map_or_else(named, |tool| tool.digest());
    let (client, origin) = (&call.caller().client.name, call.caller().origin.as_str());
    let mut hash = Sha256::new();
    for part in [client, origin, call.target.kind(), call.target.name()] {
        add(&mut hash, b'p', part);
    }
    let holder = call.caller().client.token.map(holder);
    if let Some(holder) = &holder {
        add(&mut hash, b'h', holder);
    }
    let ancestors = call.caller().ancestors;
    // A yes to a script of a client is none to the same script of a schedule.
    for origin in ancestors.iter().filter(|origin| *origin != Origin::Client) {
        add(&mut hash, b'o', origin.as_str());
    }
    hash.update(definition);
    // The validate layer has parsed them before.
    match &call.target {
        Target::Completion(_) => add_members(&mut hash, call.arguments.raw(), &["_meta"]),
        _ => add_value(&mut hash, call.arguments.raw()),
    }
    .map_err(ToolError::internal)?;
    if let Some(extra) = extra_params::object(call) {
        extra.and_then(|extra| add_value(&mut hash, &extra)).map_err(ToolError::internal)?;
    }
    let (arguments, more) = shown(call, redactor).map_err(ToolError::internal)?;
    Ok(ApprovalRequest {
        digest: HEXLOWER.encode(&hash.finalize()),
        client: client.clone(),
        holder,
        origin: origin.to_owned(),
        ancestors: ancestors.iter().map(|origin| origin.as_str().to_owned()).collect(),
        kind: call.target.kind().to_owned(),
        target: visible(&redactor.scrub(call.target.name())),
        effect: call.effect().as_str().to_owned(),
        reach: PolicySubject::of_call(call).reach.as_str().to_owned(),
        rule: rule.to_owned(),
        definition: HEXLOWER.encode(&definition),
        session: call.ctx.session().map(|session| session.to_string()),
        arguments,
        more,
    })
}

/// Returns a value that distinguishes successive holders of one client name. Derived from the token, but does not reveal it.
fn holder(token: u64) -> String {
    HEXLOWER.encode(&Sha256::new().chain_update(b"holder").chain_update(token.to_le_bytes()).finalize())
}

fn add(hash: &mut Sha256, kind: u8, text: &str) {
    hash.update([kind]);
    hash.update((text.len() as u64).to_le_bytes());
    hash.update(text);
}

/// Adds a JSON value in canonical form: whitespace, key order and escapes do not matter. Numbers count as written, because
/// an upstream server may parse more digits than the hub.
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

/// Adds the members of an object except `but`, which belong to the message, not to the request.
fn add_members(hash: &mut Sha256, raw: &RawValue, but: &[&str]) -> serde_json::Result<()> {
    let members: BTreeMap<Cow<'_, str>, &RawValue> = serde_json::from_str(raw.get())?;
    for (key, value) in members.iter().filter(|(key, _)| !but.contains(&&***key)) {
        add(hash, b'k', key);
        add_value(hash, value)?;
    }
    Ok(())
}

/// Returns the arguments for display, and how many characters are left out. Secrets are redacted, misleading characters
/// escaped, and long texts shortened so that padding cannot push the rest out of sight.
fn shown(call: &Call, redactor: &Redactor) -> serde_json::Result<(String, usize)> {
    let (mut text, mut left_out) = (String::new(), 0);
    write_value(&mut text, &mut left_out, call.arguments.raw(), redactor)?;
    if let Some(extra) = extra_params::object(call) {
        text.push_str(extra_params::SEPARATOR);
        write_value(&mut text, &mut left_out, &extra?, redactor)?;
    }
    // Redacted again as a whole, because a secret may span several values; and before the cut.
    let text = redactor.scrub(&text);
    let kept = text.floor_char_boundary(ARGUMENTS_BYTES_MAX);
    Ok((text[..kept].to_owned(), left_out + text[kept..].chars().count()))
}

/// Writes a value without whitespace, numbers as written, long texts shortened.
fn write_value(
    into: &mut String,
    left_out: &mut usize,
    raw: &RawValue,
    redactor: &Redactor,
) -> serde_json::Result<()> {
    let text = raw.get().trim();
    match text.as_bytes().first() {
        Some(b'{') => {
            // In the original order, which a person expects.
            let members: Members<'_> = serde_json::from_str(text)?;
            into.push('{');
            for (at, (key, value)) in members.0.into_iter().enumerate() {
                if at > 0 {
                    into.push(',');
                }
                write_text(into, left_out, &key, redactor);
                into.push(':');
                write_value(into, left_out, value, redactor)?;
            }
            into.push('}');
        }
        Some(b'[') => {
            into.push('[');
            let items: Vec<&RawValue> = serde_json::from_str(text)?;
            for (at, item) in items.into_iter().enumerate() {
                if at > 0 {
                    into.push(',');
                }
                write_value(into, left_out, item, redactor)?;
            }
            into.push(']');
        }
        Some(b'"') => write_text(into, left_out, &serde_json::from_str::<String>(text)?, redactor),
        _ => into.push_str(text),
    }
    Ok(())
}

fn write_text(into: &mut String, left_out: &mut usize, text: &str, redactor: &Redactor) {
    let text = redactor.scrub(text);
    let chars = text.chars().count();
    let quoted = |part: &str| {
        let json = serde_json::Value::from(part).to_string();
        // JSON escapes, so that the display can be parsed.
        visible_json(&json[1..json.len() - 1]).into_owned()
    };
    into.push('"');
    if chars <= TEXT_BEGIN_CHARS + TEXT_END_CHARS {
        into.push_str(&quoted(&text));
    } else {
        let cut = |at: usize| text.char_indices().nth(at).map_or(text.len(), |(offset, _)| offset);
        let between = chars - TEXT_BEGIN_CHARS - TEXT_END_CHARS;
        *left_out += between;
        into.push_str(&quoted(&text[..cut(TEXT_BEGIN_CHARS)]));
        into.push_str(&format!("[… {between} characters …]"));
        into.push_str(&quoted(&text[cut(chars - TEXT_END_CHARS)..]));
    }
    into.push('"');
}

/// The members of an object in their original order.
struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{call, call_by, caller};
    use portcullis_core::{Caller, Client};
    use std::sync::Arc;

    fn digest(arguments: &str) -> String {
        let call = call(&format!("stub_send {arguments}"));
        approval_request(&call, "rule", &Redactor::new(&[]).unwrap()).unwrap().digest
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
    fn what_stands_beside_the_arguments_counts_and_is_shown() {
        let redactor = Redactor::new(&[]).unwrap();
        let mut call = call("stub_send {}");
        let without = approval_request(&call, "rule", &redactor).unwrap();
        call.passed.params = r#""force":true"#.to_owned();
        let with = approval_request(&call, "rule", &redactor).unwrap();
        assert_ne!(with.digest, without.digest);
        assert_eq!(with.arguments, r#"{} with extra parameters {"force":true}"#);
    }

    #[test]
    fn a_name_that_was_given_again_is_somebody_else() {
        let asked_with = |token: Option<u64>| {
            let ada = caller("ada");
            let client = Arc::new(Client { token, ..(*ada.client).clone() });
            let call = call_by(Caller { client, ..ada }, "stub_send");
            let asked = approval_request(&call, "rule", &Redactor::new(&[]).unwrap()).unwrap();
            (asked.digest, asked.holder)
        };
        let (digest, holder) = asked_with(Some(1));
        assert_eq!(asked_with(Some(1)), (digest.clone(), holder.clone()));
        for (other_digest, other_holder) in [asked_with(Some(2)), asked_with(None)] {
            assert_ne!(digest, other_digest);
            assert_ne!(holder, other_holder);
        }
    }

    #[test]
    fn what_is_shown_hides_nothing_and_has_a_bound() {
        let secret = portcullis_core::Secret::new("hunter2hunter2".to_owned());
        let redactor = Redactor::new(&[("KEY".to_owned(), secret)]).unwrap();
        let shown_of = |arguments: &str| shown(&call(&format!("stub_send {arguments}")), &redactor).unwrap();
        for (arguments, expected) in [
            ("{\"to\":\"a\u{202e}b\u{200b}\"}", "{\"to\":\"a\\u202eb\\u200b\"}"),
            (r#"{"to":"a\u202eb"}"#, "{\"to\":\"a\\u202eb\"}"),
            (r#"{"to":"hunter2hunter2"}"#, r#"{"to":"[REDACTED:KEY]"}"#),
            (r#"{"hunter2\u0068unter2":1}"#, r#"{"[REDACTED:KEY]":1}"#),
            // Numbers as an upstream server reads them, and no room for padding.
            (
                "{ \"n\" : 1.00000000000000000001 , \"x\" : [ ] , \"y\" : { } }",
                r#"{"n":1.00000000000000000001,"x":[],"y":{}}"#,
            ),
            ("{}", "{}"),
        ] {
            assert_eq!(shown_of(arguments), (expected.to_owned(), 0), "{arguments}");
        }
        let padded = format!("{{\"path\":\"a\",{}\"content\":\"rm -rf\"}}", " ".repeat(20_000));
        assert_eq!(shown_of(&padded).0, r#"{"path":"a","content":"rm -rf"}"#);
        let long = format!("{{\"a\":\"{}\",\"last\":\"seen\"}}", "x".repeat(20_000));
        let (text, more) = shown_of(&long);
        assert!(text.ends_with(r#"","last":"seen"}"#) && more == 20_000 - 1_800, "{more} {text}");
        // A secret at the cut is not shown in part.
        let edge =
            format!("{{\"to\":\"{}hunter2hunter2{}\"}}", "ä".repeat(TEXT_BEGIN_CHARS - 5), "ö".repeat(5_000));
        let (text, more) = shown_of(&edge);
        assert!(text.len() <= ARGUMENTS_BYTES_MAX && more > 0 && !text.contains("hunt"), "{text}");
    }
}
