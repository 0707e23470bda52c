//! The vocabulary of Portcullis.
//!
//! A [`Call`] travels through the layers of a [`Gate`] to a [`Provider`]. This crate knows nothing of
//! MCP, HTTP or configuration, and none of its types is `Serialize`: whoever writes a wire format, a
//! configuration file or an audit record owns the shape of it. The only code here that touches the
//! outside is [`Root`], the one door to files.

mod audience;
mod call;
mod clock;
mod context;
mod effect;
mod error;
mod event;
mod family;
pub mod folder;
mod gate;
pub mod json;
mod label;
mod limit;
mod output;
mod parts;
mod pattern;
mod registry;
pub mod root;
pub mod schema;
mod scrub;
mod secret;
pub mod text;
mod tool;
mod waits;

pub use audience::{Audience, Clients};
pub use call::{
    Arguments, Call, CallId, Caller, Client, CompletionOf, Decision, ForeignTask, Origin, Passed, Scope,
    Target, TaskAsk, ToolView, Trail, digest_of,
};
pub use clock::{Clock, SystemClock};
pub use context::{
    Answer, Answers, Ask, AskKind, AskRefused, CallCtx, LogLevel, LogMessage, NoPeer, OWN_KEYS, Peer,
    Progress, Question,
};
pub use effect::{Effect, EffectSet, Hints, Reach};
pub use error::{Capability, ErrorKind, Fault, ForeignError, InputRequired, ToolError};
pub use event::Event;
pub use family::{
    ArgumentInProgress, Family, Json, PromptSource, Reply, ResourceSource, Said, Text, schema_of,
};
pub use gate::{Gate, Layer, Listing, Next, Permit, Shows, Sight, WatchRefusal};
pub use label::{Label, Labels};
pub use limit::Limit;
pub use output::{
    Completion, Content, ContentBody, Output, PromptMessage, PromptOutput, ResourceBody, ResourceContents,
    Role, ToolOutput, value_size,
};
pub use parts::{TOGETHER_BYTES_MAX, together};
pub use pattern::{Pattern, PatternError};
pub use registry::{
    Affected, Catalog, Change, Changes, Definition, Expected, List, NAME_CHARS_MAX, NAME_HASH_CHARS, Owns,
    PromptArgument, PromptDef, Provider, Registry, RegistryError, ResourceDef, Taken, TemplateDef, Watch,
    second_name,
};
pub use root::Root;
pub use scrub::{INLINE_SCRUB_BYTES_MAX, Scrub, scrub_off_worker};
pub use secret::Secret;
pub use tool::{
    ArgumentCheck, ErrorStyle, Example, Limits, Listed, TaskSupport, ToolDef, ToolSpec, Unchecked, Unruled,
};
pub use waits::{Waiting, Waits};

/// What a call ends in.
pub type Outcome = Result<Output, ToolError>;

/// What a native tool returns.
pub type ToolResult = Result<ToolOutput, ToolError>;

/// A boxed future that can move between threads.
pub use futures::future::BoxFuture;
