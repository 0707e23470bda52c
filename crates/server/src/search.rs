//! Tool search: `find_tools` and `call_tool`, instead of a list of all tools.
//!
//! A client in search mode sees the native tools and these two. `find_tools` searches the tools of all upstream
//! servers that the client may see; `call_tool` calls one of them. Neither bypasses a check: `dispatch` replaces
//! `call_tool` with the named tool before the gate, and `find_tools` returns nothing that a list would hide.

mod rank;
#[cfg(test)]
mod test_tools;
mod tokenize;
mod topics;

use portcullis_core::{
    Arguments, BoxFuture, Call, CallLimits, Caller, Catalog, Effect, Gate, GateHandle, Outcome, Output,
    Permit, Provider, Reach, Target, ToolDef, ToolError, ToolOutput, ToolSpec, ToolView, blocking,
};
use portcullis_wire::render;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) const FIND: &str = "find_tools";
pub(crate) const CALL: &str = "call_tool";
/// Maximum and default of `limit`.
const FOUND_MAX: usize = 50;
const FOUND_USUALLY: usize = 8;
/// Words of a query.
const QUERY_WORDS_MAX: usize = 32;
/// Length of a query.
const QUERY_CHARS_MAX: usize = 500;
/// Length of a description in the results.
const DESCRIPTION_CHARS_MAX: usize = 600;
/// Servers that are described with their topics, topics of each, and further servers that are only named.
const SERVERS_TOLD_MAX: usize = 40;
const TOPICS_MAX: usize = 6;
const SERVERS_NAMED_MAX: usize = 400;
/// Shown to a client that can find nothing. It must not reveal whether there are hidden tools.
const NOTHING_OPEN: &str = "At the moment no tool of another server is open to this client.";

const FIND_SPEC: ToolSpec = ToolSpec {
    name: FIND,
    title: "Find tools",
    description: "Finds tools of other servers by what they do. Returns names, descriptions and input schemas, best first; call one with `call_tool`. Use it before you conclude that something cannot be done.",
    effect: Effect::Read,
    reach: Reach::Local,
    limits: CallLimits::DEFAULT,
    example: portcullis_core::Example {
        what: "Find what opens an issue",
        arguments: r#"{"query": "create an issue"}"#,
    },
};

const CALL_SPEC: ToolSpec = ToolSpec {
    name: CALL,
    title: "Call a found tool",
    description: "Calls a tool that `find_tools` found, with arguments that fit its input schema. The same rules and approvals hold as for any other call.",
    // The gate decides on the named tool, not on this one. `advertised_as` below sets what clients see.
    effect: Effect::Read,
    reach: Reach::Local,
    limits: CallLimits::DEFAULT,
    example: portcullis_core::Example {
        what: "Call a tool by its name",
        arguments: r#"{"name": "github_create_issue", "arguments": {"title": "…"}}"#,
    },
};

/// The provider of both tools. It gets the gate after that is built.
#[derive(Clone)]
pub struct ToolSearch {
    gate: GateHandle,
    tools: Vec<Arc<ToolDef>>,
}

impl Default for ToolSearch {
    fn default() -> ToolSearch {
        let find = json!({
            "type": "object",
            "properties": {
                "query": { "type": "string", "description": "What the tool should do, in a few words. Left out, the tools of `server` are listed", "maxLength": QUERY_CHARS_MAX },
                "server": { "type": "string", "description": "Only tools of this server" },
                "limit": { "type": "integer", "description": "How many at most", "minimum": 1, "maximum": FOUND_MAX },
            },
            "additionalProperties": false,
        });
        let call = json!({
            "type": "object",
            "properties": {
                "name": { "type": "string", "description": "The tool's name, as `find_tools` returned it" },
                "arguments": { "type": "object", "description": "What it is called with" },
            },
            "required": ["name"],
            "additionalProperties": false,
        });
        let tool = |spec, schema| ToolDef::new(spec, schema, None).seen_by(ToolView::Search);
        // Clients run tools without confirmation that claim to be harmless, and this one may be any tool.
        let call = tool(CALL_SPEC, call).advertised_as(Effect::Destroy, Reach::Outside);
        ToolSearch {
            gate: GateHandle::default(),
            tools: vec![Arc::new(tool(FIND_SPEC, find)), Arc::new(call)],
        }
    }
}

#[derive(Deserialize)]
struct FindToolsArgs {
    #[serde(default)]
    query: String,
    server: Option<String>,
    limit: Option<usize>,
}

impl ToolSearch {
    /// Sets the gate whose tools are searched.
    pub fn searches(&self, gate: &Arc<Gate>) {
        self.gate.connect(gate);
    }

    fn find(gate: &Gate, call: &Call) -> Outcome {
        let value = call.arguments.value().map_err(ToolError::invalid_args)?;
        let wanted: FindToolsArgs = serde_json::from_value(value.clone())
            .map_err(|error| ToolError::invalid_args(error.to_string()))?;
        let visible = gate.searchable_tools(call.caller());
        let tools: Vec<&ToolDef> = visible
            .iter()
            .filter(|tool| wanted.server.is_none() || tool.server == wanted.server)
            .map(|tool| &**tool)
            .collect();
        let mut words = rank::wanted(&wanted.query);
        words.truncate(QUERY_WORDS_MAX);
        // A query with only a server lists its tools.
        let lists = words.is_empty() && wanted.server.is_some();
        let ranked = if lists { (0..tools.len()).collect() } else { rank::rank(&tools, &words) };
        let limit = wanted.limit.unwrap_or(FOUND_USUALLY).clamp(1, FOUND_MAX);
        let found: Vec<Value> = ranked.iter().take(limit).map(|at| shown(tools[*at])).collect();
        let text = if found.is_empty() {
            format!("No tool fits. {}", describe_servers(&visible))
        } else {
            let mut text = serde_json::to_string_pretty(&found).unwrap_or_default();
            if ranked.len() > found.len() {
                let more = ranked.len() - found.len();
                let fit_less = if lists { "with a higher `limit`" } else { "fit less well" };
                text.push_str(&format!("\n{more} more {fit_less}."));
            }
            text
        };
        let data = json!({ "tools": found, "fitting": ranked.len() });
        Ok(Output::Tool(ToolOutput::with_data(text, data)))
    }
}

fn shown(tool: &ToolDef) -> Value {
    #[derive(Deserialize)]
    struct Listed {
        annotations: Option<Value>,
    }
    let mut shown = json!({
        "name": tool.name,
        "server": tool.server,
        "description": beginning(&tool.description),
        "inputSchema": tool.input_schema,
    });
    // With annotations, as in a list, for clients that decide by them.
    let listed = serde_json::from_str(render::tool(tool).get()).ok();
    if let Some(Listed { annotations: Some(annotations) }) = listed {
        shown["annotations"] = annotations;
    }
    shown
}

/// Truncates a description at a word boundary: part of a word may be part of a secret.
fn beginning(description: &str) -> String {
    let Some((end, _)) = description.char_indices().nth(DESCRIPTION_CHARS_MAX) else {
        return description.to_owned();
    };
    let head = &description[..end];
    // In a script without spaces, any character may end a word.
    let end =
        head.rfind(|c: char| c.is_whitespace() || tokenize::is_unsegmented_script(c)).unwrap_or_default();
    format!("{}…", &head[..end])
}

/// Describes the servers with their topics.
fn describe_servers(tools: &[Arc<ToolDef>]) -> String {
    let mut servers: BTreeMap<&str, Vec<&ToolDef>> = BTreeMap::new();
    for tool in tools {
        servers.entry(tool.server.as_deref().unwrap_or_default()).or_default().push(tool);
    }
    if servers.is_empty() {
        return NOTHING_OPEN.to_owned();
    }
    let mut text = "Behind the hub:".to_owned();
    for (server, tools) in servers.iter().take(SERVERS_TOLD_MAX) {
        let topics = topics::topics(tools, server, TOPICS_MAX).join(", ");
        let count = tools.len();
        let s = if count == 1 { "" } else { "s" };
        let colon = if topics.is_empty() { "" } else { ": " };
        text.push_str(&format!("\n- {server} ({count} tool{s}){colon}{topics}"));
    }
    let others: Vec<&str> = servers.keys().skip(SERVERS_TOLD_MAX).copied().collect();
    if !others.is_empty() {
        let named = &others[..others.len().min(SERVERS_NAMED_MAX)];
        text.push_str(&format!("\n- also {}", named.join(", ")));
        if others.len() > named.len() {
            text.push_str(&format!(" and {} more servers", others.len() - named.len()));
        }
    }
    text
}

/// Describes what this caller can find and call.
pub(crate) fn within_reach(gate: &Gate, caller: &Caller) -> String {
    describe_servers(&gate.searchable_tools(caller))
}

/// Adds that to the description of one of the two tools.
pub(crate) fn described(within_reach: &str, mut definition: Value) -> Value {
    let said = definition["description"].as_str().unwrap_or_default();
    definition["description"] = format!("{said}\n\n{within_reach}").into();
    definition
}

/// Returns whether a tool is one of the two.
pub(crate) fn is_own(tool: &ToolDef) -> bool {
    tool.view == Some(ToolView::Search) && (tool.name == FIND || tool.name == CALL)
}

/// Returns the call that a `call_tool` call names. `None` if it names none; then the call is validated against the
/// schema of `call_tool` itself.
pub(crate) fn named(
    arguments: Option<&RawValue>,
    bytes_max: impl FnOnce(&str) -> usize,
) -> Option<(String, Arguments)> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Named<'a> {
        name: String,
        #[serde(borrow)]
        arguments: Option<&'a RawValue>,
    }
    let named: Named<'_> = serde_json::from_str(arguments?.get()).ok()?;
    let Some(raw) = named.arguments else { return Some((named.name, Arguments::empty())) };
    let is_object = |raw: &RawValue| raw.get().starts_with('{');
    let arguments = if is_object(raw) {
        Arguments::at_most(bytes_max(&named.name), raw)
    } else {
        // Some models send the nested object as a JSON string.
        let text: String = serde_json::from_str(raw.get()).ok()?;
        let raw = RawValue::from_string(text).ok().filter(|raw| is_object(raw))?;
        Arguments::at_most(bytes_max(&named.name), &raw)
    };
    Some((named.name, arguments))
}

impl Provider for ToolSearch {
    fn name(&self) -> &str {
        "search"
    }

    fn catalog(&self) -> Catalog {
        Catalog { tools: self.tools.clone(), ..Catalog::default() }
    }

    fn call(&self, _: Permit, call: Box<Call>) -> BoxFuture<'_, Outcome> {
        Box::pin(async move {
            match &call.target {
                Target::Tool(name) if name == FIND => {}
                // `dispatch` has replaced calls that name a tool; others fail validation.
                Target::Tool(name) if name == CALL => {
                    return Err(ToolError::invalid_args(format!("`{CALL}` cannot call itself"))
                        .hint(format!("`{FIND}` lists the tools")));
                }
                other => return Err(ToolError::unknown(other.kind(), other.name())),
            }
            let gate = self.gate.get();
            let gate = gate.ok_or_else(|| ToolError::unavailable("the hub is not ready yet"))?;
            // With many tools this takes a while, so it runs on a blocking thread.
            blocking(move || ToolSearch::find(&gate, &call)).await
        })
    }
}

#[cfg(test)]
#[path = "search_tests.rs"]
mod tests;
