//! Rows as they are in use, for those that fill a database.

use portcullis_core::{EffectSet, ToolView};
use portcullis_store::approvals::{ApprovalLifetimes, ApprovalRequest};
use portcullis_store::clients::NewClient;
use std::time::Duration;

pub const LIFETIMES: ApprovalLifetimes =
    ApprovalLifetimes { pending: Duration::from_secs(3_600), approved: Duration::from_secs(3_600) };

/// A client with a usual scope.
pub fn client(name: String) -> NewClient {
    NewClient {
        name,
        allow: ["workspace_*", "vault_*", "git_*"].map(str::to_owned).to_vec(),
        deny: vec!["*_delete".to_owned()],
        effects: EffectSet::ALL,
        tools: ToolView::All,
        expires_in: None,
    }
}

/// A call that waits for a decision, with arguments of a usual size.
pub fn approval(client: &str, n: usize) -> ApprovalRequest {
    ApprovalRequest {
        digest: format!("{n:064x}"),
        client: client.to_owned(),
        holder: None,
        origin: "http".to_owned(),
        ancestors: Vec::new(),
        kind: "tool".to_owned(),
        target: "workspace_write".to_owned(),
        effect: "write".to_owned(),
        reach: "local".to_owned(),
        rule: "default".to_owned(),
        definition: format!("{n:064x}"),
        session: None,
        arguments: format!("{{\"path\":\"notes/{n}.md\",\"content\":\"{}\"}}", "and so on, ".repeat(20)),
        more: 0,
    }
}
