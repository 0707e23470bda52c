//! Elicitations and sampling requests of a server, made fit to be shown: provenance, sanitised text, checked URLs.
//!
//! A person who reads a question has to know who asks. The first line is the hub's and names the server; every line of the
//! server's own text is quoted, so none can look like that line or like the hub's own approval form. A question that hides
//! something where nothing may be changed, or that leads where no stranger may lead a person, is refused as a whole.

use crate::clean::{clean_text, exact};
use crate::connection::RequestError;
use crate::spec::{ServerSpec, TransportSpec};
use portcullis_core::json::{folded, is_mistakable, parse_exact};
use portcullis_core::{Ask, AskKind};
use portcullis_egress::{Url, is_public};
use portcullis_wire::params::Fields;
use portcullis_wire::{era, rpc};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::net::IpAddr;
use url::Host;

/// How long a message may be, in characters and lines. A longer one is refused, not cut: half a secret is not recognised.
const MESSAGE_CHARS_MAX: usize = 4_000;
const MESSAGE_LINES_MAX: usize = 60;
/// How long any other text for readers may be.
const LABEL_CHARS_MAX: usize = 1_000;
/// How long all that describes a form may be.
const FORM_BYTES_MAX: usize = 64 * 1024;
const URL_BYTES_MAX: usize = 2 * 1024;
/// The members of a form that are there to be read. All others mean what they say to the letter.
const LABELS: [&str; 5] = ["title", "description", "enumNames", "default", "$comment"];
/// The members of a question that are looked at here.
const MEMBERS: [&str; 5] = ["mode", "message", "url", "requestedSchema", "elicitationId"];
/// Names that no public host has.
const LOCAL_SUFFIXES: [&str; 8] =
    ["localhost", "localdomain", "local", "internal", "intranet", "lan", "home.arpa", "test"];

/// How the keys begin under which the hub finds the answers to its own questions. No server may ask under such a key.
const RESERVED_KEY_PREFIX: &str = "portcullis_";

/// Checks the key under which a server of the newer era wants its answer.
pub(crate) fn check_key(key: &str) -> Result<(), String> {
    if folded(key).starts_with(RESERVED_KEY_PREFIX) {
        return Err(format!("a key that begins with `{RESERVED_KEY_PREFIX}` is the hub's own"));
    }
    Ok(())
}

/// The server that asks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asker<'a> {
    pub(crate) name: &'a str,
    /// Where a person configured it to be, if it is not a program.
    pub(crate) own: Option<&'a Url>,
}

impl<'a> Asker<'a> {
    pub(crate) fn of(spec: &'a ServerSpec) -> Asker<'a> {
        let own = match &spec.transport {
            TransportSpec::Http(http) => http.place.url(),
            TransportSpec::Stdio(_) => None,
        };
        Asker { name: &spec.name, own }
    }
}

/// Makes a question of a server fit to be shown, or says why it is not asked.
pub(crate) fn present(asker: Asker<'_>, ask: &mut Ask) -> Result<(), String> {
    match (ask.kind, &mut ask.params) {
        (AskKind::Elicit, Value::Object(params)) => present_elicitation(asker, params),
        // A model reads it, and the client shows it to a person first: nothing in it may be unseen.
        (AskKind::Sample, params) => {
            clean_prompt(params);
            Ok(())
        }
        (AskKind::Elicit | AskKind::Roots, _) => Ok(()),
    }
}

fn present_elicitation(asker: Asker<'_>, params: &mut Map<String, Value>) -> Result<(), String> {
    if let Some(name) = params.keys().find(|name| MEMBERS.iter().any(|own| is_mistakable(name, own))) {
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
        _ => return Err("`url` must be a text".to_owned()),
    }
    let message = match params.get("message") {
        None => "",
        Some(Value::String(message)) => message,
        Some(_) => return Err("`message` must be a text".to_owned()),
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

/// Returns a server's message below a line that says whose it is. No server can write a line that is not quoted.
fn attributed(server: &str, message: &str) -> Result<String, String> {
    let mut message = message.to_owned();
    clean_text(&mut message);
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

/// Cleans what of a form is there to be read, and refuses one that hides something elsewhere: a name or a choice that is
/// changed would not be the server's any more.
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

/// Cleans texts that stand beside a field, on one line each.
fn clean_labels(value: &mut Value) -> Result<(), String> {
    match value {
        Value::String(text) => {
            clean_text(text);
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

/// Takes what nobody sees out of what a model is asked to read.
fn clean_prompt(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(clean_prompt),
        Value::Object(members) => {
            for (name, member) in members.iter_mut() {
                match member {
                    Value::String(text)
                        if ["text", "systemPrompt", "title", "description"].contains(&name.as_str()) =>
                    {
                        clean_text(text);
                    }
                    other => clean_prompt(other),
                }
            }
        }
        _ => {}
    }
}

/// Checks a URL that a person is asked to open: https, at a public host, without credentials and written plainly; or at
/// the very origin of the server, which a person wrote into the configuration.
fn check_url(asker: Asker<'_>, text: &str) -> Result<(), String> {
    let no = |why: &str| Err(format!("`url` is not shown to a person: {why}"));
    // A backslash and the like are read differently by different readers.
    let is_plain = |c: char| c.is_ascii_graphic() && !r#"\"<>^`{|}"#.contains(c);
    if text.len() > URL_BYTES_MAX || !text.chars().all(is_plain) {
        return no("it must be written in at most 2048 characters that addresses are written with");
    }
    let Ok(url) = Url::parse(text) else { return no("it must be an absolute address") };
    if !url.username().is_empty() || url.password().is_some() {
        return no("it must hold no credentials");
    }
    if asker.own.is_some_and(|own| own.origin() == url.origin()) {
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

/// Makes the URLs fit to be shown with which a server says that a person has to open them before the call.
pub(crate) fn present_error(asker: Asker<'_>, error: RequestError) -> Result<RequestError, String> {
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

fn present_url_list(asker: Asker<'_>, data: &mut Value) -> Result<(), String> {
    let Value::Object(members) = data else {
        // Nothing that a client could show.
        *data = Value::Null;
        return Ok(());
    };
    if members.keys().any(|name| is_mistakable(name, "elicitations")) {
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

/// Makes the questions fit to be shown that are part of a result which is passed on: how a task stands. Returns `None` where
/// there are none, as nearly always.
pub(crate) fn present_result(asker: Asker<'_>, result: &RawValue) -> Result<Option<Box<RawValue>>, String> {
    let text = result.get();
    // Most results are only passed on. A name may be written with escapes, and another reader may not tell capitals.
    let may_ask = ["equests\"", "EQUESTS\"", "\"error\"", "\\u"];
    if !text.starts_with('{') || !may_ask.iter().any(|part| text.contains(part)) {
        return Ok(None);
    }
    let unreadable = || "it asks what cannot be read".to_owned();
    let fields: Fields<'_> = serde_json::from_str(text).map_err(|_| unreadable())?;
    let asks = fields.0.iter().any(|(name, _)| folded(name) == folded("inputRequests"));
    if !asks && fields.get("error").is_none() {
        return Ok(None);
    }
    let mut value = parse_exact(text).map_err(|_| unreadable())?;
    let Value::Object(members) = &mut value else { return Ok(None) };
    if members.keys().any(|name| is_mistakable(name, "inputRequests")) {
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

fn present_request(asker: Asker<'_>, request: &mut Value) -> Result<(), String> {
    let kinds = [AskKind::Elicit, AskKind::Sample, AskKind::Roots];
    let kind = kinds.into_iter().find(|kind| request["method"] == era::ask_method(*kind));
    let Some(kind) = kind else { return Err("it asks what no client can be asked".to_owned()) };
    if let Some(params) = request.get_mut("params") {
        let mut ask = Ask { kind, params: params.take() };
        present(asker, &mut ask)?;
        *params = ask.params;
    }
    Ok(())
}
