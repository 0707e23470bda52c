//! The JSON-RPC request methods of MCP, as one enum, so that dispatch is exhaustive.

use crate::era::Revision;

/// A request method of at least one revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RpcMethod {
    Initialize,
    Discover,
    Ping,
    ListTools,
    CallTool,
    ListPrompts,
    GetPrompt,
    ListResources,
    ListTemplates,
    ReadResource,
    Subscribe,
    Unsubscribe,
    Complete,
    SetLogLevel,
    Listen,
    GetTask,
    UpdateTask,
    CancelTask,
}

impl RpcMethod {
    /// Returns the method with this name, if the revision has it.
    pub fn of(revision: Revision, name: &str) -> Option<RpcMethod> {
        let method = match name {
            "initialize" => RpcMethod::Initialize,
            "server/discover" => RpcMethod::Discover,
            "ping" => RpcMethod::Ping,
            "tools/list" => RpcMethod::ListTools,
            "tools/call" => RpcMethod::CallTool,
            "prompts/list" => RpcMethod::ListPrompts,
            "prompts/get" => RpcMethod::GetPrompt,
            "resources/list" => RpcMethod::ListResources,
            "resources/templates/list" => RpcMethod::ListTemplates,
            "resources/read" => RpcMethod::ReadResource,
            "resources/subscribe" => RpcMethod::Subscribe,
            "resources/unsubscribe" => RpcMethod::Unsubscribe,
            "completion/complete" => RpcMethod::Complete,
            "logging/setLevel" => RpcMethod::SetLogLevel,
            "subscriptions/listen" => RpcMethod::Listen,
            "tasks/get" => RpcMethod::GetTask,
            "tasks/update" => RpcMethod::UpdateTask,
            "tasks/cancel" => RpcMethod::CancelTask,
            _ => return None,
        };
        revision.server().has_method(method).then_some(method)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_era_has_its_own() {
        for (name, with_sessions, per_request) in [
            ("tools/call", true, true),
            ("ping", true, false),
            ("initialize", true, false),
            ("server/discover", false, true),
            ("tasks/get", false, true),
            ("Tools/Call", false, false),
            ("", false, false),
        ] {
            let has = |revision| RpcMethod::of(revision, name).is_some();
            let found = (has(Revision::NEWEST_WITH_SESSIONS), has(Revision::V2026_07_28));
            assert_eq!(found, (with_sessions, per_request), "{name}");
        }
    }
}
