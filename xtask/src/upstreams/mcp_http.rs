//! An MCP client over HTTP that makes one request at a time and reads every response to its end.

use crate::hub::HubUnderTest;
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A browser that is started for a call takes seconds.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);
/// Larger than any response here.
const ANSWER_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// Makes a request and returns its result.
pub(super) fn ask(hub: &HubUnderTest, method: &str, params: &Value) -> Result<Value> {
    let address: SocketAddr = hub.url.trim_start_matches("http://").parse().context("the hub's address")?;
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
    #[expect(clippy::disallowed_methods, reason = "to a hub that this program started")]
    let mut stream = TcpStream::connect_timeout(&address, ANSWER_LIMIT)?;
    stream.set_read_timeout(Some(ANSWER_LIMIT))?;
    // HTTP/1.0 has no chunks, so the response ends with the connection.
    write!(
        stream,
        "POST /mcp HTTP/1.0\r\nHost: {address}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2025-06-18\r\nContent-Length: {}\r\n\r\n{body}",
        hub.token,
        body.len(),
    )?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
    result(&String::from_utf8_lossy(&answer))
}

/// Extracts the result from a response, JSON or an event stream that ends with it.
fn result(answer: &str) -> Result<Value> {
    let (_, body) = answer.split_once("\r\n\r\n").context("an answer without a head")?;
    let messages = body.lines().map(|line| line.strip_prefix("data:").unwrap_or(line).trim());
    let mut messages = messages.filter_map(|text| serde_json::from_str::<Value>(text).ok());
    let found = messages.rfind(|message| message["id"] == 1);
    let mut message = found.with_context(|| format!("no answer in: {answer}"))?;
    match message["result"].take() {
        Value::Null => bail!("{message}"),
        result => Ok(result),
    }
}

/// Returns all text of a tool's result.
pub(super) fn text(result: &Value) -> String {
    let content = result["content"].as_array().map(Vec::as_slice).unwrap_or_default();
    content.iter().filter_map(|part| part["text"].as_str()).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_found_in_both_kinds_of_answers() {
        let plain = "HTTP/1.0 200 OK\r\n\r\n{\"id\":1,\"result\":{\"a\":1}}";
        assert_eq!(result(plain).unwrap(), json!({ "a": 1 }));
        let stream = "HTTP/1.0 200 OK\r\n\r\ndata: {\"method\":\"x\"}\n\nid: 2\ndata: {\"id\":1,\"result\":{\"a\":2}}\n\n";
        assert_eq!(result(stream).unwrap(), json!({ "a": 2 }));
        let refused = "HTTP/1.0 200 OK\r\n\r\n{\"id\":1,\"error\":{\"code\":1}}";
        assert!(result(refused).unwrap_err().to_string().contains("\"code\":1"));
    }
}
