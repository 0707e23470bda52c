//! Conformance server: the real server and the real gate, with the suite's fixtures behind them. Not shipped.
//!
//! - `conformance-server [PORT]` prints its address and serves until its stdin closes.
//! - `conformance-server stdio [sessions|requests]` serves on stdin and stdout, optionally in one era only.
//! - `conformance-server behind [sessions|requests]` is a hub with the previous one as its only upstream server;
//!   it prints its address and serves until its stdin closes.

use anyhow::{Context, bail};
use portcullis_core::Registry;
use portcullis_server::line::LineCaller;
use portcullis_testkit::{BoxedHub, conformance, taken_as_it_is};
use portcullis_upstream::{
    Processes, ProgramLookup, StatusKind, StdioSpec, Upstream, ValueResolver, WorkingDir,
};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["stdio"] => serve_lines(None).await,
        ["stdio", era] => serve_lines(Some(era)).await,
        ["behind", era] => serve_http(behind(Some(era)).await?, 0).await,
        ["behind"] => serve_http(behind(None).await?, 0).await,
        [port] => serve_http(fixtures()?, port.parse()?).await,
        [] => serve_http(fixtures()?, 0).await,
        _ => bail!("see the first lines of the source"),
    }
}

fn fixtures() -> anyhow::Result<Registry> {
    let registry = Registry::default();
    registry.add(conformance::family(registry.changes()))?;
    Ok(registry)
}

#[expect(clippy::print_stdout, reason = "the address is read from stdout")]
async fn serve_http(registry: Registry, port: u16) -> anyhow::Result<()> {
    let boxed = BoxedHub::new(registry, true)?;
    println!("http://{}/mcp", boxed.listen(port).await?);
    let mut rest = Vec::new();
    tokio::io::stdin().take(1).read_to_end(&mut rest).await?;
    Ok(())
}

/// Serves on stdin and stdout. Methods of the other era are unknown.
async fn serve_lines(era: Option<&str>) -> anyhow::Result<()> {
    let unknown = match era {
        Some("sessions") => "server/discover",
        Some("requests") => "initialize",
        None => "",
        Some(_) => bail!("an era is `sessions` or `requests`"),
    };
    let boxed = BoxedHub::new(fixtures()?, true)?;
    let (inside, outside) = tokio::io::duplex(64 * 1024);
    let (from, to) = tokio::io::split(inside);
    tokio::spawn(portcullis_server::line::serve(boxed.hub.clone(), "stdio", LineCaller::Local, from, to));
    let (mut answers, mut requests) = tokio::io::split(outside);
    let answering =
        tokio::spawn(async move { tokio::io::copy(&mut answers, &mut tokio::io::stdout()).await });
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let message: Value = serde_json::from_str(&line).unwrap_or_default();
        if message["method"] == unknown {
            let error = json!({ "code": -32601, "message": "Method not found" });
            let answer = json!({ "jsonrpc": "2.0", "id": message["id"], "error": error });
            tokio::io::stdout().write_all(format!("{answer}\n").as_bytes()).await?;
            tokio::io::stdout().flush().await?;
            continue;
        }
        requests.write_all(format!("{line}\n").as_bytes()).await?;
    }
    requests.shutdown().await?;
    answering.await??;
    Ok(())
}

/// Registers this program as an upstream server, with its tools under their own names.
async fn behind(era: Option<&str>) -> anyhow::Result<Registry> {
    let registry = Registry::default();
    let args = ["stdio"].into_iter().chain(era).map(str::to_owned).collect();
    let own = std::env::current_exe()?;
    let transport = StdioSpec {
        program: ProgramLookup(Arc::new(move || Ok(own.clone()))),
        args,
        cwd: WorkingDir::Inherited,
        env: Vec::new(),
        values: ValueResolver(Arc::new(|written: &str| Ok(written.to_owned()))),
        processes: Arc::new(Processes::new(std::path::Path::new("/nowhere"))?),
        digests: Arc::default(),
    };
    let spec = taken_as_it_is("fixtures", transport);
    let upstream = Upstream::start(spec, registry.changes());
    registry.add(upstream.clone())?;
    let mut status = upstream.watch();
    let connected = status.wait_for(|status| status.kind == StatusKind::Connected);
    tokio::time::timeout(Duration::from_secs(20), connected)
        .await
        .context("the upstream did not connect")??;
    Ok(registry)
}
