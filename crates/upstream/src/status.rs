//! Status of an upstream server.

use crate::trust::QuarantinedItem;

/// The status, with what a person needs to see why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerStatus {
    pub kind: StatusKind,
    /// Whether it does not run because it is not needed. Its tools are listed, and the next call starts it.
    pub idle: bool,
    /// How far it came, where it failed before it was connected.
    pub phase: Option<StartPhase>,
    /// Why it is not connected.
    pub reason: Option<String>,
    /// The last lines of its standard error.
    pub stderr: Vec<String>,
    /// Its own name, and the negotiated revision.
    pub server: Option<String>,
    pub revision: Option<&'static str>,
    pub tools: usize,
    pub prompts: usize,
    pub resources: usize,
    /// What is not exposed, and why.
    pub dropped: Vec<(String, String)>,
    /// What needs review.
    pub quarantined: Vec<QuarantinedItem>,
    /// The clients with their own instance, where each gets one.
    pub clients: Option<Vec<ClientStatus>>,
}

/// The status of a per-client instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientStatus {
    pub client: String,
    pub kind: StatusKind,
    pub reason: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusKind {
    Starting,
    Connected,
    Failed,
    Disabled,
    NeedsAuth,
    NeedsClientRegistration,
}

/// What a server that is being started does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartPhase {
    /// Its process is started, or its URL prepared.
    Launch,
    Handshake,
    Listing,
}

/// How far the current start of a server is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StartProgress {
    /// `None` while it does not start.
    pub phase: Option<StartPhase>,
    /// The newest line of its standard error.
    pub last_line: Option<String>,
}

impl StartPhase {
    pub fn as_str(self) -> &'static str {
        match self {
            StartPhase::Launch => "process start",
            StartPhase::Handshake => "handshake",
            StartPhase::Listing => "listing tools",
        }
    }
}

impl StatusKind {
    const ALL: [StatusKind; 6] = [
        StatusKind::Starting,
        StatusKind::Connected,
        StatusKind::Failed,
        StatusKind::Disabled,
        StatusKind::NeedsAuth,
        StatusKind::NeedsClientRegistration,
    ];

    /// Returns the status that [`StatusKind::as_str`] wrote.
    pub fn parse(text: &str) -> Option<StatusKind> {
        StatusKind::ALL.into_iter().find(|kind| kind.as_str() == text)
    }

    /// Returns the status as the predicate of a sentence about the server.
    pub fn predicate(self) -> &'static str {
        match self {
            StatusKind::Starting => "is starting",
            StatusKind::Connected => "is connected",
            StatusKind::Failed => "failed to start",
            StatusKind::Disabled => "is disabled",
            StatusKind::NeedsAuth => "needs a login",
            StatusKind::NeedsClientRegistration => "needs a client registration",
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            StatusKind::Starting => "starting",
            StatusKind::Connected => "connected",
            StatusKind::Failed => "failed",
            StatusKind::Disabled => "disabled",
            StatusKind::NeedsAuth => "needs_auth",
            StatusKind::NeedsClientRegistration => "needs_client_registration",
        }
    }
}

impl ServerStatus {
    pub fn of(kind: StatusKind) -> ServerStatus {
        ServerStatus {
            kind,
            idle: false,
            phase: None,
            reason: None,
            stderr: Vec::new(),
            server: None,
            revision: None,
            tools: 0,
            prompts: 0,
            resources: 0,
            dropped: Vec::new(),
            quarantined: Vec::new(),
            clients: None,
        }
    }

    /// Returns the status as the predicate of a sentence about the server, with how far its start came and the reason.
    pub fn predicate(&self) -> String {
        let mut text = self.kind.predicate().to_owned();
        if let Some(phase) = self.phase {
            text.push_str(&format!(" ({})", phase.as_str()));
        }
        if let Some(reason) = &self.reason {
            text.push_str(&format!(": {reason}"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_is_read_back_and_is_the_predicate_of_a_sentence() {
        let sentences = StatusKind::ALL.map(|kind| {
            assert_eq!(StatusKind::parse(kind.as_str()), Some(kind));
            format!("{}: server `git` {}", kind.as_str(), kind.predicate())
        });
        assert_eq!(
            sentences,
            [
                "starting: server `git` is starting",
                "connected: server `git` is connected",
                "failed: server `git` failed to start",
                "disabled: server `git` is disabled",
                "needs_auth: server `git` needs a login",
                "needs_client_registration: server `git` needs a client registration",
            ]
        );
        assert_eq!(StatusKind::parse("not running"), None);
        let reason = Some("no such file".to_owned());
        let failed = ServerStatus { reason, ..ServerStatus::of(StatusKind::Failed) };
        assert_eq!(failed.predicate(), "failed to start: no such file");
        assert_eq!(ServerStatus::of(StatusKind::NeedsAuth).predicate(), "needs a login");
    }
}
