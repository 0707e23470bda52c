//! How the binary is linked, and what `--version` says: version, commit and profile.

use std::fs;
use std::path::{Path, PathBuf};

/// Digits of the commit that `--version` shows.
const COMMIT_DIGITS: usize = 12;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| std::env::var(name).is_ok_and(|found| found == value);
    // A megabyte of addresses that the loader reads at every start, and that then counts as the idle hub's memory,
    // becomes a few kilobytes. Needs glibc 2.36; a linker that does not know it warns and goes on.
    if is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu") {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
        // What runs once at the start, and what hardly ever runs, lies apart from the rest: 3 MB less are touched.
        println!("cargo::rustc-link-arg-bins=-Wl,-z,keep-text-section-prefix");
    }
    let commit = commit().unwrap_or_else(|| "commit unknown".to_owned());
    let version = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    println!("cargo::rustc-env=PORTCULLIS_VERSION={version} ({commit}, {})", profile());
}

/// Returns the profile. Cargo tells build scripts only whether it is like `debug` or `release`; the folder of the build
/// (`target/PROFILE/build/PACKAGE/out`) has its name.
fn profile() -> String {
    let out = std::env::var_os("OUT_DIR").map(PathBuf::from).unwrap_or_default();
    let build =
        out.ancestors().nth(2).filter(|folder| folder.file_name().is_some_and(|name| name == "build"));
    let named = build.and_then(|build| build.parent()?.file_name()?.to_str());
    match named.map(str::to_owned).or_else(|| std::env::var("PROFILE").ok()).as_deref() {
        Some("debug") => "dev".to_owned(),
        Some(name) => name.to_owned(),
        None => "profile unknown".to_owned(),
    }
}

/// Returns the commit: what the packager says, what `cargo package` recorded, or what the repository has checked out.
/// It is read from files, so git need not be installed, and Cargo runs this again only when one of them changed.
fn commit() -> Option<String> {
    println!("cargo::rerun-if-env-changed=PORTCULLIS_COMMIT");
    if let Some(commit) = std::env::var("PORTCULLIS_COMMIT").ok().filter(|commit| !commit.is_empty()) {
        let mut parts = commit.splitn(2, '-');
        let digits = abbreviated(parts.next()?)?;
        return Some(parts.next().map_or(digits.clone(), |state| format!("{digits}-{state}")));
    }
    let package = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR")?);
    if let Some(info) = read(&package.join(".cargo_vcs_info.json")) {
        let (_, digits) = info.split_once("\"sha1\"")?;
        return abbreviated(digits.trim_start_matches([' ', ':', '"', '\n', '\t']).split('"').next()?);
    }
    // Not any folder above: the sources may have been unpacked inside of another repository.
    let git = git_folder(&package.ancestors().nth(2)?.join(".git"))?;
    let head = read(&git.join("HEAD"))?;
    let Some(name) = head.trim().strip_prefix("ref: ") else { return abbreviated(head.trim()) };
    // The log of a work tree's head grows with each commit, also when the branch is a line of `packed-refs`.
    read(&git.join("logs/HEAD"));
    let common = match fs::read_to_string(git.join("commondir")) {
        Ok(path) => git.join(path.trim()),
        Err(_) => git,
    };
    if let Some(digits) = read(&common.join(name)) {
        return abbreviated(digits.trim());
    }
    let packed = read(&common.join("packed-refs"))?;
    let line = packed.lines().find_map(|line| line.strip_suffix(name)?.strip_suffix(' ').map(str::to_owned));
    abbreviated(&line?)
}

/// Returns the folder of a repository. In a work tree and a submodule, `.git` is a file that names it.
fn git_folder(git: &Path) -> Option<PathBuf> {
    if git.is_dir() {
        return Some(git.to_owned());
    }
    let text = read(git)?;
    Some(git.parent()?.join(text.trim().strip_prefix("gitdir: ")?))
}

/// Reads a file, and has Cargo watch it. A missing file is not watched: Cargo would run this at every build.
fn read(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    println!("cargo::rerun-if-changed={}", path.display());
    Some(text)
}

fn abbreviated(digits: &str) -> Option<String> {
    let is_commit = digits.len() >= COMMIT_DIGITS && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_commit.then(|| digits.chars().take(COMMIT_DIGITS).collect())
}
