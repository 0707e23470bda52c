//! The server that the official conformance suite is run against: the real server and the real gate, with
//! the suite's fixtures behind them. Not part of what is shipped.
//!
//! `conformance-server [PORT]` prints its address and serves until its standard input ends.

use portcullis_core::Registry;
use portcullis_testkit::{BoxedHub, conformance};
use tokio::io::AsyncReadExt;

#[tokio::main]
#[expect(clippy::print_stdout, reason = "whoever starts this reads the address from here")]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    let port = std::env::args().nth(1).map(|port| port.parse()).transpose()?.unwrap_or(0);
    let registry = Registry::default();
    registry.add(conformance::family(registry.changes()))?;
    let boxed = BoxedHub::new(registry, true)?;
    println!("http://{}/mcp", boxed.listen(port).await?);
    let mut rest = Vec::new();
    tokio::io::stdin().take(1).read_to_end(&mut rest).await?;
    Ok(())
}
