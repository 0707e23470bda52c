//! Handshake: which era and revision the server speaks, its capabilities and instructions.

use super::connection::{Connection, NegotiatedProtocol};
use crate::transport::{LinkError, RequestError, TransportHint};
use portcullis_core::ForeignError;
use portcullis_wire::{Era, Revision, rpc};
use serde_json::{Map, Value, json};
use std::time::Duration;
use tokio::time::Instant;

/// How long a server of the older era may ignore `server/discover`, and at most half of the handshake's timeout.
const PROBE_WITHIN: Duration = Duration::from_secs(5);
/// How much of the instructions is kept.
const INSTRUCTIONS_CHARS_MAX: usize = 10_000;

/// What was learnt of a server on the last connection, so that the next one need not find it out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProtocolHint {
    pub(crate) era: Era,
    pub(crate) transport: Option<TransportHint>,
}

impl ProtocolHint {
    /// Returns what is known of a server that ended when it was probed: it is of the older era.
    pub(crate) fn ended_when_probed() -> ProtocolHint {
        ProtocolHint { era: Era::Sessions, transport: None }
    }
}

/// What a server said in the handshake.
#[derive(Debug, Clone, Default)]
pub(crate) struct HandshakeResult {
    pub(crate) name: Option<String>,
    pub(crate) capabilities: Map<String, Value>,
    pub(crate) instructions: Option<String>,
}

impl HandshakeResult {
    /// Returns whether it declares this capability.
    pub(crate) fn has(&self, capability: &str) -> bool {
        self.capabilities.get(capability).is_some_and(Value::is_object)
    }

    fn of(said: &Value, info: &Value) -> HandshakeResult {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let instructions = text(&said["instructions"]);
        HandshakeResult {
            name: text(&info["name"]),
            capabilities: said["capabilities"].as_object().cloned().unwrap_or_default(),
            instructions: instructions.map(|text| text.chars().take(INSTRUCTIONS_CHARS_MAX).collect()),
        }
    }
}

/// Why the handshake failed.
#[derive(Debug)]
pub(crate) enum HandshakeError {
    /// The server ended when it was probed for the newer era, so it is one of the older.
    EndedWhenProbed,
    Failed(RequestError),
}

impl From<RequestError> for HandshakeError {
    fn from(error: RequestError) -> HandshakeError {
        HandshakeError::Failed(error)
    }
}

/// Finds out which era the server speaks, unless that is known, and introduces the hub. All requests together may take
/// as long as `within`.
pub(crate) async fn handshake(
    connection: &Connection,
    known: Option<Era>,
    within: Duration,
) -> Result<HandshakeResult, HandshakeError> {
    let late_at = Instant::now() + within;
    handshake_until(connection, known, within, late_at).await.map_err(|error| match error {
        // What was left for one request is of no use to a person.
        HandshakeError::Failed(RequestError::Timeout(_)) => RequestError::Timeout(within).into(),
        error => error,
    })
}

async fn handshake_until(
    connection: &Connection,
    known: Option<Era>,
    within: Duration,
    late_at: Instant,
) -> Result<HandshakeResult, HandshakeError> {
    let (mut probed, probe_within) = (None, PROBE_WITHIN.min(within / 2));
    let left = || late_at.saturating_duration_since(Instant::now());
    if known != Some(Era::Sessions) {
        let mut answer = discover(connection, probe_within.min(left())).await;
        // It refuses the version and offers the same one: ask again.
        if matches!(&answer, Err(RequestError::Refused(error)) if offers_newest(error)) {
            answer = discover(connection, probe_within.min(left())).await;
        }
        match answer {
            Ok(Some(server_info)) => return Ok(server_info),
            Ok(None) => {}
            Err(RequestError::Refused(error)) if is_newer(&error) => {
                return Err(RequestError::Refused(error).into());
            }
            // How servers of the older era refuse an unknown method, each differently.
            Err(
                error @ (RequestError::Refused(_)
                | RequestError::Timeout(_)
                | RequestError::Link(
                    LinkError::Unsuitable { .. } | LinkError::Failed { sent: true, .. },
                )),
            ) => probed = Some(error),
            Err(RequestError::Closed) => return Err(HandshakeError::EndedWhenProbed),
            Err(other) => return Err(other.into()),
        }
    }
    let said = match (initialize(connection, left()).await, probed) {
        (Ok(said), _) => said,
        // It was only slow: the probe has reached it meanwhile, and since then it serves the newer era alone.
        (Err(refused @ RequestError::Refused(_)), Some(RequestError::Timeout(_))) => {
            return match discover(connection, left()).await {
                Ok(Some(server_info)) => Ok(server_info),
                _ => Err(refused.into()),
            };
        }
        (Err(error), probed) => return Err(with_probe(error, probed).into()),
    };
    let Some(version) = said["protocolVersion"].as_str() else {
        let why = "the server's response to `initialize` has no `protocolVersion`".to_owned();
        return Err(RequestError::Link(LinkError::Failed { why, sent: true }).into());
    };
    let revision = Revision::parse(version).unwrap_or(Revision::OLDEST);
    let runs_tasks = revision.runs_tasks_on_request()
        && said["capabilities"]["tasks"]["requests"]["tools"]["call"].is_object();
    connection.agree(NegotiatedProtocol { revision, runs_tasks });
    // Sent before anything else: many servers respond to nothing earlier.
    connection.notify_now("notifications/initialized", &json!({})).await?;
    Ok(HandshakeResult::of(&said, &said["serverInfo"]))
}

/// Probes for the newer era. `None` is a server that responds and does not speak it.
async fn discover(
    connection: &Connection,
    within: Duration,
) -> Result<Option<HandshakeResult>, RequestError> {
    let meta = format!(r#""_meta":{{{}}}"#, Revision::NEWEST.client().sender_meta(None).unwrap_or_default());
    let discovered = connection.hub_request("server/discover", meta, within).await?;
    let said: Value = serde_json::from_str(discovered.get()).unwrap_or_default();
    let speaks = |version: &Value| version == Revision::NEWEST.as_str();
    if !said["supportedVersions"].as_array().is_some_and(|versions| versions.iter().any(speaks)) {
        return Ok(None);
    }
    connection.agree(NegotiatedProtocol { revision: Revision::NEWEST, runs_tasks: false });
    Ok(Some(HandshakeResult::of(&said, &said["_meta"]["io.modelcontextprotocol/serverInfo"])))
}

async fn initialize(connection: &Connection, within: Duration) -> Result<Value, RequestError> {
    let params = json!({
        "protocolVersion": Revision::NEWEST_WITH_SESSIONS.as_str(),
        // Everything that any client may offer. A client without one refuses when it is asked.
        "capabilities": {
            "roots": { "listChanged": true },
            "sampling": { "context": {}, "tools": {} },
            "elicitation": { "form": {}, "url": {} },
        },
        "clientInfo": { "name": "portcullis", "version": env!("CARGO_PKG_VERSION") },
    })
    .to_string();
    let inside = params[1..params.len() - 1].to_owned();
    let server_info = connection.hub_request("initialize", inside, within).await?;
    Ok(serde_json::from_str(server_info.get()).unwrap_or_default())
}

/// Returns whether only a server of the newer era refuses so: it knows the era, and no version that the hub speaks.
fn is_newer(error: &ForeignError) -> bool {
    if error.code != i64::from(rpc::UNSUPPORTED_VERSION) {
        return [rpc::HEADER_MISMATCH, rpc::MISSING_CAPABILITY]
            .iter()
            .any(|code| error.code == i64::from(*code));
    }
    supported(error).is_some_and(|all| !all.iter().any(|one| Revision::parse(one).is_some()))
}

/// Returns whether a server that refuses a version offers the same one.
fn offers_newest(error: &ForeignError) -> bool {
    error.code == i64::from(rpc::UNSUPPORTED_VERSION)
        && supported(error).is_some_and(|all| all.iter().any(|one| one == Revision::NEWEST.as_str()))
}

/// Returns the versions that a refusal offers instead.
fn supported(error: &ForeignError) -> Option<Vec<String>> {
    let data: Value = serde_json::from_str(error.data.as_ref()?.get()).ok()?;
    let all = data["supported"].as_array()?;
    Some(all.iter().filter_map(|one| one.as_str().map(str::to_owned)).collect())
}

/// Adds the result of the probe to the error, where both eras failed.
fn with_probe(error: RequestError, probed: Option<RequestError>) -> RequestError {
    match (error, probed) {
        (RequestError::Link(LinkError::Failed { why, sent }), Some(probed)) => {
            let why = format!("{why}; asked for {}, {probed}", Revision::NEWEST.as_str());
            RequestError::Link(LinkError::Failed { why, sent })
        }
        (error, _) => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::Demux;
    use crate::transport::Inbound;
    use crate::transport::{OutboundMessage, TransportLink};
    use futures::future::BoxFuture;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const WITHIN: Duration = Duration::from_secs(30);

    /// A server that starts after the first probe, and then speaks the newer era or neither.
    struct Late {
        demux: Arc<Demux>,
        asked: AtomicUsize,
        is_newer: bool,
    }

    impl TransportLink for Late {
        fn send<'a>(&'a self, message: OutboundMessage<'a>) -> BoxFuture<'a, Result<(), RequestError>> {
            let asked = self.asked.fetch_add(1, Ordering::Relaxed);
            let answer = match message.method {
                Some("server/discover") if asked > 0 && self.is_newer => {
                    json!({ "result": { "supportedVersions": ["2026-07-28"], "capabilities": { "tools": {} } } })
                }
                Some("initialize" | "server/discover") if asked > 0 => {
                    json!({ "error": { "code": -32022, "message": "not accepted" } })
                }
                _ => Value::Null,
            };
            if let (Some(id), Value::Object(mut answer)) = (message.id, answer) {
                answer.insert("jsonrpc".to_owned(), "2.0".into());
                answer.insert("id".to_owned(), id.into());
                self.demux.receive(Value::Object(answer).to_string().as_bytes(), None);
            }
            Box::pin(async { Ok(()) })
        }
    }

    async fn handshaken(is_newer: bool) -> Result<HandshakeResult, HandshakeError> {
        let (demux, _hears) = Demux::new();
        let link = Arc::new(Late { demux: demux.clone(), asked: AtomicUsize::new(0), is_newer });
        handshake(&Connection::new(link, demux), None, WITHIN).await
    }

    /// A server that responds to nothing.
    struct Mute;

    impl TransportLink for Mute {
        fn send<'a>(&'a self, _: OutboundMessage<'a>) -> BoxFuture<'a, Result<(), RequestError>> {
            Box::pin(async { Ok(()) })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_responds_to_nothing_fails_when_its_start_timeout_is_over() {
        for (within, known) in [(300, None), (300, Some(Era::Sessions)), (30_000, None), (90_000, None)] {
            let within = Duration::from_millis(within);
            let (connection, began) = (Connection::new(Arc::new(Mute), Demux::new().0), Instant::now());
            let refused = handshake(&connection, known, within).await.unwrap_err();
            let is_expected =
                matches!(refused, HandshakeError::Failed(RequestError::Timeout(after)) if after == within);
            assert!(is_expected && began.elapsed() == within, "{refused:?} after {:?}", began.elapsed());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_was_only_slow_is_asked_again() {
        assert!(handshaken(true).await.unwrap().has("tools"));
        let refused = handshaken(false).await.unwrap_err();
        assert!(
            matches!(&refused, HandshakeError::Failed(RequestError::Refused(error)) if error.code == -32022),
            "{refused:?}"
        );
    }
}
