//! The hub and other programs of its kind, each started before the same tiny server.
//!
//! Each is set up as its own documentation shows it, with its session mode as it is by default, and told to log no more
//! than warnings, to nowhere. The hub has all guards on, and the server's tools are trusted by a person's word.

use crate::http::{BenchHead, HubEndpoint, header};
use crate::hub::{BenchHub, CONFIG, ChildGuard, spawn};
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a program may take until it answers. Those that run under an interpreter take a second or two.
const READY_WITHIN: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Larger than any answer before the load.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// How the tiny server is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TinyTransport {
    Stdio,
    Http,
}

impl TinyTransport {
    pub(crate) const ALL: [TinyTransport; 2] = [TinyTransport::Stdio, TinyTransport::Http];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            TinyTransport::Stdio => "stdio",
            TinyTransport::Http => "HTTP",
        }
    }
}

/// The tiny server, as others start or reach it.
pub(crate) struct TinyServer {
    program: PathBuf,
    /// What stands before its own arguments: a script, under Node.
    script: Option<String>,
    /// The one over HTTP.
    pub(crate) process: ChildGuard,
    pub(crate) address: SocketAddr,
    _stdout: BufReader<ChildStdout>,
}

impl TinyServer {
    /// Starts the one that is part of this program, or `NODE:SCRIPT`.
    pub(crate) fn start(words: Option<&str>) -> Result<TinyServer> {
        let (program, script) = match words {
            Some(words) => {
                let (node, script) = words.split_once(':').context("expected NODE:SCRIPT")?;
                (PathBuf::from(node), Some(script.to_owned()))
            }
            None => (std::env::current_exe()?, None),
        };
        let mut command = Command::new(&program);
        command.args(&script).args(["tiny", "http"]);
        let (process, mut stdout) = spawn(command)?;
        let mut address = String::new();
        stdout.read_line(&mut address)?;
        let address = address.trim().parse().context("the tiny server did not start")?;
        Ok(TinyServer { program, script, process, address, _stdout: stdout })
    }

    /// Returns the arguments with which it serves on its standard streams.
    fn stdio_args(&self) -> Vec<&str> {
        self.script.as_deref().into_iter().chain(["tiny", "stdio"]).collect()
    }

    /// Returns the command that serves so.
    pub(crate) fn stdio(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(self.stdio_args());
        command
    }

    fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }
}

/// Something that listens on HTTP, with a session that was begun.
pub(crate) struct ProxyUnderTest {
    /// Absent for the tiny server itself, which is everyone's.
    pub(crate) process: Option<ChildGuard>,
    pub(crate) address: SocketAddr,
    path: &'static str,
    headers: String,
    echo: String,
    seen: String,
    /// What must stay open or there while it runs.
    _kept: ProxyResources,
}

/// A folder, and where the hub prints to.
type ProxyResources = (tempfile::TempDir, Option<BufReader<ChildStdout>>);

impl ProxyUnderTest {
    /// The tiny server without anything before it.
    pub(crate) fn bare(tiny: &TinyServer) -> Result<ProxyUnderTest> {
        ProxyUnderTest::open(None, tiny.address, "/mcp", String::new(), "", (tempfile::tempdir()?, None))
    }

    pub(crate) fn hub(portcullis: &Path, tiny: &TinyServer, kind: TinyTransport) -> Result<ProxyUnderTest> {
        let folder = tempfile::tempdir().context("no temporary folder")?;
        let home = folder.path();
        let reached = match kind {
            TinyTransport::Stdio => format!("command = {:?}\nargs = {:?}", tiny.program, tiny.stdio_args()),
            TinyTransport::Http => format!("url = {:?}", tiny.url()),
        };
        let config = format!("{CONFIG}\n[mcp.tiny]\n{reached}\neffects = {{ \"*\" = \"read\" }}\n");
        std::fs::write(home.join("portcullis.toml"), config)?;
        let mut trust = Command::new(portcullis);
        trust.arg("--home").arg(home).args(["mcp", "trust", "tiny", "--yes", "--policy", "allow"]);
        let trusted = trust.env_remove("PORTCULLIS_HOME").output()?;
        if !trusted.status.success() {
            bail!("the tiny server cannot be trusted: {}", String::from_utf8_lossy(&trusted.stderr));
        }
        let hub = BenchHub::serve(portcullis, home, None)?;
        let BenchHub { process, place: HubEndpoint { address, token }, stdout } = hub;
        let headers = format!("authorization: Bearer {token}\r\n");
        ProxyUnderTest::open(Some(process), address, "/mcp", headers, "tiny_", (folder, Some(stdout)))
    }

    /// The crate `mcp-proxy`, which serves MCP at `/`.
    pub(crate) fn rust(program: &str, tiny: &TinyServer, kind: TinyTransport) -> Result<ProxyUnderTest> {
        let folder = tempfile::tempdir().context("no temporary folder")?;
        let port = free_port()?;
        let reached = match kind {
            TinyTransport::Stdio => {
                format!("transport = \"stdio\"\ncommand = {:?}\nargs = {:?}", tiny.program, tiny.stdio_args())
            }
            TinyTransport::Http => format!("transport = \"http\"\nurl = {:?}", tiny.url()),
        };
        let config = format!(
            "[proxy]\nname = \"bench\"\nseparator = \"/\"\n\n[proxy.listen]\nhost = \"127.0.0.1\"\nport = {port}\n\n\
             [[backends]]\nname = \"tiny\"\n{reached}\n\n[observability]\naudit = false\nlog_level = \"warn\"\n"
        );
        let file = folder.path().join("proxy.toml");
        std::fs::write(&file, config)?;
        let mut command = Command::new(program);
        command.arg("--config").arg(file);
        ProxyUnderTest::started(command, port, "/", "tiny/", folder)
    }

    /// The npm package `mcp-proxy`: `words` are Node and the script.
    pub(crate) fn npm(words: &str, tiny: &TinyServer) -> Result<ProxyUnderTest> {
        let (node, script) = words.split_once(':').context("expected NODE:SCRIPT")?;
        let port = free_port()?;
        let mut command = Command::new(node);
        command.arg(script).args(["--host", "127.0.0.1", "--port", &port.to_string(), "--"]);
        command.arg(&tiny.program).args(tiny.stdio_args());
        ProxyUnderTest::started(command, port, "/mcp", "", tempfile::tempdir()?)
    }

    /// The PyPI package `mcp-proxy`.
    pub(crate) fn pypi(program: &str, tiny: &TinyServer) -> Result<ProxyUnderTest> {
        let port = free_port()?;
        let mut command = Command::new(program);
        command.args(["--port", &port.to_string(), "--log-level", "WARNING", "--"]);
        command.arg(&tiny.program).args(tiny.stdio_args());
        ProxyUnderTest::started(command, port, "/mcp/", "", tempfile::tempdir()?)
    }

    fn started(
        mut command: Command,
        port: u16,
        path: &'static str,
        prefix: &str,
        folder: tempfile::TempDir,
    ) -> Result<ProxyUnderTest> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).current_dir(folder.path());
        let process = ChildGuard(command.spawn().with_context(|| format!("{command:?}"))?);
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        ProxyUnderTest::open(Some(process), address, path, String::new(), prefix, (folder, None))
    }

    /// Begins a session as soon as the proxy answers, and waits until the tool works.
    fn open(
        process: Option<ChildGuard>,
        address: SocketAddr,
        path: &'static str,
        headers: String,
        prefix: &str,
        kept: ProxyResources,
    ) -> Result<ProxyUnderTest> {
        let (echo, seen) = (format!("{prefix}echo"), format!("{prefix}seen"));
        let mut door = ProxyUnderTest { process, address, path, headers, echo, seen, _kept: kept };
        let hello = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}"#;
        let greeted = until(|| door.ask(hello).ok().filter(|answer| status(answer) == "200"))
            .with_context(|| format!("nothing answers at {address}"))?;
        if let Some(session) = header(greeted.split("\r\n\r\n").next().unwrap_or_default(), "mcp-session-id")
        {
            door.headers.push_str(&format!("mcp-session-id: {session}\r\n"));
        }
        door.headers.push_str("mcp-protocol-version: 2025-06-18\r\n");
        door.ask(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)?;
        let echo = door.echo_call(1);
        until(|| door.ask(&echo).ok().filter(|answer| answer.contains(ECHOED)))
            .with_context(|| format!("no echo: {:?}", door.ask(&echo)))?;
        Ok(door)
    }

    fn echo_call(&self, id: usize) -> String {
        call(id, &self.echo, &format!(r#"{{"text":"{ECHOED}"}}"#))
    }

    /// Returns the bytes of a request that echoes.
    pub(crate) fn echo_request(&self, id: usize) -> Vec<u8> {
        self.request(&self.echo_call(id))
    }

    fn request(&self, body: &str) -> Vec<u8> {
        let ProxyUnderTest { address, path, headers, .. } = self;
        let length = body.len();
        format!(
            "POST {path} HTTP/1.1\r\nhost: {address}\r\naccept: application/json, text/event-stream\r\n\
             content-type: application/json\r\n{headers}content-length: {length}\r\n\r\n{body}"
        )
        .into_bytes()
    }

    /// Sends a message on a connection of its own and returns the whole answer, head and all.
    fn ask(&self, body: &str) -> Result<String> {
        #[expect(clippy::disallowed_methods, reason = "to a server that this program started")]
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(READY_WITHIN))?;
        stream.write_all(&self.request(body))?;
        // To the end that it tells: not everyone closes the connection that is asked to.
        let (mut answer, mut piece) = (Vec::new(), [0; 4096]);
        while answer.len() < ANSWER_BYTES_MAX
            && !BenchHead::parse(&answer).is_some_and(|head| head.is_whole(&answer))
        {
            match stream.read(&mut piece)? {
                0 => break,
                count => answer.extend_from_slice(&piece[..count]),
            }
        }
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }

    /// Returns what the tiny server was asked since this was last called.
    pub(crate) fn seen(&self) -> Result<String> {
        let answer = self.ask(&call(1, &self.seen, "{}"))?;
        let told = answer.split_once("seen ").and_then(|(_, rest)| rest.split_once("end"));
        told.map(|(seen, _)| seen.trim().to_owned())
            .with_context(|| format!("not told what was seen: {answer}"))
    }

    /// Makes one call, and says whether it was answered as it should be.
    pub(crate) fn echoes(&self) -> Result<bool> {
        Ok(self.ask(&self.echo_call(1))?.contains(ECHOED))
    }
}

/// What every call asks for, and every answer must hold.
pub(crate) const ECHOED: &str = "the quick brown fox jumps over the lazy dog, sixteen at a time";

pub(crate) fn call(id: usize, tool: &str, arguments: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments}}}}}"#
    )
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or_default()
}

fn until<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let started = Instant::now();
    loop {
        match look() {
            Some(found) => return Some(found),
            None if started.elapsed() > READY_WITHIN => return None,
            #[expect(clippy::disallowed_methods, reason = "nothing else runs while this waits")]
            None => std::thread::sleep(LOOK_EVERY),
        }
    }
}

fn free_port() -> Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
