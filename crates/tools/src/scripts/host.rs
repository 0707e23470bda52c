//! Serves the requests of a running script (HTTP, tools, secrets) within its grants.

use super::{ScriptPermissions, ScriptTools};
use portcullis_core::{
    Arguments, BoxFuture, CallCtx, ContentBody, HubCall, InputRefusal, InputRequest, InputRequestKind,
    InputResponses, KeyedInputRequest, LogMessage, Origin, Output, Pattern, Peer, Progress, SessionDigest,
    Target, ToolError, ToolOutput,
};
use portcullis_egress::{HttpMethod, SecretEscaping, SecretRef, SecretTemplate, Url, header};
use portcullis_script::{HostFunctions, HostRefusal, ScriptHttpRequest, ScriptHttpResponse, TextPiece};
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Size of a response body.
const BODY_BYTES_MAX: usize = 1024 * 1024;
const HEADERS_MAX: usize = 64;
const HEADERS_ANSWERED_MAX: usize = 100;
/// Hop-by-hop and framing headers, which the HTTP client sets.
const OWN_HEADERS: [&str; 8] = [
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "upgrade",
    "te",
    "trailer",
    "accept-encoding",
];

pub(super) struct ScriptHost<'a> {
    ctx: &'a CallCtx,
    family: &'a ScriptTools,
    granted: ScriptPermissions,
    tools: Option<Pattern>,
}

fn refused(code: &str, message: impl Into<String>) -> HostRefusal {
    HostRefusal { code: code.to_owned(), message: message.into() }
}

fn host_refusal(what: &str, error: &ToolError) -> HostRefusal {
    let hints: String = error.hints.iter().map(|hint| format!("; {hint}")).collect();
    refused(error.kind.code(), format!("{what}: {}{hints}", error.message))
}

impl<'a> ScriptHost<'a> {
    pub(super) fn new(
        ctx: &'a CallCtx,
        family: &'a ScriptTools,
        granted: ScriptPermissions,
    ) -> ScriptHost<'a> {
        let tools: Vec<&String> = granted.tools.iter().collect();
        // No grants, no pattern: an empty pattern must not match by mistake.
        let tools = if tools.is_empty() { None } else { Pattern::new(&tools).ok() };
        ScriptHost { ctx, family, granted, tools }
    }

    fn fill(&self, pieces: Vec<TextPiece>) -> Result<SecretTemplate, HostRefusal> {
        let mut fill = SecretTemplate::text("");
        for piece in pieces {
            fill = match piece {
                TextPiece::Text(text) => fill.then_text(text),
                TextPiece::Secret(name) => fill.then_secret(self.handle(&name)?),
            };
        }
        Ok(fill)
    }

    fn handle(&self, name: &str) -> Result<SecretRef, HostRefusal> {
        let handle = format!("secret:{name}").parse::<SecretRef>().ok();
        handle.filter(|_| self.granted.secrets.contains(name)).ok_or_else(|| {
            refused(
                "denied",
                format!("secret `{}` was not granted to this script", portcullis_core::json::printable(name)),
            )
        })
    }

    async fn send(&self, ask: ScriptHttpRequest) -> Result<ScriptHttpResponse, HostRefusal> {
        let bad = |message: String| refused("invalid_args", format!("http: {message}"));
        if self.granted.hosts.is_empty() {
            return Err(refused("denied", "http: this script was granted no hosts"));
        }
        let method = HttpMethod::parse(&ask.method);
        let method = method.ok_or_else(|| {
            bad(format!("`{}` is not a supported method", portcullis_core::json::printable(&ask.method)))
        })?;
        let (mut url, mut handles) = (String::new(), Vec::new());
        for piece in ask.url {
            match piece {
                TextPiece::Text(text) => url.push_str(&text),
                TextPiece::Secret(name) => {
                    let handle = self.handle(&name)?;
                    url.push_str(&handle.to_string());
                    handles.push(handle);
                }
            }
        }
        let host = Url::parse(&url).ok().and_then(|url| url.host_str().map(str::to_ascii_lowercase));
        let host = host.ok_or_else(|| bad("the URL has no host".to_owned()))?;
        let host_refused = |host: &str| {
            refused(
                "denied",
                format!(
                    "http: host `{}` was not granted to this script",
                    portcullis_core::json::printable(host)
                ),
            )
        };
        if !self.granted.has_host(&host) {
            return Err(host_refused(&host));
        }
        let granted = self.granted.clone();
        let egress = (self.family.config.egress)().map_err(|error| host_refusal("http", &error))?;
        let mut request =
            egress.request(method, &url).only_hosts(Arc::new(move |host| granted.has_host(host)));
        request = request.bytes_max(BODY_BYTES_MAX).cancelled_by(&self.ctx.cancel);
        for handle in handles {
            request = request.secret_in_url(handle);
        }
        if ask.headers.len() > HEADERS_MAX {
            return Err(bad(format!("{} headers, at most {HEADERS_MAX}", ask.headers.len())));
        }
        let mut content_type = ask.content_type;
        for (name, value) in ask.headers {
            let lower = name.to_ascii_lowercase();
            let known = header::HeaderName::from_bytes(lower.as_bytes());
            let known = known.map_err(|_| {
                bad(format!("`{}` is not a header name", portcullis_core::json::printable(&name)))
            })?;
            if OWN_HEADERS.contains(&lower.as_str()) {
                return Err(bad(format!("header `{lower}` is set by the hub")));
            }
            match value.as_slice() {
                [TextPiece::Text(text)] if lower == "content-type" => content_type = Some(text.clone()),
                _ => request = request.header(known, self.fill(value)?),
            }
        }
        if let Some(body) = ask.body {
            let usual = if ask.json { "application/json" } else { "text/plain; charset=utf-8" };
            let content_type = content_type.unwrap_or_else(|| usual.to_owned());
            let is_form = content_type.starts_with("application/x-www-form-urlencoded");
            let escape = match (ask.json || content_type.contains("json"), is_form) {
                (true, _) => SecretEscaping::Json,
                (false, true) => SecretEscaping::Percent,
                (false, false) => SecretEscaping::AsIs,
            };
            request = request.body(content_type, self.fill(body)?, escape);
        }
        let fetched = request.send().await.map_err(|error| host_refusal("http", &ToolError::from(error)))?;
        let headers = fetched.headers.iter().take(HEADERS_ANSWERED_MAX).map(|(name, value)| {
            (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
        });
        Ok(ScriptHttpResponse {
            status: fetched.status,
            url: fetched.final_url.to_string(),
            headers: headers.collect::<BTreeMap<_, _>>(),
            body: String::from_utf8_lossy(&fetched.body.unwrap_or_default()).into_owned(),
        })
    }

    async fn make_call(&self, name: String, arguments: Box<RawValue>) -> Result<Box<RawValue>, HostRefusal> {
        if !self.tools.as_ref().is_some_and(|tools| tools.matches(&name)) {
            let name = portcullis_core::json::printable(&name);
            return Err(refused(
                "denied",
                format!("tools.call: tool `{name}` was not granted to this script"),
            ));
        }
        let gate = self.family.gate.get();
        let gate = gate.ok_or_else(|| refused("unavailable", "tools.call: the hub is not ready"))?;
        let ctx = CallCtx::new(self.ctx.cancel.child_token(), Arc::new(ScriptPeer(self.ctx.peer.clone())));
        let target = Target::Tool(name.clone());
        let inner = HubCall::within(self.ctx, target, Arguments::new(arguments), ctx);
        let what = format!("tools.call: `{}`", portcullis_core::json::printable(&name));
        // With the present scope of the client that runs the script. Not narrowed to the grants, which were checked above: they
        // are this script's, and a script that it calls has grants of its own.
        match gate.call_as(&self.ctx.principal(), Origin::Script, inner).await {
            Ok(Output::Tool(output)) if output.is_error => {
                Err(refused("tool_error", format!("{what}: {}", text_of(&output))))
            }
            Ok(Output::Tool(output)) => Ok(raw(&value_of(output))),
            Ok(Output::Raw(result)) => foreign(&what, &result),
            Ok(_) => Err(refused("internal", format!("{what}: unexpected kind of result"))),
            Err(error) => Err(host_refusal(&what, &error)),
        }
    }
}

impl HostFunctions for ScriptHost<'_> {
    fn http(&self, ask: ScriptHttpRequest) -> BoxFuture<'_, Result<ScriptHttpResponse, HostRefusal>> {
        Box::pin(self.send(ask))
    }

    fn tool(
        &self,
        name: String,
        arguments: Box<RawValue>,
    ) -> BoxFuture<'_, Result<Box<RawValue>, HostRefusal>> {
        Box::pin(self.make_call(name, arguments))
    }

    fn has_secret(&self, name: &str) -> bool {
        self.granted.secrets.contains(name) && (self.family.config.has_secret)(name)
    }

    fn waited(&self) -> Duration {
        self.ctx.waited_for_people()
    }
}

fn raw(value: &Value) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

fn text_of(output: &ToolOutput) -> String {
    let texts = output.content.iter().filter_map(|content| match &content.body {
        ContentBody::Text(text) => Some(text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// Returns the structured content of a result, or its text.
fn value_of(output: ToolOutput) -> Value {
    let text = if output.is_empty { String::new() } else { text_of(&output) };
    output.structured.unwrap_or(Value::String(text))
}

/// The same for the result of an upstream server.
fn foreign(what: &str, result: &RawValue) -> Result<Box<RawValue>, HostRefusal> {
    let result: Value = serde_json::from_str(result.get())
        .map_err(|error| refused("upstream", format!("{what}: {error}")))?;
    let texts =
        result["content"].as_array().into_iter().flatten().filter_map(|content| content["text"].as_str());
    let text = texts.collect::<Vec<_>>().join("\n");
    if result["isError"] == true {
        return Err(refused("tool_error", format!("{what}: {text}")));
    }
    match result.get("structuredContent") {
        Some(structured) => Ok(raw(structured)),
        None => Ok(raw(&Value::String(text))),
    }
}

/// The client, as seen by a call of a script. It cannot be asked by ending the round, because a started script
/// cannot be started again.
struct ScriptPeer(Arc<dyn Peer>);

impl Peer for ScriptPeer {
    fn progress(&self, _: Progress) {}

    fn log(&self, message: LogMessage) {
        self.0.log(message);
    }

    fn ask(&self, questions: Vec<KeyedInputRequest>) -> BoxFuture<'_, Result<InputResponses, InputRefusal>> {
        let kind = questions.first().map_or(InputRequestKind::Elicit, |question| question.ask.kind);
        if self.0.round().is_some() {
            return Box::pin(async move { Err(InputRefusal::NotOffered(kind)) });
        }
        self.0.ask(questions)
    }

    fn offers(&self, kind: InputRequestKind) -> bool {
        self.0.round().is_none() && self.0.offers(kind)
    }

    fn accepts(&self, ask: &InputRequest) -> bool {
        self.0.round().is_none() && self.0.accepts(ask)
    }

    fn session(&self) -> Option<SessionDigest> {
        self.0.session()
    }

    fn disconnected(&self) -> BoxFuture<'_, ()> {
        self.0.disconnected()
    }
}
