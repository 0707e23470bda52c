//! Converts the command and working directory of a local server.

use super::variables::{EntryContext, resolve_all, variables_in};
use portcullis_core::json::printable;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Returns command and arguments, written as a string and a list, or as one list.
pub(super) fn command_of(
    entry: &Value,
    context: &EntryContext<'_>,
    notes: &mut Vec<String>,
) -> Result<(Option<String>, Vec<String>), String> {
    let strings_of = |list: &Value| -> Result<Vec<String>, String> {
        if !list.is_array() && !list.is_null() {
            return Err("its arguments are not a list".to_owned());
        }
        let items = list.as_array().into_iter().flatten();
        let text = |item: &Value| match item {
            Value::String(text) => Ok(text.clone()),
            Value::Number(number) => Ok(number.to_string()),
            _ => Err("an argument is not a string".to_owned()),
        };
        items.map(text).collect()
    };
    let words = match &entry["command"] {
        // Some applications write every key, and leave unused ones empty.
        Value::String(command) if command.trim().is_empty() => return Ok((None, Vec::new())),
        Value::String(command) => [vec![command.clone()], strings_of(&entry["args"])?].concat(),
        list @ Value::Array(_) => strings_of(list)?,
        _ => return Ok((None, Vec::new())),
    };
    // A shell command may be one string.
    let words = split_command(without_shell(words, notes), context, notes)?;
    let words = without_shell(words, notes);
    let is_bridge = is_bridge(&words);
    let env = ["env", "environment"].iter().find_map(|key| entry[*key].as_object());
    let is_given = |name: &str| env.is_some_and(|env| env.contains_key(name));
    let word = |word: &String| match variables_in(word) {
        // It resolves variables from its environment itself.
        names if is_bridge && !names.is_empty() && names.iter().all(|name| is_given(name)) => {
            Ok(word.clone())
        }
        _ => resolve_all(word, context, notes),
    };
    let mut words = words.iter().map(word).collect::<Result<Vec<_>, _>>()?.into_iter();
    Ok((words.next(), words.collect()))
}

/// Strips `cmd /c`, which some commands need on Windows.
fn without_shell(mut words: Vec<String>, notes: &mut Vec<String>) -> Vec<String> {
    let is_shell = match words.as_slice() {
        [shell, option, ..] => {
            let name = shell.rsplit(['/', '\\']).next().unwrap_or_default();
            ["cmd", "cmd.exe"].iter().any(|known| name.eq_ignore_ascii_case(known))
                && option.eq_ignore_ascii_case("/c")
        }
        _ => false,
    };
    if is_shell {
        words.drain(..2);
        notes.push("`cmd /c` before its command is for Windows and was removed".to_owned());
    }
    words
}

/// Splits a command that is one string, unless a file has that name.
fn split_command(
    words: Vec<String>,
    context: &EntryContext<'_>,
    notes: &mut Vec<String>,
) -> Result<Vec<String>, String> {
    let [whole] = words.as_slice() else { return Ok(words) };
    if !whole.trim().contains(char::is_whitespace) || is_file(whole, context) {
        return Ok(words);
    }
    if whole.contains(['"', '\'', '\\']) {
        return Err(
            "its command is one string with quotes, and no file has that name; add it yourself: portcullis mcp add"
                .to_owned(),
        );
    }
    notes.push("its command is one string there; it was split at spaces".to_owned());
    Ok(whole.split_whitespace().map(str::to_owned).collect())
}

/// Returns whether a file of that exact name exists.
fn is_file(name: &str, context: &EntryContext<'_>) -> bool {
    // Problems of the name are reported by the caller.
    let Ok(name) = resolve_all(name, context, &mut Vec::new()) else { return false };
    let path = match (name.strip_prefix("~/").zip(context.environment.user_home), context.project) {
        (Some((rest, home)), _) => home.join(rest),
        (None, Some(project)) => project.join(&name),
        (None, None) => PathBuf::from(&name),
    };
    path.is_absolute() && path.is_file()
}

/// Returns the working directory.
pub(super) fn folder_of(
    entry: &Value,
    server: &str,
    context: &EntryContext<'_>,
    notes: &mut Vec<String>,
) -> Result<Option<PathBuf>, String> {
    let Some(written) = entry["cwd"].as_str().filter(|cwd| !cwd.trim().is_empty()) else {
        // A project's server expects the project as its working directory.
        return Ok(context.project.map(Path::to_owned));
    };
    let cwd = resolve_all(written, context, notes)?;
    // `~/` means the same in our configuration; `~user` is not supported.
    let is_whole = cwd == "~" || cwd.starts_with("~/") || cwd.starts_with('/');
    let from = context.project.filter(|_| !cwd.starts_with('~'));
    match from {
        _ if is_whole => Ok(Some(PathBuf::from(cwd))),
        Some(project) => Ok(Some(project.join(cwd))),
        None => {
            notes.push(format!(
                "its `cwd`, `{}`, is no whole path, and it is not known from where; it is left out. \
                 If it is needed, write the whole path into `mcp.{server}.cwd`",
                printable(&cwd)
            ));
            Ok(None)
        }
    }
}

/// Makes a relative command path absolute.
pub(super) fn absolute_command(command: String, folder: Option<&Path>, notes: &mut Vec<String>) -> String {
    let is_relative = command.contains('/') && !command.starts_with(['/', '~']);
    match folder {
        Some(folder) if is_relative && folder.is_absolute() => {
            let inner = command.trim_start_matches("./");
            folder.join(inner).display().to_string()
        }
        None if is_relative => {
            notes.push("its command is a relative path, and its base folder is unknown".to_owned());
            command
        }
        // `~/` paths resolve in our configuration too.
        _ => command,
    }
}

/// Returns whether the command is `mcp-remote`, which resolves `${NAME}` in its header arguments itself.
pub(super) fn is_bridge(words: &[String]) -> bool {
    words.iter().any(|word| {
        let name = word.rsplit('/').next().unwrap_or_default();
        name == "mcp-remote" || name.starts_with("mcp-remote@")
    })
}
