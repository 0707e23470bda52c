//! cargo-deny: checks licenses, sources and bans of the dependencies by `deny.toml`.
//!
//! Advisories are not checked: their database is a git repository, and the tasks reach package registries
//! only.

use crate::layout::Layout;
use crate::run;
use anyhow::Result;
use std::path::PathBuf;

const VERSION: &str = "0.20.2";

/// Runs the checks, and returns whether all passed.
pub(crate) fn run(layout: &Layout) -> Result<bool> {
    let mut check = layout.command(install(layout)?);
    check.args(["--workspace", "check", "bans", "licenses", "sources"]);
    Ok(run::shown(&mut check, run::INSTALL_LIMIT)?.passed())
}

/// Returns the pinned cargo-deny; installs it if missing.
fn install(layout: &Layout) -> Result<PathBuf> {
    let folder = layout.work("cargo-deny").join(VERSION);
    let program = folder.join("bin/cargo-deny");
    if run::exists(&mut layout.command(&program)) {
        return Ok(program);
    }
    println!("Installing cargo-deny {VERSION} below target/xtask/cargo-deny.");
    let mut cargo = layout.cargo();
    // Not optimized: it checks one workspace, and builds in a third of the time.
    cargo.args(["install", "cargo-deny", "--locked", "--debug", "--version", VERSION, "--root"]).arg(&folder);
    cargo.arg("--target-dir").arg(layout.work("cargo-deny").join("build"));
    run::prepare("cargo-deny", &mut cargo, &layout.log("install-deny"), run::BUILD_LIMIT)?;
    Ok(program)
}
