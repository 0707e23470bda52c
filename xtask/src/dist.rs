//! `cargo xtask dist`: builds the hub as it is shipped.
//!
//! First a build that counts what it does, then a load for it to count, then a build that knows from the counts which code
//! is used all day and puts it together. The load is the benchmark itself, with a server of this repository behind the hub.
//! The counts are kept below `target/xtask` for the next build; `dist` counts anew.

use crate::layout::Layout;
use crate::run;
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const HUB: &str = "portcullis";
const LOAD: &str = "bench-load";
/// How long all of the load may take. A program that counts is some times slower.
const LOAD_LIMIT: Duration = Duration::from_secs(20 * 60);

/// Whether what was counted for an earlier build is good enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counts {
    Anew,
    AsBefore,
}

/// Builds the hub, and what it is measured with in the same way, into `target/shipped`.
pub(crate) fn build(layout: &Layout, counts: Counts) -> Result<()> {
    let profile = layout.work("counts/merged.profdata");
    if counts == Counts::Anew || !profile.exists() {
        count(layout, &profile)?;
    }
    let flag = format!("-Cprofile-use={}", profile.display());
    let built = cargo(layout, "dist", &flag)?;
    fs::create_dir_all(layout.shipped(""))?;
    for program in [HUB, LOAD] {
        fs::copy(built.join(program), layout.shipped(program)).with_context(|| format!("no `{program}`"))?;
    }
    Ok(())
}

/// Counts what a hub does under load.
fn count(layout: &Layout, profile: &Path) -> Result<()> {
    let merge = profdata(layout)?;
    let raw = layout.work("counts/raw");
    // What an earlier build counted is of other code.
    let _ = fs::remove_dir_all(&raw);
    fs::create_dir_all(&raw)?;
    let built = cargo(layout, "counting", &format!("-Cprofile-generate={}", raw.display()))?;
    for part in ["run", "upstream"] {
        let mut load = layout.command(built.join(LOAD));
        load.arg(part).arg(built.join(HUB));
        let log = layout.log(&format!("count-{part}"));
        run::prepare(&format!("load: {part}"), &mut load, &log, LOAD_LIMIT)?;
    }
    let mut merge = layout.command(merge);
    merge.args(["merge", "-o"]).arg(profile).arg(&raw);
    run::prepare("counts", &mut merge, &layout.log("counts"), run::INSTALL_LIMIT)
}

/// Builds with one more flag, and returns the folder of the programs. Whatever runs while building is built without it.
fn cargo(layout: &Layout, name: &str, flag: &str) -> Result<PathBuf> {
    let host = host()?;
    let target = layout.work(&format!("build-{name}"));
    let mut flags = std::env::var_os("RUSTFLAGS").unwrap_or_default();
    if !flags.is_empty() {
        flags.push(" ");
    }
    flags.push(flag);
    let mut cargo = layout.cargo();
    cargo.args(["build", "--profile", "dist", "--package", "portcullis", "--package", "portcullis-testkit"]);
    cargo.args(["--bin", HUB, "--bin", LOAD, "--target", &host, "--target-dir"]).arg(&target);
    cargo.env("RUSTFLAGS", flags);
    run::prepare(
        &format!("build, {name}"),
        &mut cargo,
        &layout.log(&format!("build-{name}")),
        run::BUILD_LIMIT,
    )?;
    Ok(target.join(host).join("dist"))
}

fn rustc(args: &[&str]) -> Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| OsString::from("rustc"));
    let said = Command::new(rustc).args(args).output().context("rustc did not start")?;
    Ok(String::from_utf8(said.stdout)?)
}

fn host() -> Result<String> {
    let version = rustc(&["-vV"])?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc does not say for which machine it builds")?.to_owned())
}

/// Returns the program that adds counts up. It has to be of the compiler's own version, so it comes with it.
fn profdata(layout: &Layout) -> Result<PathBuf> {
    let program = Path::new(rustc(&["--print", "sysroot"])?.trim())
        .join("lib/rustlib")
        .join(host()?)
        .join("bin/llvm-profdata");
    if !program.exists() {
        println!("Adding `llvm-tools` to the toolchain.");
        let mut rustup = layout.command("rustup");
        rustup.args(["component", "add", "llvm-tools"]);
        run::prepare("rustup", &mut rustup, &layout.log("rustup"), run::INSTALL_LIMIT)
            .context("install the compiler's component `llvm-tools` by hand")?;
    }
    if !program.exists() {
        bail!("the compiler's component `llvm-tools` has no `llvm-profdata`");
    }
    Ok(program)
}
