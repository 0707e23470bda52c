//! A client that makes one request after the other on one connection, with no runtime that could delay it.

use super::PATIENCE;
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

/// Larger than any answer here: a page of a list.
const ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;
/// How a body ends that comes in chunks.
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";
const ECHOED: &str = "heard and said again";

pub(super) struct SequentialClient {
    stream: TcpStream,
    address: SocketAddr,
    token: String,
    answer: Vec<u8>,
}

impl SequentialClient {
    pub(super) fn connect(address: SocketAddr, token: &str) -> Result<SequentialClient> {
        #[expect(clippy::disallowed_methods, reason = "to a hub that this program started")]
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(SequentialClient { stream, address, token: token.to_owned(), answer: Vec::new() })
    }

    /// Makes a request, and returns the body of its answer.
    pub(super) fn ask(&mut self, method: &str, params: &Value) -> Result<&str> {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
        let (address, token, length) = (self.address, &self.token, body.len());
        let request = format!(
            "POST /mcp HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\n\
             accept: application/json, text/event-stream\r\ncontent-type: application/json\r\n\
             mcp-protocol-version: 2025-06-18\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        self.stream.write_all(request.as_bytes())?;
        self.answer.clear();
        let mut piece = [0; 64 * 1024];
        loop {
            let count = self.stream.read(&mut piece)?;
            if count == 0 || self.answer.len() > ANSWER_BYTES_MAX {
                bail!("the connection was closed, or an answer was too large");
            }
            self.answer.extend_from_slice(&piece[..count]);
            if let Some(body) = whole(&self.answer)? {
                return std::str::from_utf8(&self.answer[body..]).context("an answer that is not text");
            }
        }
    }

    pub(super) fn call(&mut self, tool: &str, arguments: &Value) -> Result<&str> {
        self.ask("tools/call", &json!({ "name": tool, "arguments": arguments }))
    }

    /// Calls a tool that echoes, and returns whether it did.
    pub(super) fn echoes(&mut self, tool: &str) -> Result<bool> {
        Ok(self.call(tool, &json!({ "text": ECHOED }))?.contains(ECHOED))
    }

    pub(super) fn lists(&mut self, tool: &str) -> Result<bool> {
        Ok(self.ask("tools/list", &json!({}))?.contains(&format!("\"{tool}\"")))
    }
}

/// Returns where the body begins, if all of the answer is there.
fn whole(answer: &[u8]) -> Result<Option<usize>> {
    let Some(end) = answer.windows(4).position(|window| window == b"\r\n\r\n") else { return Ok(None) };
    let (head, body) = (std::str::from_utf8(&answer[..end])?, end + 4);
    let header = |name: &str| {
        head.lines().find_map(|line| {
            let (own, value) = line.split_once(':')?;
            own.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    };
    let is_whole = match header("content-length") {
        Some(length) => answer.len() >= body + length.parse::<usize>()?,
        None => answer[body..].ends_with(LAST_CHUNK),
    };
    Ok(is_whole.then_some(body))
}
