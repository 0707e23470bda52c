//! The least that a server could do.
//!
//! The echo parses the JSON that it is sent and sends it back. The other one does still less: it parses a small
//! request, as the hub gets it, and answers with text that it has at hand.

use anyhow::Result;
use axum::Router;
use axum::body::Bytes;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::serve::ListenerExt;
use serde::Serialize;
use serde_json::Value;
use std::sync::Arc;
use tokio::net::TcpListener;

#[derive(Serialize)]
struct Answer<'a> {
    jsonrpc: &'static str,
    id: &'a Value,
    result: CallResult<'a>,
}

#[derive(Serialize)]
struct CallResult<'a> {
    content: [Content<'a>; 1],
    #[serde(rename = "isError")]
    is_error: bool,
}

#[derive(Serialize)]
struct Content<'a> {
    r#type: &'static str,
    text: &'a str,
}

/// Prints its address and serves until it is ended, on as many threads as the hub has.
#[tokio::main]
#[expect(clippy::print_stdout, reason = "the parent process reads the address from here")]
async fn listen(app: Router) -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    let listener = listener.tap_io(|stream| {
        // A stream that refuses is only slower.
        let _ = stream.set_nodelay(true);
    });
    Ok(axum::serve(listener, app).await?)
}

/// Serves on threads of its own: the caller is inside a runtime of one thread.
fn serve(app: Router) -> Result<()> {
    std::thread::scope(|scope| scope.spawn(|| listen(app)).join())
        .map_err(|_| anyhow::anyhow!("the echo panicked"))?
}

/// Sends back what it gets.
pub(crate) fn echo() -> Result<()> {
    serve(
        Router::new()
            .route("/mcp", post(|body: Bytes| async move { parsed(&body).map(|value| json(&value)) })),
    )
}

/// Answers with `text_bytes` of text, whatever is asked.
pub(crate) fn constant(text_bytes: usize) -> Result<()> {
    let text: Arc<str> = crate::hub::sample_text().chars().take(text_bytes).collect::<String>().into();
    let answer = move |body: Bytes| {
        let text = text.clone();
        async move {
            parsed(&body).map(|request| {
                let content = [Content { r#type: "text", text: &text }];
                let result = CallResult { content, is_error: false };
                json(&Answer { jsonrpc: "2.0", id: &request["id"], result })
            })
        }
    };
    serve(Router::new().route("/mcp", post(answer)))
}

fn parsed(body: &Bytes) -> Result<Value, StatusCode> {
    serde_json::from_slice(body).map_err(|_| StatusCode::BAD_REQUEST)
}

fn json(answer: &impl Serialize) -> Response {
    match serde_json::to_vec(answer) {
        Ok(bytes) => ([(header::CONTENT_TYPE, "application/json")], bytes).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
