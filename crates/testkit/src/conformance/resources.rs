//! The resources and the template of the suite.

use super::PNG;
use portcullis_core::{
    BoxFuture, CallCtx, Caller, ResourceBody, ResourceContents, ResourceDef, ResourceSource, TemplateDef,
    ToolError,
};
use serde_json::json;
use std::sync::Arc;

const TEMPLATE: &str = "test://template/{id}/data";

/// A constant resource.
struct FixedResource {
    uri: &'static str,
    name: &'static str,
    description: &'static str,
    mime_type: &'static str,
    body: FixedBody,
}

enum FixedBody {
    Text(&'static str),
    Base64(&'static str),
}

/// The suite reads the first one.
static FIXED: [FixedResource; 3] = [
    FixedResource {
        uri: "test://static-text",
        name: "static-text",
        description: "A text that never changes",
        mime_type: "text/plain",
        body: FixedBody::Text("This is the content of the static text resource."),
    },
    FixedResource {
        uri: "test://static-binary",
        name: "static-binary",
        description: "An image that never changes",
        mime_type: "image/png",
        body: FixedBody::Base64(PNG),
    },
    FixedResource {
        uri: "test://watched-resource",
        name: "watched-resource",
        description: "A text to subscribe to",
        mime_type: "text/plain",
        body: FixedBody::Text("Watched resource content"),
    },
];

pub(super) struct ConformanceResources;

impl ResourceSource for ConformanceResources {
    fn owns(&self, uri: &str) -> bool {
        contents(uri).is_some()
    }

    fn templates(&self) -> Vec<Arc<TemplateDef>> {
        vec![Arc::new(TemplateDef {
            uri_template: TEMPLATE.to_owned(),
            name: "template-data".to_owned(),
            title: None,
            description: Some("Data for any id".to_owned()),
            mime_type: Some("application/json".to_owned()),
            definition: None,
        })]
    }

    fn list<'a>(&'a self, _: &'a Caller) -> BoxFuture<'a, Result<Vec<ResourceDef>, ToolError>> {
        let resources = FIXED.iter().map(|fixed| ResourceDef {
            uri: fixed.uri.to_owned(),
            name: fixed.name.to_owned(),
            title: None,
            description: Some(fixed.description.to_owned()),
            mime_type: Some(fixed.mime_type.to_owned()),
            size: None,
            definition: None,
        });
        let resources = resources.collect();
        Box::pin(async move { Ok(resources) })
    }

    fn read(&self, uri: String, _: CallCtx) -> BoxFuture<'_, Result<Vec<ResourceContents>, ToolError>> {
        Box::pin(async move {
            let contents = contents(&uri).ok_or_else(|| ToolError::unknown("resource", &uri))?;
            Ok(vec![contents])
        })
    }
}

/// Returns the contents of a URI, if any.
fn contents(uri: &str) -> Option<ResourceContents> {
    let (mime_type, body) = match FIXED.iter().find(|fixed| fixed.uri == uri) {
        Some(FixedResource { mime_type, body: FixedBody::Text(text), .. }) => {
            (*mime_type, ResourceBody::Text((*text).to_owned()))
        }
        Some(FixedResource { mime_type, body: FixedBody::Base64(data), .. }) => {
            (*mime_type, ResourceBody::Base64((*data).to_owned()))
        }
        None => {
            let id = template_id(uri)?;
            let data = json!({ "id": id, "templateTest": true, "data": format!("Data for ID: {id}") });
            ("application/json", ResourceBody::Text(data.to_string()))
        }
    };
    Some(ResourceContents { uri: uri.to_owned(), mime_type: Some(mime_type.to_owned()), body })
}

/// Returns the `id` of a URI that matches the template.
fn template_id(uri: &str) -> Option<&str> {
    let (before, after) = TEMPLATE.split_once("{id}")?;
    let id = uri.strip_prefix(before)?.strip_suffix(after)?;
    (!id.is_empty() && !id.contains('/')).then_some(id)
}
