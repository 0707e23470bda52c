//! Converts OAuth settings of another application.

use super::ExtractedSecret;
use super::entry::is_given;
use super::secret_extraction::secret_name;
use super::variables::{EntryContext, resolve_all};
use portcullis_core::Secret;
use portcullis_core::json::printable;
use portcullis_store::secrets::VALUE_BYTES_MIN;
use serde_json::Value;

const CLIENT_ID: &str = "client_id";
const CLIENT_SECRET: &str = "client_secret";
const CALLBACK_PORT: &str = "callback_port";
/// Settings with an equivalent here, with their names there.
const KNOWN: [(&str, &[&str]); 4] = [
    // First, because the secret needs it.
    (CLIENT_ID, &["clientId", "client_id", "CLIENT_ID"]),
    (CLIENT_SECRET, &["clientSecret", "client_secret", "CLIENT_SECRET"]),
    ("scope", &["scope", "scopes"]),
    (CALLBACK_PORT, &["callbackPort", "callback_port"]),
];

/// Returns the OAuth settings, if there is a login. `host` is that of a remote server.
pub(super) fn oauth_of(
    entry: &Value,
    server: &str,
    host: Option<&str>,
    context: &EntryContext<'_>,
    notes: &mut Vec<String>,
    secrets: &mut Vec<ExtractedSecret>,
) -> Option<Vec<(String, Value)>> {
    let is_set = |value: &&Value| !matches!(value, Value::Null | Value::Bool(false));
    let set = [&entry["oauth"], &entry["auth"]].into_iter().find(is_set)?;
    let Some(host) = host.filter(|_| matches!(set, Value::Object(_) | Value::Bool(true))) else {
        notes.push("its OAuth settings are not imported".to_owned());
        return None;
    };
    let is_known = |key: &str| KNOWN.iter().any(|(_, names)| names.contains(&key));
    let members = set.as_object().into_iter().flatten();
    for (key, _) in members.filter(|(key, value)| is_given(value) && !is_known(key)) {
        notes.push(format!("`{}` of its OAuth settings is not imported", printable(key)));
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
                if let Some(secret) = client_secret_of(server, host, has_client, text, notes) {
                    settings.push((here.to_owned(), secret.reference().into()));
                    secrets.push(secret);
                }
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
                "the `{here}` of its login cannot be imported as written; add it to `mcp.{server}`: \
                 `oauth = {{ {here} = … }}`, with the other settings there"
            )),
        }
    }
    notes.push(format!("it needs a login before the review: `portcullis mcp auth {server}`"));
    Some(settings)
}

/// Returns a setting without variables, which are not resolved here.
fn text_of(value: &Value, context: &EntryContext<'_>, notes: &mut Vec<String>) -> Option<String> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        // Several scopes.
        Value::Array(items) => items.iter().map(Value::as_str).collect::<Option<Vec<_>>>()?.join(" "),
        Value::Null | Value::Bool(_) | Value::Object(_) => return None,
    };
    resolve_all(&text, context, notes).ok().filter(|text| !text.trim().is_empty())
}

/// Returns the client secret for the store. It is sent to the token endpoint, which is unknown before the login; mostly it
/// is on the server's host.
fn client_secret_of(
    server: &str,
    host: &str,
    has_client: bool,
    value: Option<String>,
    notes: &mut Vec<String>,
) -> Option<ExtractedSecret> {
    let grant = format!("{host}:{CLIENT_SECRET}");
    if !has_client {
        notes.push(format!(
            "its client secret is not imported, because it needs a `client_id`. To add it: \
             portcullis secrets set NAME --grant '{grant}', then in `mcp.{server}`: \
             `oauth = {{ client_id = \"…\", client_secret = \"secret:NAME\" }}`"
        ));
        return None;
    }
    if value.as_ref().is_some_and(|value| value.len() < VALUE_BYTES_MIN) {
        notes.push("its client secret is too short and is not imported".to_owned());
        return None;
    }
    notes.push(format!(
        "its client secret is granted for {host}. If its token endpoint is elsewhere, `portcullis mcp auth {server}` shows the grant to add"
    ));
    let (key, name) = (format!("oauth.{CLIENT_SECRET}"), secret_name(server, CLIENT_SECRET));
    Some(ExtractedSecret { key, name, scheme: None, value: value.map(Secret::new), grant, refused: None })
}
