//! Tools with constant results, one for each kind of content.

use super::{NoArgs, PNG, WAV, spec};
use portcullis_core::{
    CallCtx, Content, ContentBody, Family, ResourceBody, ResourceContents, ToolOutput, ToolResult, ToolSpec,
};
use std::sync::Arc;

const SIMPLE_TEXT: ToolSpec = spec("test_simple_text", "Simple text", "Returns one sentence.");

const IMAGE: ToolSpec = spec("test_image_content", "Image", "Returns a PNG image of one pixel.");

const AUDIO: ToolSpec = spec("test_audio_content", "Audio", "Returns a WAV sound of one sample.");

const EMBEDDED_RESOURCE: ToolSpec =
    spec("test_embedded_resource", "Embedded resource", "Returns a text resource within the result.");

const MULTIPLE: ToolSpec =
    spec("test_multiple_content_types", "Several contents", "Returns a text, an image and a resource.");

const ERROR: ToolSpec =
    spec("test_error_handling", "Reported error", "Always reports an error as its own result.");

pub(super) fn add(family: Family) -> Family {
    let text = |text: &str| Content::text(text);
    let fixtures = [
        (SIMPLE_TEXT, result([text("This is a simple text response for testing.")])),
        (IMAGE, result([image()])),
        (AUDIO, result([audio()])),
        (EMBEDDED_RESOURCE, result([embedded_resource()])),
        (MULTIPLE, result([text("Multiple content types test:"), image(), mixed_resource()])),
        (
            ERROR,
            ToolOutput {
                is_error: true,
                ..ToolOutput::text("This tool intentionally returns an error for testing")
            },
        ),
    ];
    fixtures.into_iter().fold(family, |family, (spec, output)| family.tool(spec, &Arc::new(output), repeat))
}

/// Returns the output that the tool was added with.
async fn repeat(output: Arc<ToolOutput>, _: NoArgs, _: CallCtx) -> ToolResult {
    Ok(output.as_ref().clone())
}

fn result<const N: usize>(content: [Content; N]) -> ToolOutput {
    ToolOutput { content: content.into(), ..ToolOutput::default() }
}

pub(super) fn image() -> Content {
    ContentBody::Image { base64: PNG.to_owned(), mime_type: "image/png".to_owned() }.into()
}

fn audio() -> Content {
    ContentBody::Audio { base64: WAV.to_owned(), mime_type: "audio/wav".to_owned() }.into()
}

/// Returns a text resource as content.
pub(super) fn resource(uri: &str, mime_type: &str, text: &str) -> Content {
    let body = ResourceBody::Text(text.to_owned());
    let resource = ResourceContents { uri: uri.to_owned(), mime_type: Some(mime_type.to_owned()), body };
    ContentBody::Resource(resource).into()
}

fn embedded_resource() -> Content {
    resource("test://embedded-resource", "text/plain", "This is an embedded resource content.")
}

fn mixed_resource() -> Content {
    resource("test://mixed-content-resource", "application/json", r#"{"test":"data","value":123}"#)
}
