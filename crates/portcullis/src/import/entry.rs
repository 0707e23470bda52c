//! One server, from the words of another program to ours.

use super::{Around, Imported, Lifted};
use crate::config::NewServer;
use crate::private;
use portcullis_core::Secret;
use portcullis_core::json::printable;
use portcullis_egress::own::Place;
use portcullis_store::secrets::is_secret_name;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// As long as a name may be in the configuration.
const NAME_CHARS_MAX: usize = 32;
/// A secret that is shorter cannot be masked.
const SECRET_BYTES_MIN: usize = 8;
/// What comes before a token in a header.
const SCHEMES: [&str; 3] = ["Bearer", "Basic", "token"];

/// What is around an entry.
pub(super) struct Context<'a> {
    pub(super) own: &'a str,
    /// What the file asks a person for.
    pub(super) inputs: &'a [Value],
    pub(super) project: Option<&'a Path>,
    pub(super) around: &'a Around<'a>,
}

/// What a value of a file means here.
enum Meant {
    /// As it stands in our configuration.
    Written(String),
    /// A person was asked for it there, by this name.
    Asked { id: String, before: String, after: String },
}

/// A value that is not written into the configuration.
struct Kept {
    /// The word that stays there before the secret, like `Bearer`.
    scheme: Option<String>,
    /// `None` where a person was asked for it.
    value: Option<String>,
}

impl Kept {
    /// Takes a whole value. What comes before a token says what it is, and is no part of it: nobody else writes the two
    /// together, so they could not be masked together either.
    fn of(value: String) -> Kept {
        match value.split_once(' ') {
            Some((word, token)) if is_scheme(word) && is_one_word(token.trim()) => {
                Kept { scheme: Some(word.to_owned()), value: Some(token.trim().to_owned()) }
            }
            _ => Kept { scheme: None, value: Some(value) },
        }
    }

    /// Takes what a person was asked for, with what is around it there.
    fn asked(before: &str, after: &str) -> Kept {
        let scheme = before.strip_suffix(' ').filter(|word| is_scheme(word) && after.is_empty());
        Kept { scheme: scheme.map(str::to_owned), value: None }
    }

    /// Returns how the configuration refers to it.
    fn written(&self, name: &str) -> String {
        let scheme = self.scheme.iter().map(|word| format!("{word} ")).collect::<String>();
        format!("{scheme}secret:{name}")
    }
}

fn is_scheme(word: &str) -> bool {
    SCHEMES.iter().any(|scheme| scheme.eq_ignore_ascii_case(word))
}

fn is_one_word(token: &str) -> bool {
    token.len() >= SECRET_BYTES_MIN && !token.contains(char::is_whitespace)
}

pub(super) fn read(entry: &Value, context: &Context<'_>) -> Result<Imported, String> {
    let name = legal_name(context.own)?;
    let mut notes = Vec::new();
    let (command, mut args) = command_of(entry, context, &mut notes)?;
    let url = ["url", "serverUrl"].iter().find_map(|key| entry[*key].as_str());
    let url = url.map(|url| plain(url, context, &mut notes)).transpose()?;
    if command.is_some() == url.is_some() {
        return Err("it has neither a command nor a URL, or both".to_owned());
    }
    let host = url.as_deref().map(host_of).unwrap_or_default();
    let mut secrets = Vec::new();
    let mut pairs = |keys: &[&str], is_header: bool| -> Result<Vec<(String, String)>, String> {
        let given = keys.iter().find(|key| !entry[**key].is_null());
        let members =
            given.map(|key| entry[*key].as_object().ok_or_else(|| format!("its `{key}` is not a table")));
        let members = members.transpose()?;
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
            let kept = match meant(&text, context, &mut notes)? {
                Meant::Asked { before, after, .. } => Kept::asked(&before, &after),
                Meant::Written(text) if private::is_handle(&text) => {
                    // Written down as it is, it would be given a secret of ours.
                    notes.push(format!(
                        "`{}` reads like a reference to the secret store; what it says there is kept as plain text",
                        printable(key)
                    ));
                    Kept { scheme: None, value: Some(text) }
                }
                Meant::Written(text) if !is_secret(key, &text) => {
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
            let secret = secret_name(&name, key);
            pairs.push((key.clone(), kept.written(&secret)));
            let Kept { scheme, value } = kept;
            let value = value.map(Secret::new);
            secrets.push(Lifted { key: key.clone(), name: secret, scheme, value, grant });
        }
        Ok(pairs)
    };
    let mut env = pairs(&["env", "environment"], false)?;
    let headers = pairs(&["headers"], true)?;
    if let Some(command) = &command {
        move_out(&name, command, &mut args, &mut env, &mut secrets);
    }
    in_clear(&name, &args, url.as_deref(), &mut notes)?;
    if let Some(file) = entry["envFile"].as_str() {
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
    let oauth = oauth_of(entry, url.is_some(), &mut notes);
    let cwd = entry["cwd"].as_str().map(|cwd| plain(cwd, context, &mut notes)).transpose()?;
    let cwd = match (cwd, context.project) {
        (Some(cwd), Some(project)) => Some(project.join(cwd)),
        (Some(cwd), None) => Some(PathBuf::from(cwd)),
        // A project's program expects to be started in its project.
        (None, project) => command.as_ref().and(project).map(Path::to_owned),
    };
    let command = command.map(|command| absolute(command, cwd.as_deref(), &mut notes));
    let server = NewServer {
        name,
        command,
        args,
        cwd: cwd.map(|path| path.display().to_string()),
        env,
        url,
        headers,
        oauth,
        timeout_ms: entry["timeout"].as_u64().filter(|ms| (100..=86_400_000).contains(ms)),
        ..NewServer::default()
    };
    let mut said = BTreeSet::new();
    notes.retain(|note| said.insert(note.clone()));
    Ok(Imported { own: context.own.to_owned(), server, secrets, notes })
}

/// The settings of a login that are the same here, by their names there.
const OAUTH: [(&str, &str); 3] = [("clientId", "client_id"), ("CLIENT_ID", "client_id"), ("scope", "scope")];

/// Returns whether there is a login, and what is set for it.
fn oauth_of(entry: &Value, has_url: bool, notes: &mut Vec<String>) -> Option<Vec<(String, String)>> {
    let is_set = |value: &&Value| !matches!(value, Value::Null | Value::Bool(false));
    let set = [&entry["oauth"], &entry["auth"]].into_iter().find(is_set)?;
    if !has_url || !matches!(set, Value::Object(_) | Value::Bool(true)) {
        notes.push("it has settings for OAuth there, which are not taken over".to_owned());
        return None;
    }
    let members = set.as_object().into_iter().flatten();
    for (key, _) in members.filter(|(key, _)| !OAUTH.iter().any(|(there, _)| there == key)) {
        notes.push(format!("`{}` of its settings for OAuth is not taken over", printable(key)));
    }
    notes.push("it wants a login before it can be looked at: `portcullis mcp auth`".to_owned());
    let taken = OAUTH
        .into_iter()
        .filter_map(|(there, here)| Some((here.to_owned(), set[there].as_str()?.to_owned())));
    Some(taken.collect())
}

/// Returns the program and its arguments: a text and a list, or one list.
fn command_of(
    entry: &Value,
    context: &Context<'_>,
    notes: &mut Vec<String>,
) -> Result<(Option<String>, Vec<String>), String> {
    let own = |list: &Value| -> Result<Vec<String>, String> {
        if !list.is_array() && !list.is_null() {
            return Err("its arguments are not a list".to_owned());
        }
        let items = list.as_array().into_iter().flatten();
        items.map(|item| Ok(item.as_str().ok_or("an argument is not text")?.to_owned())).collect()
    };
    let words = match &entry["command"] {
        Value::String(command) => [vec![command.clone()], own(&entry["args"])?].concat(),
        list @ Value::Array(_) => own(list)?,
        _ => return Ok((None, Vec::new())),
    };
    let is_bridge = is_bridge(&words);
    let env = ["env", "environment"].iter().find_map(|key| entry[*key].as_object());
    let is_given = |name: &str| env.is_some_and(|env| env.contains_key(name));
    let word = |word: &String| match names_in(word) {
        // It puts in by itself what its environment holds.
        names if is_bridge && !names.is_empty() && names.iter().all(|name| is_given(name)) => {
            Ok(word.clone())
        }
        _ => plain(word, context, notes),
    };
    let mut words = words.iter().map(word).collect::<Result<Vec<_>, _>>()?.into_iter();
    Ok((words.next(), words.collect()))
}

/// Returns a program that is named by a relative path as it is found from everywhere.
fn absolute(command: String, folder: Option<&Path>, notes: &mut Vec<String>) -> String {
    let is_relative = command.contains('/') && !command.starts_with(['/', '~']);
    match folder.filter(|folder| folder.is_absolute()) {
        Some(folder) if is_relative => {
            let inner = command.trim_start_matches("./");
            folder.join(inner).display().to_string()
        }
        None if is_relative => {
            notes.push("its program is named by a relative path, and it is not known from where".to_owned());
            command
        }
        _ => command,
    }
}

/// Returns whether `mcp-remote` is started, which reads `${NAME}` in the headers it is given from its environment.
fn is_bridge(words: &[String]) -> bool {
    words.iter().any(|word| {
        let name = word.rsplit('/').next().unwrap_or_default();
        name == "mcp-remote" || name.starts_with("mcp-remote@")
    })
}

/// Moves secrets from the arguments of programs that take them from their environment as well to where they can be
/// referred to.
fn move_out(
    server: &str,
    command: &str,
    args: &mut [String],
    env: &mut Vec<(String, String)>,
    secrets: &mut Vec<Lifted>,
) {
    let program = command.rsplit('/').next().unwrap_or_default();
    let is_container = matches!(program, "docker" | "podman");
    let is_bridge = program == "mcp-remote" || is_bridge(args);
    for at in 1..args.len() {
        let (option, word) = (args[at - 1].as_str(), args[at].clone());
        let worth = |key: &str, value: &str| is_secret(key, value) && value.len() >= SECRET_BYTES_MIN;
        let (variable, value, rest) = match (option, word.split_once('='), word.split_once(':')) {
            ("-e" | "--env", Some((key, value)), _) if is_container && worth(key, value) => {
                (key.to_owned(), value, key.to_owned())
            }
            ("--header", _, Some((header, value))) if is_bridge && worth(header, value.trim()) => {
                let variable = secret_name(server, header);
                let rest = format!("{header}:${{{variable}}}");
                (variable, value.trim(), rest)
            }
            _ => continue,
        };
        if env.iter().any(|(known, _)| *known == variable) {
            continue;
        }
        let name = secret_name(server, &variable);
        let kept = Kept::of(value.to_owned());
        env.push((variable.clone(), kept.written(&name)));
        let Kept { scheme, value } = kept;
        let (value, grant) = (value.map(Secret::new), format!("mcp.{server}:env"));
        secrets.push(Lifted { key: variable, name, scheme, value, grant });
        args[at] = rest;
    }
}

/// Says what stays in the configuration in clear, because nothing there can refer to the secret store.
fn in_clear(server: &str, args: &[String], url: Option<&str>, notes: &mut Vec<String>) -> Result<(), String> {
    let shown = private::shown_args(args);
    let places = args.iter().zip(&shown).enumerate().filter(|(_, (arg, shown))| arg != shown);
    let places: Vec<String> = places.map(|(at, _)| (at + 1).to_string()).collect();
    if !places.is_empty() {
        let looks = match places.as_slice() {
            [one] => format!("argument {one} looks like a secret"),
            all => format!("arguments {} look like secrets", all.join(" and ")),
        };
        notes.push(format!(
            "{looks}; what is there stays in the configuration in clear: arguments cannot refer to the secret store. \
             If the program takes it from a variable too, take it out there, and: \
             portcullis secrets set NAME --grant 'mcp.{server}:env', then `env = {{ VARIABLE = \"secret:NAME\" }}`"
        ));
    }
    let Some(url) = url.filter(|url| private::shown_url(url) != **url) else { return Ok(()) };
    // Which names are free is not known here, and one that is not must not be set again.
    let instead = format!(
        "portcullis secrets set NAME --grant '{}:authorization', then `headers = {{ Authorization = \"secret:NAME\" }}`",
        host_of(url)
    );
    let authority = url.split_once("://").map_or(url, |(_, rest)| rest);
    if authority.split(['/', '?', '#']).next().is_some_and(|authority| authority.contains('@')) {
        return Err(format!(
            "its address holds a user name or password; it belongs into a header: {instead}"
        ));
    }
    notes.push(format!(
        "its address looks as if a key were in it. It stays in the configuration in clear: addresses cannot refer to the secret store. \
         If the server takes it in a header too: {instead}"
    ));
    Ok(())
}

/// Returns a text in which nothing stands for something else any more.
fn plain(text: &str, context: &Context<'_>, notes: &mut Vec<String>) -> Result<String, String> {
    match meant(text, context, notes)? {
        Meant::Written(text) if text.contains("${") => Err(format!(
            "`{}` stands for something that is put in only in `env` and `headers` here",
            printable(&private::shown_args(&[text]).concat())
        )),
        Meant::Written(text) => Ok(text),
        Meant::Asked { id, .. } => Err(format!(
            "a person is asked for `{}` there, as a part of its command; add it by hand: portcullis mcp add",
            printable(&id)
        )),
    }
}

/// Returns the variables that a text names.
fn names_in(text: &str) -> Vec<&str> {
    text.split("${").skip(1).filter_map(|rest| rest.split_once('}')).map(|(name, _)| name).collect()
}

/// Returns what a value means here: `${NAME}` a variable, and folders by their names.
fn meant(text: &str, context: &Context<'_>, notes: &mut Vec<String>) -> Result<Meant, String> {
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
            let input = context.inputs.iter().find(|input| input["id"] == id);
            let input =
                input.ok_or_else(|| format!("`${{input:{}}}` is not among its inputs", printable(id)))?;
            let default = input["default"].as_str().filter(|_| input["password"] != true);
            let Some(default) = default else {
                return Ok(Meant::Asked { id: id.to_owned(), before: written, after: rest.to_owned() });
            };
            notes.push(format!("`{}` is asked for there; its default is written down", printable(id)));
            written.push_str(default);
            continue;
        }
        let folder = |folder: Option<&Path>| {
            folder
                .map(|path| path.display().to_string())
                .ok_or_else(|| format!("what `${{{}}}` is is not known here", printable(name)))
        };
        match name {
            "workspaceFolder" | "workspaceRoot" => written.push_str(&folder(context.project)?),
            "userHome" => written.push_str(&folder(context.around.user_home)?),
            _ => {
                let name = name.strip_prefix("env:").unwrap_or(name);
                let (name, default) = name.split_once(":-").map_or((name, None), |(n, d)| (n, Some(d)));
                if !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') || name.is_empty() {
                    return Err(format!("what `${{{}}}` is is not known here", printable(name)));
                }
                match default {
                    // Not both: here a variable that is not set is an error.
                    Some(default) if !(context.around.is_set)(name) => {
                        notes.push(format!("`{name}` is not set now; its default there is written down"));
                        written.push_str(default);
                        continue;
                    }
                    Some(_) => notes.push(format!(
                        "`{name}` is set now and has to stay so for the hub; its default there is not taken over"
                    )),
                    None => {}
                }
                written.push_str(&format!("${{{name}}}"));
            }
        }
    }
    written.push_str(rest);
    Ok(Meant::Written(written))
}

/// Returns whether a value belongs into the secret store.
fn is_secret(key: &str, value: &str) -> bool {
    !value.contains("${") && private::is_private(key, value)
}

fn secret_name(server: &str, key: &str) -> String {
    let upper = |text: &str| {
        text.to_ascii_uppercase().replace(|c: char| !c.is_ascii_uppercase() && !c.is_ascii_digit(), "_")
    };
    let (server, key) = (upper(server), upper(key));
    let names_server = key.strip_prefix(&server).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'));
    let name = if names_server { key } else { format!("{server}_{key}") };
    let name: String = name.chars().take(60).collect();
    if is_secret_name(&name) { name } else { format!("S_{name}") }
}

fn legal_name(own: &str) -> Result<String, String> {
    let legal = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '-' };
    let name: String = own.chars().map(legal).take(NAME_CHARS_MAX).collect();
    let name = name.trim_matches('-').to_owned();
    if name.is_empty() { Err("its name has no letters that a name may have".to_owned()) } else { Ok(name) }
}

/// Returns the host as a secret is granted for it.
fn host_of(url: &str) -> String {
    let Ok(place) = url.parse::<Place>() else { return host_written(url) };
    // The dot of a name that is complete as it stands is no part of a grant.
    let host = place.host();
    host.strip_suffix('.').unwrap_or(host).to_owned()
}

/// Returns what stands where the host does, in an address that cannot be used as it is.
fn host_written(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let authority = authority.rsplit('@').next().unwrap_or_default();
    match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => format!("[{address}]"),
        None => authority.split(':').next().unwrap_or_default().to_ascii_lowercase(),
    }
}
