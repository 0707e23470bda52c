//! Status of an upstream server.

use crate::trust::QuarantinedItem;

/// The status, with what a person needs to see why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerStatus {
    pub kind: StatusKind,
    /// Whether it does not run because it is not needed. Its tools are listed, and the next call starts it.
    pub idle: bool,
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

impl StatusKind {
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

    /// Returns the status as the end of a sentence.
    pub fn sentence(&self) -> String {
        match &self.reason {
            Some(reason) => format!("{}: {reason}", self.kind.as_str()),
            None => self.kind.as_str().to_owned(),
        }
    }
}
