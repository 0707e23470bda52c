//! A call on its way: who asks for what, with which arguments.

use crate::context::CallCtx;
use crate::effect::{Effect, EffectSet};
use crate::gate::Sight;
use crate::json;
use crate::pattern::Pattern;
use crate::tool::{ToolDef, Unruled};
use crate::waits::Waits;
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Names one call within the life of a hub.
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

/// By which way a call came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Origin {
    Client,
    Schedule,
    Script,
    Chat,
    Admin,
}

impl Origin {
    pub const ALL: [Origin; 5] =
        [Origin::Client, Origin::Schedule, Origin::Script, Origin::Chat, Origin::Admin];

    pub fn as_str(self) -> &'static str {
        match self {
            Origin::Client => "client",
            Origin::Schedule => "schedule",
            Origin::Script => "script",
            Origin::Chat => "chat",
            Origin::Admin => "admin",
        }
    }
}

/// What a client may do at most, whatever the rules say.
#[derive(Debug, Clone)]
pub struct Scope {
    pub allow: Pattern,
    /// What of it is left out.
    pub deny: Option<Pattern>,
    pub effects: EffectSet,
    pub view: ToolView,
}

/// How a client gets to know the tools of other servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ToolView {
    /// They are listed like all others.
    #[default]
    All,
    /// They are found by searching, so that a long list does not fill the model's memory.
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
        Scope { allow: Pattern::any(), deny: None, effects: EffectSet::ALL, view: ToolView::All }
    }

    /// Returns whether nothing is out of this scope.
    pub fn is_everything(&self) -> bool {
        self.effects == EffectSet::ALL && self.allow.is_any() && self.deny.is_none()
    }

    pub fn covers(&self, name: &str, effect: Effect) -> bool {
        self.effects.contains(effect) && self.names(name)
    }

    /// Returns whether a name is in the scope, whatever is done by it.
    pub fn names(&self, name: &str) -> bool {
        self.allow.matches(name) && !self.denies(name)
    }

    /// Returns whether a name is left out by name, so that nothing brings it back.
    pub fn denies(&self, name: &str) -> bool {
        self.deny.as_ref().is_some_and(|deny| deny.matches(name))
    }
}

/// A known client, as the identity check found it.
#[derive(Debug, Clone)]
pub struct Client {
    pub name: String,
    pub scope: Scope,
    /// Part of its token's digest: after a name was taken back and given again it is somebody else's. `None` for one that
    /// shows no token.
    pub token: Option<u64>,
}

impl Client {
    /// Returns whether both are the same holder of a name.
    pub fn is(&self, other: &Client) -> bool {
        self.name == other.name && self.token == other.token
    }
}

/// Who makes a call.
#[derive(Debug, Clone)]
pub struct Caller {
    pub client: Arc<Client>,
    pub origin: Origin,
}

/// What a completion completes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CompletionOf {
    Prompt(String),
    Template(String),
}

/// What is wanted of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskAsk {
    Get,
    /// Answer what it asked.
    Update,
    Cancel,
}

impl TaskAsk {
    /// Returns the method that asks so.
    pub fn method(self) -> &'static str {
        match self {
            TaskAsk::Get => "tasks/get",
            TaskAsk::Update => "tasks/update",
            TaskAsk::Cancel => "tasks/cancel",
        }
    }
}

/// A task that another server has made of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignTask {
    /// As the client knows it.
    pub id: String,
    /// As its server does.
    pub own: String,
    pub server: String,
    /// The tool that was called.
    pub tool: String,
}

impl ForeignTask {
    /// How long the name of a task may be. Others make up what a name is.
    pub const NAME_BYTES_MAX: usize = 1024;
}

/// What a call is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    Tool(String),
    Resource(String),
    Prompt(String),
    Completion(CompletionOf),
    /// What a call has become that ended without its result. It counts as that call, which was decided about already.
    Task(TaskAsk, Arc<ForeignTask>),
}

impl Target {
    /// Returns the word for this kind of target, as metrics and audit show it.
    pub fn kind(&self) -> &'static str {
        match self {
            Target::Tool(_) => "tool",
            Target::Resource(_) => "resource",
            Target::Prompt(_) => "prompt",
            Target::Completion(_) => "completion",
            Target::Task(..) => "task",
        }
    }

    /// Returns the name that rules and lists match against. Those about a task match against its tool instead.
    pub fn name(&self) -> &str {
        match self {
            Target::Tool(name) | Target::Resource(name) | Target::Prompt(name) => name,
            Target::Completion(CompletionOf::Prompt(name) | CompletionOf::Template(name)) => name,
            Target::Task(_, task) => &task.id,
        }
    }
}

/// The arguments of a call: the bytes as they came, and the value they mean.
///
/// What is read from the bytes is the same wherever it is read: repeated keys, which readers resolve differently,
/// are refused before a tool sees them.
#[derive(Debug, Clone)]
pub struct Arguments {
    /// Shared as it is: an `Arc` of the text itself would be another copy of it.
    raw: Arc<Box<RawValue>>,
    value: Arc<OnceLock<Result<Value, String>>>,
    too_long: Option<TooLong>,
}

/// What is known of arguments that are longer than their tool takes. They are refused on the road like any others that do
/// not fit, and until then nobody keeps them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLong {
    pub bytes: usize,
    pub bytes_max: usize,
    digest: [u8; 32],
}

impl Arguments {
    pub fn new(raw: Box<RawValue>) -> Arguments {
        Arguments { raw: Arc::new(raw), value: Arc::default(), too_long: None }
    }

    /// Copies the arguments, if they are no longer than that.
    pub fn at_most(bytes_max: usize, raw: &RawValue) -> Arguments {
        let bytes = raw.get().len();
        if bytes <= bytes_max {
            return Arguments::new(raw.to_owned());
        }
        let digest = Sha256::digest(raw.get().as_bytes()).into();
        let unreadable = Err(format!("they have {bytes} bytes, at most {bytes_max} are allowed"));
        Arguments {
            value: Arc::new(OnceLock::from(unreadable)),
            too_long: Some(TooLong { bytes, bytes_max, digest }),
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

    /// Says of arguments that nobody has how long they were.
    pub fn too_long(&self) -> Option<TooLong> {
        self.too_long
    }

    /// Returns the parsed value, or why the bytes are refused.
    pub fn value(&self) -> Result<&Value, &str> {
        let parsed = self.value.get_or_init(|| json::parse_strict(self.raw.get()).map_err(|e| e.to_string()));
        parsed.as_ref().map_err(String::as_str)
    }

    /// Returns the parsed value, and keeps nothing.
    pub fn into_value(self) -> Result<Value, String> {
        let _ = self.value();
        let parsed = match Arc::try_unwrap(self.value) {
            Ok(own) => own.into_inner(),
            Err(shared) => shared.get().cloned(),
        };
        parsed.unwrap_or_else(|| Err("they were not read".to_owned()))
    }
}

/// What was decided about a call, and by which rule.
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

/// What inner layers leave for outer ones to read afterwards.
#[derive(Debug, Default)]
pub struct Trail {
    pub decision: OnceLock<Decision>,
    /// Which approval let the call run, and whose it was.
    pub approval: OnceLock<String>,
    pub waits: Waits,
    /// How many secrets were masked in what the caller reads.
    pub masked: AtomicUsize,
    /// Whether the caller read more look-alikes of weak secrets than it may.
    pub guessing: AtomicBool,
    /// The call within which this one is made, if a script makes it.
    pub within: Option<CallId>,
    /// How many calls this one is within.
    pub depth: usize,
}

/// One call on the road.
#[derive(Clone)]
pub struct Call {
    pub id: CallId,
    pub caller: Caller,
    pub target: Target,
    pub arguments: Arguments,
    pub ctx: CallCtx,
    pub trail: Arc<Trail>,
    /// Found once by the gate; `None` for a name that nobody registered.
    pub(crate) tool: Option<Arc<ToolDef>>,
    /// Whether a provider answers for the target. For a tool, and a task of one, the same as `tool.is_some()`.
    pub(crate) known: bool,
    /// What is decided where no rule speaks, for what is not a tool.
    pub(crate) unruled: Unruled,
    /// What the caller may see, where a provider has to know: for completions.
    pub(crate) sight: Option<Sight>,
    /// What came with the request and means nothing to the hub: for a server that is passed the call.
    pub passed: Passed,
}

/// Parts of a request that are only passed on, as the inside of a JSON object each.
#[derive(Debug, Clone, Default)]
pub struct Passed {
    /// Of `params`, without what the hub understands.
    pub params: String,
    /// Of `params._meta`, likewise.
    pub meta: String,
}

impl Call {
    pub fn new(caller: Caller, target: Target, arguments: Arguments, ctx: CallCtx) -> Call {
        Call {
            id: CallId::new(),
            caller,
            target,
            arguments,
            ctx,
            trail: Arc::default(),
            tool: None,
            known: false,
            unruled: Unruled::default(),
            sight: None,
            passed: Passed::default(),
        }
    }

    /// Makes a call within this one, as a script does: for the same client, and with a road, a record and decisions of its
    /// own. While it waits for a person this call waits too.
    pub fn within(&self, target: Target, arguments: Arguments, ctx: CallCtx) -> Call {
        let caller = Caller { client: self.caller.client.clone(), origin: Origin::Script };
        let trail = Trail {
            waits: Waits::within(self.trail.clone()),
            within: Some(self.id),
            depth: self.trail.depth + 1,
            ..Trail::default()
        };
        Call { trail: Arc::new(trail), ..Call::new(caller, target, arguments, ctx) }
    }

    /// Returns the definition of the tool, where the target is a known tool or a task of one.
    pub fn tool(&self) -> Option<&Arc<ToolDef>> {
        self.tool.as_ref()
    }

    /// Returns whether anyone answers for the target.
    pub fn is_known(&self) -> bool {
        self.known
    }

    /// Returns what the call does: what a tool declares; a resource, a prompt and a completion are read. A task goes on with
    /// what its tool does when it is answered; to end it begins nothing.
    pub fn effect(&self) -> Effect {
        match &self.target {
            // A name that nobody knows is treated as the worst.
            Target::Tool(_) | Target::Task(TaskAsk::Update, _) => {
                self.tool.as_ref().map_or(Effect::Destroy, |tool| tool.effect)
            }
            Target::Resource(_) | Target::Prompt(_) | Target::Completion(_) => Effect::Read,
            Target::Task(TaskAsk::Get | TaskAsk::Cancel, _) => Effect::Read,
        }
    }

    /// Returns a digest of who asks for what with which arguments.
    pub fn digest(&self) -> [u8; 32] {
        digest_of(&self.caller, &self.target, &self.arguments)
    }
}

/// Returns what [`Call::digest`] will be for a call that is still to be made. Whoever had the name of the client before, with
/// another token, is somebody else.
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
        Some(TooLong { digest, .. }) => hash.update(digest),
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
            let caller = Caller { client: Arc::new(client), origin: Origin::Client };
            digest_of(&caller, &Target::Tool("stub_read".to_owned()), &Arguments::empty())
        };
        assert_eq!(digest("ada", Some(1)), digest("ada", Some(1)));
        for other in [digest("ada", Some(2)), digest("ada", None), digest("bob", Some(1))] {
            assert_ne!(digest("ada", Some(1)), other);
        }
    }
}
