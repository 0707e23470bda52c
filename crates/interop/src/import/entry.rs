//! Converts one server entry of another application.

use super::oauth::oauth_of;
use super::program::{absolute_command, command_of, folder_of};
use super::secret_extraction::{SecretCandidate, extract_arg_secrets, host_of, in_clear, is_secret};
use super::variables::{
    EntryContext, ImportedValue, is_secret_prompt, prompt_description, resolve_all, resolve_variables,
};
use super::{ExtractedSecret, ImportedServer};
use portcullis_config::secret_detection;
use portcullis_config::{NewServer, importable_name, sets_header};
use portcullis_core::json::printable;
use portcullis_store::secrets::VALUE_BYTES_MIN;
use serde_json::Value;
use std::collections::BTreeSet;

/// Maximum length of a server name.
const NAME_CHARS_MAX: usize = 32;
/// Default of `timeout_ms`.
pub(super) const TIMEOUT_MS_USUAL: u64 = 30_000;
/// Maximum of `timeout_ms`.
const TIMEOUT_MS_MAX: u64 = 86_400_000;
/// Keys of local commands only; the next ones are of URLs only.
const OF_PROGRAMS: &[&str] = &["args", "env", "environment", "envFile", "cwd"];
const OF_ADDRESSES: &[&str] = &["headers"];
/// Placeholder for a prompted input, to detect whether it is a secret.
const PROMPT_PLACEHOLDER: &str = "something";

pub(super) fn read(entry: &Value, context: &EntryContext<'_>) -> Result<ImportedServer, String> {
    let wanted = sanitized_name(context.own)?;
    let (mut notes, mut secrets) = (Vec::new(), Vec::new());
    let name = importable_name(&wanted);
    if name != wanted {
        notes.push(format!(
            "it is named `{name}` here: tools named `{wanted}_*` would pass for the hub's own"
        ));
    }
    let (command, mut args) = command_of(entry, context, &mut notes)?;
    // Some applications write every key, and leave unused ones empty.
    let written = |key: &str| entry[key].as_str().filter(|url| !url.trim().is_empty());
    let url = written("url").or_else(|| written("serverUrl"));
    let url = url.map(|url| resolve_all(url, context, &mut notes)).transpose()?;
    if command.is_some() == url.is_some() {
        return Err("it has neither a command nor a URL, or both".to_owned());
    }
    let host = url.as_deref().map(host_of);
    let (kind, useless) = if host.is_some() { ("URL", OF_PROGRAMS) } else { ("command", OF_ADDRESSES) };
    for key in useless.iter().filter(|key| is_given(&entry[**key])) {
        notes.push(format!("`{key}` is ignored: it does not apply to a server with a {kind}"));
    }
    let table = ValueTable { server: &name, host: host.as_deref() };
    let mut pairs = table.read(entry, context, &mut notes, &mut secrets)?;
    if let Some(command) = &command {
        extract_arg_secrets(&name, command, &mut args, &mut pairs, &mut secrets);
    }
    let (env, headers) = if host.is_some() { (Vec::new(), pairs) } else { (pairs, Vec::new()) };
    in_clear(&name, &args, url.as_deref(), &mut notes)?;
    if let Some(file) = entry["envFile"].as_str().filter(|_| command.is_some()) {
        notes.push(format!(
            "the variables in its `envFile`, {}, are not imported; add those it needs to `mcp.{name}.env`",
            printable(file)
        ));
    }
    if entry["enabled"] == false || entry["disabled"] == true {
        notes.push("it is disabled there".to_owned());
    }
    if entry["headersHelper"].is_string() {
        notes.push("its `headersHelper` is not imported".to_owned());
    }
    let oauth = oauth_of(entry, &name, host.as_deref(), context, &mut notes, &mut secrets);
    let folder = match &command {
        Some(_) => folder_of(entry, &name, context, &mut notes)?,
        None => None,
    };
    let command = command.map(|command| absolute_command(command, folder.as_deref(), &mut notes));
    let timeout_ms = timeout_of(entry, &name, &mut notes);
    let cwd = folder.map(|path| path.display().to_string());
    let server =
        NewServer { name, command, args, cwd, env, url, headers, oauth, timeout_ms, ..NewServer::default() };
    secrets.iter_mut().for_each(ExtractedSecret::refuse_ordinary);
    let mut said = BTreeSet::new();
    notes.retain(|note| said.insert(note.clone()));
    Ok(ImportedServer { own: context.own.to_owned(), server, secrets, notes })
}

/// Returns whether a setting is not empty.
pub(super) fn is_given(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(_) | Value::Number(_) => true,
        Value::String(text) => !text.trim().is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => !members.is_empty(),
    }
}

/// Environment variables of a command, or headers of a URL.
struct ValueTable<'a> {
    server: &'a str,
    /// Host of the headers; `None` for variables.
    host: Option<&'a str>,
}

impl ValueTable<'_> {
    /// Returns its configuration key.
    fn config_key(&self) -> &'static str {
        if self.host.is_some() { "headers" } else { "env" }
    }

    /// Returns the grant of a secret in one of its values.
    fn grant(&self, key: &str) -> String {
        match self.host {
            Some(host) => format!("{host}:{key}"),
            None => format!("mcp.{}:env", self.server),
        }
    }

    /// Returns the configuration entries; secrets are added to `secrets`.
    fn read(
        &self,
        entry: &Value,
        context: &EntryContext<'_>,
        notes: &mut Vec<String>,
        secrets: &mut Vec<ExtractedSecret>,
    ) -> Result<Vec<(String, String)>, String> {
        let names: &[&str] = if self.host.is_some() { &["headers"] } else { &["env", "environment"] };
        let Some(there) = names.iter().find(|key| !entry[**key].is_null()) else { return Ok(Vec::new()) };
        let members = entry[*there].as_object().ok_or_else(|| format!("its `{there}` is not a table"))?;
        let mut pairs = Vec::new();
        for (key, value) in members {
            if self.host.is_some() && sets_header(key) {
                notes
                    .push(format!("the header `{}` is not imported: the hub sets it itself", printable(key)));
                continue;
            }
            let text = match value {
                Value::String(text) => text.clone(),
                Value::Number(_) | Value::Bool(_) => value.to_string(),
                // Null unsets a variable, which is the default here.
                Value::Null => continue,
                _ => return Err(format!("`{}` is not a string", printable(key))),
            };
            let candidate = match resolve_variables(&text, context, notes)? {
                ImportedValue::Prompted { id, before, after } => {
                    let whole = format!("{before}{PROMPT_PLACEHOLDER}{after}");
                    let is_private = [PROMPT_PLACEHOLDER, whole.as_str()]
                        .iter()
                        .any(|text| secret_detection::is_private(key, text));
                    if !is_private && !is_secret_prompt(&text, context) {
                        notes.push(self.prompt_note(
                            key,
                            &format!("{before}…{after}"),
                            &prompt_description(&id, context),
                        ));
                        continue;
                    }
                    SecretCandidate::prompted(&before, &after)
                }
                ImportedValue::Resolved(text) if secret_detection::is_handle(&text) => {
                    // Written as is, it would resolve to a secret of this hub.
                    notes.push(format!(
                        "`{}` looks like a reference to the secret store; it is imported as plain text",
                        printable(key)
                    ));
                    SecretCandidate { scheme: None, value: Some(text) }
                }
                ImportedValue::Resolved(text) if !is_secret(key, &text) => {
                    notes.extend(secret_detection::is_private(key, &text).then(|| self.plain_text_note(key)));
                    if secret_detection::is_command_name(key) && secret_detection::holds_private(&text) {
                        notes.push(format!(
                            "`{}` is executed and contains what looks like a secret; it stays in the configuration in plain text, \
                             because commands are shown before a server is trusted",
                            printable(key)
                        ));
                    }
                    pairs.push((key.clone(), text));
                    continue;
                }
                ImportedValue::Resolved(text) if text.len() < VALUE_BYTES_MIN => {
                    notes.push(format!(
                        "`{}` is too short for a secret; it stays in the configuration",
                        printable(key)
                    ));
                    pairs.push((key.clone(), text));
                    continue;
                }
                ImportedValue::Resolved(text) => SecretCandidate::of(text),
            };
            let secret = candidate.extract(self.server, key, self.grant(key));
            pairs.push((key.clone(), secret.reference()));
            secrets.push(secret);
        }
        Ok(pairs)
    }

    /// Returns the instruction for a value that the application prompts for.
    fn prompt_note(&self, key: &str, value: &str, said: &str) -> String {
        let (key, value) = (printable(key), printable(value));
        format!(
            "`{key}` is prompted for there{said} and was skipped; add it to `mcp.{}.{}`: `{key} = \"{value}\"`",
            self.server,
            self.config_key()
        )
    }

    /// Returns the instruction for a secret combined with a variable, which cannot be expressed.
    fn plain_text_note(&self, key: &str) -> String {
        let key = printable(key);
        format!(
            "`{key}` seems to contain a secret next to a variable. It stays in the configuration in plain text: \
             a secret must be the whole value. To move all of it to the secret store: \
             portcullis secrets set NAME --grant '{}', then `{key} = \"secret:NAME\"` in `mcp.{}.{}`",
            self.grant(&key),
            self.server,
            self.config_key()
        )
    }
}

/// Returns the call timeout. In other applications `timeout` is mostly shorter and for something else, such as listing
/// tools; taking it over would cancel calls here.
fn timeout_of(entry: &Value, server: &str, notes: &mut Vec<String>) -> Option<u64> {
    let timeout = &entry["timeout"];
    let others = timeout.as_object().into_iter().flatten();
    for (key, _) in others.filter(|(key, value)| *key != "request" && is_given(value)) {
        notes.push(format!("`timeout.{}` is not imported: it has no equivalent", printable(key)));
    }
    let (key, given) =
        if timeout.is_object() { ("timeout.request", &timeout["request"]) } else { ("timeout", timeout) };
    let taken = given.as_u64().filter(|ms| (TIMEOUT_MS_USUAL..=TIMEOUT_MS_MAX).contains(ms));
    if taken.is_none() && is_given(given) {
        notes.push(format!(
            "`{key}` is {} there, and is not taken over: a call may be silent for {TIMEOUT_MS_USUAL} ms here, \
             unless `mcp.{server}.timeout_ms` says otherwise",
            printable(&given.to_string())
        ));
    }
    taken
}

/// Applies the timeout that a file sets for all its servers, as [`timeout_of`] does for one.
pub(super) fn default_timeout(imported: &mut ImportedServer, entry: &Value, usual: &Value) {
    if is_given(usual) && !is_given(&entry["timeout"]) {
        let mut notes = Vec::new();
        let all = serde_json::json!({ "timeout": usual });
        imported.server.timeout_ms = timeout_of(&all, &imported.server.name, &mut notes);
        imported.notes.extend(
            notes.into_iter().map(|note| note.replacen("`timeout`", "`experimental.mcp_timeout`", 1)),
        );
    }
}

fn sanitized_name(own: &str) -> Result<String, String> {
    let legal = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '-' };
    let name: String = own.chars().map(legal).take(NAME_CHARS_MAX).collect();
    let name = name.trim_matches('-').to_owned();
    if name.is_empty() { Err("its name has no valid characters".to_owned()) } else { Ok(name) }
}
