//! Elicitations and sampling requests of a server, made fit to be shown: provenance, sanitised text, checked URLs.
//!
//! A person who reads a question has to know which server asks. The first line is the hub's and names the server;
//! every line of the server is quoted, so none can look like that line or like the hub's approval form. A question
//! with hidden characters where nothing may be changed, or with a URL that no server may lead a person to, is
//! refused as a whole.

use crate::sanitize::{exact, sanitize_text};
use crate::transport::RequestError;
use portcullis_core::json::{folded, is_confusable, parse_exact};
use portcullis_core::{InputRequest, InputRequestKind};
use portcullis_egress::{Url, is_public};
use portcullis_wire::params::RawMembers;
use portcullis_wire::{era, rpc};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::net::IpAddr;
use url::Host;

/// The longest message, in characters and lines. A longer one is refused, not cut: redaction does not recognise half
/// a secret.
const MESSAGE_CHARS_MAX: usize = 4_000;
const MESSAGE_LINES_MAX: usize = 60;
/// The longest label.
const LABEL_CHARS_MAX: usize = 1_000;
/// The longest form schema.
const FORM_BYTES_MAX: usize = 64 * 1024;
const URL_BYTES_MAX: usize = 2 * 1024;
/// The members of a form that people read. All others are literal.
const LABELS: [&str; 5] = ["title", "description", "enumNames", "default", "$comment"];
/// The members of a question that are checked here.
const MEMBERS: [&str; 5] = ["mode", "message", "url", "requestedSchema", "elicitationId"];
/// Suffixes that no public host has.
const LOCAL_SUFFIXES: [&str; 8] =
    ["localhost", "localdomain", "local", "internal", "intranet", "lan", "home.arpa", "test"];

/// The prefix of the keys for the hub's own questions. No server may ask under such a key.
const RESERVED_KEY_PREFIX: &str = "portcullis_";

/// Checks the key of an input request.
pub(crate) fn check_key(key: &str) -> Result<(), String> {
    if folded(key).starts_with(RESERVED_KEY_PREFIX) {
        return Err(format!("a key that begins with `{RESERVED_KEY_PREFIX}` is the hub's own"));
    }
    Ok(())
}

/// The server that asks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AskingServer<'a> {
    pub(crate) name: &'a str,
    /// Its configured URL, if it is not a program.
    pub(crate) url: Option<&'a Url>,
}

/// Makes a question of a server fit to be shown, or says why it is not asked.
pub(crate) fn present(asker: AskingServer<'_>, ask: &mut InputRequest) -> Result<(), String> {
    match (ask.kind, &mut ask.params) {
        (InputRequestKind::Elicit, Value::Object(params)) => present_elicitation(asker, params),
        // A model reads it, and a person first: nothing in it may be invisible.
        (InputRequestKind::Sample, params) => {
            clean_prompt(params);
            Ok(())
        }
        (InputRequestKind::Elicit | InputRequestKind::Roots, _) => Ok(()),
    }
}

fn present_elicitation(asker: AskingServer<'_>, params: &mut Map<String, Value>) -> Result<(), String> {
    if let Some(name) = params.keys().find(|name| MEMBERS.iter().any(|own| is_confusable(name, own))) {
        let name = portcullis_core::json::printable(name);
        return Err(format!("`{name}` could be taken for another member; leave it out"));
    }
    match params.get("mode") {
        None => {}
        Some(mode) if mode == "form" || mode == "url" => {}
        Some(_) => return Err("`mode` must be `form` or `url`".to_owned()),
    }
    match params.get("url") {
        None if params.get("mode").is_none_or(|mode| mode != "url") => {}
        Some(Value::String(url)) => check_url(asker, url)?,
        _ => return Err("`url` must be a string".to_owned()),
    }
    let message = match params.get("message") {
        None => "",
        Some(Value::String(message)) => message,
        Some(_) => return Err("`message` must be a string".to_owned()),
    };
    let message = attributed(asker.name, message)?;
    params.insert("message".to_owned(), message.into());
    for (name, value) in params.iter_mut() {
        if !["mode", "message", "url", "elicitationId", "_meta", "task"].contains(&name.as_str()) {
            if value.to_string().len() > FORM_BYTES_MAX {
                return Err(format!("the form must be described in at most {FORM_BYTES_MAX} bytes"));
            }
            clean_form(value)?;
        }
    }
    Ok(())
}

/// Returns a server's message, quoted below a line that names the server.
fn attributed(server: &str, message: &str) -> Result<String, String> {
    let mut message = message.to_owned();
    sanitize_text(&mut message);
    if message.chars().nth(MESSAGE_CHARS_MAX).is_some() || message.lines().count() > MESSAGE_LINES_MAX {
        return Err(format!(
            "`message` must have at most {MESSAGE_CHARS_MAX} characters and {MESSAGE_LINES_MAX} lines"
        ));
    }
    let mut shown = format!("Server \"{server}\" asks:");
    for line in message.lines() {
        shown.push_str("\n> ");
        shown.push_str(line);
    }
    Ok(shown)
}

/// Sanitises the labels of a form, and refuses a form with hidden characters elsewhere: a changed name or choice
/// would not be the server's any more.
fn clean_form(value: &mut Value) -> Result<(), String> {
    match value {
        Value::String(text) => exact(text),
        Value::Array(items) => items.iter_mut().try_for_each(clean_form),
        Value::Object(members) => members.iter_mut().try_for_each(|(name, member)| {
            exact(name)?;
            match LABELS.contains(&name.as_str()) && !member.is_object() {
                true => clean_labels(member),
                false => clean_form(member),
            }
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
    }
}

/// Sanitises labels, on one line each.
fn clean_labels(value: &mut Value) -> Result<(), String> {
    match value {
        Value::String(text) => {
            sanitize_text(text);
            if text.contains('\n') {
                *text = text.replace('\n', " ");
            }
            match text.chars().nth(LABEL_CHARS_MAX) {
                None => Ok(()),
                Some(_) => Err(format!("a text of the form has more than {LABEL_CHARS_MAX} characters")),
            }
        }
        Value::Array(items) => items.iter_mut().try_for_each(clean_labels),
        other => clean_form(other),
    }
}

/// Removes invisible characters from what a model is asked to read.
fn clean_prompt(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(clean_prompt),
        Value::Object(members) => {
            for (name, member) in members.iter_mut() {
                match member {
                    Value::String(text)
                        if ["text", "systemPrompt", "title", "description"].contains(&name.as_str()) =>
                    {
                        sanitize_text(text);
                    }
                    other => clean_prompt(other),
                }
            }
        }
        _ => {}
    }
}

/// Checks a URL that a person is asked to open: https, a public host, no credentials, plain characters; or the
/// server's configured origin.
fn check_url(asker: AskingServer<'_>, text: &str) -> Result<(), String> {
    let no = |why: &str| Err(format!("`url` is not shown to a person: {why}"));
    // Parsers disagree on a backslash and the like.
    let is_plain = |c: char| c.is_ascii_graphic() && !r#"\"<>^`{|}"#.contains(c);
    if text.len() > URL_BYTES_MAX || !text.chars().all(is_plain) {
        return no("it must have at most 2048 plain URL characters");
    }
    let Ok(url) = Url::parse(text) else { return no("it must be an absolute URL") };
    if !url.username().is_empty() || url.password().is_some() {
        return no("it must have no credentials");
    }
    if asker.url.is_some_and(|own| own.origin() == url.origin()) {
        return Ok(());
    }
    if url.scheme() != "https" {
        return no("it must be https");
    }
    let public = match url.host() {
        Some(Host::Domain(name)) => is_public_name(name),
        Some(Host::Ipv4(address)) => is_public(IpAddr::V4(address)),
        Some(Host::Ipv6(address)) => is_public(IpAddr::V6(address)),
        None => false,
    };
    if public { Ok(()) } else { no("its host must be public") }
}

fn is_public_name(name: &str) -> bool {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    let is_local = |suffix: &&str| {
        name.strip_suffix(suffix).is_some_and(|before| before.is_empty() || before.ends_with('.'))
    };
    name.contains('.') && !LOCAL_SUFFIXES.iter().any(is_local)
}

/// Makes the URLs in an error fit to be shown: a person has to open them before the call.
pub(crate) fn present_error(asker: AskingServer<'_>, error: RequestError) -> Result<RequestError, String> {
    let RequestError::Refused(mut said) = error else { return Ok(error) };
    if said.code == i64::from(rpc::URL_ELICITATION_REQUIRED) {
        let unreadable = || "the URLs that it wants opened cannot be read".to_owned();
        let mut data = match &said.data {
            Some(data) => parse_exact(data.get()).map_err(|_| unreadable())?,
            None => Value::Null,
        };
        present_url_list(asker, &mut data)?;
        said.data = match data {
            Value::Null => None,
            data => Some(RawValue::from_string(data.to_string()).map_err(|_| unreadable())?),
        };
    }
    Ok(RequestError::Refused(said))
}

fn present_url_list(asker: AskingServer<'_>, data: &mut Value) -> Result<(), String> {
    let Value::Object(members) = data else {
        // A client could show nothing of it.
        *data = Value::Null;
        return Ok(());
    };
    if members.keys().any(|name| is_confusable(name, "elicitations")) {
        return Err("it says twice which URLs it wants opened".to_owned());
    }
    for elicitation in members.get_mut("elicitations").and_then(Value::as_array_mut).into_iter().flatten() {
        match elicitation {
            Value::Object(params) => present_elicitation(asker, params)?,
            _ => return Err("the URLs that it wants opened cannot be read".to_owned()),
        }
    }
    Ok(())
}

/// Makes the questions in a result fit to be shown: those of a task. Returns `None` where there are none, as nearly
/// always.
pub(crate) fn present_result(
    asker: AskingServer<'_>,
    result: &RawValue,
) -> Result<Option<Box<RawValue>>, String> {
    let text = result.get();
    // Most results are passed on unparsed. A name may be escaped, and other parsers may ignore case.
    let may_ask = ["equests\"", "EQUESTS\"", "\"error\"", "\\u"];
    if !text.starts_with('{') || !may_ask.iter().any(|part| text.contains(part)) {
        return Ok(None);
    }
    let unreadable = || "its question cannot be read".to_owned();
    let fields: RawMembers<'_> = serde_json::from_str(text).map_err(|_| unreadable())?;
    let asks = fields.0.iter().any(|(name, _)| folded(name) == folded("inputRequests"));
    if !asks && fields.get("error").is_none() {
        return Ok(None);
    }
    let mut value = parse_exact(text).map_err(|_| unreadable())?;
    let Value::Object(members) = &mut value else { return Ok(None) };
    if members.keys().any(|name| is_confusable(name, "inputRequests")) {
        return Err(unreadable());
    }
    if let Some(Value::Object(requests)) = members.get_mut("inputRequests") {
        for (key, request) in requests.iter_mut() {
            check_key(key)?;
            present_request(asker, request)?;
        }
    }
    match members.get_mut("error") {
        Some(error) if error["code"].as_f64() == Some(f64::from(rpc::URL_ELICITATION_REQUIRED)) => {
            error.get_mut("data").map_or(Ok(()), |data| present_url_list(asker, data))?;
        }
        _ if !asks => return Ok(None),
        _ => {}
    }
    RawValue::from_string(value.to_string()).map(Some).map_err(|_| unreadable())
}

fn present_request(asker: AskingServer<'_>, request: &mut Value) -> Result<(), String> {
    let kinds = [InputRequestKind::Elicit, InputRequestKind::Sample, InputRequestKind::Roots];
    let kind = kinds.into_iter().find(|kind| request["method"] == era::ask_method(*kind));
    let Some(kind) = kind else { return Err("it asks for something that no client supports".to_owned()) };
    if let Some(params) = request.get_mut("params") {
        let mut ask = InputRequest { kind, params: params.take() };
        present(asker, &mut ask)?;
        *params = ask.params;
    }
    Ok(())
}
