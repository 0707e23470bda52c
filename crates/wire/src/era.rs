//! The two eras of the MCP protocol, and the wire forms that differ between them. What differs in behaviour is a method of
//! `ServerDialect` (the hub as a server) or `ClientDialect` (as a client), so that no other code compares eras: `era_tests.rs`
//! scans the workspace for that.
//!
//! Up to 2025-11-25 a client opens a session with `initialize`, and the server may send requests to the client during
//! a call. From 2026-07-28 on requests are stateless: `_meta` carries the version and the client's capabilities, results
//! carry a type and a cache lifetime, and a request to the client is a result (`input_required`) that the client answers
//! by calling again.

use crate::message::RequestId;
use crate::params::{ParamKey, Params, RawMembers};
use crate::rpc::{self, RpcError};
use portcullis_core::{ClientCapability, InputRequest, InputRequestKind, LogLevel};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::borrow::Cow;

/// How a client and the hub keep protocol state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Era {
    /// `initialize`, sessions, requests in both directions.
    Sessions,
    /// Stateless: each request carries its version and capabilities.
    PerRequest,
}

impl Era {
    /// The era that is assumed of a server before the handshake is done.
    pub const BEFORE_HANDSHAKE: Era = Era::Sessions;
}

/// A dated revision of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Revision {
    V2024_11_05,
    V2025_03_26,
    V2025_06_18,
    V2025_11_25,
    V2026_07_28,
}

impl Revision {
    pub const ALL: [Revision; 5] = [
        Revision::V2024_11_05,
        Revision::V2025_03_26,
        Revision::V2025_06_18,
        Revision::V2025_11_25,
        Revision::V2026_07_28,
    ];

    pub const NEWEST: Revision = Revision::V2026_07_28;

    /// The newest revision that `initialize` can negotiate.
    pub const NEWEST_WITH_SESSIONS: Revision = Revision::V2025_11_25;

    /// The newest revision with JSON-RPC batches.
    pub const NEWEST_WITH_BATCHES: Revision = Revision::V2025_03_26;

    /// The revision of a server that names none that the hub knows.
    pub const OLDEST: Revision = Revision::V2024_11_05;

    pub fn as_str(self) -> &'static str {
        match self {
            Revision::V2024_11_05 => "2024-11-05",
            Revision::V2025_03_26 => "2025-03-26",
            Revision::V2025_06_18 => "2025-06-18",
            Revision::V2025_11_25 => "2025-11-25",
            Revision::V2026_07_28 => "2026-07-28",
        }
    }

    pub fn parse(text: &str) -> Option<Revision> {
        Revision::ALL.into_iter().find(|revision| revision.as_str() == text)
    }

    pub fn era(self) -> Era {
        if self < Revision::V2026_07_28 { Era::Sessions } else { Era::PerRequest }
    }

    /// Returns the revision for a session: the requested one if it has sessions, else the newest that does.
    pub fn negotiate(asked: &str) -> Revision {
        Revision::parse(asked)
            .filter(|revision| revision.server().keeps_session())
            .unwrap_or(Revision::NEWEST_WITH_SESSIONS)
    }

    /// Returns whether the revision has JSON-RPC batches.
    pub fn allows_batches(self) -> bool {
        self <= Revision::NEWEST_WITH_BATCHES
    }

    /// Returns whether a request to a server may ask to be run as a task. From 2026-07-28 on the server decides that.
    pub fn runs_tasks_on_request(self) -> bool {
        self == Revision::V2025_11_25
    }

    /// Returns the revision that a request of the hub speaks before anything is negotiated, where its method implies one.
    pub fn implied_by(method: &str) -> Option<Revision> {
        (method == "server/discover").then_some(Revision::NEWEST)
    }

    /// Returns whether an SSE stream begins with a priming event, which carries only an event id for resumption.
    pub fn primes_streams(self) -> bool {
        self == Revision::V2025_11_25
    }
}

/// The client capabilities that the hub acts on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClientCapabilities {
    /// Elicitation by form.
    pub elicit: bool,
    /// Elicitation by URL.
    pub elicit_url: bool,
    pub sample: bool,
    /// Sampling with tools.
    pub sample_tools: bool,
    pub roots: bool,
    pub tasks: bool,
}

/// The name of the tasks extension.
pub const TASKS: &str = "io.modelcontextprotocol/tasks";

impl ClientCapabilities {
    pub fn of(capabilities: &Map<String, Value>) -> ClientCapabilities {
        let has = |key: &str| capabilities.get(key).is_some_and(Value::is_object);
        let extensions = capabilities.get("extensions");
        let tasks = extensions.and_then(|all| all.get(TASKS)).is_some_and(Value::is_object);
        let part =
            |key: &str, part: &str| capabilities.get(key).is_some_and(|offered| offered[part].is_object());
        let elicit_url = part("elicitation", "url");
        ClientCapabilities {
            // Form mode is the older one: it is the default where the client names no mode.
            elicit: has("elicitation") && (part("elicitation", "form") || !elicit_url),
            elicit_url,
            sample: has("sampling"),
            sample_tools: part("sampling", "tools"),
            roots: has("roots"),
            tasks,
        }
    }

    pub fn has(self, kind: InputRequestKind) -> bool {
        match kind {
            InputRequestKind::Elicit => self.elicit,
            InputRequestKind::Sample => self.sample,
            InputRequestKind::Roots => self.roots,
        }
    }

    /// Returns whether the client supports everything that a request to it needs.
    pub fn accepts(self, ask: &InputRequest) -> bool {
        match ask.kind {
            InputRequestKind::Elicit if is_url(ask) => self.elicit_url,
            InputRequestKind::Sample if uses_tools(ask) => self.sample && self.sample_tools,
            InputRequestKind::Elicit | InputRequestKind::Sample | InputRequestKind::Roots => {
                self.has(ask.kind)
            }
        }
    }
}

/// Returns whether the elicitation sends a person to a URL.
pub fn is_url(ask: &InputRequest) -> bool {
    ask.kind == InputRequestKind::Elicit && ask.params["mode"] == "url"
}

/// Returns whether the sampling request gives the client's model tools.
fn uses_tools(ask: &InputRequest) -> bool {
    ["tools", "toolChoice"].iter().any(|key| ask.params.get(key).is_some_and(|value| !value.is_null()))
}

/// Returns the error for an upstream server's request that the client does not support. `in_part`: the client supports the
/// capability, but not this mode of it.
pub fn not_offered(ask: &InputRequest, in_part: bool) -> RpcError {
    let missing = match ask.kind {
        InputRequestKind::Elicit if is_url(ask) => {
            "the client does not support elicitation with `mode` = `url`"
        }
        InputRequestKind::Elicit if in_part => "the client does not support elicitation with `mode` = `form`",
        InputRequestKind::Sample if in_part => "the client does not offer `sampling.tools`",
        InputRequestKind::Elicit | InputRequestKind::Sample | InputRequestKind::Roots => {
            return RpcError::method_not_found(ask_method(ask.kind));
        }
    };
    RpcError::invalid_params(missing)
}

/// Returns the parameters for a client with a session. Those clients require an `elicitationId` for URL elicitation, which
/// servers of the newer era do not send; `new_id` supplies it.
pub fn ask_params(ask: &InputRequest, new_id: impl FnOnce() -> Option<String>) -> Cow<'_, Value> {
    if !is_url(ask) || !ask.params[ELICITATION_ID].is_null() {
        return Cow::Borrowed(&ask.params);
    }
    let mut params = ask.params.clone();
    if let Some(id) = new_id() {
        params[ELICITATION_ID] = id.into();
    }
    Cow::Owned(params)
}

/// Correlates `notifications/elicitation/complete` with its elicitation.
const ELICITATION_ID: &str = "elicitationId";

/// Returns whether a request to the client has usable parameters. Only `roots/list` may have none.
pub fn is_askable(kind: InputRequestKind, params: &Value) -> bool {
    match kind {
        InputRequestKind::Elicit | InputRequestKind::Sample => params.is_object(),
        InputRequestKind::Roots => params.is_object() || params.is_null(),
    }
}

/// Returns the method of a request to the client.
pub fn ask_method(kind: InputRequestKind) -> &'static str {
    match kind {
        InputRequestKind::Elicit => "elicitation/create",
        InputRequestKind::Sample => "sampling/createMessage",
        InputRequestKind::Roots => "roots/list",
    }
}

fn capability_name(kind: InputRequestKind) -> &'static str {
    match kind {
        InputRequestKind::Elicit => "elicitation",
        InputRequestKind::Sample => "sampling",
        InputRequestKind::Roots => "roots",
    }
}

pub(crate) const META_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
pub(crate) const META_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
pub(crate) const META_CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
const META_PROGRESS: &str = "progressToken";
const META_RELATED_TASK: &str = "io.modelcontextprotocol/related-task";
pub(crate) const META_LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
pub const META_SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// The `_meta` of a request.
#[derive(Debug, Clone, Default)]
pub struct RequestMeta {
    /// The protocol version; only the newer era sends it.
    pub version: Option<String>,
    pub offers: Option<ClientCapabilities>,
    pub log_level: Option<LogLevel>,
    /// Tags progress notifications; passed through unchanged.
    pub progress_token: Option<Value>,
    /// The client's capabilities, unparsed.
    pub capabilities: Option<Box<RawValue>>,
    /// The members unknown to the hub, as the inside of a JSON object.
    pub others: String,
}

fn in_meta(error: RpcError) -> RpcError {
    RpcError { message: error.message.replacen("Invalid params: ", "Invalid params: `_meta`: ", 1), ..error }
}

/// The members of `_meta` that stay between client and hub. The last two correlate messages of one connection, so they mean
/// nothing on another.
const META_OWN: [&str; 7] = [
    META_VERSION,
    META_CAPABILITIES,
    META_LOG_LEVEL,
    META_CLIENT_INFO,
    META_PROGRESS,
    META_SUBSCRIPTION,
    META_RELATED_TASK,
];

impl RequestMeta {
    pub fn of(params: &Params<'_>) -> Result<RequestMeta, RpcError> {
        let Some(raw) = params.raw(ParamKey::Meta) else { return Ok(RequestMeta::default()) };
        if !raw.get().starts_with('{') {
            return Err(RpcError::invalid_params("`_meta` must be an object"));
        }
        // The strict parser's message names the fault better.
        let refused = |error: serde_json::Error| {
            let strict = portcullis_core::json::parse_strict(raw.get()).err();
            let why = strict.map_or_else(|| error.to_string(), |error| error.to_string());
            RpcError::invalid_params(format_args!("`_meta`: {why}"))
        };
        let meta: RawMembers<'_> = serde_json::from_str(raw.get()).map_err(refused)?;
        meta.reject_confusable(&META_OWN).map_err(in_meta)?;
        let value = |key: &str| meta.get(key).and_then(|raw| serde_json::from_str::<Value>(raw.get()).ok());
        let text = |key: &str| value(key).and_then(|value| value.as_str().map(str::to_owned));
        let token = value(META_PROGRESS).filter(|token| token.is_string() || token.is_number());
        let capabilities = meta.get(META_CAPABILITIES).filter(|raw| raw.get().starts_with('{'));
        let offers = match capabilities {
            Some(raw) => {
                let strict = portcullis_core::json::parse_strict(raw.get());
                let strict = strict.map_err(|error| {
                    RpcError::invalid_params(format_args!("`_meta`: `{META_CAPABILITIES}`: {error}"))
                })?;
                strict.as_object().map(ClientCapabilities::of)
            }
            None => None,
        };
        Ok(RequestMeta {
            version: text(META_VERSION),
            offers,
            log_level: text(META_LOG_LEVEL).as_deref().and_then(LogLevel::parse),
            progress_token: token,
            capabilities: capabilities.map(ToOwned::to_owned),
            others: meta.join_members(|name| !META_OWN.contains(&name)).map_err(in_meta)?,
        })
    }
}

/// Returns the revision of a request on a line transport (stdio, socket), or `None` if the session decides.
pub fn revision_of_line(meta: &RequestMeta) -> Result<Option<Revision>, RpcError> {
    match meta.version.as_deref() {
        None => Ok(None),
        Some(version) => checked(version, meta).map(Some),
    }
}

/// Returns the revision of an HTTP request, or `None` if the header is absent and the session decides.
///
/// Clients rely on the order of the checks: incomplete `_meta`, then header against body, then support.
pub fn revision_of_http(header: Option<&str>, meta: &RequestMeta) -> Result<Option<Revision>, RpcError> {
    let known = header.map(Revision::parse);
    match (known, meta.version.as_deref()) {
        (Some(Some(revision)), _) if revision.server().keeps_session() => Ok(Some(revision)),
        (None, None) => Ok(None),
        // An unknown version without `_meta`: list the supported ones.
        (Some(None), None) => Err(unsupported(header.unwrap_or_default())),
        (Some(_), None) => Err(RpcError::invalid_params(format_args!("`_meta` must have `{META_VERSION}`"))),
        (_, Some(version)) => {
            if meta.offers.is_none() {
                return Err(incomplete());
            }
            if header != Some(version) {
                return Err(mismatch("MCP-Protocol-Version", header, version));
            }
            checked(version, meta).map(Some)
        }
    }
}

fn checked(version: &str, meta: &RequestMeta) -> Result<Revision, RpcError> {
    if meta.offers.is_none() {
        return Err(incomplete());
    }
    Revision::parse(version).filter(|r| !r.server().keeps_session()).ok_or_else(|| unsupported(version))
}

fn incomplete() -> RpcError {
    RpcError::invalid_params(format_args!("`_meta` must have `{META_CAPABILITIES}`, an object"))
}

fn unsupported(version: &str) -> RpcError {
    let supported: Vec<&str> = Revision::ALL.into_iter().rev().map(Revision::as_str).collect();
    let requested = portcullis_core::json::printable(version);
    RpcError::new(rpc::UNSUPPORTED_VERSION, format!("Unsupported protocol version: {requested}"))
        .with(json!({ "supported": supported, "requested": requested }))
}

/// The error for a header that does not match the body.
pub fn mismatch(header: &str, said: Option<&str>, body: &str) -> RpcError {
    let body = portcullis_core::json::printable(body);
    let message = match said {
        None => format!("Header mismatch: `{header}` is missing, the body says `{body}`"),
        Some(said) => {
            let said = portcullis_core::json::printable(said);
            format!("Header mismatch: `{header}` says `{said}`, the body `{body}`")
        }
    };
    RpcError::new(rpc::HEADER_MISMATCH, message)
}

/// The error for a call that needs a capability the client does not have.
pub fn missing_capability(capability: ClientCapability) -> RpcError {
    let name = capability_name(capability.kind);
    let (path, required) = match capability.part {
        None => (name.to_owned(), json!({})),
        Some(part) => (format!("{name}.{part}"), json!({ part: {} })),
    };
    RpcError::new(rpc::MISSING_CAPABILITY, format!("This call needs the client capability `{path}`"))
        .with(json!({ "requiredCapabilities": { name: required } }))
}

/// Returns the client capability that a request to the client needs.
pub fn needed(ask: &InputRequest) -> ClientCapability {
    let part = match ask.kind {
        InputRequestKind::Elicit => is_url(ask).then_some("url"),
        InputRequestKind::Sample => uses_tools(ask).then_some("tools"),
        InputRequestKind::Roots => None,
    };
    ClientCapability { kind: ask.kind, part }
}

/// The error for a task request from a client without the tasks extension.
pub fn missing_tasks() -> RpcError {
    RpcError::new(rpc::MISSING_CAPABILITY, format!("This needs the client extension `{TASKS}`"))
        .with(json!({ "requiredCapabilities": { "extensions": { TASKS: {} } } }))
}

/// The error for a resource that does not exist, or that the caller may not see.
pub fn resource_not_found(revision: Revision, uri: &str) -> RpcError {
    let uri = portcullis_core::json::printable(uri);
    RpcError::new(revision.server().resource_not_found(), format!("Resource not found: {uri}"))
        .with(json!({ "uri": uri }))
}

/// The kind of a result, for its envelope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultKind {
    Plain,
    /// A list or a read, which a client may cache.
    Cacheable {
        ttl_ms: u64,
    },
}

/// Adds the envelope fields of the revision to a result that the hub made.
pub fn wrap_result(revision: Revision, kind: ResultKind, object: Vec<u8>) -> Vec<u8> {
    complete(revision, kind, object, |_| EnvelopeFields::default())
}

/// Returns whether clients of a revision accept this `outputSchema`. With sessions, structured results must be objects.
pub fn takes_output_schema(revision: Revision, schema: &Value) -> bool {
    revision.server().structures_any_value() || schema["type"] == "object"
}

/// Returns an upstream tool definition without its `outputSchema`.
pub fn without_output_schema(definition: &RawValue) -> Box<RawValue> {
    without("outputSchema", definition.get()).unwrap_or_else(|| definition.to_owned())
}

/// Adapts an upstream tool result to the revision; `None` if it fits unchanged. With sessions, `structuredContent` must be
/// an object; any other value moves to a text item if `content` is empty, and is dropped otherwise.
///
/// Nearly every result fits, which a substring search decides without parsing: inside a JSON string the quote is escaped.
pub fn structured_as_taken(revision: Revision, result: &RawValue) -> Option<Box<RawValue>> {
    let is_object = |after: &str| {
        let value = after.trim_start().strip_prefix(':');
        value.is_none_or(|value| value.trim_start().starts_with('{'))
    };
    if revision.server().structures_any_value()
        || result.get().split(STRUCTURED_QUOTED).skip(1).all(is_object)
    {
        return None;
    }
    let fields: RawMembers<'_> = serde_json::from_str(result.get()).ok()?;
    let structured = fields.get(STRUCTURED).filter(|value| !value.get().starts_with('{'))?;
    let rest = without(STRUCTURED, result.get())?;
    let is_empty = |content: &RawValue| {
        serde_json::from_str::<Vec<IgnoredAny>>(content.get()).map_or(true, |items| items.is_empty())
    };
    if structured.get() == "null" || !fields.get("content").is_none_or(is_empty) {
        return Some(rest);
    }
    let text = Value::from(structured.get());
    with("content", &format!(r#"[{{"type":"text","text":{text}}}]"#), rest.get())
}

const STRUCTURED: &str = "structuredContent";
const STRUCTURED_QUOTED: &str = r#""structuredContent""#;

/// Returns an object without one of its members.
fn without(key: &str, object: &str) -> Option<Box<RawValue>> {
    let fields: RawMembers<'_> = serde_json::from_str(object).ok()?;
    let inside = fields.join_members(|name| name != key).ok()?;
    RawValue::from_string(format!("{{{inside}}}")).ok()
}

/// Returns an object with one member added or replaced.
fn with(key: &str, value: &str, object: &str) -> Option<Box<RawValue>> {
    let rest = without(key, object)?;
    let rest = rest.get().strip_prefix('{')?;
    let comma = if rest == "}" { "" } else { "," };
    RawValue::from_string(format!(r#"{{"{key}":{value}{comma}{rest}"#)).ok()
}

/// Returns an upstream task object with its `taskId` replaced.
pub fn with_task_id(task: &RawValue, id: &str) -> Box<RawValue> {
    with("taskId", &Value::from(id).to_string(), task.get()).unwrap_or_else(|| task.to_owned())
}

/// Adds the envelope fields that an upstream result lacks.
pub fn wrap_foreign_result(revision: Revision, kind: ResultKind, mut object: Vec<u8>) -> Vec<u8> {
    if matches!(kind, ResultKind::Cacheable { .. })
        && let Some(rest) = without_scope(&object)
    {
        object = rest;
    }
    complete(revision, kind, object, |object| serde_json::from_slice(object).unwrap_or_default())
}

/// Returns an upstream result without its `cacheScope`, if it has one. The hub's policy differs per client, so only the hub
/// can say for whom a result may be cached.
fn without_scope(object: &[u8]) -> Option<Vec<u8>> {
    let object = std::str::from_utf8(object).ok().filter(|object| object.contains(SCOPE_QUOTED))?;
    Some(without(SCOPE, object)?.get().as_bytes().to_vec())
}

const SCOPE: &str = "cacheScope";
const SCOPE_QUOTED: &str = r#""cacheScope""#;

/// Adds the missing envelope fields. `has` parses the result, so it runs only if the revision adds any.
fn complete(
    revision: Revision,
    kind: ResultKind,
    mut object: Vec<u8>,
    has: impl FnOnce(&[u8]) -> EnvelopeFields,
) -> Vec<u8> {
    if !revision.server().describes_results() {
        return object;
    }
    let has = has(&object);
    debug_assert_eq!(object.last(), Some(&b'}'));
    object.pop();
    let mut empty = object.iter().rev().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
    let mut add = |text: &str| {
        if !std::mem::take(&mut empty) {
            object.push(b',');
        }
        object.extend_from_slice(text.as_bytes());
    };
    if has.result_type.is_none() {
        add(r#""resultType":"complete""#);
    }
    if let ResultKind::Cacheable { ttl_ms } = kind {
        if has.ttl_ms.is_none() {
            add(&format!(r#""ttlMs":{ttl_ms}"#));
        }
        if has.cache_scope.is_none() {
            // Lists and reads depend on the client.
            add(r#""cacheScope":"private""#);
        }
    }
    if has.meta.is_none() {
        add(SERVER_META);
    }
    object.push(b'}');
    object
}

const SERVER_META: &str = concat!(
    r#""_meta":{"io.modelcontextprotocol/serverInfo":{"name":"portcullis","version":""#,
    env!("CARGO_PKG_VERSION"),
    r#""}}"#
);

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct EnvelopeFields {
    result_type: Option<IgnoredAny>,
    ttl_ms: Option<IgnoredAny>,
    cache_scope: Option<IgnoredAny>,
    #[serde(rename = "_meta")]
    meta: Option<IgnoredAny>,
}

/// How long a client may cache `server/discover`. The result changes with a new version of the hub and when an
/// administrator trusts another upstream server.
const DISCOVER_TTL_MS: u64 = 300_000;

/// What the hub advertises about itself.
#[derive(Debug, Clone, Default)]
pub struct ServerProfile {
    pub instructions: Option<String>,
    /// Whether any upstream tool can run as a task.
    pub tasks: bool,
}

/// Bounds on the upstream servers' instructions that reach a model: per server, and in total.
const SERVER_CHARS_MAX: usize = 4_000;
const SERVERS_CHARS_MAX: usize = 16_000;

impl ServerProfile {
    /// Returns the profile with the instructions of upstream servers, under their names. Text over the bounds is cut at a
    /// line break.
    pub fn with_servers(&self, servers: &[(String, String)]) -> ServerProfile {
        let mut profile = self.clone();
        let (mut instructions, mut left) =
            (profile.instructions.take().unwrap_or_default(), SERVERS_CHARS_MAX);
        for (name, text) in servers {
            let mut room = left.min(SERVER_CHARS_MAX);
            let lines = text.lines().take_while(|line| {
                let fits = line.chars().count() < room;
                room = room.saturating_sub(line.chars().count() + 1);
                fits
            });
            let lines: Vec<&str> = lines.collect();
            if lines.is_empty() {
                continue;
            }
            let text = lines.join("\n");
            left = left.saturating_sub(text.chars().count() + 1);
            instructions.push_str(&format!("\n\nInstructions of server `{name}`:\n{text}"));
        }
        profile.instructions = Some(instructions).filter(|text| !text.is_empty());
        profile
    }

    /// Returns the result of `initialize`.
    pub fn initialize(&self, revision: Revision) -> Vec<u8> {
        let mut result = json!({
            "protocolVersion": revision.as_str(),
            "capabilities": self.capabilities(revision),
            "serverInfo": server_info(),
        });
        if let Some(instructions) = &self.instructions {
            result["instructions"] = instructions.as_str().into();
        }
        result.to_string().into_bytes()
    }

    /// Returns the result of `server/discover`.
    pub fn discover(&self, revision: Revision) -> Vec<u8> {
        let versions: Vec<&str> = Revision::ALL.into_iter().rev().map(Revision::as_str).collect();
        let mut result =
            json!({ "supportedVersions": versions, "capabilities": self.capabilities(revision) });
        if let Some(instructions) = &self.instructions {
            result["instructions"] = instructions.as_str().into();
        }
        let kind = ResultKind::Cacheable { ttl_ms: DISCOVER_TTL_MS };
        wrap_result(revision, kind, result.to_string().into_bytes())
    }

    fn capabilities(&self, revision: Revision) -> Value {
        let mut capabilities = json!({
            "tools": { "listChanged": true },
            "resources": { "subscribe": true, "listChanged": true },
            "prompts": { "listChanged": true },
            "completions": {},
            "logging": {},
        });
        if self.tasks && revision.server().offers_tasks() {
            capabilities["extensions"] = json!({ TASKS: {} });
        }
        capabilities
    }
}

fn server_info() -> Value {
    json!({ "name": "portcullis", "title": "Portcullis", "version": env!("CARGO_PKG_VERSION") })
}

/// Returns the result of a `subscriptions/listen` request when its stream ends.
pub fn listened(revision: Revision, id: &RequestId) -> Vec<u8> {
    let result = tagged(json!({}), &id.to_value());
    wrap_foreign_result(revision, ResultKind::Plain, result.to_string().into_bytes())
}

/// Adds the subscription id that a notification belongs to.
pub fn tagged(params: Value, subscription: &Value) -> Value {
    let mut params = params;
    if !params["_meta"].is_object() {
        params["_meta"] = json!({});
    }
    params["_meta"][META_SUBSCRIPTION] = subscription.clone();
    params
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_core::ForeignError;

    fn meta(version: Option<&str>, offers: bool) -> RequestMeta {
        let version = version.map(str::to_owned);
        RequestMeta { version, offers: offers.then(ClientCapabilities::default), ..RequestMeta::default() }
    }

    #[test]
    fn an_error_of_another_server_is_an_answer() {
        let codes = [
            (rpc::INVALID_REQUEST, 400, 400),
            (rpc::METHOD_NOT_FOUND, 200, 404),
            (rpc::MISSING_CAPABILITY, 200, 400),
            (rpc::INVALID_PARAMS, 200, 200),
        ];
        for (code, older, newer) in codes {
            let said = ForeignError { code: code.into(), message: String::new(), data: None };
            let statuses = |error: &RpcError| {
                (
                    Revision::V2025_11_25.server().http_status(error),
                    Revision::V2026_07_28.server().http_status(error),
                )
            };
            assert_eq!(statuses(&RpcError::new(code, "")), (older, newer), "{code}");
            // A missing capability is 400 even from an upstream server.
            let newer = if code == rpc::MISSING_CAPABILITY { 400 } else { 200 };
            assert_eq!(statuses(&RpcError::passed_on(said)), (200, newer), "{code}");
        }
    }

    #[test]
    fn which_revision_a_request_speaks() {
        let modern = "2026-07-28";
        let cases = [
            (None, None, false, Ok(None)),
            (Some("2025-11-25"), None, false, Ok(Some("2025-11-25"))),
            (Some("2024-11-05"), Some(modern), true, Ok(Some("2024-11-05"))),
            (Some(modern), Some(modern), true, Ok(Some(modern))),
            (Some(modern), None, false, Err(rpc::INVALID_PARAMS)),
            (Some(modern), Some(modern), false, Err(rpc::INVALID_PARAMS)),
            (Some(modern), Some("v999.0.0"), true, Err(rpc::HEADER_MISMATCH)),
            (Some("v999.0.0"), Some("v999.0.0"), true, Err(rpc::UNSUPPORTED_VERSION)),
            (Some("v999.0.0"), None, false, Err(rpc::UNSUPPORTED_VERSION)),
            (None, Some(modern), true, Err(rpc::HEADER_MISMATCH)),
        ];
        for (header, version, offers, expected) in cases {
            let got = revision_of_http(header, &meta(version, offers));
            let got = got.map(|r| r.map(Revision::as_str)).map_err(|e| e.code);
            assert_eq!(got, expected, "{header:?} {version:?} {offers}");
        }
    }

    #[test]
    fn with_sessions_what_is_structured_is_an_object() {
        let taken = |revision, result: &str| {
            let raw = RawValue::from_string(result.to_owned()).unwrap();
            structured_as_taken(revision, &raw).map(|raw| raw.get().to_owned())
        };
        let text = r#"{"type":"text","text":"x"}"#;
        let cases = [
            (r#"{"content":[T],"structuredContent":7.0,"a":1.50}"#, r#"{"content":[T],"a":1.50}"#),
            (r#"{"structuredContent" : [ 1 ],"content":[T]}"#, r#"{"content":[T]}"#),
            (r#"{"content":[T],"structuredContent":null}"#, r#"{"content":[T]}"#),
            // A structured value without text becomes text.
            (r#"{"structuredContent":[1.0]}"#, r#"{"content":[{"type":"text","text":"[1.0]"}]}"#),
            (
                r#"{"content":[],"structuredContent":"\"","isError":false}"#,
                r#"{"content":[{"type":"text","text":"\"\\\"\""}],"isError":false}"#,
            ),
        ];
        for (result, expected) in cases {
            let (result, expected) = (result.replace('T', text), expected.replace('T', text));
            assert_eq!(taken(Revision::V2025_11_25, &result), Some(expected), "{result}");
            assert_eq!(taken(Revision::V2026_07_28, &result), None, "{result}");
        }
        for result in [
            r#"{"content":[],"structuredContent": {"structuredContent":[]}}"#,
            r#"{"content":[{"type":"text","text":"\"structuredContent\":7"}]}"#,
            r#"{"content":[],"_meta":{"structuredContent":7}}"#,
            r#"{"content":["structuredContent"]}"#,
        ] {
            assert_eq!(taken(Revision::V2025_11_25, result), None, "{result}");
        }
    }

    #[test]
    fn results_are_dressed_for_their_era() {
        let dress = |revision, kind, text: &str| {
            String::from_utf8(super::wrap_result(revision, kind, text.as_bytes().to_vec())).unwrap()
        };
        let cacheable = ResultKind::Cacheable { ttl_ms: 5 };
        assert_eq!(dress(Revision::V2025_11_25, cacheable, "{}"), "{}");
        let modern: Value =
            serde_json::from_str(&dress(Revision::V2026_07_28, cacheable, r#"{"tools":[]}"#)).unwrap();
        assert_eq!(modern["resultType"], "complete");
        assert_eq!((&modern["ttlMs"], &modern["cacheScope"]), (&json!(5), &json!("private")));
        assert_eq!(modern["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "portcullis");
        let foreign = r#"{"resultType":"task","_meta":{"a":1}}"#;
        let kept = wrap_foreign_result(Revision::V2026_07_28, ResultKind::Plain, foreign.into());
        assert_eq!(kept, foreign.as_bytes());
        // The hub decides the cache scope.
        let public = r#"{"contents":[{"text":"\"cacheScope\""}],"cacheScope":"public","ttlMs":7}"#;
        let read = wrap_foreign_result(Revision::V2026_07_28, cacheable, public.into());
        let read: Value = serde_json::from_slice(&read).unwrap();
        assert_eq!((&read["ttlMs"], &read["cacheScope"]), (&json!(7), &json!("private")));
        let empty: Value =
            serde_json::from_str(&dress(Revision::V2026_07_28, ResultKind::Plain, "{}")).unwrap();
        assert_eq!(empty["resultType"], "complete");
    }
}
