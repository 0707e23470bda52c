//! The login to a server, from the settings of another program to ours.

use super::Lifted;
use super::entry::is_given;
use super::kept::{SECRET_BYTES_MIN, secret_name};
use super::variables::{Context, plain};
use portcullis_core::Secret;
use portcullis_core::json::printable;
use serde_json::Value;

const CLIENT_ID: &str = "client_id";
const CLIENT_SECRET: &str = "client_secret";
const CALLBACK_PORT: &str = "callback_port";
/// The settings that are the same here, each with the names that it has there.
const KNOWN: [(&str, &[&str]); 4] = [
    // First, because the secret is of no use without it.
    (CLIENT_ID, &["clientId", "client_id", "CLIENT_ID"]),
    (CLIENT_SECRET, &["clientSecret", "client_secret", "CLIENT_SECRET"]),
    ("scope", &["scope", "scopes"]),
    (CALLBACK_PORT, &["callbackPort", "callback_port"]),
];

/// Returns whether there is a login, and what is set for it. `host` is where the server is, if it is no program.
pub(super) fn oauth_of(
    entry: &Value,
    server: &str,
    host: Option<&str>,
    context: &Context<'_>,
    notes: &mut Vec<String>,
    secrets: &mut Vec<Lifted>,
) -> Option<Vec<(String, Value)>> {
    let is_set = |value: &&Value| !matches!(value, Value::Null | Value::Bool(false));
    let set = [&entry["oauth"], &entry["auth"]].into_iter().find(is_set)?;
    let Some(host) = host.filter(|_| matches!(set, Value::Object(_) | Value::Bool(true))) else {
        notes.push("it has settings for OAuth there, which are not taken over".to_owned());
        return None;
    };
    let is_known = |key: &str| KNOWN.iter().any(|(_, names)| names.contains(&key));
    let members = set.as_object().into_iter().flatten();
    for (key, _) in members.filter(|(key, value)| is_given(value) && !is_known(key)) {
        notes.push(format!("`{}` of its settings for OAuth is not taken over", printable(key)));
    }
    let mut settings: Vec<(String, Value)> = Vec::new();
    for (here, names) in KNOWN {
        let Some(given) = names.iter().map(|name| &set[*name]).find(|value| is_given(value)) else {
            continue;
        };
        let text = text_of(given, context, notes);
        let value = match here {
            CLIENT_SECRET => {
                let has_client = settings.iter().any(|(here, _)| here == CLIENT_ID);
                let lifted = lifted(server, host, has_client, text, notes);
                settings.extend(
                    lifted
                        .iter()
                        .map(|secret| (here.to_owned(), Value::from(format!("secret:{}", secret.name)))),
                );
                secrets.extend(lifted);
                continue;
            }
            CALLBACK_PORT => {
                let port = text.and_then(|text| text.parse::<u16>().ok());
                port.filter(|port| *port > 0).map(Value::from)
            }
            _ => text.map(Value::from),
        };
        match value {
            Some(value) => settings.push((here.to_owned(), value)),
            None => notes.push(format!(
                "the `{here}` of its login cannot be taken over as it is written there; write it into `mcp.{server}`: \
                 `oauth = {{ {here} = … }}`, with whatever else is there"
            )),
        }
    }
    notes.push(format!("it wants a login before it can be looked at: `portcullis mcp auth {server}`"));
    Some(settings)
}

/// Returns the text of a setting, if there is one in which nothing stands for something else: nothing is put in here.
fn text_of(value: &Value, context: &Context<'_>, notes: &mut Vec<String>) -> Option<String> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        // Several scopes.
        Value::Array(items) => items.iter().map(Value::as_str).collect::<Option<Vec<_>>>()?.join(" "),
        Value::Null | Value::Bool(_) | Value::Object(_) => return None,
    };
    plain(&text, context, notes).ok().filter(|text| !text.trim().is_empty())
}

/// Returns the secret of a client as it is kept. It goes to whoever makes the tokens, who is not known before the login;
/// mostly that is the host of the server.
fn lifted(
    server: &str,
    host: &str,
    has_client: bool,
    value: Option<String>,
    notes: &mut Vec<String>,
) -> Option<Lifted> {
    let grant = format!("{host}:{CLIENT_SECRET}");
    if !has_client {
        notes.push(format!(
            "its client secret is not taken over, because it is of no use without `client_id`. To keep it: \
             portcullis secrets set NAME --grant '{grant}', then in `mcp.{server}`: \
             `oauth = {{ client_id = \"…\", client_secret = \"secret:NAME\" }}`"
        ));
        return None;
    }
    if value.as_ref().is_some_and(|value| value.len() < SECRET_BYTES_MIN) {
        notes.push("its client secret is too short for a secret; it is not taken over".to_owned());
        return None;
    }
    notes.push(format!(
        "its client secret is granted for {host}. If its tokens are made elsewhere, `portcullis mcp auth {server}` says what to do"
    ));
    let (key, name) = (format!("oauth.{CLIENT_SECRET}"), secret_name(server, CLIENT_SECRET));
    Some(Lifted { key, name, scheme: None, value: value.map(Secret::new), grant, refused: None })
}
