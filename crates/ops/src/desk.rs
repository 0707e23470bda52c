//! The facade of all operations, with their input and output types.
//!
//! The JSON API and the page both use [`Desk`]. It is independent of HTTP; they are independent of files, configuration
//! and guards. Neither holds a `Desk` itself: they go through a `RedactedDesk`, which redacts secrets from every
//! response.

mod approvals;
mod audit;
mod calls;
mod clients;
mod difference;
mod overview;
mod policy;
mod scripts;
mod secrets;
mod servers;
mod settings;
mod statistics;
mod tools;

pub use approvals::*;
pub use audit::*;
pub use calls::*;
pub use clients::*;
pub use difference::*;
pub use overview::*;
pub use policy::*;
pub use scripts::*;
pub use secrets::*;
pub use servers::*;
pub use settings::*;
pub use statistics::*;
pub use tools::*;

use crate::{Actor, Problem};
use portcullis_core::{BoxFuture, Secret};

/// The result of a query or command.
pub type DeskFuture<'a, T> = BoxFuture<'a, Result<T, Problem>>;

/// Placeholder for a value that is shown once. See [`OneTimeReveal`].
pub const SHOWN_HERE: &str = "\u{e000}shown-once\u{e000}";

/// A response with one value that must pass redaction, such as a new token.
///
/// `answer` contains [`SHOWN_HERE`], which is replaced by the value after redaction.
pub struct OneTimeReveal<T> {
    pub answer: T,
    pub shown: Secret<String>,
}

/// All queries and commands of an administrator, except signing in.
///
/// An implementation reads current state, without a cache, and validates every input: inputs come over HTTP. Commands
/// carry the state that the administrator saw (a digest, a version) and fail with [`crate::ProblemCode::Changed`] if it
/// is stale (optimistic concurrency).
pub trait Desk: Send + Sync + 'static {
    fn overview(&self) -> DeskFuture<'_, Overview>;

    /// Calls, errors and latency over time: all, by client and by server.
    fn statistics(&self, wanted: StatisticsQuery) -> DeskFuture<'_, Statistics>;

    /// Recent calls from the ring buffer, newest first; older ones are in the audit log.
    fn recent_calls(&self) -> DeskFuture<'_, RecentCalls>;

    /// Subscribes to events. Calls pay nothing while there is no subscriber.
    fn listen(&self) -> AdminEventStream;

    fn approvals(&self, wanted: ApprovalFilter) -> DeskFuture<'_, ApprovalList>;

    fn approval(&self, id: String) -> DeskFuture<'_, ApprovalDetail>;

    fn decide(&self, id: String, decision: DecideApproval, by: Actor) -> DeskFuture<'_, DecisionReceipt>;

    fn clients(&self) -> DeskFuture<'_, ClientList>;

    fn add_client(&self, new: AddClient, by: Actor) -> DeskFuture<'_, OneTimeReveal<CreatedClient>>;

    fn change_client(&self, name: String, change: ChangeClient, by: Actor) -> DeskFuture<'_, ClientView>;

    fn revoke_client(&self, name: String, by: Actor) -> DeskFuture<'_, ActionReceipt>;

    fn secrets(&self) -> DeskFuture<'_, SecretList>;

    fn set_secret(&self, name: String, new: SetSecret, by: Actor) -> DeskFuture<'_, SecretReceipt>;

    /// Replaces the allowed hosts of a secret.
    fn grant_secret(&self, name: String, grants: GrantSecret, by: Actor) -> DeskFuture<'_, SecretReceipt>;

    fn remove_secret(&self, name: String, by: Actor) -> DeskFuture<'_, ActionReceipt>;

    fn servers(&self) -> DeskFuture<'_, ServerList>;

    fn server(&self, name: String) -> DeskFuture<'_, ServerDetail>;

    /// Connects once to a disabled server and lists what it provides. Nothing is exposed to clients.
    fn probe_server(&self, name: String, by: Actor) -> DeskFuture<'_, ServerDetail>;

    /// Pins what a server provides now, if it is still what the administrator saw.
    fn trust_server(&self, name: String, trust: TrustServer, by: Actor) -> DeskFuture<'_, ActionReceipt>;

    fn distrust_server(&self, name: String, by: Actor) -> DeskFuture<'_, ActionReceipt>;

    fn switch_server(&self, name: String, switch: SwitchServer, by: Actor) -> DeskFuture<'_, ActionReceipt>;

    fn restart_server(&self, name: String, by: Actor) -> DeskFuture<'_, ActionReceipt>;

    /// Adds a server to the configuration. It stays disabled until an administrator trusts it.
    fn add_server(&self, new: AddServer, by: Actor) -> DeskFuture<'_, ActionReceipt>;

    fn remove_server(&self, name: String, by: Actor) -> DeskFuture<'_, ActionReceipt>;

    /// Lists servers that could be imported from other applications. Changes nothing.
    fn importable(&self, from: ImportSource) -> DeskFuture<'_, ImportPreview>;

    fn import_servers(&self, wanted: ImportServers, by: Actor) -> DeskFuture<'_, ImportPreview>;

    /// Starts an OAuth login to an upstream server. Returns the authorization URL.
    fn sign_in_to_server(&self, name: String, by: Actor) -> DeskFuture<'_, OneTimeReveal<ServerLoginUrl>>;

    fn tools(&self) -> DeskFuture<'_, ToolList>;

    fn tool(&self, name: String) -> DeskFuture<'_, ToolDetail>;

    /// Calls a tool as the administrator, through all checks.
    fn try_tool(&self, name: String, arguments: TryTool, by: Actor) -> DeskFuture<'_, TryToolResult>;

    fn policy(&self) -> DeskFuture<'_, PolicyView>;

    fn test_policy(&self, question: TestPolicy) -> DeskFuture<'_, PolicyExplanation>;

    fn add_rule(&self, rule: AddRule, by: Actor) -> DeskFuture<'_, PolicyView>;

    fn remove_rule(&self, rule: RemoveRule, by: Actor) -> DeskFuture<'_, PolicyView>;

    fn move_rule(&self, rule: MoveRule, by: Actor) -> DeskFuture<'_, PolicyView>;

    fn search_audit(&self, search: SearchAudit) -> DeskFuture<'_, AuditPage>;

    /// All records of one call, by the sequence number of any of them.
    fn call_history(&self, seq: u64) -> DeskFuture<'_, CallHistory>;

    fn verify_audit(&self) -> DeskFuture<'_, AuditVerification>;

    fn settings(&self) -> DeskFuture<'_, SettingsView>;

    /// The script service. Without it the script routes and pages do not exist.
    fn scripts(&self) -> Option<&dyn ScriptDesk> {
        None
    }
}

/// Queries and commands for scripts.
pub trait ScriptDesk: Send + Sync {
    fn list(&self) -> DeskFuture<'_, ScriptList>;

    fn detail(&self, name: String) -> DeskFuture<'_, ScriptDetail>;

    /// The source of a version, by SHA-256.
    fn version(&self, name: String, sha256: String) -> DeskFuture<'_, ScriptText>;

    /// Approves exactly the version that was reviewed, with the given grants.
    fn approve(&self, name: String, approval: ApproveScript, by: Actor) -> DeskFuture<'_, ScriptBrief>;

    fn reject(&self, name: String, rejection: RejectScript, by: Actor) -> DeskFuture<'_, ScriptBrief>;

    /// Writes the file. It does not run until an administrator approves it.
    fn save(&self, name: String, text: SaveScript, by: Actor) -> DeskFuture<'_, ScriptBrief>;

    /// Restores an older version of the file.
    fn restore(&self, name: String, version: RestoreScript, by: Actor) -> DeskFuture<'_, ScriptBrief>;

    fn remove(&self, name: String, by: Actor) -> DeskFuture<'_, ActionReceipt>;

    /// Runs a source in the sandbox, without secrets, network or tools.
    fn dry_run(&self, run: DryRun, by: Actor) -> DeskFuture<'_, DryRunResult>;
}
