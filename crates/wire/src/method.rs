//! The methods of requests: one list, from which who dispatches them cannot stray.

use crate::era::{Era, Revision};

/// A method that some revision has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
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

impl Method {
    /// Returns the method of a name, if this revision has it.
    pub fn of(revision: Revision, name: &str) -> Option<Method> {
        let method = match name {
            "initialize" => Method::Initialize,
            "server/discover" => Method::Discover,
            "ping" => Method::Ping,
            "tools/list" => Method::ListTools,
            "tools/call" => Method::CallTool,
            "prompts/list" => Method::ListPrompts,
            "prompts/get" => Method::GetPrompt,
            "resources/list" => Method::ListResources,
            "resources/templates/list" => Method::ListTemplates,
            "resources/read" => Method::ReadResource,
            "resources/subscribe" => Method::Subscribe,
            "resources/unsubscribe" => Method::Unsubscribe,
            "completion/complete" => Method::Complete,
            "logging/setLevel" => Method::SetLogLevel,
            "subscriptions/listen" => Method::Listen,
            "tasks/get" => Method::GetTask,
            "tasks/update" => Method::UpdateTask,
            "tasks/cancel" => Method::CancelTask,
            _ => return None,
        };
        method.only_in().is_none_or(|era| era == revision.era()).then_some(method)
    }

    /// Returns the era that has this method, if not both do.
    fn only_in(self) -> Option<Era> {
        match self {
            Method::Initialize
            | Method::Ping
            | Method::SetLogLevel
            | Method::Subscribe
            | Method::Unsubscribe => Some(Era::Sessions),
            Method::Discover | Method::Listen | Method::GetTask | Method::UpdateTask | Method::CancelTask => {
                Some(Era::PerRequest)
            }
            Method::ListTools
            | Method::CallTool
            | Method::ListPrompts
            | Method::GetPrompt
            | Method::ListResources
            | Method::ListTemplates
            | Method::ReadResource
            | Method::Complete => None,
        }
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
            let has = |revision| Method::of(revision, name).is_some();
            let found = (has(Revision::NEWEST_WITH_SESSIONS), has(Revision::V2026_07_28));
            assert_eq!(found, (with_sessions, per_request), "{name}");
        }
    }
}
