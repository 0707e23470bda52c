//! How the hub and a server get to know each other.

use crate::connection::{Agreed, Connection, LinkError, RequestError, modern_meta};
use portcullis_core::ForeignError;
use portcullis_wire::{Era, Revision, rpc};
use serde_json::{Map, Value, json};
use std::time::Duration;

/// How long a server may take to answer its greeting. Wrappers like `npx` fetch packages first.
const START_WITHIN: Duration = Duration::from_secs(60);
/// How long a server of the older era may keep silent on a question it does not know.
const PROBE_WITHIN: Duration = Duration::from_secs(5);
/// How much of what a server tells about itself is kept.
const INSTRUCTIONS_CHARS_MAX: usize = 10_000;

/// What a server said of itself.
#[derive(Debug, Clone, Default)]
pub(crate) struct Greeting {
    pub(crate) name: Option<String>,
    pub(crate) capabilities: Map<String, Value>,
    pub(crate) instructions: Option<String>,
}

impl Greeting {
    /// Returns whether it offers this kind of thing.
    pub(crate) fn has(&self, capability: &str) -> bool {
        self.capabilities.get(capability).is_some_and(Value::is_object)
    }

    fn of(said: &Value, info: &Value) -> Greeting {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let instructions = text(&said["instructions"]);
        Greeting {
            name: text(&info["name"]),
            capabilities: said["capabilities"].as_object().cloned().unwrap_or_default(),
            instructions: instructions.map(|text| text.chars().take(INSTRUCTIONS_CHARS_MAX).collect()),
        }
    }
}

/// Why no greeting came about.
#[derive(Debug)]
pub(crate) enum Unknown {
    /// The server did not survive being asked for the newer era. It is one of the older.
    EndedWhenProbed,
    Failed(RequestError),
}

impl From<RequestError> for Unknown {
    fn from(error: RequestError) -> Unknown {
        Unknown::Failed(error)
    }
}

/// Finds out which era the server speaks unless that is known already, and introduces the hub.
pub(crate) async fn greet(connection: &Connection, known: Option<Era>) -> Result<Greeting, Unknown> {
    let mut probed = None;
    if known != Some(Era::Sessions) {
        let mut answer = discover(connection, PROBE_WITHIN).await;
        // Refused, and offered in the same breath: it is to be said again.
        if matches!(&answer, Err(RequestError::Refused(error)) if offers_newest(error)) {
            answer = discover(connection, PROBE_WITHIN).await;
        }
        match answer {
            Ok(Some(greeting)) => return Ok(greeting),
            Ok(None) => {}
            Err(RequestError::Refused(error)) if is_newer(&error) => {
                return Err(RequestError::Refused(error).into());
            }
            // What an older server says to a question that it does not know, each in its own way.
            Err(
                error @ (RequestError::Refused(_)
                | RequestError::Timeout(_)
                | RequestError::Link(
                    LinkError::Unsuitable { .. } | LinkError::Failed { sent: true, .. },
                )),
            ) => probed = Some(error),
            Err(RequestError::Closed) => return Err(Unknown::EndedWhenProbed),
            Err(other) => return Err(other.into()),
        }
    }
    let said = match (initialize(connection).await, probed) {
        (Ok(said), _) => said,
        // It was only slow: the question has reached it meanwhile, and since then it serves the newer era alone.
        (Err(refused @ RequestError::Refused(_)), Some(RequestError::Timeout(_))) => {
            return match discover(connection, START_WITHIN).await {
                Ok(Some(greeting)) => Ok(greeting),
                _ => Err(refused.into()),
            };
        }
        (Err(error), probed) => return Err(with_probe(error, probed).into()),
    };
    let Some(version) = said["protocolVersion"].as_str() else {
        let why =
            "the server answered `initialize` without a `protocolVersion`, which is no greeting".to_owned();
        return Err(RequestError::Link(LinkError::Failed { why, sent: true }).into());
    };
    let revision = Revision::parse(version).unwrap_or(Revision::V2024_11_05);
    // Tasks came and went with this one revision.
    let runs_tasks = revision == Revision::V2025_11_25
        && said["capabilities"]["tasks"]["requests"]["tools"]["call"].is_object();
    connection.agree(Agreed { revision, runs_tasks });
    // Taken before anything else is sent: many servers answer nothing earlier.
    connection.tell("notifications/initialized", &json!({})).await?;
    Ok(Greeting::of(&said, &said["serverInfo"]))
}

/// Asks for the newer era. `None` is a server that answers the question and does not speak it.
async fn discover(connection: &Connection, within: Duration) -> Result<Option<Greeting>, RequestError> {
    let meta = format!(r#""_meta":{{{}}}"#, modern_meta(None));
    let discovered = connection.own("server/discover", meta, within).await?;
    let said: Value = serde_json::from_str(discovered.get()).unwrap_or_default();
    let speaks = |version: &Value| version == Revision::V2026_07_28.as_str();
    if !said["supportedVersions"].as_array().is_some_and(|versions| versions.iter().any(speaks)) {
        return Ok(None);
    }
    connection.agree(Agreed { revision: Revision::V2026_07_28, runs_tasks: false });
    Ok(Some(Greeting::of(&said, &said["_meta"]["io.modelcontextprotocol/serverInfo"])))
}

async fn initialize(connection: &Connection) -> Result<Value, RequestError> {
    let params = json!({
        "protocolVersion": Revision::NEWEST_WITH_SESSIONS.as_str(),
        // All that any client may offer. What the one who is asked does not is refused then.
        "capabilities": {
            "roots": { "listChanged": true },
            "sampling": { "context": {}, "tools": {} },
            "elicitation": { "form": {}, "url": {} },
        },
        "clientInfo": { "name": "portcullis", "version": env!("CARGO_PKG_VERSION") },
    })
    .to_string();
    let inside = params[1..params.len() - 1].to_owned();
    let greeting = connection.own("initialize", inside, START_WITHIN).await?;
    Ok(serde_json::from_str(greeting.get()).unwrap_or_default())
}

/// Returns whether only a server of the newer era refuses so: it knows the era, and not one version that we speak.
fn is_newer(error: &ForeignError) -> bool {
    if error.code != i64::from(rpc::UNSUPPORTED_VERSION) {
        return [rpc::HEADER_MISMATCH, rpc::MISSING_CAPABILITY]
            .iter()
            .any(|code| error.code == i64::from(*code));
    }
    supported(error).is_some_and(|all| !all.iter().any(|one| Revision::parse(one).is_some()))
}

/// Returns whether a server that refuses the version of a request offers the same one.
fn offers_newest(error: &ForeignError) -> bool {
    error.code == i64::from(rpc::UNSUPPORTED_VERSION)
        && supported(error).is_some_and(|all| all.iter().any(|one| one == Revision::V2026_07_28.as_str()))
}

/// Returns the versions that a refusal offers instead, if it says.
fn supported(error: &ForeignError) -> Option<Vec<String>> {
    let data: Value = serde_json::from_str(error.data.as_ref()?.get()).ok()?;
    let all = data["supported"].as_array()?;
    Some(all.iter().filter_map(|one| one.as_str().map(str::to_owned)).collect())
}

/// Tells how the server answered to the newer era too, where it answered to neither.
fn with_probe(error: RequestError, probed: Option<RequestError>) -> RequestError {
    match (error, probed) {
        (RequestError::Link(LinkError::Failed { why, sent }), Some(probed)) => {
            let why = format!("{why}; asked for {}, {probed}", Revision::V2026_07_28.as_str());
            RequestError::Link(LinkError::Failed { why, sent })
        }
        (error, _) => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inbox::Inbox;
    use crate::link::{Link, Outgoing};
    use futures::future::BoxFuture;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A server that is not there yet when it is first asked, and then speaks the newer era or, if not, neither.
    struct Late {
        inbox: Arc<Inbox>,
        asked: AtomicUsize,
        is_newer: bool,
    }

    impl Link for Late {
        fn send<'a>(&'a self, message: Outgoing<'a>) -> BoxFuture<'a, Result<(), RequestError>> {
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
                self.inbox.receive(Value::Object(answer).to_string().as_bytes(), None);
            }
            Box::pin(async { Ok(()) })
        }
    }

    async fn greeted(is_newer: bool) -> Result<Greeting, Unknown> {
        let (inbox, _hears) = Inbox::new();
        let link = Arc::new(Late { inbox: inbox.clone(), asked: AtomicUsize::new(0), is_newer });
        greet(&Connection::new(link, inbox), None).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_was_only_slow_is_asked_again() {
        assert!(greeted(true).await.unwrap().has("tools"));
        let refused = greeted(false).await.unwrap_err();
        assert!(
            matches!(&refused, Unknown::Failed(RequestError::Refused(error)) if error.code == -32022),
            "{refused:?}"
        );
    }
}
