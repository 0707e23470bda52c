//! MCP client side: upstream servers behind the gate.
//!
//! Each configured server is an [`Upstream`], a provider like any native family. Results are passed on as they came;
//! definitions are sanitised before anyone sees them. Nothing here decides whether a call may run: the gate did. But a
//! definition that no administrator has trusted is not offered to the gate.
//!
//! Code map. A folder imports only folders below it, and no two modules of a folder import each other; `layers_tests.rs` checks both.
//!
//! | folder | job |
//! |---|---|
//! | `provider` | [`Upstream`]: a configured server as a provider, shared or one for each client |
//! | `supervise` | start, connect, backoff, health, leases, idle stop, per-client servers |
//! | `subscribe` | resource subscriptions, in the way of either era |
//! | `call` | one call: request, input rounds, tasks, suspended calls |
//! | `catalog` | lists, change detection, cache, names, what clients see |
//! | `spec`, `status` | configuration and status of one server |
//! | `trust` | pins, quarantine, identity of a server |
//! | `rpc` | handshake, demultiplexer, pending requests, outbound queue |
//! | `oauth` | logins and tokens for servers over HTTP |
//! | `transport` | child process over stdio, streamable HTTP, legacy HTTP+SSE |
//! | `sanitize`, `backoff`, `shutdown`, `program_digests` | used by all |

mod backoff;
mod call;
mod catalog;
mod oauth;
mod program_digests;
mod provider;
mod rpc;
mod sanitize;
mod shutdown;
mod spec;
mod status;
mod subscribe;
mod supervise;
mod tool_rules;
mod transport;
mod trust;

pub use catalog::{pinned_names, pinned_tools};
pub use oauth::{
    ClientKind, ClientSecret, Login, LoginLock, LoginMetadata, LoginPrompt, LoginStore, LogoutReport, OAuth,
    OAuthError, OAuthSpec, TokenMethod, TokenRevocation,
};
pub use program_digests::ProgramDigests;
pub use provider::Upstream;
pub use shutdown::Shutdown;
pub use spec::{PerClient, ServerSpec, StartPolicy, labels_of, lists};
pub use status::{ClientStatus, ServerStatus, StartPhase, StartProgress, StatusKind};
pub use tool_rules::ToolRules;
pub use transport::ancestry::is_server_descendant;
pub use transport::environ_mark::HubMark;
pub use transport::guardian::{Processes, run_guardian};
pub use transport::stdio::USUAL_PLACES;
pub use transport::{
    ConnectionLifecycle, DiagnosticTail, Inbound, LinkError, OutboundMessage, OversizedResponse, Receipt,
    RequestError, ServerInstanceId, ServerTransport, TransportHint, TransportLink, TransportParts,
};
pub use transport::{
    Credentials, CredentialsError, HeaderSpec, HttpSpec, ProgramLookup, StdioSpec, ValueResolver, WorkingDir,
};
pub use trust::{QuarantinedItem, Trust};

#[cfg(test)]
mod layers_tests;
