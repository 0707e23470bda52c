//! Variables in imported values: environment, folders, prompted inputs.

use super::ImportEnvironment;
use portcullis_config::secret_detection;
use portcullis_core::json::printable;
use serde_json::Value;
use std::path::Path;

/// Options listed for a choice.
const OPTIONS_NAMED_MAX: usize = 20;

/// Context of an entry.
pub(super) struct EntryContext<'a> {
    pub(super) own: &'a str,
    /// Inputs that the application prompts for.
    pub(super) inputs: &'a [Value],
    pub(super) project: Option<&'a Path>,
    pub(super) environment: &'a ImportEnvironment<'a>,
}

impl<'a> EntryContext<'a> {
    /// Returns the definition of an input.
    fn input(&self, id: &str) -> Option<&'a Value> {
        self.inputs.iter().find(|input| input["id"] == id)
    }
}

/// A converted value.
pub(super) enum ImportedValue {
    /// In the form of our configuration.
    Resolved(String),
    /// The application prompts for it, under this ID.
    Prompted { id: String, before: String, after: String },
}

/// Returns a text with all variables resolved.
pub(super) fn resolve_all(
    text: &str,
    context: &EntryContext<'_>,
    notes: &mut Vec<String>,
) -> Result<String, String> {
    let text = match resolve_variables(text, context, notes)? {
        ImportedValue::Resolved(text) => text,
        ImportedValue::Prompted { id, .. } => {
            return Err(format!(
                "its command contains `{}`, which is prompted for there; add it yourself: portcullis mcp add",
                printable(&id)
            ));
        }
    };
    // The only variable known here; applications have several names for it.
    let text = match context.environment.user_home {
        Some(home) => text.replace("${HOME}", &home.display().to_string()),
        None => text,
    };
    if text.contains("${") {
        return Err(format!(
            "`{}` is a variable, which works in `env` and `headers` only",
            printable(&secret_detection::shown_args(&[text]).concat())
        ));
    }
    Ok(text)
}

/// Returns whether a prompted input in a text is a secret, by its definition. Choices and visible prompts are not.
pub(super) fn is_secret_prompt(text: &str, context: &EntryContext<'_>) -> bool {
    let is_open = |input: &Value| {
        matches!(input["type"].as_str(), Some("pickString" | "promptString")) && input["password"] != true
    };
    let ids = variables_in(text).into_iter().filter_map(|name| name.strip_prefix("input:"));
    !ids.filter_map(|id| context.input(id)).all(is_open)
}

/// Returns the description and options of an input, in brackets.
pub(super) fn prompt_description(id: &str, context: &EntryContext<'_>) -> String {
    let input = context.input(id).unwrap_or(&Value::Null);
    let options = input["options"].as_array().into_iter().flatten();
    // An option is a string, or an object with a value and a label.
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

/// Returns the variables in a text.
pub(super) fn variables_in(text: &str) -> Vec<&str> {
    text.split("${").skip(1).filter_map(|rest| rest.split_once('}')).map(|(name, _)| name).collect()
}

/// Resolves folders and inputs. `${NAME}` stays: it is a variable here, too.
pub(super) fn resolve_variables(
    text: &str,
    context: &EntryContext<'_>,
    notes: &mut Vec<String>,
) -> Result<ImportedValue, String> {
    if text.contains("{file:") {
        return Err("it reads a file into its settings; move the value to the secret store".to_owned());
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
                return Ok(ImportedValue::Prompted {
                    id: id.to_owned(),
                    before: written,
                    after: rest.to_owned(),
                });
            };
            notes.push(format!("`{}` is prompted for there; its default was imported", printable(id)));
            written.push_str(default);
            continue;
        }
        let folder = |folder: Option<&Path>| {
            folder
                .map(|path| path.display().to_string())
                .ok_or_else(|| format!("`${{{}}}` can't be resolved outside the editor", printable(name)))
        };
        match name {
            "workspaceFolder" | "workspaceRoot" => written.push_str(&folder(context.project)?),
            "userHome" => written.push_str(&folder(context.environment.user_home)?),
            "workspaceFolderBasename" => {
                let name = context.project.and_then(Path::file_name).map(Path::new);
                written.push_str(&folder(name)?);
            }
            "pathSeparator" | "/" => written.push(std::path::MAIN_SEPARATOR),
            _ => {
                let name = name.strip_prefix("env:").unwrap_or(name);
                let (name, default) = name.split_once(":-").map_or((name, None), |(n, d)| (n, Some(d)));
                if !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') || name.is_empty() {
                    return Err(format!("`${{{}}}` can't be resolved outside the editor", printable(name)));
                }
                match default {
                    // Not both: an unset variable is an error here.
                    Some(default) if !(context.environment.is_set)(name) => {
                        notes.push(format!("`{name}` is not set now; its default was imported"));
                        written.push_str(default);
                        continue;
                    }
                    Some(_) => notes.push(format!(
                        "`{name}` is set now and must stay set for the hub; its default was not imported"
                    )),
                    None => {}
                }
                written.push_str(&format!("${{{name}}}"));
            }
        }
    }
    written.push_str(rest);
    Ok(ImportedValue::Resolved(written))
}
