//! How a server stands.

use crate::trust::Quarantined;

/// How a server stands, with all that a person needs to see why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    pub kind: StatusKind,
    /// Whether it does not run because nobody needs it. Everything that is connected about it but its process or its
    /// connection is there: its tools are listed, and the next call starts it.
    pub idle: bool,
    /// Why, where it is not connected.
    pub reason: Option<String>,
    /// The last lines it said on standard error.
    pub stderr: Vec<String>,
    /// What it calls itself, and which revision is spoken.
    pub server: Option<String>,
    pub revision: Option<&'static str>,
    pub tools: usize,
    pub prompts: usize,
    pub resources: usize,
    /// What does not appear, and why.
    pub dropped: Vec<(String, String)>,
    /// What waits for a person.
    pub quarantined: Vec<Quarantined>,
    /// The clients that have one of their own now, where each gets one.
    pub clients: Option<Vec<ClientStatus>>,
}

/// How the server of one client's own stands.
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

impl Status {
    pub fn of(kind: StatusKind) -> Status {
        Status {
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

    /// Returns the status for the end of a sentence.
    pub fn sentence(&self) -> String {
        match &self.reason {
            Some(reason) => format!("{}: {reason}", self.kind.as_str()),
            None => self.kind.as_str().to_owned(),
        }
    }
}
