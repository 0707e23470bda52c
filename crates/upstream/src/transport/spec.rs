//! Configuration of the transports: the program to start, or the URL to connect to.

use super::Credentials;
use super::guardian::Processes;
use crate::program_digests::ProgramDigests;
use portcullis_egress::CertificateDer;
use portcullis_egress::configured_client::ConfiguredEndpoint;
use portcullis_egress::header::HeaderName;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A server that is a child process.
#[derive(Debug, Clone)]
pub struct StdioSpec {
    pub program: ProgramLookup,
    pub args: Vec<String>,
    pub cwd: WorkingDir,
    /// Its whole environment, unresolved ([`StdioSpec::values`]). It does not inherit the hub's.
    pub env: Vec<(String, String)>,
    pub values: ValueResolver,
    /// Finds the process, and everything that it starts, when it has to end.
    pub processes: Arc<Processes>,
    /// Digests of the program and its scripts, which are part of the identity of the server.
    pub digests: Arc<ProgramDigests>,
}

/// The working directory. Many programs read files there, and some run them.
#[derive(Debug, Clone)]
pub enum WorkingDir {
    /// The hub's.
    Inherited,
    /// Configured by an administrator.
    Chosen(PathBuf),
    /// A private one, created where it is missing.
    Own(PathBuf),
}

impl WorkingDir {
    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            WorkingDir::Inherited => None,
            WorkingDir::Chosen(path) | WorkingDir::Own(path) => Some(path),
        }
    }
}

/// Looks a program up at each start: it may have been installed since the last one.
#[derive(Clone)]
pub struct ProgramLookup(pub Arc<dyn Fn() -> Result<PathBuf, String> + Send + Sync>);

impl ProgramLookup {
    /// Returns its absolute path, or why there is none.
    pub(crate) fn find(&self) -> Result<PathBuf, String> {
        (self.0)()
    }
}

impl fmt::Debug for ProgramLookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Program")
    }
}

/// A server over HTTP, at a configured URL.
#[derive(Debug, Clone)]
pub struct HttpSpec {
    pub place: ConfiguredEndpoint,
    pub headers: Vec<HeaderSpec>,
    /// The source of the `Authorization` header, where the server wants a login.
    pub oauth: Option<Arc<dyn Credentials>>,
    /// Certificates that are trusted besides the system's.
    pub extra_roots: Vec<CertificateDer<'static>>,
}

/// A header of every request, resolved each time it is sent ([`HeaderSpec::values`]).
#[derive(Debug, Clone)]
pub struct HeaderSpec {
    pub name: HeaderName,
    pub written: String,
    pub values: ValueResolver,
}

/// Resolves a configured value each time it is needed, or says what is missing.
#[derive(Clone)]
pub struct ValueResolver(pub Arc<LookUp>);

type LookUp = dyn Fn(&str) -> Result<String, String> + Send + Sync;

impl fmt::Debug for ValueResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Values")
    }
}
