//! The smallest server that is one: `echo`, over standard streams or HTTP, and a count of what it was asked.
//!
//! It does as little as a server can, on one thread, so that what is measured is the proxy before it.

use anyhow::Result;
use axum::Router;
use axum::body::Bytes;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::serve::ListenerExt;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::sync::Arc;
use tokio::net::TcpListener;

/// As much as a pipe holds.
const PIPE_BYTES: usize = 64 * 1024;
/// How many methods are counted apart; no contender uses more.
const METHODS_MAX: usize = 32;

const TOOLS: &str = r#"{"tools":[{"name":"echo","description":"Says what it is told.","inputSchema":{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}},{"name":"seen","description":"Says what it was asked since it last said so.","inputSchema":{"type":"object"}}]}"#;
const HELLO: &str = r#"{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"tiny","version":"1"}}"#;

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(default, borrow)]
    method: Cow<'a, str>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct CallParams<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(default, borrow)]
    arguments: Arguments<'a>,
}

#[derive(Default, Deserialize)]
struct Arguments<'a> {
    #[serde(default, borrow)]
    text: Cow<'a, str>,
}

#[derive(Serialize)]
struct Content<'a> {
    content: [Text<'a>; 1],
}

#[derive(Serialize)]
struct Text<'a> {
    r#type: &'static str,
    text: &'a str,
}

/// How often each method was asked since that was last told.
type MethodCounts = BTreeMap<String, usize>;

/// Adds the answer to `out`, and returns whether there is one.
fn answer(message: &[u8], seen: &mut MethodCounts, out: &mut Vec<u8>) -> Result<bool> {
    let message: Message<'_> = serde_json::from_slice(message)?;
    let method = &*message.method;
    let call: Option<CallParams<'_>> = match (method, message.params) {
        ("tools/call", Some(params)) => Some(serde_json::from_str(params.get())?),
        _ => None,
    };
    let asks_what_was_seen = call.as_ref().is_some_and(|call| call.name == "seen");
    if !asks_what_was_seen {
        if let Some(count) = seen.get_mut(method) {
            *count += 1;
        } else if seen.len() < METHODS_MAX {
            seen.insert(method.to_owned(), 1);
        }
    }
    let Some(id) = message.id else { return Ok(false) };
    write!(out, r#"{{"jsonrpc":"2.0","id":{id},"#)?;
    let mut says = |text: &str| -> Result<()> {
        out.extend_from_slice(br#""result":"#);
        serde_json::to_writer(&mut *out, &Content { content: [Text { r#type: "text", text }] })?;
        Ok(())
    };
    match (method, call) {
        ("tools/call", Some(_)) if asks_what_was_seen => says(&told(&std::mem::take(seen)))?,
        ("tools/call", Some(call)) => says(&call.arguments.text)?,
        ("initialize", _) => write!(out, r#""result":{HELLO}"#)?,
        ("tools/list", _) => write!(out, r#""result":{TOOLS}"#)?,
        ("ping", _) => write!(out, r#""result":{{}}"#)?,
        _ => write!(out, r#""error":{{"code":-32601,"message":"Method not found"}}"#)?,
    }
    out.push(b'}');
    Ok(true)
}

/// In a form that survives being quoted: `seen tools/call=20 end`.
fn told(seen: &MethodCounts) -> String {
    let counts: Vec<String> = seen.iter().map(|(method, count)| format!("{method}={count} ")).collect();
    format!("seen {}end", counts.concat())
}

/// Serves until standard input ends. What has arrived together is answered together.
pub(crate) fn stdio() -> Result<()> {
    let (stdin, mut stdout) = (std::io::stdin().lock(), std::io::stdout().lock());
    let mut lines = BufReader::with_capacity(PIPE_BYTES, stdin);
    let (mut line, mut out, mut seen) = (Vec::new(), Vec::new(), MethodCounts::new());
    loop {
        line.clear();
        if lines.read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        if answer(&line, &mut seen, &mut out)? {
            out.push(b'\n');
        }
        if !lines.buffer().contains(&b'\n') {
            stdout.write_all(&out)?;
            stdout.flush()?;
            out.clear();
        }
    }
}

/// Prints its address and serves until it is ended.
pub(crate) fn http() -> Result<()> {
    // A thread of its own: the caller is inside of another runtime.
    std::thread::scope(|scope| scope.spawn(listen).join())
        .map_err(|_| anyhow::anyhow!("the server panicked"))?
}

#[tokio::main(flavor = "current_thread")]
#[expect(clippy::print_stdout, reason = "the parent process reads the address from here")]
async fn listen() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    let listener = listener.tap_io(|stream| {
        // A stream that refuses is only slower.
        let _ = stream.set_nodelay(true);
    });
    let seen = Arc::new(Mutex::new(MethodCounts::new()));
    let app = Router::new().route(
        "/mcp",
        post(move |body: Bytes| {
            let seen = seen.clone();
            async move { posted(&body, &seen) }
        }),
    );
    Ok(axum::serve(listener, app).await?)
}

fn posted(body: &[u8], seen: &Mutex<MethodCounts>) -> Response {
    let mut out = Vec::with_capacity(256);
    match answer(body, &mut seen.lock(), &mut out) {
        Ok(true) => ([(header::CONTENT_TYPE, "application/json")], out).into_response(),
        Ok(false) => StatusCode::ACCEPTED.into_response(),
        Err(_) => StatusCode::BAD_REQUEST.into_response(),
    }
}
