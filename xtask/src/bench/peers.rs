//! Other programs of the hub's kind, installed from the registries in exact versions.

use crate::layout::Layout;
use crate::node::Node;
use crate::{python, run};
use anyhow::Result;

/// The crate, which has its own lock file.
const CRATE: &str = "mcp-proxy@0.6.0";

/// Installs what is not there yet, and returns the words by which `bench-load upstream` knows them.
pub(super) fn install(layout: &Layout) -> Result<Vec<String>> {
    let node = Node::install(layout)?;
    let npm = Node::packages(layout, "peers", "`mcp-proxy` from npm")?;
    let python = python::install(layout, "proxy")?;
    let (node, script) = (node.program(), npm.module("mcp-proxy/dist/bin/mcp-proxy.mjs"));
    let tiny = layout.root.join("crates/testkit/src/bench/tiny.mjs");
    Ok(vec![
        format!("tiny={}:{}", node.display(), tiny.display()),
        format!("rust={}", cargo_install(layout)?),
        format!("npm={}:{}", node.display(), script.display()),
        format!("pypi={}", python.with_file_name("mcp-proxy").display()),
    ])
}

/// Builds the crate as whoever installs it gets it.
fn cargo_install(layout: &Layout) -> Result<String> {
    let root = layout.work("cargo");
    let program = root.join("bin/mcp-proxy");
    // A version that is there already is left as it is.
    if !program.exists() {
        println!("Installing `mcp-proxy` from crates.io below target/xtask/cargo.");
        let mut cargo = layout.cargo();
        cargo.args(["install", "--locked", CRATE, "--root"]).arg(&root);
        cargo.arg("--target-dir").arg(layout.work("cargo-build"));
        run::prepare("cargo install", &mut cargo, &layout.log("cargo-install"), run::BUILD_LIMIT)?;
    }
    Ok(program.display().to_string())
}
