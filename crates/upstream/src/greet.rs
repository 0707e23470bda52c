//! How the hub and a server get to know each other.

use crate::connection::{Connection, LinkError, RequestError, modern_meta};
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
        let probe = || {
            let meta = format!(r#""_meta":{{{}}}"#, modern_meta(None));
            connection.own("server/discover", meta, PROBE_WITHIN)
        };
        let mut answer = probe().await;
        // Refused, and offered in the same breath: it is to be said again.
        if matches!(&answer, Err(RequestError::Refused(error)) if offers_newest(error)) {
            answer = probe().await;
        }
        match answer {
            Ok(discovered) => {
                let said: Value = serde_json::from_str(discovered.get()).unwrap_or_default();
                let speaks = |version: &Value| version == Revision::V2026_07_28.as_str();
                if said["supportedVersions"].as_array().is_some_and(|versions| versions.iter().any(speaks)) {
                    connection.speaks(Revision::V2026_07_28);
                    let info = &said["_meta"]["io.modelcontextprotocol/serverInfo"];
                    return Ok(Greeting::of(&said, info));
                }
            }
            Err(RequestError::Refused(error)) if is_newer(&error) => {
                return Err(RequestError::Refused(error).into());
            }
            // What an older server says to a question that it does not know, each in its own way.
            Err(
                error @ (RequestError::Refused(_)
                | RequestError::Timeout(_)
                | RequestError::Link(LinkError::Unsuitable { .. })),
            ) => probed = Some(error),
            Err(RequestError::Closed) => return Err(Unknown::EndedWhenProbed),
            Err(other) => return Err(other.into()),
        }
    }
    let said = initialize(connection).await.map_err(|error| with_probe(error, probed))?;
    let revision = said["protocolVersion"].as_str().and_then(Revision::parse);
    connection.speaks(revision.unwrap_or(Revision::V2024_11_05));
    // Taken before anything else is sent: many servers answer nothing earlier.
    connection.tell("notifications/initialized", &json!({})).await?;
    Ok(Greeting::of(&said, &said["serverInfo"]))
}

async fn initialize(connection: &Connection) -> Result<Value, RequestError> {
    let params = json!({
        "protocolVersion": Revision::NEWEST_WITH_SESSIONS.as_str(),
        "capabilities": { "roots": {}, "sampling": {}, "elicitation": { "form": {}, "url": {} } },
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
