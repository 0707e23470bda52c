//! Connecting a server, keeping it connected, and saying how it stands.

use crate::catalog;
use crate::connection::{Connection, Heard, RequestError};
use crate::provider::Inner;
use crate::stdio::{self, StderrTail};
use portcullis_core::{Change, Changes};
use portcullis_wire::Revision;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long a server may take to say who it is. Package runners download first.
const START_WITHIN: Duration = Duration::from_secs(60);
/// How long a server of the older era may keep silent on a question it does not know.
const PROBE_WITHIN: Duration = Duration::from_secs(5);
/// How long to wait before the first new attempt; twice as long before each further one.
const RETRY_FIRST: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(60);
/// A connection that lasted this long was a good one.
const GOOD_AFTER: Duration = Duration::from_secs(30);
/// Changes that come closer together are told as one.
const DAMPED: Duration = Duration::from_millis(200);
/// One of each kind is enough: what waits already says that there is something to look at.
const HEARD_MAX: usize = 8;

/// How a server stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    pub kind: StatusKind,
    /// Why, where it is not connected.
    pub reason: Option<String>,
    /// The last lines it said on standard error.
    pub stderr: Vec<String>,
    /// What it calls itself, and which revision is spoken.
    pub server: Option<String>,
    pub revision: Option<&'static str>,
    pub tools: usize,
    /// Tools that do not appear, and why.
    pub dropped: Vec<(String, String)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusKind {
    Starting,
    Connected,
    Failed,
    Disabled,
}

impl StatusKind {
    pub fn as_str(self) -> &'static str {
        match self {
            StatusKind::Starting => "starting",
            StatusKind::Connected => "connected",
            StatusKind::Failed => "failed",
            StatusKind::Disabled => "disabled",
        }
    }
}

impl Status {
    pub(crate) fn starting() -> Status {
        Status {
            kind: StatusKind::Starting,
            reason: None,
            stderr: Vec::new(),
            server: None,
            revision: None,
            tools: 0,
            dropped: Vec::new(),
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

/// Keeps the server connected until it is no longer wanted.
pub(crate) async fn run(server: Arc<Inner>, changes: Changes) {
    let mut pause = RETRY_FIRST;
    while !server.stop.is_cancelled() {
        let began = Instant::now();
        let stderr = StderrTail::default();
        let ended = tokio::select! {
            ended = attempt(&server, &changes, stderr.clone()) => ended,
            () = server.stop.cancelled() => break,
        };
        let was_connected = server.connection.swap(None).is_some();
        if was_connected {
            // Its tools are not there, and nobody is told that they are.
            server.tools.store(Arc::default());
            changes.announce(Change::Tools);
        }
        let reason = match ended {
            Ok(()) => "the server ended".to_owned(),
            Err(error) => error,
        };
        tracing::warn!(target: "upstream", server = %server.spec.name, %reason, "A server is not connected.");
        server.status.send_replace(Status {
            kind: StatusKind::Failed,
            reason: Some(reason),
            stderr: stderr.lines(),
            ..Status::starting()
        });
        if began.elapsed() >= GOOD_AFTER {
            pause = RETRY_FIRST;
        }
        tokio::select! {
            () = tokio::time::sleep(jittered(pause)) => {}
            () = server.stop.cancelled() => break,
        }
        pause = (pause * 2).min(RETRY_MAX);
    }
    server.connection.store(None);
    server.tools.store(Arc::default());
    changes.announce(Change::Tools);
    server.status.send_replace(Status { kind: StatusKind::Disabled, ..Status::starting() });
}

/// Connects once. Returns when the connection has ended.
async fn attempt(server: &Inner, changes: &Changes, stderr: StderrTail) -> Result<(), String> {
    let (heard, mut hears) = mpsc::channel(HEARD_MAX);
    let connection = stdio::start(&server.spec.stdio, heard, stderr)?;
    let greeted = tokio::time::timeout(START_WITHIN, greet(&connection)).await;
    let name = greeted
        .map_err(|_| format!("no greeting within {} s", START_WITHIN.as_secs()))?
        .map_err(|error| error.to_string())?;
    publish(server, &connection, changes, name.clone()).await.map_err(|error| error.to_string())?;
    loop {
        tokio::select! {
            () = connection.closed.cancelled() => return Ok(()),
            heard = hears.recv() => match heard {
                None => return Ok(()),
                Some(Heard::ToolsChanged) => {
                    tokio::time::sleep(DAMPED).await;
                    while hears.try_recv().is_ok() {}
                    // Listed first, told afterwards. A list that fails leaves the last good one.
                    if let Err(error) = publish(server, &connection, changes, name.clone()).await {
                        tracing::warn!(target: "upstream", server = %server.spec.name, %error, "A changed list could not be read.");
                    }
                }
                Some(Heard::PromptsChanged | Heard::ResourcesChanged) => {}
            }
        }
    }
}

async fn publish(
    server: &Inner,
    connection: &Arc<Connection>,
    changes: &Changes,
    name: Option<String>,
) -> Result<(), RequestError> {
    let tools = catalog::tools(connection, &server.spec).await?;
    let status = Status {
        kind: StatusKind::Connected,
        server: name,
        revision: connection.revision.get().map(|revision| revision.as_str()),
        tools: tools.defs.len(),
        dropped: tools.dropped.clone(),
        ..Status::starting()
    };
    server.tools.store(Arc::new(tools));
    server.connection.store(Some(connection.clone()));
    changes.announce(Change::Tools);
    server.status.send_replace(status);
    Ok(())
}

/// Finds out which era the server speaks, and introduces the hub. Returns what the server calls itself.
async fn greet(connection: &Connection) -> Result<Option<String>, RequestError> {
    let never = CancellationToken::new();
    let modern = concat!(
        r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","#,
        r#""io.modelcontextprotocol/clientCapabilities":{},"#,
        r#""io.modelcontextprotocol/clientInfo":{"name":"portcullis","version":""#,
        env!("CARGO_PKG_VERSION"),
        r#""}}"#
    );
    match connection.request("server/discover", modern, None, &never, PROBE_WITHIN).await {
        Ok(discovered) => {
            let discovered: Value = serde_json::from_str(discovered.get()).unwrap_or_default();
            let speaks = |version: &Value| version == Revision::V2026_07_28.as_str();
            if discovered["supportedVersions"].as_array().is_some_and(|versions| versions.iter().any(speaks))
            {
                let _ = connection.revision.set(Revision::V2026_07_28);
                let name = &discovered["_meta"]["io.modelcontextprotocol/serverInfo"]["name"];
                return Ok(name.as_str().map(str::to_owned));
            }
        }
        Err(RequestError::Refused { .. } | RequestError::Timeout(_)) => {}
        Err(other) => return Err(other),
    }
    let params = json!({
        "protocolVersion": Revision::NEWEST_WITH_SESSIONS.as_str(),
        "capabilities": { "roots": {} },
        "clientInfo": { "name": "portcullis", "version": env!("CARGO_PKG_VERSION") },
    })
    .to_string();
    let inside = &params[1..params.len() - 1];
    let greeting = connection.request("initialize", inside, None, &never, START_WITHIN).await?;
    let greeting: Value = serde_json::from_str(greeting.get()).unwrap_or_default();
    let revision = greeting["protocolVersion"].as_str().and_then(Revision::parse);
    let _ = connection.revision.set(revision.unwrap_or(Revision::V2024_11_05));
    connection.notify("notifications/initialized", &json!({}));
    Ok(greeting["serverInfo"]["name"].as_str().map(str::to_owned))
}

/// Spreads attempts, so that many servers do not come back at the same moment.
fn jittered(pause: Duration) -> Duration {
    let mut random = [0; 2];
    // Without random numbers there is no spread, and no harm.
    let _ = getrandom::fill(&mut random);
    pause.mul_f64(0.75 + f64::from(u16::from_le_bytes(random)) / f64::from(u16::MAX) / 2.0)
}
