//! Catalog of an upstream server: what it advertises, sanitised, and what clients see of it.
//!
//! A definition is untrusted text that a model reads and a person decides by (tool poisoning). Invisible characters
//! are removed from text for readers; a definition with one in a literal is dropped. Everything else, known or not,
//! is passed on as it came.

pub(crate) mod cache;
mod definition_shape;
mod list_reader;
pub(crate) mod list_refresh;
mod names;
mod pinned;
mod resource_links;
mod schema_flaws;
mod snapshot;
mod state;
mod uri_template;

pub(crate) use list_reader::ListError;
pub use pinned::{pinned_names, pinned_tools};
pub(crate) use snapshot::snapshot;
pub(crate) use state::{AdvertisedCatalog, CatalogState, ChangedLists};

use crate::rpc::ListKind;
use crate::sanitize::{DefinitionPart, sanitize, write_sanitized};
use crate::spec::ServerSpec;
use crate::tool_rules::ToolRules;
use crate::trust::QuarantinedItem;
use definition_shape::Member;
use list_reader::{PROMPTS, RESOURCES, TEMPLATES, TOOLS};
use names::public_names;
use portcullis_core::json::{parse_exact, parse_strict, printable};
use portcullis_core::{
    CallLimits, Definition, PromptArgument, PromptDef, Reach, ResourceClaim, ResourceDef, TaskSupport,
    TemplateDef, ToolDef, fallback_name,
};
use portcullis_store::pins::{PinKind, PinStatus};
use portcullis_wire::mirrored_headers::{self, MirroredArgument};
use portcullis_wire::params::RawMembers;
use portcullis_wire::{Era, TaskStart};
use schema_flaws::SchemaFlaws;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use uri_template::UriTemplate;

/// A call has the `timeout_ms` of its server, counted from the last sign of life, and the hub's ceiling.
const NO_DEADLINE_MS: u64 = u64::MAX;

/// Why an item is dropped whose every possible name other items of the server have.
const NAMELESS: &str = "other items of the server have every name that it could get";

/// One item as the server advertises it.
#[derive(Debug, Clone)]
pub(crate) struct RawDefinition {
    /// Its own name; the URI of a resource.
    pub(crate) own: String,
    pub(crate) raw: Box<RawValue>,
}

/// Everything that a server advertises.
#[derive(Debug, Clone, Default)]
pub(crate) struct RawCatalog {
    pub(crate) instructions: Option<String>,
    /// The era that it is written in, as far as that is known.
    pub(crate) era: Option<Era>,
    pub(crate) tools: Vec<RawDefinition>,
    pub(crate) prompts: Vec<RawDefinition>,
    pub(crate) resources: Vec<RawDefinition>,
    pub(crate) templates: Vec<RawDefinition>,
    /// The lists that the server has not returned yet. They are as they were last known.
    pub(crate) late: BTreeSet<ListKind>,
    /// The tools with unusable schemas.
    pub(crate) flaws: SchemaFlaws,
    /// What was dropped already, and why.
    pub(crate) dropped: Vec<(String, String)>,
}

impl RawCatalog {
    /// Returns whether all lists are known.
    pub(crate) fn is_whole(&self) -> bool {
        self.late.is_empty()
    }

    /// Keeps the lists that the server declares. Tools are read in any case.
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
        // What else was dropped is found out again.
        self.dropped.retain(|(list, _)| kept.iter().any(|(kind, has)| *has && kind.key == list));
    }
}

/// What clients see of it.
#[derive(Default)]
pub(crate) struct ExposedCatalog {
    pub(crate) tools: Vec<Arc<ToolDef>>,
    pub(crate) prompts: Vec<Arc<PromptDef>>,
    pub(crate) resources: Vec<ResourceDef>,
    pub(crate) templates: Vec<Arc<TemplateDef>>,
    /// By public name.
    pub(crate) tool_names: HashMap<String, Arc<UpstreamTool>>,
    pub(crate) prompt_names: HashMap<String, String>,
    /// Fallback definitions, for names that other providers have.
    pub(crate) second: HashMap<String, Arc<ToolDef>>,
    addresses: HashSet<String>,
    patterns: Vec<(String, UriTemplate)>,
    /// Whether the server has advertised anything yet.
    pub(crate) is_known: bool,
    /// The lists that it has not returned yet.
    pub(crate) late: BTreeSet<ListKind>,
    /// What is not exposed, and why.
    pub(crate) dropped: Vec<(String, String)>,
    /// What needs review.
    pub(crate) quarantined: Vec<QuarantinedItem>,
}

/// A tool by its own name.
pub(crate) struct UpstreamTool {
    pub(crate) name: String,
    /// The name as a JSON string.
    pub(crate) quoted: String,
    /// Its exposed definition.
    pub(crate) def: Arc<ToolDef>,
    /// The arguments that headers repeat.
    pub(crate) headers: Vec<MirroredArgument>,
    /// Whether a server of the older era runs it as a task only.
    pub(crate) runs_as_task: bool,
}

impl ExposedCatalog {
    pub(crate) fn owns(&self, uri: &str) -> ResourceClaim {
        if self.addresses.contains(uri) {
            ResourceClaim::Listed
        } else if self.forms_of(uri).next().is_some() {
            ResourceClaim::ByForm
        } else {
            ResourceClaim::Not
        }
    }

    /// Returns the templates that a URI matches, as the server wrote them.
    pub(crate) fn forms_of(&self, uri: &str) -> impl Iterator<Item = &str> {
        self.patterns.iter().filter(move |(_, form)| form.matches(uri)).map(|(own, _)| own.as_str())
    }

    /// Returns the own name of an exposed item.
    pub(crate) fn own_name<'a>(&'a self, kind: &str, name: &'a str) -> &'a str {
        let own = match kind {
            "tool" => self.tool_names.get(name).map(|own| own.name.as_str()),
            "prompt" => self.prompt_names.get(name).map(String::as_str),
            _ => None,
        };
        own.unwrap_or(name)
    }
}

/// Computes what clients see. `standing` says what an administrator has trusted; listed resources are data, and are
/// trusted with the server.
pub(crate) fn expose(
    offer: &RawCatalog,
    spec: &ServerSpec,
    standing: impl Fn(PinKind, &str) -> PinStatus,
    is_known: bool,
) -> ExposedCatalog {
    let (dropped, late) = (offer.dropped.clone(), offer.late.clone());
    let mut shown = ExposedCatalog { dropped, late, is_known: true, ..ExposedCatalog::default() };
    let trusted = spec.trust.trusted(&spec.name);
    let rules = spec.tool_rules(trusted.as_deref());
    let tool = |said: &RawDefinition, name: String, left_out: &mut Vec<(String, String)>| {
        tool(spec, &rules, offer.era, said, name, left_out)
    };
    let listed = || offer.tools.iter().filter(|said| spec.lists(&said.own));
    // Every tool takes its name, trusted or not, so that trusting one renames no other.
    let mut names = public_names(&spec.prefix, &spec.rename, listed().map(|said| said.own.as_str()));
    let second = second_names(spec, &names);
    for said in listed() {
        let Some(name) = names.remove(said.own.as_str()) else {
            shown.dropped.push((printable(&said.own), NAMELESS.to_owned()));
            continue;
        };
        let standing = standing(PinKind::Tool, &said.own);
        if standing != PinStatus::Trusted {
            shown.tools.push(Arc::new(waiting(spec, &rules, said, name)));
            shown.quarantined.push(QuarantinedItem::new("tool", &said.own, standing));
            continue;
        }
        let flaw = offer.flaws.get(&said.own).cloned();
        match flaw.map_or_else(|| tool(said, name, &mut shown.dropped), Err) {
            Ok(own) => {
                // What is wrong with it is reported already.
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
        if standing != PinStatus::Trusted {
            shown.quarantined.push(QuarantinedItem::new("prompt", &said.own, standing));
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
        shown.quarantined.push(QuarantinedItem::new("resources", &name, PinStatus::Server));
    }
    if is_known {
        show_resources(offer, &mut shown);
        show_templates(offer, standing, &mut shown);
    }
    shown
}

/// Returns fallback names by public name, for a server without a prefix. A public name here is no fallback.
fn second_names(spec: &ServerSpec, names: &HashMap<&str, String>) -> HashMap<String, String> {
    if !spec.prefix.is_empty() {
        return HashMap::new();
    }
    let first: HashSet<&String> = names.values().collect();
    let second = names.values().filter_map(|name| Some((name.clone(), fallback_name(&spec.name, name)?)));
    second.filter(|(_, second)| !first.contains(second)).collect()
}

/// Returns a quarantined tool: its name, and how to get it reviewed.
fn waiting(spec: &ServerSpec, rules: &ToolRules<'_>, said: &RawDefinition, name: String) -> ToolDef {
    let hint = format!("ask a person to run `portcullis mcp trust {}`", spec.name);
    let (effect, decision) = (rules.effect(&said.own), rules.decision(&said.own));
    let def = ToolDef::quarantined(spec.name.clone(), name, effect, Reach::Outside, decision, hint);
    def.labelled(spec.labels_of(&said.own))
}

fn show_resources(offer: &RawCatalog, shown: &mut ExposedCatalog) {
    for said in &offer.resources {
        match cleaned(said, &[], definition_shape::RESOURCE, DefinitionPart::Resource, &mut shown.dropped) {
            Ok(_) if !shown.addresses.insert(said.own.clone()) => {
                shown.dropped.push((printable(&said.own), "the server lists this URI twice".to_owned()));
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

fn show_templates(
    offer: &RawCatalog,
    standing: impl Fn(PinKind, &str) -> PinStatus,
    shown: &mut ExposedCatalog,
) {
    for said in &offer.templates {
        let standing = standing(PinKind::Template, &said.own);
        if standing != PinStatus::Trusted {
            shown.quarantined.push(QuarantinedItem::new("template", &said.own, standing));
            continue;
        }
        match cleaned(said, &[], definition_shape::RESOURCE, DefinitionPart::Resource, &mut shown.dropped) {
            Ok((value, definition)) => {
                shown.patterns.push((said.own.clone(), UriTemplate::new(&said.own)));
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
    rules: &ToolRules<'_>,
    era: Option<Era>,
    said: &RawDefinition,
    name: String,
    left_out: &mut Vec<(String, String)>,
) -> Result<UpstreamTool, String> {
    let own = &said.own;
    let mut replaced = vec![("name", name.as_str().into())];
    let (tasks, runs_as_task) = match execution(said) {
        Some(mut execution) if execution["taskSupport"] == "required" => {
            // The hub polls the task, so for clients of that era it is a tool like any other.
            execution["taskSupport"] = "forbidden".into();
            replaced.push(("execution", execution));
            (TaskSupport::Optional, true)
        }
        Some(execution) if execution["taskSupport"] == "optional" => (TaskSupport::Optional, false),
        _ => (TaskSupport::Never, false),
    };
    // A server of the newer era decides itself which calls become tasks.
    let (tasks, runs_as_task) = match era.map(|era| era.client().task_start()) {
        Some(TaskStart::ByServer) => (TaskSupport::Never, false),
        Some(TaskStart::OnRequest) | None => (tasks, runs_as_task),
    };
    if let Some(annotations) = corrected_annotations(rules, said) {
        replaced.push(("annotations", annotations));
    }
    let (value, definition) =
        cleaned(said, &replaced, definition_shape::TOOL, DefinitionPart::Definition, left_out)?;
    let input_schema = value.get("inputSchema").cloned().ok_or("it has no input schema")?;
    if input_schema.get("type").and_then(Value::as_str) != Some("object") {
        return Err("its input schema is not that of an object".to_owned());
    }
    let headers = mirrored_headers::mirrors(&input_schema)?;
    let limits = CallLimits { deadline_ms: NO_DEADLINE_MS, ..CallLimits::DEFAULT };
    let mut def = ToolDef::foreign(
        spec.name.clone(),
        name,
        text(&value, "title").unwrap_or_default(),
        text(&value, "description").unwrap_or_default(),
        rules.effect(own),
        Reach::Outside,
        limits,
        input_schema,
        value.get("outputSchema").cloned(),
        definition,
    );
    def.tasks = tasks;
    let def = Arc::new(def.default_decision(rules.decision(own)).labelled(spec.labels_of(own)));
    let (name, quoted) = (own.clone(), Value::from(own.as_str()).to_string());
    Ok(UpstreamTool { name, quoted, def, headers, runs_as_task })
}

/// Returns corrected annotations for a tool whose server claims less of an effect than a person states.
/// Clients run tools without asking that are annotated as harmless; hints that claim more stay.
fn corrected_annotations(rules: &ToolRules<'_>, said: &RawDefinition) -> Option<Value> {
    let hints = rules.stated_effect(&said.own)?.hints(Reach::Outside);
    if !said.raw.get().contains("annotations") && !said.raw.get().contains('\\') {
        return None;
    }
    let fitting = definition_shape::fit(&said.raw, definition_shape::TOOL).ok()?;
    let fields: RawMembers<'_> = serde_json::from_str(&fitting.text).ok()?;
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

/// Returns the `execution` member of 2025-11-25.
fn execution(said: &RawDefinition) -> Option<Value> {
    let fields: RawMembers<'_> = serde_json::from_str(said.raw.get()).ok()?;
    let execution: Value = serde_json::from_str(fields.get("execution")?.get()).ok()?;
    execution.is_object().then_some(execution)
}

fn prompt(
    said: &RawDefinition,
    name: String,
    left_out: &mut Vec<(String, String)>,
) -> Result<PromptDef, String> {
    let replaced = [("name", name.as_str().into())];
    let (value, definition) =
        cleaned(said, &replaced, definition_shape::PROMPT, DefinitionPart::Definition, left_out)?;
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

/// Returns a definition in its required shape, with some members replaced, and sanitised. Everything else keeps
/// every byte, numbers included. Reports which of its members are dropped.
fn cleaned(
    said: &RawDefinition,
    replaced: &[(&str, Value)],
    members: &'static [Member],
    part: DefinitionPart,
    left_out: &mut Vec<(String, String)>,
) -> Result<(Value, Definition), String> {
    let fitting = definition_shape::fit(&said.raw, members)?;
    let fields: RawMembers<'_> = serde_json::from_str(&fitting.text).map_err(|error| error.to_string())?;
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
    // Resources are found by URI; one without a name is listed by it.
    if part == DefinitionPart::Resource && fields.get("name").is_none() {
        text.push_str(&format!(r#","name":{}"#, Value::from(said.own.as_str())));
    }
    text.push('}');
    let mut value = parse_strict(&text).map_err(|error| error.to_string())?;
    let mut raw = RawValue::from_string(text).map_err(|error| error.to_string())?;
    if sanitize(&mut value, part)? {
        let mut text = String::with_capacity(raw.get().len());
        write_sanitized(&raw, part, &mut text).map_err(|error| error.to_string())?;
        raw = RawValue::from_string(text).map_err(|error| error.to_string())?;
    }
    let of = printable(&said.own);
    left_out.extend(fitting.left_out.into_iter().map(|(key, why)| (format!("`{key}` of {of}"), why)));
    Ok((value, Definition::new(raw)))
}
