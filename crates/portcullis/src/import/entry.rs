//! One server, from the words of another program to ours.

use super::kept::{Kept, SECRET_BYTES_MIN, host_of, in_clear, is_secret, move_out, secret_name};
use super::oauth::oauth_of;
use super::program::{absolute, command_of, folder_of};
use super::variables::{Context, Meant, asks_for_secret, meant, plain, said_of};
use super::{Imported, Lifted};
use crate::config::{NewServer, sets_header};
use crate::private;
use portcullis_core::Secret;
use portcullis_core::json::printable;
use serde_json::Value;
use std::collections::BTreeSet;

/// As long as a name may be in the configuration.
const NAME_CHARS_MAX: usize = 32;
/// How long a call may be silent where `timeout_ms` is not set.
pub(super) const TIMEOUT_MS_USUAL: u64 = 30_000;
/// As long as `timeout_ms` may be.
const TIMEOUT_MS_MAX: u64 = 86_400_000;
/// What only a program has, and what only a server has that is reached by its address.
const OF_PROGRAMS: &[&str] = &["args", "env", "environment", "envFile", "cwd"];
const OF_ADDRESSES: &[&str] = &["headers"];
/// Stands where a person is asked for something, to see whether that is private there.
const SOMETHING: &str = "something";

pub(super) fn read(entry: &Value, context: &Context<'_>) -> Result<Imported, String> {
    let name = legal_name(context.own)?;
    let (mut notes, mut secrets) = (Vec::new(), Vec::new());
    let (command, mut args) = command_of(entry, context, &mut notes)?;
    // Some programs write every key, and leave empty what is not meant.
    let written = |key: &str| entry[key].as_str().filter(|url| !url.trim().is_empty());
    let url = written("url").or_else(|| written("serverUrl"));
    let url = url.map(|url| plain(url, context, &mut notes)).transpose()?;
    if command.is_some() == url.is_some() {
        return Err("it has neither a command nor a URL, or both".to_owned());
    }
    let host = url.as_deref().map(host_of);
    let (kind, useless) = if host.is_some() { ("URL", OF_PROGRAMS) } else { ("command", OF_ADDRESSES) };
    for key in useless.iter().filter(|key| is_given(&entry[**key])) {
        notes.push(format!("`{key}` is of no use to a server with a {kind}; it is not taken over"));
    }
    let table = Table { server: &name, host: host.as_deref() };
    let mut pairs = table.read(entry, context, &mut notes, &mut secrets)?;
    if let Some(command) = &command {
        move_out(&name, command, &mut args, &mut pairs, &mut secrets);
    }
    let (env, headers) = if host.is_some() { (Vec::new(), pairs) } else { (pairs, Vec::new()) };
    in_clear(&name, &args, url.as_deref(), &mut notes)?;
    if let Some(file) = entry["envFile"].as_str().filter(|_| command.is_some()) {
        notes.push(format!(
            "the variables in its `envFile`, {}, are not taken over; what it needs of them belongs into `mcp.{name}.env`",
            printable(file)
        ));
    }
    if entry["enabled"] == false || entry["disabled"] == true {
        notes.push("it is switched off there".to_owned());
    }
    if entry["headersHelper"].is_string() {
        notes.push(
            "a program makes headers for it there (`headersHelper`), which is not taken over".to_owned(),
        );
    }
    let oauth = oauth_of(entry, &name, host.as_deref(), context, &mut notes, &mut secrets);
    let folder = match &command {
        Some(_) => folder_of(entry, &name, context, &mut notes)?,
        None => None,
    };
    let command = command.map(|command| absolute(command, folder.as_deref(), &mut notes));
    let timeout_ms = timeout_of(entry, &name, &mut notes);
    let cwd = folder.map(|path| path.display().to_string());
    let server =
        NewServer { name, command, args, cwd, env, url, headers, oauth, timeout_ms, ..NewServer::default() };
    secrets.iter_mut().for_each(Lifted::refuse_ordinary);
    let mut said = BTreeSet::new();
    notes.retain(|note| said.insert(note.clone()));
    Ok(Imported { own: context.own.to_owned(), server, secrets, notes })
}

/// Returns whether a setting says anything.
pub(super) fn is_given(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(_) | Value::Number(_) => true,
        Value::String(text) => !text.trim().is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => !members.is_empty(),
    }
}

/// The variables of a program, or the headers that are sent to an address.
struct Table<'a> {
    server: &'a str,
    /// Where headers go; `None` for variables.
    host: Option<&'a str>,
}

impl Table<'_> {
    /// Returns its name in the configuration.
    fn here(&self) -> &'static str {
        if self.host.is_some() { "headers" } else { "env" }
    }

    /// Returns where the secret in one of its values may go.
    fn grant(&self, key: &str) -> String {
        match self.host {
            Some(host) => format!("{host}:{key}"),
            None => format!("mcp.{}:env", self.server),
        }
    }

    /// Returns what is written into the configuration; secrets go to the others.
    fn read(
        &self,
        entry: &Value,
        context: &Context<'_>,
        notes: &mut Vec<String>,
        secrets: &mut Vec<Lifted>,
    ) -> Result<Vec<(String, String)>, String> {
        let names: &[&str] = if self.host.is_some() { &["headers"] } else { &["env", "environment"] };
        let Some(there) = names.iter().find(|key| !entry[**key].is_null()) else { return Ok(Vec::new()) };
        let members = entry[*there].as_object().ok_or_else(|| format!("its `{there}` is not a table"))?;
        let mut pairs = Vec::new();
        for (key, value) in members {
            if self.host.is_some() && sets_header(key) {
                notes.push(format!(
                    "the hub sets the header `{}` itself; it is not taken over",
                    printable(key)
                ));
                continue;
            }
            let text = match value {
                Value::String(text) => text.clone(),
                Value::Number(_) | Value::Bool(_) => value.to_string(),
                // An unset variable, which is what we do with those that are not there.
                Value::Null => continue,
                _ => return Err(format!("`{}` is not text", printable(key))),
            };
            let kept = match meant(&text, context, notes)? {
                Meant::Asked { id, before, after } => {
                    let whole = format!("{before}{SOMETHING}{after}");
                    let is_private =
                        [SOMETHING, whole.as_str()].iter().any(|text| private::is_private(key, text));
                    if !is_private && !asks_for_secret(&text, context) {
                        notes.push(self.to_write(key, &format!("{before}…{after}"), &said_of(&id, context)));
                        continue;
                    }
                    Kept::asked(&before, &after)
                }
                Meant::Written(text) if private::is_handle(&text) => {
                    // Written down as it is, it would be given a secret of ours.
                    notes.push(format!(
                        "`{}` reads like a reference to the secret store; what it says there is kept as plain text",
                        printable(key)
                    ));
                    Kept { scheme: None, value: Some(text) }
                }
                Meant::Written(text) if !is_secret(key, &text) => {
                    notes.extend(private::is_private(key, &text).then(|| self.in_clear(key)));
                    if private::is_command_name(key) && private::holds_private(&text) {
                        notes.push(format!(
                            "`{}` says what is run, and holds what looks like a secret; it stays in the configuration in clear, \
                             because what is run is shown before a server is trusted",
                            printable(key)
                        ));
                    }
                    pairs.push((key.clone(), text));
                    continue;
                }
                Meant::Written(text) if text.len() < SECRET_BYTES_MIN => {
                    notes.push(format!(
                        "`{}` is too short for a secret; it stays in the configuration",
                        printable(key)
                    ));
                    pairs.push((key.clone(), text));
                    continue;
                }
                Meant::Written(text) => Kept::of(text),
            };
            let name = secret_name(self.server, key);
            pairs.push((key.clone(), kept.written(&name)));
            let Kept { scheme, value } = kept;
            let (value, grant) = (value.map(Secret::new), self.grant(key));
            secrets.push(Lifted { key: key.clone(), name, scheme, value, grant, refused: None });
        }
        Ok(pairs)
    }

    /// Says what a person has to write, where one is asked for it there.
    fn to_write(&self, key: &str, value: &str, said: &str) -> String {
        let (key, value) = (printable(key), printable(value));
        format!(
            "`{key}` is asked for there{said}, and is left out; write it into `mcp.{}.{}`: `{key} = \"{value}\"`",
            self.server,
            self.here()
        )
    }

    /// Says that something private is beside a variable, where both could not be put in.
    fn in_clear(&self, key: &str) -> String {
        let key = printable(key);
        format!(
            "`{key}` looks as if a secret were in it, beside a variable. It stays in the configuration in clear: \
             a secret is the whole of a value. To keep all of it: \
             portcullis secrets set NAME --grant '{}', then `{key} = \"secret:NAME\"` in `mcp.{}.{}`",
            self.grant(&key),
            self.server,
            self.here()
        )
    }
}

/// Returns how long a call may be silent. What other programs call so is mostly shorter and for something else, like the
/// time that a list of tools may take; such a time would end calls here.
fn timeout_of(entry: &Value, server: &str, notes: &mut Vec<String>) -> Option<u64> {
    let timeout = &entry["timeout"];
    let others = timeout.as_object().into_iter().flatten();
    for (key, _) in others.filter(|(key, value)| *key != "request" && is_given(value)) {
        notes.push(format!("`timeout.{}` is not taken over; there is nothing like it here", printable(key)));
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

fn legal_name(own: &str) -> Result<String, String> {
    let legal = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '-' };
    let name: String = own.chars().map(legal).take(NAME_CHARS_MAX).collect();
    let name = name.trim_matches('-').to_owned();
    if name.is_empty() { Err("its name has no letters that a name may have".to_owned()) } else { Ok(name) }
}
