//! A native tool family: tools, and optionally resources and prompts, behind one provider.

use crate::Outcome;
use crate::call::{Arguments, Call, Caller, CompletionRef, Target};
use crate::context::{CallCtx, RunningCall};
use crate::effect::{Effect, Reach};
use crate::error::ToolError;
use crate::gate::{Permit, ResourceVisibility};
use crate::json::printable;
use crate::label::{Label, Labels};
use crate::output::{Completion, Output, PromptOutput, ResourceContents, ToolOutput, pretty};
use crate::registry::{Catalog, PromptDef, Provider, ResourceClaim, ResourceDef, TemplateDef};
use crate::schema::write_whole_numbers;
use crate::tool::{DefaultDecision, ErrorStyle, TaskSupport, ToolDef, ToolSpec};
use futures::future::BoxFuture;
use schemars::{JsonSchema, generate::SchemaSettings};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::sync::Arc;

/// A return type of a tool function.
pub trait IntoToolOutput {
    /// Returns the `outputSchema`, if the result is structured.
    fn schema() -> Option<Value>;

    fn into_output(self) -> ToolOutput;
}

/// Plain text: the contents of a page or another thing that is hardly ever empty.
#[derive(Debug, Clone)]
pub struct Text(pub String);

/// The contents of a file, which may well be empty.
#[derive(Debug, Clone)]
pub struct FileContents {
    pub text: String,
    /// What is said of an empty one, in a sentence.
    pub if_empty: String,
}

/// Structured data, also pretty-printed as text.
#[derive(Debug, Clone)]
pub struct Json<T>(pub T);

/// A sentence for the model, with the same facts as structured data.
#[derive(Debug, Clone)]
pub struct SummaryWithData<T> {
    pub sentence: String,
    pub facts: T,
}

impl IntoToolOutput for Text {
    fn schema() -> Option<Value> {
        None
    }

    fn into_output(self) -> ToolOutput {
        ToolOutput::text(self.0)
    }
}

impl IntoToolOutput for FileContents {
    fn schema() -> Option<Value> {
        None
    }

    fn into_output(self) -> ToolOutput {
        match self.text.is_empty() {
            true => ToolOutput::empty(self.if_empty),
            false => ToolOutput::text(self.text),
        }
    }
}

impl IntoToolOutput for ToolOutput {
    fn schema() -> Option<Value> {
        None
    }

    fn into_output(self) -> ToolOutput {
        self
    }
}

impl<T: Serialize + JsonSchema> IntoToolOutput for Json<T> {
    fn schema() -> Option<Value> {
        Some(schema_of::<T>())
    }

    fn into_output(self) -> ToolOutput {
        let value = to_value(&self.0);
        ToolOutput::with_data(pretty(&value), value)
    }
}

impl<T: Serialize + JsonSchema> IntoToolOutput for SummaryWithData<T> {
    fn schema() -> Option<Value> {
        Some(schema_of::<T>())
    }

    fn into_output(self) -> ToolOutput {
        ToolOutput::with_data(self.sentence, to_value(&self.facts))
    }
}

#[expect(clippy::expect_used, reason = "result types are plain structs with string keys")]
fn to_value<T: Serialize>(value: &T) -> Value {
    serde_json::to_value(value).expect("a result type has string keys and finite numbers")
}

/// Returns the JSON Schema of a type, without title, description and meta-schema.
pub fn schema_of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|s| {
        s.meta_schema = None;
        s.inline_subschemas = true;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    if let Value::Object(object) = &mut schema {
        object.remove("title");
        object.remove("description");
        // A type without fields has no `properties`, which some clients require.
        if object.get("type").and_then(Value::as_str) == Some("object") {
            object.entry("properties").or_insert_with(|| Value::Object(Map::new()));
        }
    }
    drop_number_formats(&mut schema);
    schema
}

/// Removes formats like `uint64`, which are not standard; strict validators reject them.
fn drop_number_formats(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            let known_to_rust_only = object
                .get("format")
                .and_then(Value::as_str)
                .is_some_and(|format| format.starts_with("uint") || format.starts_with("int"));
            if known_to_rust_only {
                object.remove("format");
            }
            object.values_mut().for_each(drop_number_formats);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_number_formats),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

type Handler = Box<dyn Fn(Arguments, CallCtx) -> BoxFuture<'static, Outcome> + Send + Sync>;

/// The resources of a family.
pub trait ResourceSource: Send + Sync {
    fn owns(&self, uri: &str) -> bool;

    fn templates(&self) -> Vec<Arc<TemplateDef>> {
        Vec::new()
    }

    /// Lists what this caller has. The gate filters by policy; a source whose rows belong to owners filters by the caller.
    fn list<'a>(&'a self, caller: &'a Caller) -> BoxFuture<'a, Result<Vec<ResourceDef>, ToolError>>;

    fn read(&self, uri: String, ctx: CallCtx) -> BoxFuture<'_, Result<Vec<ResourceContents>, ToolError>>;

    /// Proposes values for a template variable, filtered by what the caller may see.
    fn complete(
        &self,
        template: String,
        argument: CompletionArgument,
        visibility: ResourceVisibility,
        ctx: CallCtx,
    ) -> BoxFuture<'_, Result<Completion, ToolError>> {
        let _ = (template, argument, visibility, ctx);
        Box::pin(async { Ok(Completion::default()) })
    }
}

/// The prompts of a family.
pub trait PromptSource: Send + Sync {
    fn prompts(&self) -> Vec<Arc<PromptDef>>;

    fn get(
        &self,
        name: String,
        arguments: Map<String, Value>,
        ctx: CallCtx,
    ) -> BoxFuture<'_, Result<PromptOutput, ToolError>>;

    /// Proposes values for an argument.
    fn complete(
        &self,
        prompt: String,
        argument: CompletionArgument,
        ctx: CallCtx,
    ) -> BoxFuture<'_, Result<Completion, ToolError>> {
        let _ = (prompt, argument, ctx);
        Box::pin(async { Ok(Completion::default()) })
    }
}

/// An argument to complete.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CompletionArgument {
    pub name: String,
    /// The partial value.
    pub value: String,
    /// Arguments already chosen.
    pub settled: HashMap<String, String>,
}

/// A provider built from functions.
pub struct Family {
    name: &'static str,
    error_style: ErrorStyle,
    tools: Vec<Arc<ToolDef>>,
    handlers: HashMap<&'static str, Handler>,
    resources: Option<Box<dyn ResourceSource>>,
    prompts: Option<Box<dyn PromptSource>>,
}

impl Family {
    pub fn new(name: &'static str) -> Family {
        Family {
            name,
            error_style: ErrorStyle::default(),
            tools: Vec::new(),
            handlers: HashMap::new(),
            resources: None,
            prompts: None,
        }
    }

    /// Adds a tool: its spec, the state it works on, and the function. The schemas come from the function's types.
    pub fn tool<S, A, R, Fut>(
        self,
        spec: ToolSpec,
        state: &Arc<S>,
        run: fn(Arc<S>, A, CallCtx) -> Fut,
    ) -> Self
    where
        S: Send + Sync + 'static,
        A: DeserializeOwned + JsonSchema + Send + 'static,
        R: IntoToolOutput + 'static,
        Fut: Future<Output = Result<R, ToolError>> + Send + 'static,
    {
        self.tool_with_schema(spec, schema_of::<A>(), state, run)
    }

    /// Adds a tool with an input schema that expresses more than its argument type.
    pub fn tool_with_schema<S, A, R, Fut>(
        mut self,
        spec: ToolSpec,
        input_schema: Value,
        state: &Arc<S>,
        run: fn(Arc<S>, A, CallCtx) -> Fut,
    ) -> Self
    where
        S: Send + Sync + 'static,
        A: DeserializeOwned + Send + 'static,
        R: IntoToolOutput + 'static,
        Fut: Future<Output = Result<R, ToolError>> + Send + 'static,
    {
        let schema = Arc::new(input_schema.clone());
        let mut tool = ToolDef::new(spec, input_schema, R::schema());
        tool.error_style = self.error_style;
        self.tools.push(Arc::new(tool));
        let state = state.clone();
        let handler: Handler = Box::new(move |arguments, ctx| {
            let (state, schema) = (state.clone(), schema.clone());
            Box::pin(async move {
                let args = typed(&schema, &arguments)?;
                // A script may run for minutes, and its code is large: no second copy is kept.
                drop(arguments);
                let reply = run(state, args, ctx).await?;
                Ok(Output::Tool(reply.into_output().with_one_text()))
            })
        });
        self.handlers.insert(spec.name, handler);
        self
    }

    pub fn error_style(mut self, style: ErrorStyle) -> Self {
        self.error_style = style;
        self
    }

    /// Declares when the last added tool can succeed, so that no person is asked about a call that cannot.
    pub fn ready_if<S: Send + Sync + 'static>(
        mut self,
        state: &Arc<S>,
        check: fn(&S) -> Result<(), ToolError>,
    ) -> Self {
        if let Some(tool) = self.tools.last_mut().and_then(Arc::get_mut) {
            let state = state.clone();
            tool.readiness = Some(Box::new(move || check(&state)));
        }
        self
    }

    /// Lets the last added tool run as a task.
    pub fn as_task(mut self, support: TaskSupport) -> Self {
        if let Some(tool) = self.tools.last_mut().and_then(Arc::get_mut) {
            tool.tasks = support;
        }
        self
    }

    /// Sets the data-flow labels of the last added tool.
    pub fn labelled(mut self, labels: &[Label]) -> Self {
        if let Some(tool) = self.tools.last_mut().and_then(Arc::get_mut) {
            tool.labels = labels.iter().copied().collect();
        }
        self
    }

    /// Sets the output schema of the last added tool to that of `R`, for a function that writes the content itself.
    pub fn output<R: IntoToolOutput>(mut self) -> Self {
        if let Some(tool) = self.tools.last_mut().and_then(Arc::get_mut) {
            tool.output_schema = R::schema();
        }
        self
    }

    /// Sets the decision about the last added tool where no rule matches.
    pub fn default_decision(mut self, decision: DefaultDecision) -> Self {
        if let Some(tool) = self.tools.last_mut().and_then(Arc::get_mut) {
            tool.default_decision = decision;
        }
        self
    }

    /// Sets effect and reach of the last added tool, where they depend on the configuration.
    pub fn with_effect(mut self, effect: Effect, reach: Reach) -> Self {
        if let Some(tool) = self.tools.last_mut().and_then(Arc::get_mut) {
            (tool.effect, tool.reach) = (effect, reach);
        }
        self
    }

    pub fn resources(mut self, source: impl ResourceSource + 'static) -> Self {
        self.resources = Some(Box::new(source));
        self
    }

    pub fn prompts(mut self, source: impl PromptSource + 'static) -> Self {
        self.prompts = Some(Box::new(source));
        self
    }

    async fn answer(&self, mut call: Box<Call>) -> Outcome {
        let labels = call.tool().map_or(Labels::NONE, |tool| tool.labels);
        let (id, caller, trail) = (call.id, call.caller.clone(), call.trail.clone());
        call.ctx = call.ctx.running_for(RunningCall { id, caller, labels, trail });
        let unknown = || ToolError::unknown(call.target.kind(), call.target.name());
        match &call.target {
            Target::Tool(name) => {
                let handler = self.handlers.get(name.as_str()).ok_or_else(unknown)?;
                handler(call.arguments, call.ctx).await
            }
            Target::Resource(uri) => {
                let source = self.resources.as_ref().ok_or_else(unknown)?;
                source.read(uri.clone(), call.ctx).await.map(Output::Resource)
            }
            Target::Prompt(name) => {
                let source = self.prompts.as_ref().ok_or_else(unknown)?;
                let arguments = object(&call.arguments)?;
                source.get(name.clone(), arguments, call.ctx).await.map(Output::Prompt)
            }
            // Native tools have no upstream task.
            Target::Task(..) => Err(unknown()),
            Target::Completion(of) => {
                let argument = completion_argument(&call.arguments)?;
                let completion = match of {
                    CompletionRef::Prompt(name) => {
                        let source = self.prompts.as_ref().ok_or_else(unknown)?;
                        source.complete(name.clone(), argument, call.ctx).await?
                    }
                    CompletionRef::Template(uri) => {
                        let source = self.resources.as_ref().ok_or_else(unknown)?;
                        let visibility = call
                            .visibility
                            .ok_or_else(|| ToolError::internal("the call bypassed the gate"))?;
                        source.complete(uri.clone(), argument, visibility, call.ctx).await?
                    }
                };
                Ok(Output::Completion(completion))
            }
        }
    }
}

/// Reads arguments, which the validation layer has accepted, as the type of their tool.
fn typed<A: DeserializeOwned>(schema: &Value, arguments: &Arguments) -> Result<A, ToolError> {
    if let Ok(args) = serde_json::from_str(arguments.raw().get()) {
        return Ok(args);
    }
    let invalid = |reason: &str| ToolError::invalid_args(format!("invalid arguments: {reason}"));
    let mut value = arguments.value().map_err(invalid)?.clone();
    write_whole_numbers(schema, &mut value);
    serde_path_to_error::deserialize(value).map_err(|error| {
        // Only where the schema is weaker than the type. The reason is in the words of a Rust type, so it is logged.
        let reason = match error.path().to_string() {
            path if path == "." => "they do not fit the tool's schema".to_owned(),
            path => format!("`{}` does not fit the tool's schema", printable(&path)),
        };
        invalid(&reason)
            .hint("compare them with the description and the schema of the tool, in `tools/list`")
            .caused_by(error.into_inner())
    })
}

fn object(arguments: &Arguments) -> Result<Map<String, Value>, ToolError> {
    match arguments.value() {
        Ok(Value::Object(object)) => Ok(object.clone()),
        Ok(_) => Err(ToolError::invalid_args("invalid arguments: expected an object")),
        Err(reason) => Err(ToolError::invalid_args(format!("invalid arguments: {reason}"))),
    }
}

fn completion_argument(arguments: &Arguments) -> Result<CompletionArgument, ToolError> {
    let object = object(arguments)?;
    let text = |key: &str| {
        object
            .get("argument")
            .and_then(|argument| argument.get(key))
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    let (Some(name), Some(value)) = (text("name"), text("value")) else {
        return Err(ToolError::invalid_args(
            "invalid arguments: `argument` must have a `name` and a `value`, both strings",
        ));
    };
    let settled =
        object.get("context").and_then(|context| context.get("arguments")).and_then(Value::as_object);
    let settled = settled.into_iter().flatten();
    let settled =
        settled.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect();
    Ok(CompletionArgument { name, value, settled })
}

impl Provider for Family {
    fn name(&self) -> &str {
        self.name
    }

    fn catalog(&self) -> Catalog {
        Catalog {
            tools: self.tools.clone(),
            prompts: self.prompts.as_ref().map(|source| source.prompts()).unwrap_or_default(),
            templates: self.resources.as_ref().map(|source| source.templates()).unwrap_or_default(),
            ..Catalog::default()
        }
    }

    fn owns_resource(&self, uri: &str, _: &str) -> ResourceClaim {
        // `Listed`, the strongest claim: no upstream server can take over a native URI by listing it.
        let owns = self.resources.as_ref().is_some_and(|source| source.owns(uri));
        if owns { ResourceClaim::Listed } else { ResourceClaim::Not }
    }

    fn resources<'a>(
        &'a self,
        _: Permit,
        caller: &'a Caller,
    ) -> BoxFuture<'a, Result<Vec<ResourceDef>, ToolError>> {
        match &self.resources {
            Some(source) => source.list(caller),
            None => Box::pin(async { Ok(Vec::new()) }),
        }
    }

    fn call(&self, _: Permit, call: Box<Call>) -> BoxFuture<'_, Outcome> {
        Box::pin(self.answer(call))
    }
}
