//! What a server offers, made safe to show.
//!
//! A definition is a stranger's text that a model will read and a person will decide by. Characters that nobody sees
//! are taken out of everything in it; the rest of it, known to us or not, is passed on as it came.

use crate::connection::{Connection, RequestError};
use crate::names::public_name;
use crate::spec::ServerSpec;
use portcullis_core::json::{is_invisible, parse_strict, printable};
use portcullis_core::{Limits, Reach, ToolDef};
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How many tools one server may offer. The largest known has some hundreds.
const TOOLS_MAX: usize = 2_000;
/// How many pages a list may have. A server that never ends its list is not waited for.
const PAGES_MAX: usize = 200;
/// The largest definition of one tool.
const DEFINITION_BYTES_MAX: usize = 256 * 1024;
/// How long one page may take.
const LIST_WITHIN: Duration = Duration::from_secs(30);

/// The tools of one server, by the names under which they appear.
#[derive(Default)]
pub(crate) struct Tools {
    pub(crate) defs: Vec<Arc<ToolDef>>,
    /// From the name here to the name there.
    pub(crate) own_names: HashMap<String, String>,
    /// What does not appear, and why.
    pub(crate) dropped: Vec<(String, String)>,
}

/// Lists all tools, page by page.
pub(crate) async fn tools(connection: &Connection, spec: &ServerSpec) -> Result<Tools, RequestError> {
    let (mut tools, mut taken) = (Tools::default(), HashSet::new());
    let (mut cursor, never) = (None::<Value>, CancellationToken::new());
    for _ in 0..PAGES_MAX {
        let params = cursor.take().map_or_else(String::new, |cursor| format!(r#""cursor":{cursor}"#));
        let page = connection.request("tools/list", &params, None, &never, LIST_WITHIN).await?;
        let Ok(mut page) = parse_strict(page.get()) else {
            tools.dropped.push(("*".to_owned(), "the list is not readable".to_owned()));
            break;
        };
        if let Value::Array(items) = page["tools"].take() {
            items.into_iter().for_each(|item| add(&mut tools, &mut taken, spec, item));
        }
        match page.get("nextCursor") {
            Some(next) if next.is_string() => cursor = Some(next.clone()),
            _ => break,
        }
    }
    Ok(tools)
}

fn add(tools: &mut Tools, taken: &mut HashSet<String>, spec: &ServerSpec, item: Value) {
    let own = item["name"].as_str().unwrap_or_default().to_owned();
    if own.is_empty() || !spec.lists(&own) {
        return;
    }
    if tools.defs.len() >= TOOLS_MAX {
        tools.dropped.push((own, format!("the server offers more than {TOOLS_MAX} tools")));
        return;
    }
    match define(spec, &own, item, taken) {
        Ok(def) => {
            tools.own_names.insert(def.name.clone(), own);
            tools.defs.push(Arc::new(def));
        }
        // One bad definition costs that tool, not the server.
        Err(why) => tools.dropped.push((printable(&own), why)),
    }
}

fn define(spec: &ServerSpec, own: &str, item: Value, taken: &mut HashSet<String>) -> Result<ToolDef, String> {
    let bytes = item.to_string().len();
    if bytes > DEFINITION_BYTES_MAX {
        return Err(format!("its definition has {bytes} bytes, at most {DEFINITION_BYTES_MAX} are taken"));
    }
    let mut item = item;
    clean(&mut item);
    let Value::Object(mut definition) = item else {
        return Err("its definition is not an object".to_owned());
    };
    let input_schema = definition.get("inputSchema").cloned().ok_or("it has no input schema")?;
    if input_schema.get("type").and_then(Value::as_str) != Some("object") {
        return Err("its input schema is not that of an object".to_owned());
    }
    let text = |definition: &Map<String, Value>, key: &str| {
        definition.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let (title, description) = (text(&definition, "title"), text(&definition, "description"));
    let name = public_name(&spec.prefix, own, taken);
    definition.insert("name".to_owned(), name.as_str().into());
    let limits = Limits { deadline_ms: u64::MAX / 4, ..Limits::DEFAULT };
    let (effect, reach) = (spec.effect_of(own), Reach::Outside);
    Ok(ToolDef::foreign(name, title, description, effect, reach, limits, input_schema, definition)
        .unruled(spec.decision))
}

/// Takes characters out that nobody sees: they are there for the model only.
fn clean(value: &mut Value) {
    match value {
        Value::String(text) => clean_text(text),
        Value::Array(items) => items.iter_mut().for_each(clean),
        Value::Object(members) => {
            let hidden = |key: &String| key.chars().any(is_hidden);
            if members.keys().any(hidden) {
                *members = std::mem::take(members)
                    .into_iter()
                    .map(|(mut key, value)| {
                        clean_text(&mut key);
                        (key, value)
                    })
                    .collect();
            }
            members.values_mut().for_each(clean);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn clean_text(text: &mut String) {
    if text.chars().any(is_hidden) {
        text.retain(|c| !is_hidden(c));
    }
}

fn is_hidden(c: char) -> bool {
    (c.is_control() && !matches!(c, '\n' | '\t')) || is_invisible(c)
}
