//! What of a server appears: what a person has looked at, and no more.

use crate::catalog::{Offer, Said};
use crate::spec::{ServerSpec, StdioSpec, TransportSpec};
use portcullis_core::json::printable;
use portcullis_store::pins::{Identity, Kind, Pin, Pins, Snapshot, Standing, hex};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Programs up to this size are known by their contents. Runtimes that carry everything have about a hundred.
const PROGRAM_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// How a file that an interpreter is to run ends. Other files among the arguments are data, which may change.
const SCRIPTS: [&str; 12] = ["js", "mjs", "cjs", "ts", "mts", "py", "rb", "sh", "pl", "php", "lua", "jar"];

/// Whether a server's definitions wait for a person.
#[derive(Debug, Clone)]
pub enum Trust {
    /// They are taken as they come.
    Always,
    /// What nobody has looked at waits.
    Pinned(Arc<Pins>),
}

/// One thing that waits for a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quarantined {
    /// `tool`, `prompt`, `template`, `instructions` or `resources`.
    pub kind: &'static str,
    /// As the server says it, with everything in it visible.
    pub name: String,
    pub why: String,
}

impl Quarantined {
    pub(crate) fn new(kind: &'static str, name: &str, standing: Standing) -> Quarantined {
        Quarantined { kind, name: printable(name), why: standing.as_str().to_owned() }
    }
}

impl Trust {
    /// Says how a definition stands now. With pins this costs one `stat`.
    pub(crate) fn standing(&self, server: &str, seen: &Snapshot, kind: Kind, name: &str) -> Standing {
        let Trust::Pinned(pins) = self else { return Standing::Trusted };
        match (pins.of(server), seen.pins(kind).get(name)) {
            (Some(trusted), Some(pin)) => trusted.standing(&seen.identity, kind, name, &pin.sha256),
            _ => Standing::Server,
        }
    }

    /// Names what tells a server from the one of this name that somebody looked at; nothing where nobody has.
    pub(crate) fn differing(&self, server: &str, identity: &Identity) -> Vec<String> {
        let Trust::Pinned(pins) = self else { return Vec::new() };
        let Some(trusted) = pins.of(server) else { return Vec::new() };
        let known = &trusted.as_it_was.identity;
        let facts: BTreeSet<&String> = known.keys().chain(identity.keys()).collect();
        let differ = facts.into_iter().filter(|fact| known.get(*fact) != identity.get(*fact));
        differ.map(|fact| printable(fact)).collect()
    }

    /// Returns whether this very server is trusted, whatever it offers besides.
    pub(crate) fn knows(&self, server: &str, identity: &Identity) -> bool {
        match self {
            Trust::Always => true,
            Trust::Pinned(pins) => {
                pins.of(server).is_some_and(|trusted| trusted.as_it_was.identity == *identity)
            }
        }
    }

    pub(crate) fn instructions_stand(&self, server: &str, seen: &Snapshot) -> bool {
        match self {
            Trust::Always => true,
            Trust::Pinned(pins) => pins.of(server).is_some_and(|trusted| {
                trusted.instructions_stand(&seen.identity, seen.instructions.as_deref())
            }),
        }
    }
}

/// Takes from an offer what cannot be told apart or read, and pins the rest.
pub(crate) fn snapshot(offer: &mut Offer, identity: Identity) -> Snapshot {
    let mut dropped = Vec::new();
    let tools = pinned(&mut offer.tools, &mut dropped);
    let prompts = pinned(&mut offer.prompts, &mut dropped);
    let templates = pinned(&mut offer.templates, &mut dropped);
    offer.dropped.extend(dropped);
    Snapshot { identity, instructions: offer.instructions.clone(), tools, prompts, templates }
}

fn pinned(all: &mut Vec<Said>, dropped: &mut Vec<(String, String)>) -> BTreeMap<String, Pin> {
    let mut counts: HashMap<String, usize> = HashMap::new();
    for said in all.iter() {
        *counts.entry(said.own.clone()).or_default() += 1;
    }
    let mut pins = BTreeMap::new();
    all.retain(|said| {
        // Which of the two a call would reach is the server's to choose, at every call.
        let why = match (counts.get(&said.own), Pin::of(said.raw.get())) {
            (Some(1), Ok(pin)) => {
                pins.insert(said.own.clone(), pin);
                return true;
            }
            (Some(1), Err(why)) => why,
            _ => "the server offers two of this name".to_owned(),
        };
        let entry = (printable(&said.own), why);
        if !dropped.contains(&entry) {
            dropped.push(entry);
        }
        false
    });
    pins
}

/// Says how a server is reached, and by what. Reads the program, where there is one.
pub(crate) async fn facts(spec: &ServerSpec) -> Identity {
    match &spec.transport {
        TransportSpec::Stdio(spec) => {
            let spec = spec.clone();
            // A program that cannot be read has said so among the facts.
            tokio::task::spawn_blocking(move || stdio_facts(&spec)).await.unwrap_or_default()
        }
        TransportSpec::Http(http) => {
            let mut facts = Identity::from([("url".to_owned(), http.place.to_string())]);
            // Another one to vouch for who we are makes it another server.
            if let Some(oauth) = &http.oauth
                && let Some(issuer) = oauth.issuer().await
            {
                facts.insert("issuer".to_owned(), issuer);
            }
            facts
        }
    }
}

fn stdio_facts(spec: &StdioSpec) -> Identity {
    // The hub's own two are the same for every server, but not wherever the hub is started from.
    let names = spec.env.iter().map(|(name, _)| name.as_str());
    let names: Vec<&str> = names.filter(|name| !matches!(*name, "PATH" | "HOME")).collect();
    let cwd = spec.cwd.as_ref().map(|cwd| cwd.display().to_string()).unwrap_or_default();
    let (command, program) = match spec.program.find() {
        Ok(found) => (found.display().to_string(), contents(&found)),
        Err(why) => (why, "not found".to_owned()),
    };
    let mut facts = Identity::from([
        ("command".to_owned(), command),
        ("args".to_owned(), serde_json::json!(spec.args).to_string()),
        ("cwd".to_owned(), cwd),
        ("env".to_owned(), names.join(" ")),
        ("program".to_owned(), program),
    ]);
    for argument in &spec.args {
        let path = spec.cwd.as_deref().unwrap_or(Path::new("/")).join(argument);
        let is_script = path.extension().is_some_and(|ending| SCRIPTS.iter().any(|known| ending == *known));
        if is_script && path.is_file() {
            facts.insert(format!("script {argument}"), contents(&path));
        }
    }
    facts
}

/// Which file it was: device, number, size, and when it and what is known of it changed.
type Stamp = (u64, u64, u64, i64, i64, i64, i64);

/// What files were found to hold, so that a server that starts again and again costs nothing.
static KNOWN: Mutex<BTreeMap<PathBuf, (Stamp, String)>> = Mutex::new(BTreeMap::new());
/// How many are remembered.
const KNOWN_MAX: usize = 1_000;

/// Returns the digest of a file, or why there is none.
fn contents(path: &Path) -> String {
    let cannot = |error: std::io::Error| format!("not readable: {}", error.kind());
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) => return cannot(error),
    };
    let found = match file.metadata() {
        Ok(found) if found.is_file() => found,
        Ok(_) => return "not a file".to_owned(),
        Err(error) => return cannot(error),
    };
    if found.size() > PROGRAM_BYTES_MAX {
        return format!("too large to read: {} bytes", found.size());
    }
    let stamp = (
        found.dev(),
        found.ino(),
        found.size(),
        found.mtime(),
        found.mtime_nsec(),
        found.ctime(),
        found.ctime_nsec(),
    );
    let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, digest)) = known().get(path).filter(|(seen, _)| *seen == stamp) {
        return digest.clone();
    }
    let (mut hash, mut buffer) = (Sha256::new(), vec![0; 256 * 1024]);
    let mut file = file.take(PROGRAM_BYTES_MAX + 1);
    loop {
        match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(bytes) => hash.update(&buffer[..bytes]),
            Err(error) => return cannot(error),
        }
    }
    let digest = format!("sha256:{}", hex(&hash.finalize()));
    let mut known = known();
    if known.len() >= KNOWN_MAX {
        known.clear();
    }
    known.insert(path.to_owned(), (stamp, digest.clone()));
    digest
}
