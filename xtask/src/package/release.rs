//! What every package contains: the programs, the manual, the completions, and where they come from.

use super::PackageProfile;
use super::tar::{TarEntry, TarTree};
use crate::layout::Layout;
use crate::node::renew;
use crate::{run, steps};
use anyhow::{Context, Result, bail};
use flate2::Compression;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Separator of flags in `CARGO_ENCODED_RUSTFLAGS`.
const FLAG_SEPARATOR: &str = "\u{1f}";
pub(super) const PROGRAM: &str = "portcullis";
const BASH_COMPLETION: &str = "bash-completion/completions/portcullis";
const SHELLS: [(&str, &str); 3] = [
    ("bash", BASH_COMPLETION),
    ("zsh", "zsh/vendor-completions/_portcullis"),
    ("fish", "fish/vendor_completions.d/portcullis.fish"),
];
pub(super) const LICENSES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];

/// The processor that the packages are for: the one that builds them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Architecture {
    /// As the compiler, Python and `uname` call it.
    pub(super) machine: &'static str,
    /// As Debian and container images call it.
    pub(super) debian: &'static str,
    /// As Node calls it.
    pub(super) node: &'static str,
}

impl Architecture {
    fn of_this_machine() -> Result<Architecture> {
        match (std::env::consts::OS, std::env::consts::ARCH) {
            ("linux", "x86_64") => Ok(Architecture { machine: "x86_64", debian: "amd64", node: "x64" }),
            ("linux", "aarch64") => Ok(Architecture { machine: "aarch64", debian: "arm64", node: "arm64" }),
            (os, other) => {
                bail!("there are packages for Linux on x86_64 and aarch64, not for {os} on {other}")
            }
        }
    }

    pub(super) fn target(self) -> String {
        format!("{}-unknown-linux-gnu", self.machine)
    }
}

/// Whether a program needs the C library of its system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Linkage {
    Static,
    Dynamic,
}

/// Everything that goes into packages.
pub(super) struct Release {
    pub(super) version: String,
    pub(super) architecture: Architecture,
    /// Date of the commit, which all files in packages have.
    pub(super) epoch: u64,
    pub(super) compression: Compression,
    /// The folder of the packages.
    pub(super) out: PathBuf,
    /// The repository.
    pub(super) root: PathBuf,
    /// For formats that run on any distribution. In a development build, the dynamic one.
    pub(super) portable: Vec<u8>,
    pub(super) portable_linkage: Linkage,
    /// For formats that can require a C library.
    pub(super) dynamic: Vec<u8>,
    /// Where the dynamic program is, for tools that look at it.
    pub(super) dynamic_path: PathBuf,
    /// Manual pages and completions by their path below `/usr/share`, not compressed.
    pub(super) shared: Vec<(String, Vec<u8>)>,
}

impl Release {
    /// Builds the programs, and has one write the manual and the completions.
    pub(super) fn build(layout: &Layout, profile: &PackageProfile) -> Result<Release> {
        let architecture = Architecture::of_this_machine()?;
        let work = layout.work("packages");
        renew(&work)?;
        let (dynamic_path, portable_path, portable_linkage, compression) = match profile {
            PackageProfile::Dev => {
                steps::build(layout)?;
                let built = layout.built(PROGRAM);
                let stripped = stripped(layout, &built, &work)?;
                (stripped.clone(), stripped, Linkage::Dynamic, Compression::fast())
            }
            PackageProfile::Named(name) => {
                let dynamic = build_program(layout, name, architecture, Linkage::Dynamic)?;
                let portable = build_program(layout, name, architecture, Linkage::Static)?;
                (dynamic, portable, Linkage::Static, Compression::best())
            }
        };
        Ok(Release {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            architecture,
            epoch: epoch(layout)?,
            compression,
            out: layout.packages(),
            root: layout.root.clone(),
            portable: read(&portable_path)?,
            portable_linkage,
            dynamic: read(&dynamic_path)?,
            shared: shared(layout, &dynamic_path, &work)?,
            dynamic_path,
        })
    }

    /// Whether it is for tests, and less compressed.
    pub(super) fn is_quick(&self) -> bool {
        self.compression == Compression::fast()
    }

    /// Returns a file of the repository.
    pub(super) fn source(&self, path: &str) -> Result<String> {
        let file = self.root.join(path);
        fs::read_to_string(&file).with_context(|| format!("cannot read `{}`", file.display()))
    }

    /// Returns a file of `packaging` with its fields (`{NAME}`) filled in.
    pub(super) fn template(&self, path: &str, fields: &[(&str, &str)]) -> Result<String> {
        let mut text = self.source(&format!("packaging/{path}"))?;
        for (name, value) in fields {
            text = text.replace(&format!("{{{name}}}"), value);
        }
        Ok(text)
    }

    /// Writes a package.
    pub(super) fn write(&self, name: &str, content: &[u8]) -> Result<()> {
        let path = self.out.join(name);
        fs::create_dir_all(path.parent().context("a package is in a folder")?)?;
        fs::write(&path, content).with_context(|| format!("cannot write `{}`", path.display()))
    }

    /// Adds both licenses to a folder of a tree.
    pub(super) fn add_licenses(&self, tree: &mut TarTree, folder: &str) -> Result<()> {
        for license in LICENSES {
            tree.add(format!("{folder}/{license}"), TarEntry::file(self.source(license)?));
        }
        Ok(())
    }
}

/// Builds for the target by name, so that build scripts and macros do not get the flags.
fn build_program(
    layout: &Layout,
    profile: &str,
    architecture: Architecture,
    linkage: Linkage,
) -> Result<PathBuf> {
    let name = match linkage {
        Linkage::Static => "static",
        Linkage::Dynamic => "dynamic",
    };
    let folder = layout.work("build-packages").join(name);
    let target = architecture.target();
    let mut cargo = layout.cargo();
    cargo.args(["build", "--locked", "--package", PROGRAM, "--bin", PROGRAM, "--profile", profile]);
    cargo.args(["--target", &target, "--target-dir"]).arg(&folder);
    cargo.env("CARGO_ENCODED_RUSTFLAGS", flags(layout, linkage).join(FLAG_SEPARATOR));
    cargo.env_remove("RUSTFLAGS");
    if let Some(commit) = modified_commit(layout)? {
        println!("The work tree has changes; `--version` says `{commit}`.");
        cargo.env("PORTCULLIS_COMMIT", commit);
    }
    println!("Building the {name} program with profile `{profile}`.");
    let log = layout.log(&format!("package-{name}"));
    run::prepare(&format!("build, {name}"), &mut cargo, &log, run::BUILD_LIMIT)?;
    let folder_of_profile = if profile == "dev" { "debug" } else { profile };
    Ok(folder.join(target).join(folder_of_profile).join(PROGRAM))
}

/// The same sources in another folder give the same program.
fn flags(layout: &Layout, linkage: Linkage) -> Vec<String> {
    let mut flags = vec![format!("--remap-path-prefix={}=/portcullis", layout.root.display())];
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo"));
    if let Some(cargo) = std::env::var_os("CARGO_HOME").map(PathBuf::from).or(home) {
        flags.push(format!("--remap-path-prefix={}=/cargo", cargo.display()));
    }
    if linkage == Linkage::Static {
        flags.extend(["-C".to_owned(), "target-feature=+crt-static".to_owned()]);
    }
    flags
}

/// Returns the commit of a work tree with changes, marked; a clean one is read by the build script.
fn modified_commit(layout: &Layout) -> Result<Option<String>> {
    let Some(changes) = git(layout, &["status", "--porcelain"]) else { return Ok(None) };
    if changes.is_empty() {
        return Ok(None);
    }
    let commit = git(layout, &["rev-parse", "HEAD"]).context("the repository has no commit")?;
    Ok(Some(format!("{commit}-modified")))
}

/// Returns the date that all files get: `SOURCE_DATE_EPOCH`, or that of the commit.
fn epoch(layout: &Layout) -> Result<u64> {
    let set = std::env::var("SOURCE_DATE_EPOCH").ok().filter(|epoch| !epoch.is_empty());
    let Some(epoch) = set.or_else(|| git(layout, &["log", "-1", "--format=%ct"])) else {
        bail!("the sources have no commit; set SOURCE_DATE_EPOCH to the date of the release, in seconds");
    };
    epoch.parse().with_context(|| format!("SOURCE_DATE_EPOCH is `{epoch}`, expected seconds since 1970"))
}

fn git(layout: &Layout, args: &[&str]) -> Option<String> {
    let output = layout.command("git").args(args).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Copies a development build without its symbols, which are most of it.
fn stripped(layout: &Layout, program: &Path, work: &Path) -> Result<PathBuf> {
    let stripped = work.join(PROGRAM);
    let mut strip = layout.command("strip");
    strip.arg("--strip-all").arg("-o").arg(&stripped).arg(program);
    run::prepare("strip", &mut strip, &layout.log("package-strip"), run::INSTALL_LIMIT)
        .context("`strip` is needed: apt-get install binutils")?;
    Ok(stripped)
}

/// Has the program write its manual pages and completions.
fn shared(layout: &Layout, program: &Path, work: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let mut files = Vec::new();
    let manual = work.join("man1");
    renew(&manual)?;
    output(layout.command(program).arg("__man").arg(&manual))?;
    for page in fs::read_dir(&manual)? {
        let page = page?;
        files.push((format!("man/man1/{}", page.file_name().to_string_lossy()), read(&page.path())?));
    }
    files.sort();
    for (shell, path) in SHELLS {
        files.push((path.to_owned(), output(layout.command(program).args(["completions", shell]))?));
    }
    Ok(files)
}

/// Runs a program, and returns what it prints.
pub(super) fn output(command: &mut Command) -> Result<Vec<u8>> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("cannot start `{program}`"))?;
    if !output.status.success() {
        bail!("`{program}` failed, {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(output.stdout)
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read `{}`", path.display()))
}
