//! `http`, `secrets` and `tools`: functions that the hub executes.

use crate::json::{self, value_of};
use crate::run_context::RunContext;
use portcullis_script::TextPiece;
use portcullis_script::message::{HostRequest, ScriptHttpRequest, ScriptHttpResponse};
use serde_json::value::RawValue;
use starlark::collections::SmallMap;
use starlark::environment::GlobalsBuilder;
use starlark::starlark_module;
use starlark::values::dict::{AllocDict, DictRef};
use starlark::values::{Heap, Value};

/// The arguments of a request.
struct HttpRequestArgs<'v> {
    method: &'v str,
    url: Value<'v>,
    headers: Option<Value<'v>>,
    body: Option<Value<'v>>,
    json: Option<Value<'v>>,
    content_type: Option<&'v str>,
}

fn text(what: &str, value: Value<'_>) -> anyhow::Result<Vec<TextPiece>> {
    let text = value.unpack_str();
    let text =
        text.ok_or_else(|| anyhow::anyhow!("http: {what} is {}, expected a string", value.get_type()))?;
    Ok(RunContext::now()?.handles.pieces(text))
}

fn send<'v>(args: &HttpRequestArgs<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
    let mut headers = Vec::new();
    if let Some(given) = args.headers.filter(|given| !given.is_none()) {
        let given =
            DictRef::from_value(given).ok_or_else(|| anyhow::anyhow!("http: `headers` expects a dict"))?;
        for (name, value) in given.iter() {
            let name =
                name.unpack_str().ok_or_else(|| anyhow::anyhow!("http: a header name must be a string"))?;
            headers.push((name.to_owned(), text(&format!("header `{name}`"), value)?));
        }
    }
    let given = |value: Option<Value<'v>>| value.filter(|value| !value.is_none());
    let (body, is_json) = match (given(args.body), given(args.json)) {
        (Some(_), Some(_)) => return Err(anyhow::anyhow!("http: give `body` or `json`, not both")),
        (Some(body), None) => (Some(text("`body`", body)?), false),
        (None, Some(value)) => {
            let text = json::text_of(value, heap).map_err(|why| anyhow::anyhow!("http: `json`: {why}"))?;
            (Some(RunContext::now()?.handles.pieces(&text)), true)
        }
        (None, None) => (None, false),
    };
    let ask = ScriptHttpRequest {
        method: args.method.to_ascii_uppercase(),
        url: text("`url`", args.url)?,
        headers,
        body,
        content_type: args.content_type.map(str::to_owned),
        json: is_json,
    };
    let answer: ScriptHttpResponse = RunContext::now()?.ask(HostRequest::Http(ask))?;
    let headers: Vec<(&str, &str)> =
        answer.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    Ok(heap.alloc(AllocDict([
        ("status", heap.alloc(i32::from(answer.status))),
        ("body", heap.alloc(answer.body.as_str())),
        ("headers", heap.alloc(AllocDict(headers))),
        ("url", heap.alloc(answer.url.as_str())),
    ])))
}

#[starlark_module]
pub(crate) fn http(builder: &mut GlobalsBuilder) {
    /// Returns status, body, headers and url.
    fn get<'v>(
        #[starlark(require = pos)] url: Value<'v>,
        headers: Option<Value<'v>>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        send(
            &HttpRequestArgs { method: "GET", url, headers, body: None, json: None, content_type: None },
            heap,
        )
    }

    fn post<'v>(
        #[starlark(require = pos)] url: Value<'v>,
        body: Option<Value<'v>>,
        headers: Option<Value<'v>>,
        content_type: Option<&'v str>,
        #[starlark(require = named)] json: Option<Value<'v>>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        send(&HttpRequestArgs { method: "POST", url, headers, body, json, content_type }, heap)
    }

    fn request<'v>(
        #[starlark(require = pos)] method: &'v str,
        #[starlark(require = pos)] url: Value<'v>,
        body: Option<Value<'v>>,
        headers: Option<Value<'v>>,
        content_type: Option<&'v str>,
        #[starlark(require = named)] json: Option<Value<'v>>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        send(&HttpRequestArgs { method, url, headers, body, json, content_type }, heap)
    }
}

fn has_secret(name: &str) -> anyhow::Result<bool> {
    RunContext::now()?.ask(HostRequest::HasSecret(name.to_owned()))
}

#[starlark_module]
pub(crate) fn secrets(builder: &mut GlobalsBuilder) {
    /// Returns a handle. The hub replaces it with the value in headers, bodies and URLs of requests, and nowhere else.
    fn get(#[starlark(require = pos)] name: &str) -> anyhow::Result<String> {
        match has_secret(name)? {
            true => Ok(RunContext::now()?.handles.handle(name)),
            false => Err(anyhow::anyhow!(
                "secrets.get: `{name}` does not exist, or is not granted to this script; check with `secrets.has`"
            )),
        }
    }

    fn has(#[starlark(require = pos)] name: &str) -> anyhow::Result<bool> {
        has_secret(name)
    }
}

#[starlark_module]
pub(crate) fn tools(builder: &mut GlobalsBuilder) {
    /// Calls a tool as the client that runs the script, through all layers of the hub.
    fn call<'v>(
        #[starlark(require = pos)] name: &str,
        #[starlark(kwargs)] arguments: SmallMap<String, Value<'v>>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        let arguments = heap.alloc(AllocDict(arguments));
        let text = json::text_of(arguments, heap).map_err(|why| anyhow::anyhow!("tools.call: {why}"))?;
        let run = RunContext::now()?;
        let arguments = RawValue::from_string(run.handles.named(text))?;
        let result: serde_json::Value = run.ask(HostRequest::Tool { name: name.to_owned(), arguments })?;
        Ok(value_of(&result, heap))
    }
}
