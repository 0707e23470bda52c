//! `cargo xtask dist`: builds the hub as it is shipped.
//!
//! First a build that counts what it does, then a load for it to count, then a build that knows from the counts which code
//! is used all day and puts it together. The load is the benchmark itself, with a server of this repository behind the hub.
//! The counts are kept below `target/xtask`, and used again for the same code by the same compiler. Code that changed is counted
//! anew: with counts of other code, what changed counts as never used, and is built small and slow.

use crate::layout::Layout;
use crate::run;
use anyhow::{Context, Result, bail};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const HUB: &str = "portcullis";
const LOAD: &str = "bench-load";
/// How long all of the load may take. A program that counts is some times slower.
const LOAD_LIMIT: Duration = Duration::from_secs(20 * 60);
/// What stands between two flags for the compiler.
const BETWEEN: &str = "\u{1f}";

/// Names the file beside the counts that says of what they are.
const OF: &str = "of";

/// Builds the hub, and what it is measured with in the same way, into `target/shipped`.
pub(crate) fn build(layout: &Layout) -> Result<()> {
    let folder = layout.work("counts");
    let code = digest_of_code(layout)?;
    let profile = match kept(&folder, &code) {
        Some(kept) => kept,
        None => count(layout, &folder, &code)?,
    };
    let built = cargo(layout, "dist", &format!("-Cprofile-use={}", profile.display()))?;
    fs::create_dir_all(layout.shipped(""))?;
    for program in [HUB, LOAD] {
        // Put in its place at once: the one that is there may be running.
        let (new, place) = (layout.shipped(&format!("{program}.new")), layout.shipped(program));
        fs::copy(built.join(program), &new).with_context(|| format!("no `{program}` was built"))?;
        fs::rename(&new, &place).with_context(|| format!("cannot write `{}`", place.display()))?;
        println!("{}", layout.shown(&place));
    }
    Ok(())
}

/// Returns what was counted of this code.
fn kept(folder: &Path, code: &str) -> Option<PathBuf> {
    if fs::read_to_string(folder.join(OF)).ok()? != code {
        return None;
    }
    let files = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    files.filter(|path| path.extension().is_some_and(|ending| ending == "profdata")).max()
}

/// Names all that is compiled, and what compiles it.
fn digest_of_code(layout: &Layout) -> Result<String> {
    let mut files = vec![layout.root.join("Cargo.lock"), layout.root.join("Cargo.toml")];
    let mut folders = vec![layout.root.join("crates")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("cannot read `{}`", folder.display()))? {
            let entry = entry?;
            let is_tests = entry.file_name() == "tests";
            match entry.file_type()? {
                kind if kind.is_dir() && !is_tests => folders.push(entry.path()),
                kind if kind.is_file() => files.push(entry.path()),
                _ => {}
            }
        }
    }
    files.sort();
    let mut digest = DefaultHasher::new();
    (rustc(&["-vV"])?, flags("")).hash(&mut digest);
    for file in files {
        let text = fs::read(&file).with_context(|| format!("cannot read `{}`", file.display()))?;
        (layout.shown(&file).to_string(), text).hash(&mut digest);
    }
    Ok(format!("{:016x}", digest.finish()))
}

/// Counts what a hub does under load, and returns the file.
fn count(layout: &Layout, folder: &Path, code: &str) -> Result<PathBuf> {
    let merge = profdata(layout)?;
    // What an earlier build counted is of other code.
    let _ = fs::remove_dir_all(folder);
    let raw = folder.join("raw");
    fs::create_dir_all(&raw)?;
    let built = cargo(layout, "counting", &format!("-Cprofile-generate={}", raw.display()))?;
    for part in ["run", "upstream"] {
        let mut load = layout.command(built.join(LOAD));
        load.arg(part).arg(built.join(HUB));
        let log = layout.log(&format!("count-{part}"));
        run::prepare(&format!("load: {part}"), &mut load, &log, LOAD_LIMIT)?;
    }
    // Each program has a file of its own. One that was killed has none.
    if fs::read_dir(&raw)?.count() < 2 {
        bail!("the hub did not write down what it counted");
    }
    let merged = folder.join("merged");
    let mut merge = layout.command(merge);
    merge.args(["merge", "-o"]).arg(&merged).arg(&raw);
    run::prepare("counts", &mut merge, &layout.log("counts"), run::INSTALL_LIMIT)?;
    // Named by what is in it: Cargo goes by the name when it says what has to be built again.
    let mut digest = DefaultHasher::new();
    digest.write(&fs::read(&merged)?);
    let profile = folder.join(format!("{:016x}.profdata", digest.finish()));
    fs::rename(&merged, &profile)?;
    // Last: what was not counted to its end is counted anew.
    fs::write(folder.join(OF), code)?;
    Ok(profile)
}

/// Builds with one more flag, and returns the folder of the programs. Whatever runs while building is built without it.
fn cargo(layout: &Layout, name: &str, flag: &str) -> Result<PathBuf> {
    let (host, target) = (host()?, layout.work(&format!("build-{name}")));
    let mut cargo = layout.cargo();
    cargo.args(["build", "--profile", "dist", "--package", "portcullis", "--package", "portcullis-testkit"]);
    cargo.args(["--bin", HUB, "--bin", LOAD, "--target", &host, "--target-dir"]).arg(&target);
    cargo.env("CARGO_ENCODED_RUSTFLAGS", flags(flag));
    run::prepare(
        &format!("build, {name}"),
        &mut cargo,
        &layout.log(&format!("build-{name}")),
        run::BUILD_LIMIT,
    )?;
    Ok(target.join(host).join("dist"))
}

/// Returns the flags that are set for the compiler, and one more, in the form in which a path may hold spaces.
fn flags(more: &str) -> String {
    let set = |name: &str| std::env::var(name).ok().filter(|flags| !flags.is_empty());
    let plain = || set("RUSTFLAGS").map(|flags| flags.split_whitespace().collect::<Vec<_>>().join(BETWEEN));
    match set("CARGO_ENCODED_RUSTFLAGS").or_else(plain) {
        Some(flags) => format!("{flags}{BETWEEN}{more}"),
        None => more.to_owned(),
    }
}

fn rustc(args: &[&str]) -> Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let said = Command::new(rustc).args(args).output().context("rustc did not start")?;
    if !said.status.success() {
        bail!("rustc failed: {}", String::from_utf8_lossy(&said.stderr));
    }
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
