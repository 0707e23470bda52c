//! Renders the types of `core` as MCP JSON.

use crate::era::{self, ResultKind, Revision, wrap_result};
use crate::json_string::write_string;
use crate::rpc::{self, RpcError, RpcOutcome};
use portcullis_core::{
    Completion, Content, ContentBody, ErrorKind, ErrorOrigin, ErrorStyle, ForeignError, InputRequest,
    InputRequired, Output, PromptDef, PromptOutput, ResourceBody, ResourceContents, ResourceDef, Role,
    Target, TemplateDef, ToolDef, ToolError, ToolOutput,
};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// How long a client may cache a list or a read. Policy can change at any moment, so not at all.
const READ_TTL_MS: u64 = 0;
/// Estimated size of the envelope around a text: keys, fields of the era, some escapes.
const ENVELOPE_BYTES: usize = 512;
const CACHEABLE: ResultKind = ResultKind::Cacheable { ttl_ms: READ_TTL_MS };

/// Writes the result of a call.
pub fn output(revision: Revision, target: &Target, output: &Output) -> Vec<u8> {
    match output {
        Output::Tool(tool) => {
            let bytes = output.size() + ENVELOPE_BYTES;
            wrap_result(revision, ResultKind::Plain, tool_output(tool, bytes))
        }
        Output::Resource(contents) => {
            let views: Vec<_> = contents.iter().map(WireForm).collect();
            wrap_result(revision, CACHEABLE, write(&SingleKeyObject("contents", views)))
        }
        Output::Prompt(prompt) => wrap_result(revision, ResultKind::Plain, write(&WireForm(prompt))),
        Output::Completion(completion) => wrap_result(
            revision,
            ResultKind::Plain,
            write(&SingleKeyObject("completion", WireForm(completion))),
        ),
        Output::Raw(raw) => {
            let kind = if matches!(target, Target::Resource(_)) { CACHEABLE } else { ResultKind::Plain };
            let taken = match target {
                Target::Tool(_) => era::structured_as_taken(revision, raw),
                Target::Resource(_) | Target::Prompt(_) | Target::Completion(_) | Target::Task(..) => None,
            };
            let raw = taken.as_ref().unwrap_or(raw);
            let mut result = Vec::with_capacity(raw.get().len() + ENVELOPE_BYTES);
            result.extend_from_slice(raw.get().as_bytes());
            era::wrap_foreign_result(revision, kind, result)
        }
    }
}

/// Writes one page of a list.
pub fn page(
    revision: Revision,
    key: &'static str,
    items: &[&RawValue],
    next_cursor: Option<&str>,
) -> Vec<u8> {
    struct Page<'a>(&'static str, &'a [&'a RawValue], Option<&'a str>);
    impl Serialize for Page<'_> {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let mut map = serializer.serialize_map(None)?;
            map.serialize_entry(self.0, self.1)?;
            if let Some(cursor) = self.2 {
                map.serialize_entry("nextCursor", cursor)?;
            }
            map.end()
        }
    }
    wrap_result(revision, CACHEABLE, write(&Page(key, items, next_cursor)))
}

/// Writes a tool's definition without its `outputSchema`, if clients of the revision do not accept that schema.
pub fn tool_for(revision: Revision, tool: &ToolDef) -> Option<Box<RawValue>> {
    let (schema, definition) = (tool.output_schema.as_ref()?, tool.definition.as_ref()?);
    let is_taken = era::takes_output_schema(revision, schema);
    (!is_taken).then(|| era::without_output_schema(definition.raw()))
}

/// Writes a tool's definition.
pub fn tool(tool: &ToolDef) -> Box<RawValue> {
    if let Some(definition) = &tool.definition {
        return definition.raw().to_owned();
    }
    let hints = tool.hints();
    let mut definition = json!({
        "name": tool.name,
        "title": tool.title,
        "description": tool.description,
        "inputSchema": tool.input_schema,
    });
    if let Some(schema) = &tool.output_schema {
        definition["outputSchema"] = or_failure(schema);
    }
    definition["annotations"] = json!({
        "title": tool.title,
        "readOnlyHint": hints.read_only,
        "destructiveHint": hints.destructive,
        "idempotentHint": hints.idempotent,
        "openWorldHint": hints.open_world,
    });
    raw(&definition)
}

/// Makes an output schema also accept the structured content of a failure.
///
/// A failed call has `code`, `message` and `suggestions` as structured content, and some clients validate it against the
/// output schema too.
fn or_failure(schema: &Value) -> Value {
    let mut schema = schema.clone();
    if let Some(object) = schema.as_object_mut()
        && let Some(required) = object.remove("required")
    {
        let failure = json!(["code", "message", "suggestions"]);
        object.insert("anyOf".to_owned(), json!([{ "required": required }, { "required": failure }]));
    }
    schema
}

pub fn prompt(prompt: &PromptDef) -> Box<RawValue> {
    if let Some(definition) = &prompt.definition {
        return definition.raw().to_owned();
    }
    let arguments: Vec<Value> = prompt
        .arguments
        .iter()
        .map(|argument| {
            let mut value = json!({ "name": argument.name, "required": argument.required });
            set(&mut value, "description", argument.description.as_deref());
            value
        })
        .collect();
    let mut definition = json!({ "name": prompt.name });
    set(&mut definition, "title", prompt.title.as_deref());
    set(&mut definition, "description", prompt.description.as_deref());
    definition["arguments"] = arguments.into();
    raw(&definition)
}

pub fn resource(resource: &ResourceDef) -> Box<RawValue> {
    if let Some(definition) = &resource.definition {
        return definition.raw().to_owned();
    }
    let mut definition = json!({ "uri": resource.uri, "name": resource.name });
    set(&mut definition, "title", resource.title.as_deref());
    set(&mut definition, "description", resource.description.as_deref());
    set(&mut definition, "mimeType", resource.mime_type.as_deref());
    if let Some(size) = resource.size {
        definition["size"] = size.into();
    }
    raw(&definition)
}

pub fn template(template: &TemplateDef) -> Box<RawValue> {
    if let Some(definition) = &template.definition {
        return definition.raw().to_owned();
    }
    let mut definition = json!({ "uriTemplate": template.uri_template, "name": template.name });
    set(&mut definition, "title", template.title.as_deref());
    set(&mut definition, "description", template.description.as_deref());
    set(&mut definition, "mimeType", template.mime_type.as_deref());
    raw(&definition)
}

/// Writes one input request for a client that answers by calling again. Null parameters are left out.
pub fn question(ask: &InputRequest) -> Value {
    let mut question = json!({ "method": era::ask_method(ask.kind) });
    if !ask.params.is_null() {
        question["params"] = ask.params.clone();
    }
    question
}

/// Writes an `input_required` result.
pub fn questions(revision: Revision, input: &InputRequired, state: &str) -> Vec<u8> {
    let requests: serde_json::Map<String, Value> =
        input.questions.iter().map(|q| (q.key.clone(), question(&q.ask))).collect();
    let mut result =
        json!({ "resultType": "input_required", "inputRequests": requests, "requestState": state });
    if let Some(result) = result.as_object_mut() {
        // Fields from an upstream server never override the hub's.
        for (name, value) in &input.more {
            result.entry(name).or_insert_with(|| value.clone());
        }
    }
    era::wrap_foreign_result(revision, ResultKind::Plain, result.to_string().into_bytes())
}

/// The one mapping from error kinds to JSON-RPC.
///
/// Protocol faults are JSON-RPC errors. A failed tool is a result with `isError`, so that the model reads it; that holds
/// for the JSON-RPC error of an upstream server too, unless the client has to act on its code.
pub fn failure(revision: Revision, target: &Target, style: ErrorStyle, error: &ToolError) -> RpcOutcome {
    if let Some(said) = &error.foreign {
        return match target {
            Target::Tool(_) if !is_for_client(revision, said) => error_result(revision, target, style, error),
            _ => Err(foreign(revision, target, said)),
        };
    }
    match error.kind {
        ErrorKind::Unknown => Err(unknown(revision, target, error)),
        ErrorKind::NotFound if matches!(target, Target::Resource(_)) => Err(unknown(revision, target, error)),
        // The hub's own limit is a protocol error; the limit of a remote site goes to the model, which chose the site.
        ErrorKind::RateLimited if error.fault == ErrorOrigin::Upstream => {
            error_result(revision, target, style, error)
        }
        ErrorKind::RateLimited => {
            let wait = error.retry_after.unwrap_or_default().as_millis() as u64;
            Err(RpcError::new(rpc::SERVER_ERROR, error.message.clone())
                .with(json!({ "retry_after_ms": wait })))
        }
        ErrorKind::Internal => Err(protocol_fault(rpc::INTERNAL_ERROR, error)),
        ErrorKind::NeedsCapability => match error.capability {
            Some(capability) if revision.server().refuses_missing_capability() => {
                Err(era::missing_capability(capability))
            }
            _ => error_result(revision, target, style, error),
        },
        // The session sends the requests for input; without a session the call cannot go on.
        ErrorKind::NeedsInput => error_result(revision, target, style, error),
        ErrorKind::InvalidArgs
        | ErrorKind::NotFound
        | ErrorKind::Denied
        | ErrorKind::NeedsApproval
        | ErrorKind::Timeout
        | ErrorKind::TooLarge
        | ErrorKind::Cancelled
        | ErrorKind::Unavailable
        | ErrorKind::Upstream => error_result(revision, target, style, error),
    }
}

/// Like [`failure`], for a call that ran as a task: the error of an upstream server ends the task as `failed`, and stays as
/// it is.
pub fn task_failure(revision: Revision, target: &Target, style: ErrorStyle, error: &ToolError) -> RpcOutcome {
    match &error.foreign {
        Some(said) => Err(foreign(revision, target, said)),
        None => failure(revision, target, style, error),
    }
}

/// Returns whether the client's own code acts on an upstream server's error: it opens URLs, or declares a capability.
fn is_for_client(revision: Revision, error: &ForeignError) -> bool {
    match i32::try_from(error.code) {
        Ok(rpc::URL_ELICITATION_REQUIRED) => true,
        Ok(rpc::MISSING_CAPABILITY) => revision.server().refuses_missing_capability(),
        _ => false,
    }
}

/// An upstream server's error, forwarded. Only codes that differ between the eras are translated.
fn foreign(revision: Revision, target: &Target, error: &ForeignError) -> RpcError {
    let code = i32::try_from(error.code).unwrap_or(rpc::INTERNAL_ERROR);
    let missing = match target {
        Target::Resource(_) => {
            let data = error.data.as_ref().and_then(|data| serde_json::from_str::<Value>(data.get()).ok());
            let named = data.is_some_and(|data| data["uri"].is_string());
            code == rpc::RESOURCE_NOT_FOUND || (code == rpc::INVALID_PARAMS && named)
        }
        _ => false,
    };
    let code = if missing { era::resource_not_found(revision, "").code } else { code };
    RpcError { code, ..RpcError::passed_on(error.clone()) }
}

fn unknown(revision: Revision, target: &Target, error: &ToolError) -> RpcError {
    match target {
        Target::Resource(uri) => era::resource_not_found(revision, uri),
        _ => {
            let hints = error.hints.iter().map(|hint| format!("; {hint}")).collect::<String>();
            RpcError::new(rpc::INVALID_PARAMS, format!("{}{hints}", error.message))
        }
    }
}

fn protocol_fault(code: i32, error: &ToolError) -> RpcError {
    let suggestions = &error.hints;
    let data = json!({ "code": error.kind.code(), "suggestions": suggestions });
    RpcError::new(code, error.message.clone()).with(data)
}

/// A failure as a tool result with `isError`. Only tool calls have that; other targets get a JSON-RPC error.
fn error_result(revision: Revision, target: &Target, style: ErrorStyle, error: &ToolError) -> RpcOutcome {
    let Target::Tool(name) = target else {
        let code = match error.fault {
            ErrorOrigin::Caller => rpc::INVALID_PARAMS,
            ErrorOrigin::Hub | ErrorOrigin::Upstream => rpc::INTERNAL_ERROR,
        };
        return Err(protocol_fault(code, error));
    };
    let mut structured = json!({
        "code": error.kind.code(),
        "message": error.message,
        "suggestions": error.hints,
    });
    if let Some(said) = &error.foreign {
        structured["upstream"] = json!({ "code": said.code, "message": said.message });
        if let Some(data) = said.data.as_ref().and_then(|data| serde_json::from_str::<Value>(data.get()).ok())
        {
            structured["upstream"]["data"] = data;
        }
    }
    if let Some(wait) = error.retry_after {
        structured["retry_after_ms"] = json!(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
    }
    let text = error_text(style, name, error);
    let result = ToolOutput { is_error: true, ..ToolOutput::with_data(text, structured) };
    Ok(wrap_result(revision, ResultKind::Plain, tool_output(&result, ENVELOPE_BYTES)))
}

/// Formats a failure in the style of the tool's family.
pub fn error_text(style: ErrorStyle, tool: &str, error: &ToolError) -> String {
    match style {
        ErrorStyle::Sentence => {
            let mut text = format!("Error: {}", error.message);
            if !error.hints.is_empty() {
                text.push('\n');
                text.push_str(&error.hints.join("; "));
            }
            text
        }
        ErrorStyle::Suggestions => pretty(&json!({ "error": error.message, "suggestions": error.hints })),
        ErrorStyle::Envelope => pretty(&json!({
            "ok": false,
            "tool": tool,
            "error": {
                "code": error.kind.code(),
                "message": error.message,
                "retry": error.retry_after.is_some(),
                "details": { "suggestions": error.hints },
            },
        })),
    }
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

fn set(object: &mut Value, key: &str, value: Option<&str>) {
    if let Some(value) = value {
        object[key] = value.into();
    }
}

/// Writes a tool result. `bytes` estimates its size, so that a large text is not reallocated.
fn tool_output(tool: &ToolOutput, bytes: usize) -> Vec<u8> {
    let mut written = Vec::with_capacity(bytes);
    written.extend_from_slice(br#"{"content":["#);
    for (number, content) in tool.content.iter().enumerate() {
        if number > 0 {
            written.push(b',');
        }
        match content {
            // Nearly every result is one text item and nearly all of it the text, hence the fast path.
            Content { body: ContentBody::Text(text), annotations: None } => {
                written.extend_from_slice(br#"{"type":"text","text":"#);
                write_string(text, &mut written);
                written.push(b'}');
            }
            other => write_to(&WireForm(other), &mut written),
        }
    }
    written.push(b']');
    if let Some(structured) = &tool.structured {
        written.extend_from_slice(br#","structuredContent":"#);
        write_to(structured, &mut written);
    }
    written.extend_from_slice(if tool.is_error { br#","isError":true}"# } else { br#","isError":false}"# });
    written
}

fn write<T: Serialize>(value: &T) -> Vec<u8> {
    let mut written = Vec::with_capacity(ENVELOPE_BYTES);
    write_to(value, &mut written);
    written
}

#[expect(clippy::expect_used, reason = "the views have string keys and finite numbers")]
fn write_to<T: Serialize>(value: &T, written: &mut Vec<u8>) {
    serde_json::to_writer(written, value).expect("a view can be written");
}

#[expect(clippy::expect_used, reason = "every JSON value can be written")]
fn raw(value: &Value) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).expect("a JSON value can be written")
}

/// The wire form of a type of `core`; those types are not `Serialize`.
struct WireForm<'a, T>(&'a T);

/// An object with one key.
struct SingleKeyObject<T>(&'static str, T);

impl<T: Serialize> Serialize for SingleKeyObject<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry(self.0, &self.1)?;
        map.end()
    }
}

impl Serialize for WireForm<'_, Content> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match &self.0.body {
            ContentBody::Text(text) => {
                map.serialize_entry("type", "text")?;
                map.serialize_entry("text", text)?;
            }
            ContentBody::Image { base64, mime_type } => {
                map.serialize_entry("type", "image")?;
                map.serialize_entry("data", base64)?;
                map.serialize_entry("mimeType", mime_type)?;
            }
            ContentBody::Audio { base64, mime_type } => {
                map.serialize_entry("type", "audio")?;
                map.serialize_entry("data", base64)?;
                map.serialize_entry("mimeType", mime_type)?;
            }
            ContentBody::Resource(resource) => {
                map.serialize_entry("type", "resource")?;
                map.serialize_entry("resource", &WireForm(resource))?;
            }
        }
        if let Some(annotations) = &self.0.annotations {
            map.serialize_entry("annotations", annotations)?;
        }
        map.end()
    }
}

impl Serialize for WireForm<'_, ResourceContents> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("uri", &self.0.uri)?;
        if let Some(mime_type) = &self.0.mime_type {
            map.serialize_entry("mimeType", mime_type)?;
        }
        match &self.0.body {
            ResourceBody::Text(text) => map.serialize_entry("text", text)?,
            ResourceBody::Base64(blob) => map.serialize_entry("blob", blob)?,
        }
        map.end()
    }
}

impl Serialize for WireForm<'_, PromptOutput> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if let Some(description) = &self.0.description {
            map.serialize_entry("description", description)?;
        }
        map.serialize_entry("messages", &self.0.messages.iter().map(PromptMessageForm).collect::<Vec<_>>())?;
        map.end()
    }
}

struct PromptMessageForm<'a>(&'a portcullis_core::PromptMessage);

impl Serialize for PromptMessageForm<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(2))?;
        let role = match self.0.role {
            Role::User => "user",
            Role::Assistant => "assistant",
        };
        map.serialize_entry("role", role)?;
        map.serialize_entry("content", &WireForm(&self.0.content))?;
        map.end()
    }
}

impl Serialize for WireForm<'_, Completion> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(3))?;
        map.serialize_entry("values", &self.0.values)?;
        map.serialize_entry("total", &self.0.total)?;
        map.serialize_entry("hasMore", &self.0.has_more)?;
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(code: i64) -> ToolError {
        let data = RawValue::from_string(r#"{"row":12345678901234567890123}"#.to_owned()).unwrap();
        ToolError::foreign("shop", ForeignError { code, message: "no such row".to_owned(), data: Some(data) })
    }

    fn check(revision: Revision, target: &Target, code: i64) -> Result<Value, i32> {
        let rendered = failure(revision, target, ErrorStyle::Sentence, &said(code));
        rendered.map(|result| serde_json::from_slice(&result).unwrap()).map_err(|error| error.code)
    }

    #[test]
    fn an_error_of_an_upstream_server_is_a_result_that_names_it() {
        let tool = Target::Tool("shop_find".to_owned());
        for code in [-32603, -32602, -32601, -32000, 7] {
            let message = format!("server `shop` answered with error {code}: no such row");
            let expected = format!(
                r#"{{"content":[{{"type":"text","text":"Error: {message}"}}],"structuredContent":{{"code":"upstream","message":"{message}","suggestions":[],"upstream":{{"code":{code},"message":"no such row","data":{{"row":12345678901234567890123}}}}}},"isError":true}}"#
            );
            let result = failure(Revision::V2025_11_25, &tool, ErrorStyle::Sentence, &said(code)).unwrap();
            assert_eq!(String::from_utf8(result).unwrap(), expected);
        }
    }

    #[test]
    fn an_error_that_the_client_acts_on_stays_a_protocol_error() {
        let (tool, prompt) = (Target::Tool("shop_find".to_owned()), Target::Prompt("shop_find".to_owned()));
        let (older, newer) = (Revision::V2025_11_25, Revision::V2026_07_28);
        assert_eq!(check(older, &tool, -32042), Err(-32042));
        assert_eq!(check(newer, &tool, -32042), Err(-32042));
        assert_eq!(check(newer, &tool, -32021), Err(-32021));
        // Clients of this revision do not know that code.
        assert_eq!(check(older, &tool, -32021).unwrap()["structuredContent"]["upstream"]["code"], -32021);
        // What is no tool has no `isError`, and a task has the status `failed`.
        assert_eq!(check(newer, &prompt, -32000), Err(-32000));
        let task = task_failure(newer, &tool, ErrorStyle::Sentence, &said(-32000));
        assert_eq!(task.map_err(|error| error.code), Err(-32000));
    }
}
