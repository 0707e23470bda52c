//! What a person has looked at: every definition of every trusted server, as it was then.
//!
//! One file, `pins.json`, shared by the hub and the command line. A server is trusted as it is at one moment: how it is
//! reached, what it says of itself, and each of its tools, prompts and templates, whole. What is new or different afterwards waits
//! until somebody looks again. The hub looks at the file's stamp at every call, so trust that is taken back is gone with
//! the next one. A file that cannot be read trusts nobody.

mod canonical;
mod difference;

pub use canonical::{canonical, digest, hex};
pub use difference::{Difference, differences};

use crate::kept::{Closed, FileError, KeptFile, Live, versioned};
use jiff::Timestamp;
use portcullis_core::Clock;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

const FILE_NAME: &str = "pins.json";
const VERSION: u32 = 1;
/// Some hundred servers with some hundred tools each.
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;
const SERVERS_MAX: usize = 1_000;

#[derive(Debug, thiserror::Error)]
pub enum PinError {
    #[error("{0}")]
    Damaged(String),
    #[error("there are {SERVERS_MAX} trusted servers already; take back what is no longer used")]
    Full,
    #[error(
        "what the server offers is too much to keep: {FILE_NAME} would have more than {FILE_BYTES_MAX} bytes"
    )]
    TooLarge,
    #[error(transparent)]
    Io(#[from] FileError),
}

/// How a server is known: facts by name, such as its command, the digest of its program, its URL and its own name.
pub type Identity = BTreeMap<String, String>;

/// One definition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pin {
    /// Of its one text.
    pub sha256: String,
    /// That text, to show what is different later.
    pub definition: String,
}

impl Pin {
    /// Pins a definition. What has no one text cannot be pinned.
    pub fn of(json: &str) -> Result<Pin, String> {
        let definition = canonical(json)?;
        Ok(Pin { sha256: digest(&definition), definition })
    }
}

/// A server as it is at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Snapshot {
    pub identity: Identity,
    pub instructions: Option<String>,
    pub tools: BTreeMap<String, Pin>,
    pub prompts: BTreeMap<String, Pin>,
    /// The forms of addresses that it answers for. One that is trusted since before these were looked at has none.
    #[serde(default)]
    pub templates: BTreeMap<String, Pin>,
}

/// A kind of definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Tool,
    Prompt,
    Template,
}

impl Kind {
    pub const ALL: [Kind; 3] = [Kind::Tool, Kind::Prompt, Kind::Template];

    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Tool => "tool",
            Kind::Prompt => "prompt",
            Kind::Template => "template",
        }
    }
}

impl Snapshot {
    pub fn pins(&self, kind: Kind) -> &BTreeMap<String, Pin> {
        match kind {
            Kind::Tool => &self.tools,
            Kind::Prompt => &self.prompts,
            Kind::Template => &self.templates,
        }
    }
}

/// A server that a person trusts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trusted {
    pub since: Timestamp,
    pub by: String,
    pub as_it_was: Snapshot,
}

/// How a definition stands to what a person has looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    Trusted,
    /// Nobody has seen it.
    New,
    /// It was something else when somebody looked.
    Changed,
    /// The server is not the one that somebody looked at, or nobody looked at all.
    Server,
}

impl Standing {
    pub fn as_str(self) -> &'static str {
        match self {
            Standing::Trusted => "trusted",
            Standing::New => "new",
            Standing::Changed => "changed",
            Standing::Server => "server not trusted",
        }
    }
}

impl Trusted {
    /// Says how one definition stands. The identity is asked first: another program may say the same words.
    pub fn standing(&self, identity: &Identity, kind: Kind, name: &str, sha256: &str) -> Standing {
        if self.as_it_was.identity != *identity {
            return Standing::Server;
        }
        match self.as_it_was.pins(kind).get(name) {
            None => Standing::New,
            Some(pin) if pin.sha256 == sha256 => Standing::Trusted,
            Some(_) => Standing::Changed,
        }
    }

    pub fn instructions_stand(&self, identity: &Identity, instructions: Option<&str>) -> bool {
        self.as_it_was.identity == *identity && self.as_it_was.instructions.as_deref() == instructions
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    version: u32,
    servers: Servers,
}

type Servers = BTreeMap<String, Trusted>;

/// All trusted servers of one hub.
pub struct Pins {
    live: Live<BTreeMap<String, Arc<Trusted>>>,
    clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for Pins {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pins")
    }
}

impl Pins {
    /// Opens the pins in the folder `dir`, of which neither has to exist.
    pub fn open(dir: &Path, clock: Arc<dyn Clock>) -> Pins {
        let file = KeptFile::new(dir, FILE_NAME, FILE_BYTES_MAX, Closed::ToWriting);
        Pins { live: Live::new(file, |bytes| Ok(shared(parse(bytes)?))), clock }
    }

    /// Returns why nobody is trusted, if the file cannot be read.
    pub fn health(&self) -> Result<(), String> {
        self.live.current().known.as_ref().map(|_| ()).map_err(Clone::clone)
    }

    /// Returns what a person trusts of a server. Costs one `stat`.
    pub fn of(&self, server: &str) -> Option<Arc<Trusted>> {
        self.live.current().known.as_ref().ok()?.get(server).cloned()
    }

    /// Trusts a server as it is.
    pub fn trust(&self, server: &str, as_it_was: Snapshot, by: &str) -> Result<(), PinError> {
        let since = Timestamp::try_from(self.clock.now()).unwrap_or_default();
        let trusted = Trusted { since, by: by.to_owned(), as_it_was };
        self.change(|servers| {
            if servers.len() >= SERVERS_MAX && !servers.contains_key(server) {
                return Err(PinError::Full);
            }
            servers.insert(server.to_owned(), trusted);
            Ok(())
        })
    }

    /// Takes trust back. Returns whether there was any.
    pub fn revoke(&self, server: &str) -> Result<bool, PinError> {
        self.change(|servers| Ok(servers.remove(server).is_some()))
    }

    fn change<T>(&self, edit: impl FnOnce(&mut Servers) -> Result<T, PinError>) -> Result<T, PinError> {
        let file = &self.live.file;
        let lock = file.lock()?;
        let found = file.read().bytes.map_err(PinError::Damaged)?;
        let mut servers = parse(found.as_deref()).map_err(PinError::Damaged)?;
        let before = servers.clone();
        let done = edit(&mut servers)?;
        if servers != before {
            let document = Document { version: VERSION, servers };
            let bytes = serde_json::to_vec_pretty(&document).map_err(|e| PinError::Damaged(e.to_string()))?;
            if bytes.len() as u64 > file.bytes_max() {
                return Err(PinError::TooLarge);
            }
            lock.replace(&bytes)?;
        }
        Ok(done)
    }
}

fn shared(servers: Servers) -> BTreeMap<String, Arc<Trusted>> {
    servers.into_iter().map(|(name, trusted)| (name, Arc::new(trusted))).collect()
}

fn parse(bytes: Option<&[u8]>) -> Result<Servers, String> {
    let Some(bytes) = bytes else { return Ok(BTreeMap::new()) };
    let value = versioned(FILE_NAME, VERSION, bytes)?;
    let document: Document =
        serde_json::from_value(value).map_err(|error| format!("{FILE_NAME} is damaged: {error}"))?;
    for (server, trusted) in &document.servers {
        for (name, pin) in Kind::ALL.into_iter().flat_map(|kind| trusted.as_it_was.pins(kind)) {
            // A digest that is not of the text beside it would show a person one thing and trust another.
            if digest(&pin.definition) != pin.sha256 {
                let (server, name) =
                    (portcullis_core::json::printable(server), portcullis_core::json::printable(name));
                return Err(format!(
                    "{FILE_NAME} is damaged: `{name}` of `{server}` is not what its digest says"
                ));
            }
        }
    }
    Ok(document.servers)
}

#[cfg(test)]
mod tests;
