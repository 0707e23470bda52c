//! What an administrator sees and does, as plain types.
//!
//! The JSON API and the page are two ways to the same [`Desk`]. It knows nothing of HTTP, and they know nothing of
//! files, configuration or guards. Neither holds a `Desk` itself: they ask through [`crate::Counter`], which takes
//! secrets out of every answer.

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
pub use tools::*;

use crate::problem::Problem;
use portcullis_core::{BoxFuture, Secret};

/// What a question or an order ends in.
pub type Answer<'a, T> = BoxFuture<'a, Result<T, Problem>>;

/// Stands in an answer where a value goes that is shown only once. See [`Showing`].
pub const SHOWN_HERE: &str = "\u{e000}shown-once\u{e000}";

/// An answer with one value in it that must be seen, although it looks like a secret or is one.
///
/// In `answer` it is [`SHOWN_HERE`]. It is put in its place after everything else has been looked through.
pub struct Showing<T> {
    pub answer: T,
    pub shown: Secret<String>,
}

/// Who decides, for whoever reads the record later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor {
    /// The name of the administrator.
    pub name: String,
}

/// Everything an administrator can see and do, except signing in.
///
/// An implementation answers from what is now, not from what it remembers, and checks every input again: what it
/// is given came over HTTP. Orders that change something name what was seen (a digest, a version), and are refused with
/// [`crate::Code::Changed`] where that is not so any more.
pub trait Desk: Send + Sync + 'static {
    fn overview(&self) -> Answer<'_, Overview>;

    /// The last calls, newest first, as far as they are in memory; older ones are in the audit log.
    fn recent_calls(&self) -> Answer<'_, RecentCalls>;

    /// What happens from now on. Costs the road nothing while nobody listens.
    fn listen(&self) -> Listener;

    fn approvals(&self, wanted: WantedApprovals) -> Answer<'_, Approvals>;

    fn approval(&self, id: String) -> Answer<'_, ApprovalWhole>;

    fn decide(&self, id: String, decision: Decide, by: Actor) -> Answer<'_, Decided>;

    fn clients(&self) -> Answer<'_, Clients>;

    fn add_client(&self, new: AddClient, by: Actor) -> Answer<'_, Showing<ClientMade>>;

    fn change_client(&self, name: String, change: ChangeClient, by: Actor) -> Answer<'_, ClientShown>;

    fn revoke_client(&self, name: String, by: Actor) -> Answer<'_, Done>;

    fn secrets(&self) -> Answer<'_, Secrets>;

    fn set_secret(&self, name: String, new: SetSecret, by: Actor) -> Answer<'_, SecretShown>;

    /// Replaces the places that a secret may be sent to.
    fn grant_secret(&self, name: String, grants: GrantSecret, by: Actor) -> Answer<'_, SecretShown>;

    fn remove_secret(&self, name: String, by: Actor) -> Answer<'_, Done>;

    fn servers(&self) -> Answer<'_, Servers>;

    fn server(&self, name: String) -> Answer<'_, ServerWhole>;

    /// Connects to a server that is switched off, once, to see what it offers. Nothing of it is let in.
    fn look_at_server(&self, name: String, by: Actor) -> Answer<'_, ServerWhole>;

    /// Lets in what a server offers now, if that is still what was looked at.
    fn trust_server(&self, name: String, trust: TrustServer, by: Actor) -> Answer<'_, Done>;

    fn distrust_server(&self, name: String, by: Actor) -> Answer<'_, Done>;

    fn switch_server(&self, name: String, switch: SwitchServer, by: Actor) -> Answer<'_, Done>;

    fn restart_server(&self, name: String, by: Actor) -> Answer<'_, Done>;

    /// Writes a server into the configuration. It is switched off until somebody trusts it.
    fn add_server(&self, new: AddServer, by: Actor) -> Answer<'_, Done>;

    fn remove_server(&self, name: String, by: Actor) -> Answer<'_, Done>;

    /// What of other programs' files could be taken over. Changes nothing.
    fn importable(&self, from: ImportFrom) -> Answer<'_, Importable>;

    fn import_servers(&self, wanted: ImportServers, by: Actor) -> Answer<'_, Importable>;

    /// Begins a login to another server. Returns the page where the person goes on.
    fn sign_in_to_server(&self, name: String, by: Actor) -> Answer<'_, Showing<SignInPage>>;

    fn tools(&self) -> Answer<'_, Tools>;

    fn tool(&self, name: String) -> Answer<'_, ToolShown>;

    /// Calls a tool through every guard, as the administrator.
    fn try_tool(&self, name: String, arguments: TryTool, by: Actor) -> Answer<'_, Tried>;

    fn policy(&self) -> Answer<'_, PolicyShown>;

    fn test_policy(&self, question: TestPolicy) -> Answer<'_, PolicyAnswer>;

    fn add_rule(&self, rule: AddRule, by: Actor) -> Answer<'_, PolicyShown>;

    fn remove_rule(&self, rule: RemoveRule, by: Actor) -> Answer<'_, PolicyShown>;

    fn move_rule(&self, rule: MoveRule, by: Actor) -> Answer<'_, PolicyShown>;

    fn search_audit(&self, search: SearchAudit) -> Answer<'_, AuditPage>;

    /// All records of one call, by the number of any of them.
    fn story(&self, seq: u64) -> Answer<'_, Story>;

    fn verify_audit(&self) -> Answer<'_, AuditVerified>;

    fn settings(&self) -> Answer<'_, Settings>;

    /// Scripts, where this hub has them. Without them their routes and pages do not exist.
    fn scripts(&self) -> Option<&dyn ScriptDesk> {
        None
    }
}

/// Scripts: what may run, and what did.
pub trait ScriptDesk: Send + Sync {
    fn list(&self) -> Answer<'_, Scripts>;

    fn whole(&self, name: String) -> Answer<'_, ScriptWhole>;

    /// The text of a version, by the SHA-256 of its bytes.
    fn version(&self, name: String, sha256: String) -> Answer<'_, ScriptText>;

    /// Approves exactly the bytes that were looked at, with the capabilities that are named.
    fn approve(&self, name: String, approval: ApproveScript, by: Actor) -> Answer<'_, ScriptBrief>;

    fn reject(&self, name: String, rejection: RejectScript, by: Actor) -> Answer<'_, ScriptBrief>;

    /// Writes the file. It does not run until somebody approves it.
    fn save(&self, name: String, text: SaveScript, by: Actor) -> Answer<'_, ScriptBrief>;

    /// Puts an older version back into the file.
    fn restore(&self, name: String, version: RestoreScript, by: Actor) -> Answer<'_, ScriptBrief>;

    fn remove(&self, name: String, by: Actor) -> Answer<'_, Done>;

    /// Runs a text in the sandbox, without secrets, network or tools.
    fn dry_run(&self, run: DryRun, by: Actor) -> Answer<'_, DryRan>;
}
