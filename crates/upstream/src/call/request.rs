//! A call in the words of its server: method, parameters, the server's own names, mirrored headers.

use crate::catalog::{ExposedCatalog, UpstreamTool};
use portcullis_core::json::{self, is_confusable};
use portcullis_core::{Call, CompletionRef, Target, ToolError};
use portcullis_wire::mirrored_headers::MirroredArgument;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// The request of a call, apart from its rounds.
pub(crate) struct CallRequest {
    pub(crate) method: &'static str,
    /// The members of `params`.
    pub(crate) params: String,
    /// The tool, prompt or URI.
    pub(crate) name: Option<RequestTarget>,
    pub(crate) headers: Vec<(String, String)>,
    /// What is left of the timeout of the call.
    pub(crate) timeout: Duration,
    /// How long the server may be silent.
    pub(crate) silence: Duration,
}

/// A name, shared with the catalog where it is a tool's.
pub(crate) enum RequestTarget {
    Tool(Arc<UpstreamTool>),
    Other(String),
}

impl RequestTarget {
    pub(super) fn as_str(&self) -> &str {
        match self {
            RequestTarget::Tool(own) => &own.name,
            RequestTarget::Other(name) => name,
        }
    }
}

impl CallRequest {
    /// Writes a call with the server's own names.
    pub(crate) fn new(
        catalog: &ExposedCatalog,
        call: &Call,
        timeout: Duration,
    ) -> Result<CallRequest, ToolError> {
        let unknown = || ToolError::unknown(call.target.kind(), call.target.name());
        let arguments = call.arguments.raw().get();
        let text = |text: &str| Value::from(text).to_string();
        let (method, params, name, headers) = match &call.target {
            Target::Tool(name) => {
                let own = catalog.tool_names.get(name).ok_or_else(unknown)?;
                let params = format!(r#""name":{},"arguments":{arguments}"#, own.quoted);
                ("tools/call", params, Some(RequestTarget::Tool(own.clone())), mirrored(own, call))
            }
            Target::Prompt(name) => {
                let own = catalog.prompt_names.get(name).ok_or_else(unknown)?;
                let params = format!(r#""name":{},"arguments":{arguments}"#, text(own));
                ("prompts/get", params, Some(RequestTarget::Other(own.clone())), Vec::new())
            }
            Target::Resource(uri) => {
                let params = format!(r#""uri":{}"#, text(uri));
                ("resources/read", params, Some(RequestTarget::Other(uri.clone())), Vec::new())
            }
            // Tasks have their own methods.
            Target::Task(..) => return Err(unknown()),
            Target::Completion(of) => {
                let mut params = json::parse_exact(arguments)
                    .map_err(|error| ToolError::invalid_args(error.to_string()))?;
                if let CompletionRef::Prompt(name) = of {
                    let own = catalog.prompt_names.get(name).ok_or_else(unknown)?;
                    params["ref"]["name"] = own.as_str().into();
                }
                let members = params.as_object_mut().ok_or_else(unknown)?;
                let of = members.get("ref").and_then(Value::as_object).into_iter().flatten();
                let is_other =
                    |name: &str| ["type", "name", "uri"].iter().any(|own| is_confusable(name, own));
                if of.into_iter().any(|(name, _)| is_other(name)) {
                    return Err(ToolError::invalid_args("`ref` is ambiguous")
                        .hint("leave out members that look like its `type`, `name` or `uri`"));
                }
                members.remove("_meta");
                let inside = params.to_string();
                ("completion/complete", inside[1..inside.len() - 1].to_owned(), None, Vec::new())
            }
        };
        Ok(CallRequest { method, params, name, headers, timeout, silence: timeout })
    }
}

/// Returns the arguments that the tool wants in headers.
fn mirrored(own: &UpstreamTool, call: &Call) -> Vec<(String, String)> {
    if own.headers.is_empty() {
        return Vec::new();
    }
    let Ok(arguments) = call.arguments.value() else { return Vec::new() };
    let catalog = |mirror: &MirroredArgument| Some((mirror.header().to_owned(), mirror.value(arguments)?));
    own.headers.iter().filter_map(catalog).collect()
}
