//! A call: caller, target, arguments, context, and the decisions recorded about it.

use crate::context::CallCtx;
use crate::effect::{Effect, EffectSet};
use crate::gate::ResourceVisibility;
use crate::human_wait::HumanWait;
use crate::json;
use crate::owner::{OwnerId, Owners};
use crate::pattern::Pattern;
use crate::principal::{HubCall, Principal};
use crate::tool::{DefaultDecision, ToolDef};
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Identifies a call for the lifetime of the hub process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CallId(u64);

impl CallId {
    #[expect(clippy::new_without_default, reason = "a fresh id is not a default")]
    pub fn new() -> CallId {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        CallId(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    pub fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Where a call came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Origin {
    Client,
    Schedule,
    Script,
    Chat,
    /// An AI engine that runs inside the hub.
    Engine,
    Admin,
}

impl Origin {
    pub const ALL: [Origin; 6] =
        [Origin::Client, Origin::Schedule, Origin::Script, Origin::Chat, Origin::Engine, Origin::Admin];

    pub fn as_str(self) -> &'static str {
        match self {
            Origin::Client => "client",
            Origin::Schedule => "schedule",
            Origin::Script => "script",
            Origin::Chat => "chat",
            Origin::Engine => "engine",
            Origin::Admin => "admin",
        }
    }
}

impl Origin {
    pub fn parse(name: &str) -> Option<Origin> {
        Origin::ALL.into_iter().find(|origin| origin.as_str() == name)
    }
}

/// A set of origins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OriginSet(u8);

impl OriginSet {
    pub const NONE: OriginSet = OriginSet(0);

    #[must_use]
    pub fn with(self, origin: Origin) -> OriginSet {
        OriginSet(self.0 | 1 << origin as u8)
    }

    pub fn contains(self, origin: Origin) -> bool {
        self.0 & 1 << origin as u8 != 0
    }

    pub fn iter(self) -> impl Iterator<Item = Origin> {
        Origin::ALL.into_iter().filter(move |origin| self.contains(*origin))
    }
}

/// The upper bound on what a client may do, independent of the policy rules.
#[derive(Debug, Clone)]
pub struct Scope {
    pub allow: Pattern,
    /// Exceptions from `allow`.
    pub deny: Option<Pattern>,
    pub effects: EffectSet,
    pub view: ToolView,
    /// The scope of the owner, for a principal that acts with less. Both must allow a call.
    pub owner: Option<Arc<Scope>>,
}

/// How a client discovers the tools of upstream servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ToolView {
    /// Listed like native tools.
    #[default]
    All,
    /// Found by search, so that a long list does not fill the model's context.
    Search,
}

impl ToolView {
    pub fn as_str(self) -> &'static str {
        match self {
            ToolView::All => "all",
            ToolView::Search => "search",
        }
    }
}

impl Scope {
    pub fn everything() -> Scope {
        let (allow, effects) = (Pattern::any(), EffectSet::ALL);
        Scope { allow, deny: None, effects, view: ToolView::All, owner: None }
    }

    /// Returns what both this scope and that of an owner allow, with the owner's view of tools.
    #[must_use]
    pub fn within(self, owner: &Scope) -> Scope {
        let (effects, view) = (self.effects.intersection(owner.effects), owner.view);
        // A scope that is narrowed twice is within both.
        let owner = match self.owner {
            None => owner.clone(),
            Some(own) => Scope::clone(&own).within(owner),
        };
        Scope { effects, view, owner: Some(Arc::new(owner)), ..self }
    }

    /// Returns whether the scope is unrestricted.
    pub fn is_everything(&self) -> bool {
        self.effects == EffectSet::ALL
            && self.allow.is_any()
            && self.deny.is_none()
            && self.owner.as_ref().is_none_or(|owner| owner.is_everything())
    }

    pub fn covers(&self, name: &str, effect: Effect) -> bool {
        self.effects.contains(effect) && self.names(name)
    }

    /// Returns whether the scope includes a name, for any effect.
    pub fn names(&self, name: &str) -> bool {
        self.allow.matches(name)
            && !self.denies(name)
            && self.owner.as_ref().is_none_or(|owner| owner.names(name))
    }

    /// Returns whether `deny` matches a name. A deny overrides every allow.
    pub fn denies(&self, name: &str) -> bool {
        self.deny.as_ref().is_some_and(|deny| deny.matches(name))
            || self.owner.as_ref().is_some_and(|owner| owner.denies(name))
    }
}

/// An authenticated client.
#[derive(Debug, Clone)]
pub struct Client {
    pub name: String,
    pub scope: Scope,
    /// Part of its token's digest. A name that was revoked and issued again belongs to a different principal. `None` for a
    /// client without a token.
    pub token: Option<u64>,
}

impl Client {
    /// Returns whether both are the same principal, not just the same name.
    pub fn is(&self, other: &Client) -> bool {
        self.name == other.name && self.token == other.token
    }
}

/// The principal and the origin of a call.
#[derive(Debug, Clone)]
pub struct Caller {
    pub client: Arc<Client>,
    pub origin: Origin,
    /// The origins of the calls that this one is nested in, as `schedule` for a tool call of a script that a schedule runs.
    pub ancestors: OriginSet,
}

impl Caller {
    /// A caller whose call is nested in no other.
    pub fn new(client: Arc<Client>, origin: Origin) -> Caller {
        Caller { client, origin, ancestors: OriginSet::NONE }
    }

    /// Returns whether the call has this origin, or is nested in one that the hub itself made with it. That a client asked is
    /// no ancestor: rules tell what a client does itself from what it does by an approved script.
    pub fn comes_from(&self, origin: Origin) -> bool {
        self.origin == origin || (origin != Origin::Client && self.ancestors.contains(origin))
    }
}

/// What a completion is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CompletionRef {
    Prompt(String),
    Template(String),
}

/// The request about a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskOperation {
    Get,
    /// Send the input that the task requested.
    Update,
    Cancel,
}

impl TaskOperation {
    /// Returns the JSON-RPC method.
    pub fn method(self) -> &'static str {
        match self {
            TaskOperation::Get => "tasks/get",
            TaskOperation::Update => "tasks/update",
            TaskOperation::Cancel => "tasks/cancel",
        }
    }
}

/// A task that an upstream server made of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignTask {
    /// The id that the client uses.
    pub id: String,
    /// The id that the upstream server uses.
    pub own: String,
    pub server: String,
    /// The tool that was called.
    pub tool: String,
}

impl ForeignTask {
    /// Bound on a task id, which an upstream server chooses freely.
    pub const NAME_BYTES_MAX: usize = 1024;
}

/// The target of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    Tool(String),
    Resource(String),
    Prompt(String),
    Completion(CompletionRef),
    /// The continuation of a tool call that became a task. It inherits the decision about that call.
    Task(TaskOperation, Arc<ForeignTask>),
}

impl Target {
    /// Returns the kind, as metrics and the audit record show it.
    pub fn kind(&self) -> &'static str {
        match self {
            Target::Tool(_) => "tool",
            Target::Resource(_) => "resource",
            Target::Prompt(_) => "prompt",
            Target::Completion(_) => "completion",
            Target::Task(..) => "task",
        }
    }

    /// Returns the name that rules and lists match. For a task, rules match its tool instead.
    pub fn name(&self) -> &str {
        match self {
            Target::Tool(name) | Target::Resource(name) | Target::Prompt(name) => name,
            Target::Completion(CompletionRef::Prompt(name) | CompletionRef::Template(name)) => name,
            Target::Task(_, task) => &task.id,
        }
    }
}

/// The arguments of a call: the raw bytes, and their parsed value.
///
/// All readers see the same value: duplicate keys, which parsers resolve differently, are rejected before a tool runs.
#[derive(Debug, Clone)]
pub struct Arguments {
    /// `Arc<Box<_>>`, because an `Arc` of the text itself would copy it.
    raw: Arc<Box<RawValue>>,
    value: Arc<OnceLock<Result<Value, String>>>,
    too_long: Option<OversizedArguments>,
}

/// The size and digest of arguments over their tool's limit. The layers refuse them like other invalid arguments; the
/// bytes are not buffered until then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OversizedArguments {
    pub bytes: usize,
    pub bytes_max: usize,
    digest: [u8; 32],
}

impl Arguments {
    pub fn new(raw: Box<RawValue>) -> Arguments {
        Arguments { raw: Arc::new(raw), value: Arc::default(), too_long: None }
    }

    /// Copies the arguments if they have at most `bytes_max` bytes.
    pub fn at_most(bytes_max: usize, raw: &RawValue) -> Arguments {
        let bytes = raw.get().len();
        if bytes <= bytes_max {
            return Arguments::new(raw.to_owned());
        }
        let digest = Sha256::digest(raw.get().as_bytes()).into();
        let unreadable = Err(format!("they have {bytes} bytes, at most {bytes_max} are allowed"));
        Arguments {
            value: Arc::new(OnceLock::from(unreadable)),
            too_long: Some(OversizedArguments { bytes, bytes_max, digest }),
            ..Arguments::empty()
        }
    }

    /// Returns the arguments `{}`.
    pub fn empty() -> Arguments {
        Arguments::of(&Value::Object(serde_json::Map::new()))
    }

    #[expect(clippy::expect_used, reason = "a `Value` has only string keys and finite numbers")]
    pub fn of(value: &Value) -> Arguments {
        Arguments::new(serde_json::value::to_raw_value(value).expect("every JSON value can be written"))
    }

    pub fn raw(&self) -> &RawValue {
        &self.raw
    }

    /// Returns the size of arguments that were dropped because they exceed the limit.
    pub fn too_long(&self) -> Option<OversizedArguments> {
        self.too_long
    }

    /// Returns the parsed value, or the parse error.
    pub fn value(&self) -> Result<&Value, &str> {
        let parsed = self.value.get_or_init(|| json::parse_strict(self.raw.get()).map_err(|e| e.to_string()));
        parsed.as_ref().map_err(String::as_str)
    }

    /// Returns the parsed value without a copy, if no other clone is alive.
    pub fn into_value(self) -> Result<Value, String> {
        let _ = self.value();
        let parsed = match Arc::try_unwrap(self.value) {
            Ok(own) => own.into_inner(),
            Err(shared) => shared.get().cloned(),
        };
        parsed.unwrap_or_else(|| Err("they were not parsed".to_owned()))
    }
}

/// The policy decision about a call, with the rule that made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    Allow { rule: String },
    Ask { rule: String },
    Deny { rule: String },
}

impl Decision {
    pub fn as_str(&self) -> &'static str {
        match self {
            Decision::Allow { .. } => "allow",
            Decision::Ask { .. } => "ask",
            Decision::Deny { .. } => "deny",
        }
    }

    pub fn rule(&self) -> &str {
        match self {
            Decision::Allow { rule } | Decision::Ask { rule } | Decision::Deny { rule } => rule,
        }
    }
}

/// What inner layers report to outer ones.
#[derive(Debug, Default)]
pub struct Trail {
    pub decision: OnceLock<Decision>,
    /// The approval that allowed the call, and who gave it.
    pub approval: OnceLock<String>,
    pub waits: HumanWait,
    /// How many secrets were redacted from the response.
    pub masked: AtomicUsize,
    /// Whether the caller exceeded its budget of look-alikes of weak secrets (see `guard::redact::guesses`).
    pub guessing: AtomicBool,
    /// The parent call, for a call that a script makes.
    pub within: Option<CallId>,
    /// The number of ancestors.
    pub depth: usize,
    /// Set for a call that the hub makes itself. A call of a client acts for that client.
    pub(crate) principal: OnceLock<Box<Principal>>,
}

impl Trail {
    /// Returns what acts for the owner, for a call that the hub makes itself.
    pub fn via(&self) -> Option<&str> {
        self.principal.get()?.via()
    }

    /// Returns on whose behalf the call is made, which has this client.
    pub(crate) fn principal_of(&self, client: &Client) -> Principal {
        self.principal
            .get()
            .map_or_else(|| Principal::of(OwnerId::of(client)), |principal| (**principal).clone())
    }
}

/// One call, passed through the layers of the gate.
#[derive(Clone)]
pub struct Call {
    pub id: CallId,
    /// Not public: only [`crate::Gate::call_as`] makes calls that do not come from a client.
    pub(crate) caller: Caller,
    pub target: Target,
    pub arguments: Arguments,
    pub ctx: CallCtx,
    pub trail: Arc<Trail>,
    /// Looked up once by the gate; `None` for an unregistered name.
    pub(crate) tool: Option<Arc<ToolDef>>,
    /// Whether a provider owns the target. For a tool and its tasks the same as `tool.is_some()`.
    pub(crate) known: bool,
    /// The decision if no rule matches, for targets that are not tools.
    pub(crate) default_decision: DefaultDecision,
    /// What the caller may see, for providers that filter completions.
    pub(crate) visibility: Option<ResourceVisibility>,
    /// Request members unknown to the hub, forwarded to an upstream server.
    pub passed: PassthroughParams,
}

/// Request members to forward, each string the inside of a JSON object.
#[derive(Debug, Clone, Default)]
pub struct PassthroughParams {
    /// Of `params`, without the members that the hub handles.
    pub params: String,
    /// Of `params._meta`, likewise.
    pub meta: String,
}

impl Call {
    /// A call of a client. Other calls are made by [`crate::Gate::call_as`].
    pub fn new(client: Arc<Client>, target: Target, arguments: Arguments, ctx: CallCtx) -> Call {
        let caller = Caller::new(client, Origin::Client);
        Call {
            id: CallId::new(),
            caller,
            target,
            arguments,
            ctx,
            trail: Arc::default(),
            tool: None,
            known: false,
            default_decision: DefaultDecision::default(),
            visibility: None,
            passed: PassthroughParams::default(),
        }
    }

    /// A call that the hub makes itself.
    pub(crate) fn by(principal: &Principal, client: Arc<Client>, origin: Origin, call: HubCall) -> Call {
        let HubCall { id, target, arguments, ctx, trail, outer } = call;
        // The trail is new with the call, and only this sets it.
        let _ = trail.principal.set(Box::new(principal.clone()));
        let call = Call::new(client, target, arguments, ctx);
        let ancestors = outer.map_or(OriginSet::NONE, |outer| outer.ancestors.with(outer.origin));
        let caller = Caller { origin, ancestors, ..call.caller };
        Call { id, caller, trail, ..call }
    }

    /// Returns the caller with the scope that it has now, which may differ from that at the start of the call; `None` if
    /// the client is gone. For a decision long after the first.
    pub fn current_caller(&self, owners: &dyn Owners) -> Option<Caller> {
        let client = self.trail.principal_of(&self.caller.client).resolve(owners)?;
        Some(Caller { client, ..self.caller.clone() })
    }

    /// Returns who calls.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Returns the tool's definition, if the target is a known tool or a task of one.
    pub fn tool(&self) -> Option<&Arc<ToolDef>> {
        self.tool.as_ref()
    }

    /// Returns whether a provider owns the target.
    pub fn is_known(&self) -> bool {
        self.known
    }

    /// Returns the effect of the call: the declared one for a tool, `Read` for resources, prompts and completions. Input for
    /// a task continues its tool, so it has the tool's effect; polling and cancelling a task start nothing.
    pub fn effect(&self) -> Effect {
        match &self.target {
            // An unknown tool is treated as the worst case.
            Target::Tool(_) | Target::Task(TaskOperation::Update, _) => {
                self.tool.as_ref().map_or(Effect::Destroy, |tool| tool.effect)
            }
            Target::Resource(_) | Target::Prompt(_) | Target::Completion(_) => Effect::Read,
            Target::Task(TaskOperation::Get | TaskOperation::Cancel, _) => Effect::Read,
        }
    }

    /// Returns a digest of caller, target and arguments.
    pub fn digest(&self) -> [u8; 32] {
        digest_of(&self.caller, &self.target, &self.arguments)
    }
}

/// Returns the [`Call::digest`] of a future call. Includes the token, so that a later holder of the same client name gets
/// a different digest.
pub fn digest_of(caller: &Caller, target: &Target, arguments: &Arguments) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in [caller.client.name.as_str(), target.kind(), target.name()] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    if let Some(token) = caller.client.token {
        let token = token.to_le_bytes();
        hash.update((token.len() as u64).to_le_bytes());
        hash.update(token);
    }
    match &arguments.too_long {
        None => hash.update(arguments.raw().get().as_bytes()),
        Some(OversizedArguments { digest, .. }) => hash.update(digest),
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_another_token_is_somebody_else() {
        let digest = |name: &str, token: Option<u64>| {
            let client = Client { name: name.to_owned(), scope: Scope::everything(), token };
            let caller = Caller::new(Arc::new(client), Origin::Client);
            digest_of(&caller, &Target::Tool("stub_read".to_owned()), &Arguments::empty())
        };
        assert_eq!(digest("ada", Some(1)), digest("ada", Some(1)));
        for other in [digest("ada", Some(2)), digest("ada", None), digest("bob", Some(1))] {
            assert_ne!(digest("ada", Some(1)), other);
        }
    }
}
