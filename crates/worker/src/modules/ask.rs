//! `http`, `secrets` and `tools`: what only the hub can do.

use crate::hub::Run;
use crate::json::{self, value_of};
use portcullis_script::Piece;
use portcullis_script::message::{Ask, HttpAnswer, HttpAsk};
use serde_json::value::RawValue;
use starlark::collections::SmallMap;
use starlark::environment::GlobalsBuilder;
use starlark::starlark_module;
use starlark::values::dict::{AllocDict, DictRef};
use starlark::values::{Heap, Value};

/// What a request is made of.
struct Wanted<'v> {
    method: &'v str,
    url: Value<'v>,
    headers: Option<Value<'v>>,
    body: Option<Value<'v>>,
    json: Option<Value<'v>>,
    content_type: Option<&'v str>,
}

fn text(what: &str, value: Value<'_>) -> anyhow::Result<Vec<Piece>> {
    let text = value.unpack_str();
    let text =
        text.ok_or_else(|| anyhow::anyhow!("http: {what} is {}, expected a text", value.get_type()))?;
    Ok(Run::now()?.handles.pieces(text))
}

fn send<'v>(wanted: &Wanted<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
    let mut headers = Vec::new();
    if let Some(given) = wanted.headers.filter(|given| !given.is_none()) {
        let given =
            DictRef::from_value(given).ok_or_else(|| anyhow::anyhow!("http: `headers` expects a dict"))?;
        for (name, value) in given.iter() {
            let name =
                name.unpack_str().ok_or_else(|| anyhow::anyhow!("http: the name of a header is no text"))?;
            headers.push((name.to_owned(), text(&format!("header `{name}`"), value)?));
        }
    }
    let given = |value: Option<Value<'v>>| value.filter(|value| !value.is_none());
    let (body, is_json) = match (given(wanted.body), given(wanted.json)) {
        (Some(_), Some(_)) => return Err(anyhow::anyhow!("http: give `body` or `json`, not both")),
        (Some(body), None) => (Some(text("`body`", body)?), false),
        (None, Some(value)) => {
            let text = json::text_of(value, heap).map_err(|why| anyhow::anyhow!("http: `json`: {why}"))?;
            (Some(Run::now()?.handles.pieces(&text)), true)
        }
        (None, None) => (None, false),
    };
    let ask = HttpAsk {
        method: wanted.method.to_ascii_uppercase(),
        url: text("`url`", wanted.url)?,
        headers,
        body,
        content_type: wanted.content_type.map(str::to_owned),
        json: is_json,
    };
    let answer: HttpAnswer = Run::now()?.ask(Ask::Http(ask))?;
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
        send(&Wanted { method: "GET", url, headers, body: None, json: None, content_type: None }, heap)
    }

    fn post<'v>(
        #[starlark(require = pos)] url: Value<'v>,
        body: Option<Value<'v>>,
        headers: Option<Value<'v>>,
        content_type: Option<&'v str>,
        #[starlark(require = named)] json: Option<Value<'v>>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        send(&Wanted { method: "POST", url, headers, body, json, content_type }, heap)
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
        send(&Wanted { method, url, headers, body, json, content_type }, heap)
    }
}

fn is_there(name: &str) -> anyhow::Result<bool> {
    Run::now()?.ask(Ask::HasSecret(name.to_owned()))
}

#[starlark_module]
pub(crate) fn secrets(builder: &mut GlobalsBuilder) {
    /// Returns a handle. It stands for the value in headers, bodies and addresses of requests, and nowhere else.
    fn get(#[starlark(require = pos)] name: &str) -> anyhow::Result<String> {
        match is_there(name)? {
            true => Ok(Run::now()?.handles.handle(name)),
            false => Err(anyhow::anyhow!(
                "secrets.get: `{name}` is not there, or was not granted to this script; `secrets.has` says whether it is"
            )),
        }
    }

    fn has(#[starlark(require = pos)] name: &str) -> anyhow::Result<bool> {
        is_there(name)
    }
}

#[starlark_module]
pub(crate) fn tools(builder: &mut GlobalsBuilder) {
    /// Calls a tool, as the client who runs the script, through every guard.
    fn call<'v>(
        #[starlark(require = pos)] name: &str,
        #[starlark(kwargs)] arguments: SmallMap<String, Value<'v>>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        let arguments = heap.alloc(AllocDict(arguments));
        let text = json::text_of(arguments, heap).map_err(|why| anyhow::anyhow!("tools.call: {why}"))?;
        let run = Run::now()?;
        let arguments = RawValue::from_string(run.handles.named(text))?;
        let result: serde_json::Value = run.ask(Ask::Tool { name: name.to_owned(), arguments })?;
        Ok(value_of(&result, heap))
    }
}
