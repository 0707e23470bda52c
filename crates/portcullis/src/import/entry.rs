//! One server, from the words of another program to ours.

use super::{Imported, Lifted};
use crate::config::NewServer;
use portcullis_core::Secret;
use portcullis_core::json::printable;
use portcullis_guard::Redactor;
use portcullis_store::secrets::is_secret_name;
use serde_json::Value;
use std::path::Path;

/// As long as a name may be in the configuration.
const NAME_CHARS_MAX: usize = 32;
/// A secret that is shorter cannot be masked.
const SECRET_BYTES_MIN: usize = 8;
/// What is in the name of a variable or header whose value is nobody's business.
const SECRET_WORDS: [&str; 12] = [
    "TOKEN",
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "APIKEY",
    "API_KEY",
    "ACCESS_KEY",
    "PRIVATE_KEY",
    "CREDENTIAL",
    "AUTHORIZATION",
    "COOKIE",
];

/// What is around an entry.
pub(super) struct Context<'a> {
    pub(super) own: &'a str,
    /// What the file asks a person for.
    pub(super) inputs: &'a [Value],
    pub(super) project: Option<&'a Path>,
    pub(super) user_home: Option<&'a Path>,
}

/// What a value of a file means here.
enum Meant {
    /// As it stands in our configuration.
    Written(String),
    /// A person was asked for it there.
    Asked,
}

pub(super) fn read(entry: &Value, context: &Context<'_>) -> Result<Imported, String> {
    let name = legal_name(context.own)?;
    let mut notes = Vec::new();
    let (command, args) = command_of(entry, context)?;
    let url = ["url", "serverUrl"].iter().find_map(|key| entry[*key].as_str());
    let url = url.map(|url| plain(url, context)).transpose()?;
    if command.is_some() == url.is_some() {
        return Err("it has neither a command nor a URL, or both".to_owned());
    }
    let host = url.as_deref().map(host_of).unwrap_or_default();
    let mut secrets = Vec::new();
    let mut pairs = |keys: &[&str], is_header: bool| -> Result<Vec<(String, String)>, String> {
        let members = keys.iter().find_map(|key| entry[*key].as_object());
        let mut pairs = Vec::new();
        for (key, value) in members.into_iter().flatten() {
            let text = match value {
                Value::String(text) => text.clone(),
                Value::Number(_) | Value::Bool(_) => value.to_string(),
                // An unset variable, which is what we do with those that are not there.
                Value::Null => continue,
                _ => return Err(format!("`{}` is not text", printable(key))),
            };
            let grant = if is_header { format!("{host}:{key}") } else { format!("mcp.{name}:env") };
            let (value, asked) = match meant(&text, context)? {
                Meant::Asked => (None, true),
                Meant::Written(text) if is_secret(key, &text) => (Some(text), false),
                Meant::Written(text) => {
                    pairs.push((key.clone(), text));
                    continue;
                }
            };
            if value.as_ref().is_some_and(|value| value.len() < SECRET_BYTES_MIN) {
                notes.push(format!(
                    "`{}` is too short for a secret; it stays in the configuration",
                    printable(key)
                ));
                pairs.push((key.clone(), value.unwrap_or_default()));
                continue;
            }
            let secret = secret_name(&name, key);
            if asked {
                notes.push(format!(
                    "the value of `{}` is asked for there; set all of it: portcullis secrets set {secret} --grant '{grant}'",
                    printable(key)
                ));
            }
            pairs.push((key.clone(), format!("secret:{secret}")));
            secrets.push(Lifted { key: key.clone(), name: secret, value: value.map(Secret::new), grant });
        }
        Ok(pairs)
    };
    let env = pairs(&["env", "environment"], false)?;
    let headers = pairs(&["headers"], true)?;
    for (at, argument) in args.iter().enumerate() {
        if has_token(argument) {
            notes.push(format!("argument {} looks like a token, and stays in the configuration", at + 1));
        }
    }
    if entry["enabled"] == false || entry["disabled"] == true {
        notes.push("it is switched off there".to_owned());
    }
    if entry.get("oauth").is_some_and(|oauth| *oauth != false) {
        notes.push("it has settings for OAuth there, which are not taken over".to_owned());
    }
    let cwd = entry["cwd"].as_str().map(|cwd| plain(cwd, context)).transpose()?;
    let cwd = cwd.map(|cwd| match context.project {
        Some(project) => project.join(cwd).display().to_string(),
        None => cwd,
    });
    // A project's program expects to be started in its project.
    let cwd = cwd.or_else(|| command.as_ref().and(context.project).map(|path| path.display().to_string()));
    let server = NewServer {
        name,
        command,
        args,
        cwd,
        env,
        url,
        headers,
        timeout_ms: entry["timeout"].as_u64().filter(|ms| (100..=86_400_000).contains(ms)),
        ..NewServer::default()
    };
    Ok(Imported { own: context.own.to_owned(), server, secrets, notes })
}

/// Returns the program and its arguments: a text and a list, or one list.
fn command_of(entry: &Value, context: &Context<'_>) -> Result<(Option<String>, Vec<String>), String> {
    let texts = |value: &Value| -> Result<Vec<String>, String> {
        let items = value.as_array().into_iter().flatten();
        items.map(|item| plain(item.as_str().ok_or("an argument is not text")?, context)).collect()
    };
    match &entry["command"] {
        Value::String(command) => Ok((Some(plain(command, context)?), texts(&entry["args"])?)),
        list @ Value::Array(_) => {
            let mut words = texts(list)?.into_iter();
            Ok((words.next(), words.collect()))
        }
        _ => Ok((None, Vec::new())),
    }
}

/// Returns a text in which nothing stands for something else any more.
fn plain(text: &str, context: &Context<'_>) -> Result<String, String> {
    match meant(text, context)? {
        Meant::Written(text) if text.contains("${") => Err(format!(
            "`{}` stands for something that is put in only in `env` and `headers` here",
            printable(&text)
        )),
        Meant::Written(text) => Ok(text),
        Meant::Asked => Err("a person is asked for a part of its command there".to_owned()),
    }
}

/// Returns what a value means here: `${NAME}` a variable, and folders by their names.
fn meant(text: &str, context: &Context<'_>) -> Result<Meant, String> {
    if text.contains("{file:") {
        return Err("it reads a file into its settings; put that into the secret store".to_owned());
    }
    let text = text.replace("{env:", "${env:").replace("$${env:", "${env:");
    let (mut written, mut rest) = (String::new(), text.as_str());
    while let Some((before, after)) = rest.split_once("${") {
        let (name, after) = after.split_once('}').ok_or("`${` without `}`")?;
        written.push_str(before);
        rest = after;
        if let Some(id) = name.strip_prefix("input:") {
            let known = context.inputs.iter().any(|input| input["id"] == id);
            return if known {
                Ok(Meant::Asked)
            } else {
                Err(format!("`${{input:{}}}` is not among its inputs", printable(id)))
            };
        }
        let folder = |folder: Option<&Path>| {
            folder
                .map(|path| path.display().to_string())
                .ok_or_else(|| format!("what `${{{}}}` is is not known here", printable(name)))
        };
        match name {
            "workspaceFolder" | "workspaceRoot" => written.push_str(&folder(context.project)?),
            "userHome" => written.push_str(&folder(context.user_home)?),
            _ => {
                let name = name.strip_prefix("env:").unwrap_or(name);
                let name = name.split_once(":-").map_or(name, |(name, _)| name);
                if !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') || name.is_empty() {
                    return Err(format!("what `${{{}}}` is is not known here", printable(name)));
                }
                written.push_str(&format!("${{{name}}}"));
            }
        }
    }
    written.push_str(rest);
    Ok(Meant::Written(written))
}

/// Returns whether a value belongs into the secret store: its name says so, or it has the shape of a token.
fn is_secret(key: &str, value: &str) -> bool {
    let key = key.to_ascii_uppercase().replace('-', "_");
    let named = SECRET_WORDS.iter().any(|word| key.contains(word))
        || key.ends_with("_KEY")
        || key == "KEY"
        || key.ends_with("_PAT");
    let literal = !value.is_empty() && !value.contains("${") && !value.starts_with("secret:");
    literal && (named || has_token(value))
}

/// Returns whether the redactor would mask something here without knowing any secret.
fn has_token(text: &str) -> bool {
    Redactor::new(&[]).is_ok_and(|redactor| redactor.scrub(text) != text)
}

fn secret_name(server: &str, key: &str) -> String {
    let upper = |text: &str| {
        text.to_ascii_uppercase().replace(|c: char| !c.is_ascii_uppercase() && !c.is_ascii_digit(), "_")
    };
    let (server, key) = (upper(server), upper(key));
    let name = if key.starts_with(&server) { key } else { format!("{server}_{key}") };
    let name: String = name.chars().take(60).collect();
    if is_secret_name(&name) { name } else { format!("S_{name}") }
}

fn legal_name(own: &str) -> Result<String, String> {
    let legal = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '-' };
    let name: String = own.chars().map(legal).take(NAME_CHARS_MAX).collect();
    let name = name.trim_matches('-').to_owned();
    if name.is_empty() { Err("its name has no letters that a name may have".to_owned()) } else { Ok(name) }
}

fn host_of(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let authority = authority.rsplit('@').next().unwrap_or_default();
    match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => format!("[{address}]"),
        None => authority.split(':').next().unwrap_or_default().to_ascii_lowercase(),
    }
}
