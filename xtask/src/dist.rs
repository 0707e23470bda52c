//! `cargo xtask dist`: builds the shipped binary with profile-guided optimization (PGO).
//!
//! First an instrumented build, then a load to collect the profile, then the optimized build. The load is the
//! benchmark itself, with an upstream server of this repository. The profile is cached below `target/xtask`
//! for the same code and compiler. Changed code is profiled again: with a stale profile, changed code counts
//! as never used, and is built small and slow.

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
/// Timeout of the whole load. An instrumented program is some times slower.
const LOAD_LIMIT: Duration = Duration::from_secs(20 * 60);
/// Separator of flags in `CARGO_ENCODED_RUSTFLAGS`.
const FLAG_SEPARATOR: &str = "\u{1f}";

/// The file next to the profile with the digest of the profiled code.
const DIGEST_FILE: &str = "of";

/// Builds the hub, and the programs that measure it, into `target/shipped`.
pub(crate) fn build(layout: &Layout) -> Result<()> {
    let folder = layout.work("counts");
    let code = digest_of_code(layout)?;
    let profile = match cached_profile(&folder, &code) {
        Some(profile) => profile,
        None => count(layout, &folder, &code)?,
    };
    let built = cargo(layout, "dist", &format!("-Cprofile-use={}", profile.display()))?;
    fs::create_dir_all(layout.shipped(""))?;
    for program in [HUB, LOAD] {
        // Renamed into place: the existing program may be running.
        let (new, target) = (layout.shipped(&format!("{program}.new")), layout.shipped(program));
        fs::copy(built.join(program), &new).with_context(|| format!("no `{program}` was built"))?;
        fs::rename(&new, &target).with_context(|| format!("cannot write `{}`", target.display()))?;
        println!("{}", layout.shown(&target));
    }
    Ok(())
}

/// Returns the cached profile of this code.
fn cached_profile(folder: &Path, code: &str) -> Option<PathBuf> {
    if fs::read_to_string(folder.join(DIGEST_FILE)).ok()? != code {
        return None;
    }
    let files = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    files.filter(|path| path.extension().is_some_and(|ending| ending == "profdata")).max()
}

/// Returns a digest of everything that is compiled, and of the compiler.
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

/// Collects a profile under load, and returns its file.
fn count(layout: &Layout, folder: &Path, code: &str) -> Result<PathBuf> {
    let merge = profdata(layout)?;
    // An earlier profile is of other code.
    let _ = fs::remove_dir_all(folder);
    let raw = folder.join("raw");
    fs::create_dir_all(&raw)?;
    let built = cargo(layout, "counting", &format!("-Cprofile-generate={}", raw.display()))?;
    for part in ["run", "upstream"] {
        let mut load = layout.command(built.join(LOAD));
        load.arg(part).arg(built.join(HUB));
        let log = layout.log(&format!("profile-{part}"));
        run::prepare(&format!("load: {part}"), &mut load, &log, LOAD_LIMIT)?;
    }
    // Each program writes its own file. A killed one writes none.
    if fs::read_dir(&raw)?.count() < 2 {
        bail!("the hub wrote no profile");
    }
    let merged = folder.join("merged");
    let mut merge = layout.command(merge);
    merge.args(["merge", "-o"]).arg(&merged).arg(&raw);
    run::prepare("counts", &mut merge, &layout.log("counts"), run::INSTALL_LIMIT)?;
    // Named by its contents: Cargo decides by the name what to rebuild.
    let mut digest = DefaultHasher::new();
    digest.write(&fs::read(&merged)?);
    let profile = folder.join(format!("{:016x}.profdata", digest.finish()));
    fs::rename(&merged, &profile)?;
    // Last, so that an incomplete profile is collected again.
    fs::write(folder.join(DIGEST_FILE), code)?;
    Ok(profile)
}

/// Builds with one more flag, and returns the folder of the programs. Build scripts are built without it.
fn cargo(layout: &Layout, name: &str, flag: &str) -> Result<PathBuf> {
    let (host, target) = (host()?, layout.work(&format!("build-{name}")));
    let mut cargo = layout.cargo();
    cargo.args(["build", "--profile", "dist", "--package", "portcullis", "--package", "portcullis-bench"]);
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

/// Returns the compiler flags of the environment and one more, encoded so that a path may contain spaces.
fn flags(more: &str) -> String {
    let set = |name: &str| std::env::var(name).ok().filter(|flags| !flags.is_empty());
    let plain =
        || set("RUSTFLAGS").map(|flags| flags.split_whitespace().collect::<Vec<_>>().join(FLAG_SEPARATOR));
    match set("CARGO_ENCODED_RUSTFLAGS").or_else(plain) {
        Some(flags) => format!("{flags}{FLAG_SEPARATOR}{more}"),
        None => more.to_owned(),
    }
}

fn rustc(args: &[&str]) -> Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).args(args).output().context("rustc did not start")?;
    if !output.status.success() {
        bail!("rustc failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?)
}

fn host() -> Result<String> {
    let version = rustc(&["-vV"])?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc does not report its host")?.to_owned())
}

/// Returns `llvm-profdata`. It must match the compiler's version, so it comes from the toolchain.
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
