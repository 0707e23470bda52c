//! Other MCP proxies for comparison, installed from the registries in exact versions.

use crate::layout::Layout;
use crate::node::NodePackages;
use crate::{python, run};
use anyhow::Result;

/// The crate, which has its own lock file.
const CRATE: &str = "mcp-proxy@0.6.0";

/// Installs the proxies that are missing, and returns the arguments that name them for `bench-load upstream`.
pub(super) fn install(layout: &Layout) -> Result<Vec<String>> {
    let node = NodePackages::install(layout)?;
    let npm = NodePackages::packages(layout, "peers", "`mcp-proxy` from npm")?;
    let python = python::install(layout, "proxy")?;
    let (node, script) = (node.program(), npm.module("mcp-proxy/dist/bin/mcp-proxy.mjs"));
    let tiny = layout.root.join("crates/bench/src/bin/bench-load/tiny.mjs");
    Ok(vec![
        format!("tiny={}:{}", node.display(), tiny.display()),
        format!("rust={}", cargo_install(layout)?),
        format!("npm={}:{}", node.display(), script.display()),
        format!("pypi={}", python.with_file_name("mcp-proxy").display()),
    ])
}

/// Builds the crate as `cargo install` does for its users.
fn cargo_install(layout: &Layout) -> Result<String> {
    let root = layout.work("cargo");
    let program = root.join("bin/mcp-proxy");
    // An installed version is kept.
    if !program.exists() {
        println!("Installing `mcp-proxy` from crates.io below target/xtask/cargo.");
        let mut cargo = layout.cargo();
        cargo.args(["install", "--locked", CRATE, "--root"]).arg(&root);
        cargo.arg("--target-dir").arg(layout.work("cargo-build"));
        run::prepare("cargo install", &mut cargo, &layout.log("cargo-install"), run::BUILD_LIMIT)?;
    }
    Ok(program.display().to_string())
}
