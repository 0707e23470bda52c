//! Tool definitions: spec, limits, schemas, labels, and state shared by all calls of a tool.

use crate::call::ToolView;
use crate::effect::{Effect, Reach, ToolAnnotations};
use crate::error::ToolError;
use crate::label::Labels;
use crate::registry::Definition;
use arc_swap::ArcSwapOption;
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Resource limits of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallLimits {
    pub deadline_ms: u64,
    /// Size limit of the arguments, if below the transport's message limit.
    pub input_bytes_max: usize,
    pub output_bytes_max: usize,
}

impl CallLimits {
    /// Enough for local work; small enough that a stuck call is noticed.
    pub const DEFAULT: CallLimits =
        CallLimits { deadline_ms: 30_000, input_bytes_max: usize::MAX, output_bytes_max: 10 * 1024 * 1024 };

    /// The upper bound on all calls, unless configured otherwise.
    pub const CEILING: CallLimits = CallLimits { deadline_ms: 300_000, ..CallLimits::DEFAULT };

    /// Returns the minimum of each limit.
    pub fn at_most(self, ceiling: CallLimits) -> CallLimits {
        CallLimits {
            deadline_ms: self.deadline_ms.min(ceiling.deadline_ms),
            input_bytes_max: self.input_bytes_max.min(ceiling.input_bytes_max),
            output_bytes_max: self.output_bytes_max.min(ceiling.output_bytes_max),
        }
    }

    pub fn deadline(self) -> Duration {
        Duration::from_millis(self.deadline_ms)
    }
}

/// A working call, for documentation and tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Example {
    /// The purpose of the call, in a few words.
    pub what: &'static str,
    /// The arguments, as a JSON object.
    pub arguments: &'static str,
}

/// A native tool as declared by its author.
#[derive(Debug, Clone, Copy)]
pub struct ToolSpec {
    /// `family_verb`.
    pub name: &'static str,
    pub title: &'static str,
    /// Written for a model: what it does, when to use it, what it returns.
    pub description: &'static str,
    pub effect: Effect,
    pub reach: Reach,
    pub limits: CallLimits,
    pub example: Example,
}

/// How a family formats a failure for the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ErrorStyle {
    /// `Error: <what happened>`, and on a second line what to do next.
    #[default]
    Sentence,
    /// `{"error": …, "suggestions": […]}`.
    Suggestions,
    /// `{"ok": false, "tool": …, "error": {…}}`.
    Envelope,
}

/// Whether a tool may run as a task that the client polls, if the client supports tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TaskSupport {
    #[default]
    Never,
    Optional,
    /// Runs only as a task, because it takes so long.
    Required,
    /// Like `Required`, but the tool sends its requests to the client before the task begins.
    RequiredAfterQuestions,
}

/// A compiled input schema. Compiled once per definition, by the validate layer.
pub trait ArgumentCheck: Send + Sync {
    /// Returns all errors of the arguments, or why they were not validated.
    fn check(&self, arguments: &Value) -> Result<(), ArgumentRejection>;
}

/// Why arguments are not accepted as valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArgumentRejection {
    /// These errors were found.
    Misfits(Vec<String>),
    /// Validation would exceed the step budget.
    TooCostly(String),
}

/// Whether a call of a tool could succeed now, whatever its arguments are. Cheap: it runs before every call, and does no I/O.
pub(crate) type ToolReadiness = Box<dyn Fn() -> Result<(), ToolError> + Send + Sync>;

/// The decision about a tool if no rule matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum DefaultDecision {
    /// By its declared effect.
    #[default]
    ByEffect,
    /// A person reviewed and approved the code it runs.
    Reviewed,
    /// Configured for all tools of its server.
    Allow,
    Ask,
    Deny,
}

/// A registered tool.
pub struct ToolDef {
    pub name: String,
    pub title: String,
    pub description: String,
    pub effect: Effect,
    pub reach: Reach,
    /// The annotations shown to clients, if they differ from the effect that policy uses.
    hints: Option<ToolAnnotations>,
    /// Data-flow labels.
    pub labels: Labels,
    pub limits: CallLimits,
    pub error_style: ErrorStyle,
    pub tasks: TaskSupport,
    pub input_schema: Value,
    pub output_schema: Option<Value>,
    pub example: Option<Example>,
    pub default_decision: DefaultDecision,
    /// The only client view that sees it, if not all do.
    pub view: Option<ToolView>,
    /// The upstream server of the tool; `None` for a native tool.
    pub server: Option<String>,
    /// The original name, if it was taken and the tool got a fallback name. Deny rules for the original name apply too: a
    /// server cannot move another's tool out of a rule by taking its name.
    pub instead_of: Option<String>,
    pub definition: Option<Definition>,
    /// What an administrator must do before the tool can be called. Such a tool is never listed; its name resolves only so
    /// that a caller with access learns the reason.
    pub withheld: Option<String>,
    /// What its family says of it before a call, if anything.
    pub readiness: Option<ToolReadiness>,
    check: OnceLock<Result<Box<dyn ArgumentCheck>, String>>,
    listing: ArcSwapOption<RenderedDefinition>,
    digest: OnceLock<[u8; 32]>,
}

impl ToolDef {
    pub fn new(spec: ToolSpec, input_schema: Value, output_schema: Option<Value>) -> ToolDef {
        ToolDef {
            name: spec.name.to_owned(),
            title: spec.title.to_owned(),
            description: spec.description.to_owned(),
            effect: spec.effect,
            reach: spec.reach,
            hints: None,
            labels: Labels::NONE,
            limits: spec.limits,
            error_style: ErrorStyle::default(),
            tasks: TaskSupport::default(),
            input_schema,
            output_schema,
            example: Some(spec.example),
            default_decision: DefaultDecision::default(),
            view: None,
            server: None,
            instead_of: None,
            definition: None,
            withheld: None,
            readiness: None,
            check: OnceLock::new(),
            listing: ArcSwapOption::empty(),
            digest: OnceLock::new(),
        }
    }

    /// Returns the upstream server or native family of the tool.
    pub fn provider(&self) -> &str {
        match (&self.server, &self.view) {
            (Some(server), _) => server,
            // `find_tools` is visible to clients with the search view only.
            (None, Some(_)) => "search",
            (None, None) => self.name.split('_').next().unwrap_or_default(),
        }
    }

    /// Makes an upstream tool. Its annotations are untrusted; policy uses `effect`.
    #[expect(clippy::too_many_arguments, reason = "one per field")]
    pub fn foreign(
        server: String,
        name: String,
        title: String,
        description: String,
        effect: Effect,
        reach: Reach,
        limits: CallLimits,
        input_schema: Value,
        output_schema: Option<Value>,
        definition: Definition,
    ) -> ToolDef {
        ToolDef {
            name,
            title,
            description,
            effect,
            reach,
            hints: None,
            labels: Labels::FOREIGN,
            limits,
            error_style: ErrorStyle::default(),
            tasks: TaskSupport::default(),
            input_schema,
            output_schema,
            example: None,
            default_decision: DefaultDecision::default(),
            view: None,
            server: Some(server),
            instead_of: None,
            definition: Some(definition),
            withheld: None,
            readiness: None,
            check: OnceLock::new(),
            listing: ArcSwapOption::empty(),
            digest: OnceLock::new(),
        }
    }

    /// Sets the decision if no rule matches.
    #[must_use]
    pub fn default_decision(mut self, default_decision: DefaultDecision) -> ToolDef {
        self.default_decision = default_decision;
        self
    }

    /// Sets the data-flow labels.
    #[must_use]
    pub fn labelled(mut self, labels: Labels) -> ToolDef {
        self.labels = labels;
        self
    }

    /// Restricts the tool to clients with this view. It is in the scope of each of them.
    #[must_use]
    pub fn seen_by(mut self, view: ToolView) -> ToolDef {
        self.view = Some(view);
        self
    }

    /// Overrides the annotations. A dispatching tool is harmless for policy, which decides about the target by its own name;
    /// but a client that auto-approves harmless tools sees only the dispatching tool.
    #[must_use]
    pub fn advertised_as(mut self, effect: Effect, reach: Reach) -> ToolDef {
        self.hints = Some(effect.hints(reach));
        self
    }

    /// Returns the annotation hints.
    pub fn hints(&self) -> ToolAnnotations {
        self.hints.unwrap_or_else(|| self.effect.hints(self.reach))
    }

    /// Returns whether clients with this view see the tool.
    pub fn is_for(&self, view: ToolView) -> bool {
        self.view.is_none_or(|only| only == view)
    }

    /// Makes a tool that waits for review. It holds nothing from the server's definition, which no person has reviewed.
    pub fn quarantined(
        server: String,
        name: String,
        effect: Effect,
        reach: Reach,
        default_decision: DefaultDecision,
        hint: String,
    ) -> ToolDef {
        let nothing = Definition::new(RawValue::NULL.to_owned());
        let any = serde_json::json!({ "type": "object" });
        let (title, description) = (String::new(), String::new());
        let def = ToolDef::foreign(
            server,
            name,
            title,
            description,
            effect,
            reach,
            CallLimits::DEFAULT,
            any,
            None,
            nothing,
        );
        ToolDef { withheld: Some(hint), definition: None, ..def.default_decision(default_decision) }
    }

    /// Returns the compiled input schema, compiled on first use.
    pub fn check_with(
        &self,
        compile: impl FnOnce(&Value) -> Result<Box<dyn ArgumentCheck>, String>,
    ) -> Result<&dyn ArgumentCheck, &str> {
        let compiled = self.check.get_or_init(|| compile(&self.input_schema));
        compiled.as_deref().map_err(String::as_str)
    }

    /// Returns a digest of everything that a person or a model relies on to decide about the tool.
    pub fn digest(&self) -> [u8; 32] {
        *self.digest.get_or_init(|| {
            let mut hash = Sha256::new();
            let schema = |schema: Option<&Value>| schema.map_or_else(String::new, Value::to_string);
            for part in [
                self.name.as_str(),
                &self.title,
                &self.description,
                self.effect.as_str(),
                self.reach.as_str(),
                &schema(Some(&self.input_schema)),
                &schema(self.output_schema.as_ref()),
                self.definition.as_ref().map_or("", |definition| definition.raw().get()),
            ] {
                hash.update((part.len() as u64).to_le_bytes());
                hash.update(part);
            }
            hash.finalize().into()
        })
    }

    /// Returns the rendered definition, cached per redaction generation.
    pub fn listing_with(
        &self,
        generation: u64,
        write: impl FnOnce(&ToolDef) -> Box<RawValue>,
    ) -> Arc<RenderedDefinition> {
        if let Some(listed) = self.listing.load_full().filter(|listed| listed.generation == generation) {
            return listed;
        }
        let listed = Arc::new(RenderedDefinition { generation, text: write(self) });
        self.listing.store(Some(listed.clone()));
        listed
    }
}

/// A rendered definition.
pub struct RenderedDefinition {
    generation: u64,
    text: Box<RawValue>,
}

impl RenderedDefinition {
    /// An uncached definition, rendered for one list.
    pub fn once(text: Box<RawValue>) -> RenderedDefinition {
        RenderedDefinition { generation: 0, text }
    }

    pub fn text(&self) -> &RawValue {
        &self.text
    }
}
