//! Other MCP servers behind the same gate.
//!
//! Each configured server is one [`Upstream`]: a provider like any native family, with a task that connects it,
//! keeps it connected and says how it stands. What a server answers is passed on as it came; what it says of its
//! tools is made safe to show first. Nothing here decides whether a call may run: the gate did. But what no person
//! has looked at is not offered to the gate.

mod ancestry;
mod asides;
mod cancelled_calls;
mod catalog;
mod clean;
mod connection;
mod drive;
mod elicitation;
mod flaws;
mod greet;
mod guardian;
mod heard;
mod http;
mod inbox;
mod input;
mod link;
mod linked;
mod listen;
mod lists;
mod live;
mod names;
mod oauth;
mod outside;
mod own;
mod patience;
mod provider;
mod recall;
mod server;
mod shape;
mod slot;
mod spec;
mod status;
mod stdio;
mod subscribe;
mod supervise;
mod task;
mod template;
mod too_long;
mod trust;
mod uses;

pub use ancestry::is_behind;
pub use guardian::{HubMark, Processes, stand_by};
pub use oauth::{
    About, ClientKind, ClientSecret, Consent, Keep, LoggedOut, Login, OAuth, OAuthError, OAuthSpec,
    TokenMethod, Tokens, Turn,
};
pub use provider::Upstream;
pub use server::{pinned_names, pinned_tools};
pub use spec::{
    Folder, HeaderSpec, HttpSpec, PerClient, Program, ServerSpec, Start, StdioSpec, TransportSpec, Values,
    effect_of, labels_of, lists,
};
pub use status::{ClientStatus, Status, StatusKind};
pub use stdio::{USUAL_PLACES, end_processes};
pub use trust::{Quarantined, Trust};
