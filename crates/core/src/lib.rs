//! The domain types of Portcullis.
//!
//! A [`Call`] passes the layers of a [`Gate`] to a [`Provider`]. This crate knows nothing of MCP, HTTP or configuration,
//! and none of its types is `Serialize`: each wire format, configuration file and audit record defines its own shape. The
//! only I/O here is [`Root`], the access to files.

mod backoff;
mod blocking;
mod call;
mod client_bridge;
mod clock;
mod context;
mod counted;
pub mod durable_dir;
mod effect;
mod error;
mod event;
mod family;
mod gate;
pub mod hidden_chars;
mod human_wait;
pub mod json;
mod label;
mod limit;
mod output;
mod owner;
mod pattern;
mod principal;
mod registry;
pub mod root;
pub mod schema;
mod scrub;
mod secret;
mod service;
mod tool;
mod write_coalescing;

pub use backoff::jittered;
pub use blocking::{blocking, detach_blocking, run_blocking};
pub use call::{
    Arguments, Call, CallId, Caller, Client, CompletionRef, Decision, ForeignTask, Origin, OriginSet,
    PassthroughParams, Scope, Target, TaskOperation, ToolView, Trail, digest_of,
};
pub use client_bridge::{ClientBridge, ConnectedClients};
pub use clock::{Clock, SystemClock};
pub use context::{
    CallCtx, InputRefusal, InputRequest, InputRequestKind, InputResponse, InputResponses, KeyedInputRequest,
    LogLevel, LogMessage, NoPeer, OWN_KEYS, Peer, Progress, SessionDigest,
};
pub use counted::counted;
pub use effect::{Effect, EffectSet, Reach, ToolAnnotations};
pub use error::{ClientCapability, ErrorKind, ErrorOrigin, ForeignError, InputRequired, ToolError};
pub use event::Event;
pub use family::{
    CompletionArgument, Family, FileContents, IntoToolOutput, Json, PromptSource, ResourceSource,
    SummaryWithData, Text, schema_of,
};
pub use gate::{
    Gate, Layer, Next, Permit, PolicySubject, ResourceVisibility, VisibilityFilter, WatchRefusal,
};
pub use human_wait::{HumanWait, HumanWaitGuard};
pub use label::{Label, Labels};
pub use limit::Limit;
pub use output::{
    Completion, Content, ContentBody, Output, PromptMessage, PromptOutput, ResourceBody, ResourceContents,
    Role, ToolOutput, value_size,
};
pub use owner::{NoOwners, OwnerId, Owners};
pub use pattern::{Pattern, PatternError};
pub use principal::{GateHandle, HubCall, Principal};
pub use registry::{
    Affected, Catalog, CatalogChange, ChangeNotifier, Definition, List, NAME_CHARS_MAX, NAME_HASH_CHARS,
    NameConflict, NameReservation, PromptArgument, PromptDef, Provider, Registry, RegistryError,
    ResourceClaim, ResourceDef, ResourceSubscription, TemplateDef, WatchState, fallback_name,
};
pub use root::Root;
pub use scrub::{INLINE_SCRUB_BYTES_MAX, Scrub, scrub_off_worker};
pub use secret::Secret;
pub use service::{Health, Service, ServiceCtx, ServiceError};
pub use tool::{
    ArgumentCheck, ArgumentRejection, CallLimits, DefaultDecision, ErrorStyle, Example, RenderedDefinition,
    TaskSupport, ToolDef, ToolSpec,
};
pub use write_coalescing::{TOGETHER_BYTES_MAX, coalesce};

/// The outcome of a call.
pub type Outcome = Result<Output, ToolError>;

/// The outcome of a native tool.
pub type ToolResult = Result<ToolOutput, ToolError>;

/// A boxed future that can move between threads.
pub use futures::future::BoxFuture;
