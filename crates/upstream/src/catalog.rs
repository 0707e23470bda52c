//! What a server offers, made safe to show.
//!
//! A definition is a stranger's text that a model will read and a person will decide by. Characters that nobody sees
//! are taken out of what is written for readers; where they stand in what has to stay as it is, the thing is left out. The
//! rest, known to us or not, is passed on as it came.

use crate::clean::{Part, clean, write_cleaned};
use crate::connection::{Connection, LinkError, RequestError};
use crate::flaws::Flaws;
use crate::lists::Listed;
use crate::names::public_names;
use crate::shape::{self, Member};
use crate::spec::ServerSpec;
use crate::template::Template;
use crate::trust::Quarantined;
use portcullis_core::json::{parse_exact, parse_strict, printable};
use portcullis_core::text::is_unseen;
use portcullis_core::{
    Definition, Limits, Owns, PromptArgument, PromptDef, Reach, ResourceDef, TaskSupport, TemplateDef,
    ToolDef, second_name,
};
use portcullis_store::pins::{Kind as PinKind, Standing};
use portcullis_wire::Era;
use portcullis_wire::header::{self, Mirror};
use portcullis_wire::params::Fields;
use portcullis_wire::rpc;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

/// How many things of a kind one server may offer. The largest known has some hundreds of tools.
const ITEMS_MAX: usize = 2_000;
/// How many pages a list may have. A server that never ends its list is not waited for.
const PAGES_MAX: usize = 200;
/// The largest definition of one thing.
const DEFINITION_BYTES_MAX: usize = 256 * 1024;

/// How long a call may take is `timeout_ms` of its server, counted from the last sign of life; the ceiling of the hub holds
/// besides.
const NO_DEADLINE_MS: u64 = u64::MAX;

/// Why something does not appear that others of the same server have left no name for.
const NAMELESS: &str = "the server has given every name that it could have to others";

/// One thing that a server offers, as it said it.
#[derive(Debug, Clone)]
pub(crate) struct Said {
    /// Its own name there; the address of a resource.
    pub(crate) own: String,
    pub(crate) raw: Box<RawValue>,
}

/// Everything that a server said about itself, page by page.
#[derive(Debug, Clone, Default)]
pub(crate) struct Offer {
    pub(crate) instructions: Option<String>,
    /// In whose words it is said, as far as that is known.
    pub(crate) era: Option<Era>,
    pub(crate) tools: Vec<Said>,
    pub(crate) prompts: Vec<Said>,
    pub(crate) resources: Vec<Said>,
    pub(crate) templates: Vec<Said>,
    /// The lists that the server has not said yet. They are what they were when they were last known.
    pub(crate) late: BTreeSet<Listed>,
    /// Which of the tools nobody could use.
    pub(crate) flaws: Flaws,
    /// What is left out already, and why.
    pub(crate) dropped: Vec<(String, String)>,
}

impl Offer {
    /// Returns whether all of it is known.
    pub(crate) fn is_whole(&self) -> bool {
        self.late.is_empty()
    }

    /// Keeps the lists that the server has. Tools are asked for in any case.
    pub(crate) fn keep(&mut self, has: impl Fn(&str) -> bool) {
        let (has_prompts, has_resources) = (has("prompts"), has("resources"));
        if !has_prompts {
            self.prompts.clear();
        }
        if !has_resources {
            self.resources.clear();
            self.templates.clear();
        }
        let kept =
            [(TOOLS, true), (PROMPTS, has_prompts), (RESOURCES, has_resources), (TEMPLATES, has_resources)];
        // What else was left out is found out again.
        self.dropped.retain(|(list, _)| kept.iter().any(|(kind, has)| *has && kind.key == list));
    }
}

/// What appears of it.
#[derive(Default)]
pub(crate) struct Shown {
    pub(crate) tools: Vec<Arc<ToolDef>>,
    pub(crate) prompts: Vec<Arc<PromptDef>>,
    pub(crate) resources: Vec<ResourceDef>,
    pub(crate) templates: Vec<Arc<TemplateDef>>,
    /// From the name here to the name there.
    pub(crate) tool_names: HashMap<String, Arc<OwnTool>>,
    pub(crate) prompt_names: HashMap<String, String>,
    /// What appears where a name is another's.
    pub(crate) second: HashMap<String, Arc<ToolDef>>,
    addresses: HashSet<String>,
    patterns: Vec<(String, Template)>,
    /// Whether this is what the server said, and not merely that it has said nothing yet.
    pub(crate) is_known: bool,
    /// What it has not said yet all the same.
    pub(crate) late: BTreeSet<Listed>,
    /// What does not appear, and why.
    pub(crate) dropped: Vec<(String, String)>,
    /// What waits for a person.
    pub(crate) quarantined: Vec<Quarantined>,
}

/// A tool as the server knows it.
pub(crate) struct OwnTool {
    pub(crate) name: String,
    /// The name as JSON.
    pub(crate) quoted: String,
    /// As it appears.
    pub(crate) def: Arc<ToolDef>,
    /// Which arguments are also shown in headers.
    pub(crate) headers: Vec<Mirror>,
    /// Whether a server of the older era runs it as a task only.
    pub(crate) runs_as_task: bool,
}

impl Shown {
    pub(crate) fn owns(&self, uri: &str) -> Owns {
        if self.addresses.contains(uri) {
            Owns::Listed
        } else if self.forms_of(uri).next().is_some() {
            Owns::ByForm
        } else {
            Owns::Not
        }
    }

    /// Returns the templates that an address fits, as the server wrote them.
    pub(crate) fn forms_of(&self, uri: &str) -> impl Iterator<Item = &str> {
        self.patterns.iter().filter(move |(_, form)| form.matches(uri)).map(|(own, _)| own.as_str())
    }

    /// Returns how something that appears so is called by its server.
    pub(crate) fn own_name<'a>(&'a self, kind: &str, name: &'a str) -> &'a str {
        let own = match kind {
            "tool" => self.tool_names.get(name).map(|own| own.name.as_str()),
            "prompt" => self.prompt_names.get(name).map(String::as_str),
            _ => None,
        };
        own.unwrap_or(name)
    }
}

/// A kind of list.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kind {
    method: &'static str,
    pub(crate) key: &'static str,
    name: &'static str,
}

pub(crate) const TOOLS: Kind = Kind { method: "tools/list", key: "tools", name: "name" };
pub(crate) const PROMPTS: Kind = Kind { method: "prompts/list", key: "prompts", name: "name" };
pub(crate) const RESOURCES: Kind = Kind { method: "resources/list", key: "resources", name: "uri" };
pub(crate) const TEMPLATES: Kind =
    Kind { method: "resources/templates/list", key: "resourceTemplates", name: "uriTemplate" };

/// Why a list could not be read, and by which method.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unlisted {
    #[error("`{0}`: {1}")]
    Request(&'static str, RequestError),
    #[error("`{0}`: {1}")]
    Unreadable(&'static str, String),
}

impl Unlisted {
    /// Returns whether nothing came, and may come yet.
    pub(crate) fn is_late(&self) -> bool {
        matches!(self, Unlisted::Request(_, RequestError::Timeout(_)))
    }

    /// Returns whether it says something of this list alone, and nothing of the connection.
    pub(crate) fn is_of_list(&self) -> bool {
        match self {
            Unlisted::Unreadable(..) => true,
            Unlisted::Request(_, error) => matches!(
                error,
                RequestError::Refused(_)
                    | RequestError::Timeout(_)
                    | RequestError::TooLong { .. }
                    | RequestError::Link(LinkError::Unsuitable { .. })
            ),
        }
    }
}

/// Reads one whole list. A server that does not know the method has nothing of the kind. A list that breaks off after
/// its first page is taken as far as it goes, and what is missing is told. Each page has so much time.
pub(crate) async fn list(
    connection: &Connection,
    kind: Kind,
    within: Duration,
    dropped: &mut Vec<(String, String)>,
) -> Result<Vec<Said>, Unlisted> {
    let (mut said, mut cursor) = (Vec::new(), None::<String>);
    let cut = |why: String| (kind.key.to_owned(), format!("the list is cut: {why}"));
    for page in 0.. {
        if page == PAGES_MAX {
            dropped.push(cut(format!("the server has more than {PAGES_MAX} pages of it")));
            break;
        }
        let params =
            cursor.take().map_or_else(String::new, |cursor| format!(r#""cursor":{}"#, Value::from(cursor)));
        let answer = match connection.own(kind.method, params, within).await {
            Ok(answer) => answer,
            Err(RequestError::Refused(error))
                if page == 0 && error.code == i64::from(rpc::METHOD_NOT_FOUND) =>
            {
                break;
            }
            Err(error @ RequestError::Refused(_)) if page > 0 => {
                dropped.push(cut(error.to_string()));
                break;
            }
            Err(error) => return Err(Unlisted::Request(kind.method, error)),
        };
        let (items, next) = match read_page(kind, &answer) {
            Ok(read) => read,
            Err(why) if page > 0 => {
                dropped.push(cut(why));
                break;
            }
            Err(why) => return Err(Unlisted::Unreadable(kind.method, why)),
        };
        for raw in items {
            if said.len() >= ITEMS_MAX {
                dropped.push(cut(format!("the server offers more than {ITEMS_MAX}")));
                return Ok(said);
            }
            match own_name(kind, raw) {
                Ok(own) => said.push(Said { own, raw: raw.to_owned() }),
                Err(why) => dropped.push((kind.key.to_owned(), why)),
            }
        }
        match next {
            Some(next) => cursor = Some(next),
            None => break,
        }
    }
    Ok(said)
}

/// Returns what is on a page, and where the next one begins.
fn read_page(kind: Kind, page: &RawValue) -> Result<(Vec<&RawValue>, Option<String>), String> {
    let fields: Fields<'_> =
        serde_json::from_str(page.get()).map_err(|_| "the answer is no object".to_owned())?;
    let items = fields.get(kind.key).ok_or_else(|| format!("the answer has no `{}`", kind.key))?;
    // Many servers write nothing so.
    let items = serde_json::from_str::<Option<Vec<&RawValue>>>(items.get())
        .map_err(|_| format!("`{}` is no list", kind.key))?;
    let next = fields.get("nextCursor").and_then(|raw| serde_json::from_str::<String>(raw.get()).ok());
    Ok((items.unwrap_or_default(), next.filter(|next| !next.is_empty())))
}

fn own_name(kind: Kind, raw: &RawValue) -> Result<String, String> {
    let bytes = raw.get().len();
    if bytes > DEFINITION_BYTES_MAX {
        return Err(format!("a definition has {bytes} bytes, at most {DEFINITION_BYTES_MAX} are taken"));
    }
    let fields: Fields<'_> = serde_json::from_str(raw.get()).map_err(|error| error.to_string())?;
    let name = fields.get(kind.name).and_then(|raw| serde_json::from_str::<String>(raw.get()).ok());
    let name =
        name.filter(|name| !name.is_empty()).ok_or_else(|| format!("an entry without `{}`", kind.name))?;
    // A name is made legal before anybody sees it; an address has to stay what it is.
    if kind.name != "name" && name.contains(is_unseen) {
        return Err(format!("the address `{}` holds what nobody sees", printable(&name)));
    }
    Ok(name)
}

/// Makes of what a server said what appears of it. `standing` tells what a person has let in; resources that it lists are
/// data, and come with the server.
pub(crate) fn show(
    offer: &Offer,
    spec: &ServerSpec,
    standing: impl Fn(PinKind, &str) -> Standing,
    is_known: bool,
) -> Shown {
    let (dropped, late) = (offer.dropped.clone(), offer.late.clone());
    let mut shown = Shown { dropped, late, is_known: true, ..Shown::default() };
    let tool = |said: &Said, name: String, left_out: &mut Vec<(String, String)>| {
        tool(spec, offer.era, said, name, left_out)
    };
    let listed = || offer.tools.iter().filter(|said| spec.lists(&said.own));
    // Every tool takes its name, so that none has another once another one is let in.
    let mut names = public_names(&spec.prefix, &spec.rename, listed().map(|said| said.own.as_str()));
    let second = second_names(spec, &names);
    for said in listed() {
        let Some(name) = names.remove(said.own.as_str()) else {
            shown.dropped.push((printable(&said.own), NAMELESS.to_owned()));
            continue;
        };
        let standing = standing(PinKind::Tool, &said.own);
        if standing != Standing::Trusted {
            shown.tools.push(Arc::new(waiting(spec, said, name)));
            shown.quarantined.push(Quarantined::new("tool", &said.own, standing));
            continue;
        }
        let flaw = offer.flaws.get(&said.own).cloned();
        match flaw.map_or_else(|| tool(said, name, &mut shown.dropped), Err) {
            Ok(own) => {
                // What is wrong with it has been said.
                if let Some(name) = second.get(&own.def.name)
                    && let Ok(mut other) = tool(said, name.clone(), &mut Vec::new())
                    && let Some(def) = Arc::get_mut(&mut other.def)
                {
                    def.instead_of = Some(own.def.name.clone());
                    shown.second.insert(own.def.name.clone(), other.def.clone());
                    shown.tool_names.insert(name.clone(), Arc::new(other));
                }
                shown.tools.push(own.def.clone());
                shown.tool_names.insert(own.def.name.clone(), Arc::new(own));
            }
            // One bad definition costs that tool, not the server.
            Err(why) => shown.dropped.push((printable(&said.own), why)),
        }
    }
    let mut names = public_names(&spec.prefix, &[], offer.prompts.iter().map(|said| said.own.as_str()));
    for said in &offer.prompts {
        let Some(name) = names.remove(said.own.as_str()) else {
            shown.dropped.push((printable(&said.own), NAMELESS.to_owned()));
            continue;
        };
        let standing = standing(PinKind::Prompt, &said.own);
        if standing != Standing::Trusted {
            shown.quarantined.push(Quarantined::new("prompt", &said.own, standing));
            continue;
        }
        match prompt(said, name, &mut shown.dropped) {
            Ok(def) => {
                shown.prompt_names.insert(def.name.clone(), said.own.clone());
                shown.prompts.push(Arc::new(def));
            }
            Err(why) => shown.dropped.push((printable(&said.own), why)),
        }
    }
    let data = offer.resources.len() + offer.templates.len();
    if !is_known && data > 0 {
        let name = format!("{data} resources and templates");
        shown.quarantined.push(Quarantined::new("resources", &name, Standing::Server));
    }
    if is_known {
        show_resources(offer, &mut shown);
        show_templates(offer, standing, &mut shown);
    }
    shown
}

/// Returns second names by the first, for a server without a prefix. What is a first name here is no second one.
fn second_names(spec: &ServerSpec, names: &HashMap<&str, String>) -> HashMap<String, String> {
    if !spec.prefix.is_empty() {
        return HashMap::new();
    }
    let first: HashSet<&String> = names.values().collect();
    let second = names.values().filter_map(|name| Some((name.clone(), second_name(&spec.name, name)?)));
    second.filter(|(_, second)| !first.contains(second)).collect()
}

/// What is known of a tool that nobody has looked at: that there is one, and who can change that.
fn waiting(spec: &ServerSpec, said: &Said, name: String) -> ToolDef {
    let hint = format!("ask a person to run `portcullis mcp trust {}`", spec.name);
    let effect = spec.effect_of(&said.own);
    let def = ToolDef::waiting(spec.name.clone(), name, effect, Reach::Outside, spec.decision, hint);
    def.labelled(spec.labels_of(&said.own))
}

fn show_resources(offer: &Offer, shown: &mut Shown) {
    for said in &offer.resources {
        match cleaned(said, &[], shape::RESOURCE, Part::Resource, &mut shown.dropped) {
            Ok(_) if !shown.addresses.insert(said.own.clone()) => {
                shown.dropped.push((printable(&said.own), "the server lists this address twice".to_owned()));
            }
            Ok((value, definition)) => {
                shown.resources.push(ResourceDef {
                    uri: said.own.clone(),
                    name: text(&value, "name").unwrap_or_default(),
                    title: text(&value, "title"),
                    description: text(&value, "description"),
                    mime_type: text(&value, "mimeType"),
                    size: value["size"].as_u64(),
                    definition: Some(definition),
                });
            }
            Err(why) => shown.dropped.push((printable(&said.own), why)),
        }
    }
}

fn show_templates(offer: &Offer, standing: impl Fn(PinKind, &str) -> Standing, shown: &mut Shown) {
    for said in &offer.templates {
        let standing = standing(PinKind::Template, &said.own);
        if standing != Standing::Trusted {
            shown.quarantined.push(Quarantined::new("template", &said.own, standing));
            continue;
        }
        match cleaned(said, &[], shape::RESOURCE, Part::Resource, &mut shown.dropped) {
            Ok((value, definition)) => {
                shown.patterns.push((said.own.clone(), Template::new(&said.own)));
                shown.templates.push(Arc::new(TemplateDef {
                    uri_template: said.own.clone(),
                    name: text(&value, "name").unwrap_or_default(),
                    title: text(&value, "title"),
                    description: text(&value, "description"),
                    mime_type: text(&value, "mimeType"),
                    definition: Some(definition),
                }));
            }
            Err(why) => shown.dropped.push((printable(&said.own), why)),
        }
    }
}

fn tool(
    spec: &ServerSpec,
    era: Option<Era>,
    said: &Said,
    name: String,
    left_out: &mut Vec<(String, String)>,
) -> Result<OwnTool, String> {
    let own = &said.own;
    let mut replaced = vec![("name", name.as_str().into())];
    let (tasks, runs_as_task) = match execution(said) {
        Some(mut execution) if execution["taskSupport"] == "required" => {
            // The hub waits for the task, so for clients of that era it is a tool like any other.
            execution["taskSupport"] = "forbidden".into();
            replaced.push(("execution", execution));
            (TaskSupport::Optional, true)
        }
        Some(execution) if execution["taskSupport"] == "optional" => (TaskSupport::Optional, false),
        _ => (TaskSupport::Never, false),
    };
    // A server of the newer era makes a task of a call by itself, where the client understands tasks.
    let (tasks, runs_as_task) = match era {
        Some(Era::PerRequest) => (TaskSupport::Never, false),
        Some(Era::Sessions) | None => (tasks, runs_as_task),
    };
    if let Some(annotations) = corrected_annotations(spec, said) {
        replaced.push(("annotations", annotations));
    }
    let (value, definition) = cleaned(said, &replaced, shape::TOOL, Part::Definition, left_out)?;
    let input_schema = value.get("inputSchema").cloned().ok_or("it has no input schema")?;
    if input_schema.get("type").and_then(Value::as_str) != Some("object") {
        return Err("its input schema is not that of an object".to_owned());
    }
    let headers = header::mirrors(&input_schema)?;
    let limits = Limits { deadline_ms: NO_DEADLINE_MS, ..Limits::DEFAULT };
    let mut def = ToolDef::foreign(
        spec.name.clone(),
        name,
        text(&value, "title").unwrap_or_default(),
        text(&value, "description").unwrap_or_default(),
        spec.effect_of(own),
        Reach::Outside,
        limits,
        input_schema,
        value.get("outputSchema").cloned(),
        definition,
    );
    def.tasks = tasks;
    let def = Arc::new(def.unruled(spec.decision).labelled(spec.labels_of(own)));
    let (name, quoted) = (own.clone(), Value::from(own.as_str()).to_string());
    Ok(OwnTool { name, quoted, def, headers, runs_as_task })
}

/// Returns the annotations of a tool whose server says less of its effect than the configuration does, put right. Clients
/// let tools run by themselves that are said to be harmless; hints that say more stay.
fn corrected_annotations(spec: &ServerSpec, said: &Said) -> Option<Value> {
    let hints = spec.stated_effect(&said.own)?.hints(Reach::Outside);
    if !said.raw.get().contains("annotations") && !said.raw.get().contains('\\') {
        return None;
    }
    let fitting = shape::fit(&said.raw, shape::TOOL).ok()?;
    let fields: Fields<'_> = serde_json::from_str(&fitting.text).ok()?;
    let mut annotations = parse_exact(fields.get("annotations")?.get()).ok()?;
    let claims_read = !hints.read_only && annotations["readOnlyHint"] == true;
    let claims_harmless = hints.destructive && annotations["destructiveHint"] == false;
    if !claims_read && !claims_harmless {
        return None;
    }
    annotations["readOnlyHint"] = false.into();
    if hints.destructive {
        annotations["destructiveHint"] = true.into();
    }
    Some(annotations)
}

/// Returns what a server of 2025-11-25 says of how a tool runs.
fn execution(said: &Said) -> Option<Value> {
    let fields: Fields<'_> = serde_json::from_str(said.raw.get()).ok()?;
    let execution: Value = serde_json::from_str(fields.get("execution")?.get()).ok()?;
    execution.is_object().then_some(execution)
}

fn prompt(said: &Said, name: String, left_out: &mut Vec<(String, String)>) -> Result<PromptDef, String> {
    let replaced = [("name", name.as_str().into())];
    let (value, definition) = cleaned(said, &replaced, shape::PROMPT, Part::Definition, left_out)?;
    let arguments = value["arguments"].as_array().into_iter().flatten().map(|argument| PromptArgument {
        name: text(argument, "name").unwrap_or_default(),
        description: text(argument, "description"),
        required: argument["required"].as_bool().unwrap_or(false),
    });
    let arguments = arguments.collect();
    let (title, description) = (text(&value, "title"), text(&value, "description"));
    Ok(PromptDef { name, title, description, arguments, definition: Some(definition) })
}

fn text(value: &Value, key: &str) -> Option<String> {
    value.get(key).and_then(Value::as_str).map(str::to_owned)
}

/// Returns a definition in the shape that it has to have, with some members replaced, and without what nobody sees in its
/// words. All else in it keeps every byte, numbers included. Says which of its members are left out.
fn cleaned(
    said: &Said,
    replaced: &[(&str, Value)],
    members: &'static [Member],
    part: Part,
    left_out: &mut Vec<(String, String)>,
) -> Result<(Value, Definition), String> {
    let fitting = shape::fit(&said.raw, members)?;
    let fields: Fields<'_> = serde_json::from_str(&fitting.text).map_err(|error| error.to_string())?;
    let mut text = String::with_capacity(fitting.text.len() + 64);
    text.push('{');
    for (at, (key, raw)) in fields.0.iter().enumerate() {
        if at > 0 {
            text.push(',');
        }
        text.push_str(&Value::from(key.as_ref()).to_string());
        text.push(':');
        match replaced.iter().find(|(name, _)| name == key) {
            Some((_, new)) => text.push_str(&new.to_string()),
            None => text.push_str(raw.get()),
        }
    }
    // Data is found by its address; what has no name besides is listed by it.
    if part == Part::Resource && fields.get("name").is_none() {
        text.push_str(&format!(r#","name":{}"#, Value::from(said.own.as_str())));
    }
    text.push('}');
    let mut value = parse_strict(&text).map_err(|error| error.to_string())?;
    let mut raw = RawValue::from_string(text).map_err(|error| error.to_string())?;
    if clean(&mut value, part)? {
        let mut text = String::with_capacity(raw.get().len());
        write_cleaned(&raw, part, &mut text).map_err(|error| error.to_string())?;
        raw = RawValue::from_string(text).map_err(|error| error.to_string())?;
    }
    let of = printable(&said.own);
    left_out.extend(fitting.left_out.into_iter().map(|(key, why)| (format!("`{key}` of {of}"), why)));
    Ok((value, Definition::new(raw)))
}
