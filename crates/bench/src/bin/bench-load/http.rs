//! HTTP/1.1 by hand: requests written once, answers read only as far as they are needed.

use anyhow::{Context, Result, bail};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// How long one answer may take before the run is given up.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// Larger than the head of any answer here.
const HEAD_BYTES_MAX: usize = 4_096;

/// How a body ends that comes in chunks.
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// The two ways to speak MCP over HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SessionMode {
    Sessions,
    PerRequest,
}

impl SessionMode {
    pub(crate) const ALL: [SessionMode; 2] = [SessionMode::Sessions, SessionMode::PerRequest];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            SessionMode::Sessions => "2025-06-18",
            SessionMode::PerRequest => "2026-07-28",
        }
    }

    /// Returns a body that reads one file.
    pub(crate) fn read_call(self, id: usize, path: &str) -> String {
        let meta = match self {
            SessionMode::Sessions => "",
            SessionMode::PerRequest => {
                r#","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}"#
            }
        };
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"workspace_read","arguments":{{"path":"{path}"}}{meta}}}}}"#
        )
    }

    /// Returns the headers that such a call needs.
    pub(crate) fn headers(self, session: Option<&str>) -> String {
        match (self, session) {
            (SessionMode::Sessions, Some(session)) => {
                format!("mcp-protocol-version: 2025-06-18\r\nmcp-session-id: {session}\r\n")
            }
            (SessionMode::Sessions, None) => "mcp-protocol-version: 2025-06-18\r\n".to_owned(),
            (SessionMode::PerRequest, _) => {
                "mcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\nmcp-name: workspace_read\r\n"
                    .to_owned()
            }
        }
    }
}

/// Where to, and as whom.
#[derive(Debug, Clone)]
pub(crate) struct HubEndpoint {
    pub(crate) address: SocketAddr,
    pub(crate) token: String,
}

impl HubEndpoint {
    /// Returns the bytes of a request. `headers` are whole lines.
    pub(crate) fn request(&self, method: &str, headers: &str, body: &str) -> Vec<u8> {
        let HubEndpoint { address, token } = self;
        let length = body.len();
        format!(
            "{method} /mcp HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\n\
             accept: application/json, text/event-stream\r\ncontent-type: application/json\r\n\
             {headers}content-length: {length}\r\n\r\n{body}"
        )
        .into_bytes()
    }

    pub(crate) fn connect(&self) -> Result<TcpStream> {
        #[expect(clippy::disallowed_methods, reason = "to a hub that this program started")]
        let stream = TcpStream::connect(self.address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_WITHIN))?;
        Ok(stream)
    }
}

/// The head of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BenchHead {
    pub(crate) status: u16,
    /// Up to and with the empty line.
    pub(crate) bytes: usize,
    pub(crate) content_bytes: Option<usize>,
    /// The body comes in pieces that say their length.
    pub(crate) chunked: bool,
}

impl BenchHead {
    /// Returns the head if all of it is there.
    pub(crate) fn parse(answer: &[u8]) -> Option<BenchHead> {
        let bytes = answer.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
        let head = std::str::from_utf8(&answer[..bytes]).ok()?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        let content_bytes = header(head, "content-length").and_then(|value| value.parse().ok());
        let chunked = header(head, "transfer-encoding").is_some_and(|value| value == "chunked");
        Some(BenchHead { status, bytes, content_bytes, chunked })
    }

    /// Returns whether all of the answer that begins with this head is there. One without a length never is.
    pub(crate) fn is_whole(&self, answer: &[u8]) -> bool {
        match self.content_bytes {
            Some(content_bytes) => answer.len() >= self.bytes + content_bytes,
            None => self.chunked && answer[self.bytes..].ends_with(LAST_CHUNK),
        }
    }
}

/// Returns the value of a header.
pub(crate) fn header<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    head.split("\r\n").skip(1).find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

/// An answer that was read to its end.
pub(crate) struct BenchResponse {
    pub(crate) status: u16,
    pub(crate) session: Option<String>,
    pub(crate) body: String,
}

/// Sends a request and reads its answer, for what is not timed by the call.
pub(crate) fn ask(stream: &mut TcpStream, request: &[u8]) -> Result<BenchResponse> {
    let (head, mut answer) = open(stream, request)?;
    let end = head.bytes + head.content_bytes.unwrap_or(0);
    let mut chunk = [0; 16 * 1024];
    while answer.len() < end {
        read_more(stream, &mut chunk, &mut answer)?;
    }
    let text = String::from_utf8(answer).context("an answer that is not text")?;
    let session = header(&text[..head.bytes], "mcp-session-id").map(str::to_owned);
    Ok(BenchResponse { status: head.status, session, body: text[head.bytes..end].to_owned() })
}

/// Sends a request and reads until the head of its answer is there.
pub(crate) fn open(stream: &mut TcpStream, request: &[u8]) -> Result<(BenchHead, Vec<u8>)> {
    stream.write_all(request)?;
    let (mut answer, mut chunk) = (Vec::new(), [0; 16 * 1024]);
    loop {
        read_more(stream, &mut chunk, &mut answer)?;
        match BenchHead::parse(&answer) {
            Some(head) => return Ok((head, answer)),
            None if answer.len() > HEAD_BYTES_MAX => bail!("an answer without an end of its head"),
            None => {}
        }
    }
}

fn read_more(stream: &mut TcpStream, chunk: &mut [u8], into: &mut Vec<u8>) -> Result<()> {
    match stream.read(chunk)? {
        0 => bail!("the connection was closed"),
        count => into.extend_from_slice(&chunk[..count]),
    }
    Ok(())
}

/// Begins a session and returns its id.
pub(crate) fn begin_session(stream: &mut TcpStream, place: &HubEndpoint) -> Result<String> {
    let initialize = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}"#;
    let answer = ask(stream, &place.request("POST", "", initialize))?;
    let session = answer.session.with_context(|| format!("no session: {} {}", answer.status, answer.body))?;
    let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    let headers = SessionMode::Sessions.headers(Some(&session));
    let answer = ask(stream, &place.request("POST", &headers, initialized))?;
    if answer.status != 202 {
        bail!("`initialized` was answered {} {}", answer.status, answer.body);
    }
    Ok(session)
}

/// Lists the tools, as the first thing that a client does.
pub(crate) fn list_tools(stream: &mut TcpStream, place: &HubEndpoint) -> Result<()> {
    let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    let answer = ask(stream, &place.request("POST", &SessionMode::Sessions.headers(None), list))?;
    if answer.status != 200 || !answer.body.contains("workspace_read") {
        bail!("`tools/list` was answered {} {}", answer.status, answer.body);
    }
    Ok(())
}
