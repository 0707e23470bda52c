//! The prompts of the suite.

use super::contents::{image, resource};
use super::{filled_in_text, form};
use portcullis_core::{
    BoxFuture, CallCtx, Completion, CompletionArgument, Content, PromptArgument, PromptDef, PromptMessage,
    PromptOutput, PromptSource, Role, ToolError,
};
use serde_json::{Map, Value, json};
use std::sync::Arc;

const SIMPLE: &str = "test_simple_prompt";
const WITH_ARGUMENTS: &str = "test_prompt_with_arguments";
const WITH_RESOURCE: &str = "test_prompt_with_embedded_resource";
const WITH_IMAGE: &str = "test_prompt_with_image";
const WITH_QUESTION: &str = "test_input_required_result_prompt";

/// Completions for `arg1` and `arg2`.
const PROPOSALS: [&str; 4] = ["paris", "party", "testValue1", "testValue2"];

pub(super) struct ConformancePrompts;

impl PromptSource for ConformancePrompts {
    fn prompts(&self) -> Vec<Arc<PromptDef>> {
        let arg1 = ("arg1", "First test argument");
        let arg2 = ("arg2", "Second test argument");
        let uri = ("resourceUri", "Address of the resource to embed");
        vec![
            prompt(SIMPLE, "A prompt without arguments", &[]),
            prompt(WITH_ARGUMENTS, "A prompt with required arguments", &[arg1, arg2]),
            prompt(WITH_RESOURCE, "A prompt that includes an embedded resource", &[uri]),
            prompt(WITH_IMAGE, "A prompt that includes an image", &[]),
            prompt(WITH_QUESTION, "A prompt that asks for its context first", &[]),
        ]
    }

    fn get(
        &self,
        name: String,
        arguments: Map<String, Value>,
        ctx: CallCtx,
    ) -> BoxFuture<'_, Result<PromptOutput, ToolError>> {
        Box::pin(async move {
            let text = |text: String| Content::text(text);
            let contents = match name.as_str() {
                SIMPLE => vec![text("This is a simple prompt for testing.".to_owned())],
                WITH_ARGUMENTS => {
                    let (arg1, arg2) = (required(&arguments, "arg1")?, required(&arguments, "arg2")?);
                    vec![text(format!("Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"))]
                }
                WITH_RESOURCE => {
                    let uri = required(&arguments, "resourceUri")?;
                    vec![
                        resource(uri, "text/plain", "Embedded resource content for testing."),
                        text("Please process the embedded resource above.".to_owned()),
                    ]
                }
                WITH_IMAGE => vec![image(), text("Please analyze the image above.".to_owned())],
                WITH_QUESTION => {
                    let fields = json!({ "context": { "type": "string" } });
                    let answer =
                        ctx.ask("user_context", form("What context should the prompt use?", fields)).await?;
                    vec![text(format!("Prompt with context: {}", filled_in_text(&answer, "context")?))]
                }
                _ => return Err(ToolError::unknown("prompt", &name)),
            };
            let messages = contents.into_iter().map(|content| PromptMessage { role: Role::User, content });
            Ok(PromptOutput { description: None, messages: messages.collect() })
        })
    }

    fn complete(
        &self,
        prompt: String,
        argument: CompletionArgument,
        _: CallCtx,
    ) -> BoxFuture<'_, Result<Completion, ToolError>> {
        let known = prompt == WITH_ARGUMENTS && ["arg1", "arg2"].contains(&argument.name.as_str());
        let candidates: &[&str] = if known { &PROPOSALS } else { &[] };
        let candidates = candidates.iter().map(|&candidate| candidate.to_owned());
        let completion = Completion::matching(candidates, &argument.value);
        Box::pin(async move { Ok(completion) })
    }
}

fn prompt(name: &str, description: &str, arguments: &[(&str, &str)]) -> Arc<PromptDef> {
    let arguments = arguments.iter().map(|(name, description)| PromptArgument {
        name: (*name).to_owned(),
        description: Some((*description).to_owned()),
        required: true,
    });
    Arc::new(PromptDef {
        name: name.to_owned(),
        title: None,
        description: Some(description.to_owned()),
        arguments: arguments.collect(),
        definition: None,
    })
}

fn required<'a>(arguments: &'a Map<String, Value>, name: &str) -> Result<&'a str, ToolError> {
    let missing =
        || ToolError::invalid_args(format!("invalid arguments: `{name}` is missing, expected a text"));
    arguments.get(name).and_then(Value::as_str).ok_or_else(missing)
}
