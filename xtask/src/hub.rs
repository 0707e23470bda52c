//! The built program as a hub for other tasks.

use crate::layout::Layout;
use crate::run::{self, BackgroundProcess};
use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Timeout until a listening hub is ready.
const READY_LIMIT: Duration = Duration::from_secs(10);
/// Timeout of one small request on this machine.
const REQUEST_LIMIT: Duration = Duration::from_secs(5);

/// A hub that serves HTTP on a free port.
pub(crate) struct HubUnderTest {
    pub(crate) process: BackgroundProcess,
    pub(crate) home: PathBuf,
    pub(crate) url: String,
    pub(crate) token: String,
}

impl HubUnderTest {
    /// Starts it on a home, with an unrestricted client.
    pub(crate) fn start(layout: &Layout, home: PathBuf, log: &str) -> Result<HubUnderTest> {
        let added = portcullis(layout, &home).args(["clients", "add", "sdk", "--json"]).output();
        let added = added.context("cannot start `portcullis`")?;
        if !added.status.success() {
            bail!("`portcullis clients add` failed: {}", String::from_utf8_lossy(&added.stderr));
        }
        let token = text(&serde_json::from_slice(&added.stdout)?, "token")?;
        let mut command = portcullis(layout, &home);
        // Port 0 selects a free port; the greeting names it.
        command.args(["serve", "--json"]).env("MCP_HTTP_PORT", "0");
        let log = layout.log(log);
        let mut process = BackgroundProcess::start(&mut command, &log)?;
        let greeting = process.greeting(|stdout| {
            let mut values = serde_json::Deserializer::from_reader(stdout).into_iter::<Value>();
            Ok(values.next().context("the hub ended at once")??)
        });
        let greeting = greeting.with_context(|| format!("see {}", layout.shown(&log)))?;
        let url = text(&greeting, "url")?;
        let url = url.strip_suffix("/mcp").context("the hub's address does not end with /mcp")?.to_owned();
        wait_until_healthy(&url)?;
        Ok(HubUnderTest { process, home, url, token })
    }

    /// Passes the addresses and paths to a script, as environment variables.
    pub(crate) fn introduce(&self, layout: &Layout, command: &mut Command, home: &Path) {
        command
            .env("PORTCULLIS_BIN", layout.built("portcullis"))
            .env("PORTCULLIS_TEST_HOME", home)
            .env("PORTCULLIS_URL", &self.url)
            .env("PORTCULLIS_TOKEN", &self.token);
    }
}

/// Returns the command for a home.
pub(crate) fn portcullis(layout: &Layout, home: &Path) -> Command {
    let mut command = layout.command(layout.built("portcullis"));
    command.arg("--home").arg(home);
    command
}

fn text(value: &Value, name: &str) -> Result<String> {
    let found = value.get(name).and_then(Value::as_str);
    found.map(str::to_owned).with_context(|| format!("portcullis did not say its {name}"))
}

fn wait_until_healthy(url: &str) -> Result<()> {
    let address: SocketAddr =
        url.strip_prefix("http://").unwrap_or(url).parse().context("the hub's address")?;
    let start = Instant::now();
    loop {
        match status_of(address, "/healthz") {
            Ok(status) if status.contains(" 200 ") => return Ok(()),
            answer if start.elapsed() > READY_LIMIT => {
                return Err(anyhow!("the hub does not become healthy: {answer:?}"));
            }
            _ => run::pause(),
        }
    }
}

/// Requests a path, and returns the status line.
fn status_of(address: SocketAddr, path: &str) -> Result<String> {
    #[expect(clippy::disallowed_methods, reason = "to a hub that this program started")]
    let mut stream = TcpStream::connect_timeout(&address, REQUEST_LIMIT)?;
    stream.set_read_timeout(Some(REQUEST_LIMIT))?;
    stream.write_all(
        format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").as_bytes(),
    )?;
    let mut answer = Vec::new();
    stream.take(64 * 1024).read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    Ok(answer.lines().next().unwrap_or_default().to_owned())
}
