//! What stands for something else in the values of a file: variables, folders, and what a person is asked for.

use super::Around;
use crate::private;
use portcullis_core::json::printable;
use serde_json::Value;
use std::path::Path;

/// How many values are named that a person may choose from.
const OPTIONS_NAMED_MAX: usize = 20;

/// What is around an entry.
pub(super) struct Context<'a> {
    pub(super) own: &'a str,
    /// What the file asks a person for.
    pub(super) inputs: &'a [Value],
    pub(super) project: Option<&'a Path>,
    pub(super) around: &'a Around<'a>,
}

impl<'a> Context<'a> {
    /// Returns what the file says of something that it asks for.
    fn input(&self, id: &str) -> Option<&'a Value> {
        self.inputs.iter().find(|input| input["id"] == id)
    }
}

/// What a value of a file means here.
pub(super) enum Meant {
    /// As it stands in our configuration.
    Written(String),
    /// A person was asked for it there, by this name.
    Asked { id: String, before: String, after: String },
}

/// Returns a text in which nothing stands for something else any more.
pub(super) fn plain(text: &str, context: &Context<'_>, notes: &mut Vec<String>) -> Result<String, String> {
    let text = match meant(text, context, notes)? {
        Meant::Written(text) => text,
        Meant::Asked { id, .. } => {
            return Err(format!(
                "a person is asked for `{}` there, as a part of its command; add it by hand: portcullis mcp add",
                printable(&id)
            ));
        }
    };
    // The one variable whose value is known here; programs have other words for the same folder.
    let text = match context.around.user_home {
        Some(home) => text.replace("${HOME}", &home.display().to_string()),
        None => text,
    };
    if text.contains("${") {
        return Err(format!(
            "`{}` stands for something that is put in only in `env` and `headers` here",
            printable(&private::shown_args(&[text]).concat())
        ));
    }
    Ok(text)
}

/// Returns whether anything that a person is asked for in a text is a secret, as far as the file says. What is chosen
/// from a list, or typed where everybody may read it, is none.
pub(super) fn asks_for_secret(text: &str, context: &Context<'_>) -> bool {
    let is_open = |input: &Value| {
        matches!(input["type"].as_str(), Some("pickString" | "promptString")) && input["password"] != true
    };
    let ids = names_in(text).into_iter().filter_map(|name| name.strip_prefix("input:"));
    !ids.filter_map(|id| context.input(id)).all(is_open)
}

/// Returns what the file says of something that it asks for, in brackets: what it is, and what there is to choose from.
pub(super) fn said_of(id: &str, context: &Context<'_>) -> String {
    let input = context.input(id).unwrap_or(&Value::Null);
    let options = input["options"].as_array().into_iter().flatten();
    // A choice is a text, or has one beside what is shown of it.
    let options = options.filter_map(|option| option.as_str().or_else(|| option["value"].as_str()));
    let mut options: Vec<String> = options.map(printable).collect();
    let more = options.len().saturating_sub(OPTIONS_NAMED_MAX);
    options.truncate(OPTIONS_NAMED_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let mut said: Vec<String> = input["description"].as_str().map(printable).into_iter().collect();
    if !options.is_empty() {
        said.push(format!("one of {}{more}", options.join(", ")));
    }
    if said.is_empty() { String::new() } else { format!(" ({})", said.join("; ")) }
}

/// Returns the variables that a text names.
pub(super) fn names_in(text: &str) -> Vec<&str> {
    text.split("${").skip(1).filter_map(|rest| rest.split_once('}')).map(|(name, _)| name).collect()
}

/// Returns what a value means here: `${NAME}` a variable, and folders by their names.
pub(super) fn meant(text: &str, context: &Context<'_>, notes: &mut Vec<String>) -> Result<Meant, String> {
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
            let input = context
                .input(id)
                .ok_or_else(|| format!("`${{input:{}}}` is not among its inputs", printable(id)))?;
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
            "workspaceFolderBasename" => {
                let name = context.project.and_then(Path::file_name).map(Path::new);
                written.push_str(&folder(name)?);
            }
            "pathSeparator" | "/" => written.push(std::path::MAIN_SEPARATOR),
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
