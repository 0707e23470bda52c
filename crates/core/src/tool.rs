//! What a tool is, apart from the function that runs.

use crate::call::ToolView;
use crate::effect::{Effect, Hints, Reach};
use crate::label::Labels;
use crate::registry::Definition;
use arc_swap::ArcSwapOption;
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// What one call of a tool may use at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub deadline_ms: u64,
    /// How long the text of the arguments may be, where that is less than what one message may be.
    pub input_bytes_max: usize,
    pub output_bytes_max: usize,
}

impl Limits {
    /// Enough for local work; small enough that a stuck call is noticed.
    pub const DEFAULT: Limits =
        Limits { deadline_ms: 30_000, input_bytes_max: usize::MAX, output_bytes_max: 10 * 1024 * 1024 };

    /// What no call goes beyond where the configuration says nothing else.
    pub const CEILING: Limits = Limits { deadline_ms: 300_000, ..Limits::DEFAULT };

    /// Returns the smaller of both, bound by bound.
    pub fn at_most(self, ceiling: Limits) -> Limits {
        Limits {
            deadline_ms: self.deadline_ms.min(ceiling.deadline_ms),
            input_bytes_max: self.input_bytes_max.min(ceiling.input_bytes_max),
            output_bytes_max: self.output_bytes_max.min(ceiling.output_bytes_max),
        }
    }

    pub fn deadline(self) -> Duration {
        Duration::from_millis(self.deadline_ms)
    }
}

/// A call that works, as documentation and as a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Example {
    /// What the call is for, in a few words.
    pub what: &'static str,
    /// The arguments, as a JSON object.
    pub arguments: &'static str,
}

/// A native tool as its author states it.
#[derive(Debug, Clone, Copy)]
pub struct ToolSpec {
    /// `family_verb`.
    pub name: &'static str,
    pub title: &'static str,
    /// Written for a model: what it does, when to use it, what it returns.
    pub description: &'static str,
    pub effect: Effect,
    pub reach: Reach,
    pub limits: Limits,
    pub example: Example,
}

/// How a family tells a failure to the model.
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

/// Whether a tool may run as a task that the client polls, where the client offers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TaskSupport {
    #[default]
    Never,
    Optional,
    /// The tool takes so long that it runs as a task only.
    Required,
    /// As `Required`, but what the tool asks of the client it asks before the task begins.
    RequiredAfterQuestions,
}

/// Whether arguments fit a schema. Compiled once per definition by the layer that validates.
pub trait ArgumentCheck: Send + Sync {
    /// Returns every way in which the arguments do not fit, or why that is not looked at.
    fn check(&self, arguments: &Value) -> Result<(), Unchecked>;
}

/// Why arguments are not known to fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unchecked {
    /// They do not, in these ways.
    Misfits(Vec<String>),
    /// Comparing them is beyond the step budget.
    TooCostly(String),
}

/// What is decided about a tool where no rule speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Unruled {
    /// By what it does to the world, as its author states it.
    #[default]
    ByEffect,
    /// What it runs was looked at and approved by a person beforehand.
    Reviewed,
    /// By what a person said of all tools of its server.
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
    /// What clients are told that it does, where the rules go by something else.
    hints: Option<Hints>,
    /// What it has to do with data.
    pub labels: Labels,
    pub limits: Limits,
    pub error_style: ErrorStyle,
    pub tasks: TaskSupport,
    pub input_schema: Value,
    pub output_schema: Option<Value>,
    pub example: Option<Example>,
    pub unruled: Unruled,
    /// The only clients that know of it, where not all do.
    pub view: Option<ToolView>,
    /// The server that the tool is of, where it is no native one.
    pub server: Option<String>,
    /// The name that it would have if that were not another's. Whatever is said against that name counts for it too: no
    /// server gets another's tool out from under a rule by taking its name.
    pub instead_of: Option<String>,
    pub definition: Option<Definition>,
    /// What a person has to do before it can be called. Such a tool is never listed; its name is only known so that
    /// whoever may call it learns why it cannot be.
    pub withheld: Option<String>,
    check: OnceLock<Result<Box<dyn ArgumentCheck>, String>>,
    listing: ArcSwapOption<Listed>,
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
            unruled: Unruled::default(),
            view: None,
            server: None,
            instead_of: None,
            definition: None,
            withheld: None,
            check: OnceLock::new(),
            listing: ArcSwapOption::empty(),
            digest: OnceLock::new(),
        }
    }

    /// Makes a tool of another server's. Its annotations are its own words: what it does is said by `effect`.
    #[expect(clippy::too_many_arguments, reason = "each is one part of what a tool is")]
    pub fn foreign(
        server: String,
        name: String,
        title: String,
        description: String,
        effect: Effect,
        reach: Reach,
        limits: Limits,
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
            unruled: Unruled::default(),
            view: None,
            server: Some(server),
            instead_of: None,
            definition: Some(definition),
            withheld: None,
            check: OnceLock::new(),
            listing: ArcSwapOption::empty(),
            digest: OnceLock::new(),
        }
    }

    /// Says what is decided where no rule speaks.
    #[must_use]
    pub fn unruled(mut self, unruled: Unruled) -> ToolDef {
        self.unruled = unruled;
        self
    }

    /// Says what it has to do with data.
    #[must_use]
    pub fn labelled(mut self, labels: Labels) -> ToolDef {
        self.labels = labels;
        self
    }

    /// Says that only clients with this view know of the tool. It is in the scope of each of them.
    #[must_use]
    pub fn seen_by(mut self, view: ToolView) -> ToolDef {
        self.view = Some(view);
        self
    }

    /// Says that clients are told more of the tool than it does itself: what is reached by it is judged under its own name,
    /// but a client that lets harmless tools run by themselves sees only this one.
    #[must_use]
    pub fn told_as(mut self, effect: Effect, reach: Reach) -> ToolDef {
        self.hints = Some(effect.hints(reach));
        self
    }

    /// Returns the hints for a model.
    pub fn hints(&self) -> Hints {
        self.hints.unwrap_or_else(|| self.effect.hints(self.reach))
    }

    /// Returns whether a client with this view knows of the tool at all.
    pub fn is_for(&self, view: ToolView) -> bool {
        self.view.is_none_or(|only| only == view)
    }

    /// Makes a tool that waits for a person. Nothing that its server says of it is kept: nobody has looked at that.
    pub fn waiting(
        server: String,
        name: String,
        effect: Effect,
        reach: Reach,
        unruled: Unruled,
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
            Limits::DEFAULT,
            any,
            None,
            nothing,
        );
        ToolDef { withheld: Some(hint), definition: None, ..def.unruled(unruled) }
    }

    /// Returns the compiled schema, compiling it at the first use.
    pub fn check_with(
        &self,
        compile: impl FnOnce(&Value) -> Result<Box<dyn ArgumentCheck>, String>,
    ) -> Result<&dyn ArgumentCheck, &str> {
        let compiled = self.check.get_or_init(|| compile(&self.input_schema));
        compiled.as_deref().map_err(String::as_str)
    }

    /// Returns a digest of everything that a person or a model goes by when they decide to use the tool.
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

    /// Returns the definition as the wire writes it, written at the first use and again for every other generation
    /// of what must not be told.
    pub fn listing_with(
        &self,
        generation: u64,
        write: impl FnOnce(&ToolDef) -> Box<RawValue>,
    ) -> Arc<Listed> {
        if let Some(listed) = self.listing.load_full().filter(|listed| listed.generation == generation) {
            return listed;
        }
        let listed = Arc::new(Listed { generation, text: write(self) });
        self.listing.store(Some(listed.clone()));
        listed
    }
}

/// A definition as it is listed.
pub struct Listed {
    generation: u64,
    text: Box<RawValue>,
}

impl Listed {
    /// A definition that is written for one list only.
    pub fn once(text: Box<RawValue>) -> Listed {
        Listed { generation: 0, text }
    }

    pub fn text(&self) -> &RawValue {
        &self.text
    }
}
