//! Measures a hub. `cargo xtask bench` builds it, runs it and writes down what it prints.
//!
//! `bench-load run PORTCULLIS` prints one line per figure: what, measured, target and verdict, with tabs between.
//! `bench-load echo` and `constant TEXT_BYTES` are what the hub is compared with, processes of their own as the hub is.
//! `bench-load gate`, `store`, `http PORTCULLIS`, `memory PORTCULLIS` and `vault PORTCULLIS` measure one part, for who changes it.
//! `bench-load upstream PORTCULLIS [rust=PROGRAM] [npm=NODE:SCRIPT] [pypi=PROGRAM] [tiny=NODE:SCRIPT]` calls another server
//! through the hub and through others of its kind; `bench-load tiny stdio` and `tiny http` are that server, unless it is told.
//! `bench-load compare PORTCULLIS…` loads several builds by turns; `compare-upstream tiny=NODE:SCRIPT PORTCULLIS…` lets them
//! call another server.
//! `bench-load load PORTCULLIS ERA SECONDS` only loads a hub, for a profiler to look at.

mod echo;
mod figure;
mod gate;
mod http;
mod hub;
mod load;
mod memory;
mod peers;
mod request_load;
mod start;
mod store;
mod tiny_server;
mod upstream;
mod vault;

use anyhow::{Context, Result, bail};
use std::path::Path;

// The hub's own, so that both sides of every comparison have the same one.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// One thread drives the load: the hub gets what is left of two cores.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["run", portcullis] => run(Path::new(portcullis)).await,
        ["echo"] => echo::echo(),
        ["hold-database", folder] => store::hold(Path::new(folder)),
        ["store"] => store::measure().map(|figures| print(&figures)),
        ["constant", text_bytes] => echo::constant(text_bytes.parse()?),
        ["tiny", "stdio"] => tiny_server::stdio(),
        ["tiny", "http"] => tiny_server::http(),
        ["upstream", portcullis, ref peers @ ..] => {
            let peers = upstream::PeerPrograms::parse(peers)?;
            upstream::measure(Path::new(portcullis), &peers).await.map(|figures| print(&figures))
        }
        ["gate"] => gate::measure().await.map(|figures| print(&figures)),
        ["http", portcullis] => load::measure(Path::new(portcullis)).await.map(|figures| print(&figures)),
        ["memory", portcullis] => memory::measure(Path::new(portcullis)).await.map(|figures| print(&figures)),
        ["vault", portcullis] => vault::measure(Path::new(portcullis)).await.map(|figures| print(&figures)),
        ["compare", ref portcullises @ ..] => {
            load::compare(portcullises).await.map(|figures| print(&figures))
        }
        ["compare-upstream", tiny, ref portcullises @ ..] => {
            let peers = upstream::PeerPrograms::parse(&[tiny])?;
            upstream::compare(portcullises, &peers).await.map(|figures| print(&figures))
        }
        ["load", portcullis, era, seconds] => {
            let era = http::SessionMode::ALL
                .into_iter()
                .find(|known| known.as_str() == era)
                .context("no such era")?;
            load::only(Path::new(portcullis), era, seconds.parse()?).await
        }
        _ => bail!("see the head of bench-load/main.rs for its commands"),
    }
}

/// Everything, in an order in which no figure disturbs another.
async fn run(portcullis: &Path) -> Result<()> {
    print(&gate::measure().await.context("the gate")?);
    print(&load::measure(portcullis).await.context("calls over HTTP")?);
    print(&start::measure(portcullis).context("the start")?);
    print(&store::measure().context("the database")?);
    print(&memory::measure(portcullis).await.context("memory")?);
    print(&vault::measure(portcullis).await.context("the vault")?);
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the parent process reads the figures from here")]
fn print(figures: &[figure::BenchFigure]) {
    figures.iter().for_each(|figure| println!("{figure}"));
}
