//! Installs and starts every package as far as this machine can, below `target/xtask/packages`.

mod debian;
mod handshake;
mod image;
mod launcher;
mod manifests;
mod python;
mod system_calls;
mod systemd;

use super::release::{self, Linkage, Release};
use super::{binary_archive, checksums};
use crate::layout::Layout;
use crate::node::renew;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs all checks, and returns whether all passed.
pub(super) fn run(layout: &Layout, release: &mut Release) -> Result<bool> {
    let mut report = CheckReport::new(layout, release)?;
    report.check("checksums: `sha256sum` agrees, and no file is missing", |report| {
        manifests::checksums(report.release)
    });
    report.check("bill of materials: every package of the program, all in Cargo.lock", |report| {
        manifests::bill_of_materials(report.layout, report.release)
    });
    report.check("program: version and commit", version_is_that_of_the_sources);
    if release.portable_linkage == Linkage::Static {
        report.check("program: static", is_static);
    } else {
        report.skip("program: static", "a development build is dynamic");
    }
    report.check("archive: unpacks and answers", archive_answers);
    debian::run(&mut report);
    launcher::run(&mut report);
    python::run(&mut report);
    image::run(&mut report);
    systemd::run(&mut report);
    system_calls::run(&mut report);
    let (mut passed, mut failed, mut skipped) = (report.passed, report.failed, report.skipped);
    let what = "reproducible: the same bytes again";
    if release.is_quick() {
        match writes_the_same(layout, release) {
            Ok(()) => {
                println!("ok      {what}");
                passed += 1;
            }
            Err(error) => {
                println!("FAILED  {what}: {error:#}");
                failed += 1;
            }
        }
    } else {
        println!("skipped {what}: compressing everything twice takes minutes; `--dev` does it");
        skipped += 1;
    }
    println!("\n{passed} passed, {failed} failed, {skipped} skipped");
    Ok(failed == 0)
}

/// What passed, what failed, and what this machine cannot do.
struct CheckReport<'a> {
    layout: &'a Layout,
    release: &'a Release,
    /// The folder of the checks.
    work: PathBuf,
    /// What every program prints for `--version`.
    version: String,
    passed: usize,
    failed: usize,
    skipped: usize,
}

impl<'a> CheckReport<'a> {
    fn new(layout: &'a Layout, release: &'a Release) -> Result<CheckReport<'a>> {
        let work = layout.work("packages").join("checks");
        renew(&work)?;
        let version = release::output(layout.command(&release.dynamic_path).arg("--version"))?;
        let version = String::from_utf8(version)?;
        Ok(CheckReport { layout, release, work, version, passed: 0, failed: 0, skipped: 0 })
    }

    fn check(&mut self, what: &str, check: impl FnOnce(&CheckReport<'_>) -> Result<()>) {
        match check(self) {
            Ok(()) => {
                println!("ok      {what}");
                self.passed += 1;
            }
            Err(error) => {
                println!("FAILED  {what}: {error:#}");
                self.failed += 1;
            }
        }
    }

    fn skip(&mut self, what: &str, why: &str) {
        println!("skipped {what}: {why}");
        self.skipped += 1;
    }

    /// Returns an empty folder of a check.
    fn folder(&self, name: &str) -> Result<PathBuf> {
        let folder = self.work.join(name);
        renew(&folder)?;
        Ok(folder)
    }

    /// Returns a command that finds no settings and no data of the person who runs the checks.
    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = self.layout.command(program);
        command.env("HOME", self.work.join("user")).env_remove("XDG_DATA_HOME").env_remove("XDG_CONFIG_HOME");
        command.env("SOURCE_DATE_EPOCH", self.release.epoch.to_string());
        command
    }

    /// Checks that an installed program is the one that was packaged, and talks MCP.
    fn answers(&self, program: &Path, home: &str) -> Result<()> {
        self.says_its_version(self.command(program).arg("--version"))?;
        let home = self.folder(home)?;
        let mut command = self.command(program);
        command.arg("--home").arg(&home).arg("stdio");
        handshake::converse(&mut command, &self.log(&home))
    }

    fn says_its_version(&self, command: &mut Command) -> Result<()> {
        let printed = String::from_utf8(release::output(command)?)?;
        if printed != self.version {
            bail!("`--version` prints `{}`, expected `{}`", printed.trim_end(), self.version.trim_end());
        }
        Ok(())
    }

    /// Returns the log of what uses a folder.
    fn log(&self, folder: &Path) -> PathBuf {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        self.layout.log(&format!("package-{name}"))
    }
}

fn version_is_that_of_the_sources(report: &CheckReport<'_>) -> Result<()> {
    let prefix = format!("portcullis {} (", report.release.version);
    let commit = report.version.strip_prefix(&prefix).and_then(|rest| rest.split([',', '-']).next());
    let commit = commit.with_context(|| format!("`--version` prints `{}`", report.version.trim_end()))?;
    let git = report.layout.command("git").args(["rev-parse", "HEAD"]).output();
    match git.ok().filter(|output| output.status.success()) {
        Some(head) if !String::from_utf8_lossy(&head.stdout).starts_with(commit) => {
            bail!("the program was built from `{commit}`, which is not checked out; build it again")
        }
        _ => Ok(()),
    }
}

fn is_static(report: &CheckReport<'_>) -> Result<()> {
    let program = report.work.join("static");
    fs::write(&program, &report.release.portable)?;
    let headers = release::output(Command::new("objdump").arg("-p").arg(&program))?;
    let headers = String::from_utf8_lossy(&headers);
    match headers.lines().find(|line| line.contains("NEEDED") || line.contains("INTERP")) {
        Some(line) => bail!("the program needs a library or a loader: {}", line.trim()),
        None => Ok(()),
    }
}

fn archive_answers(report: &CheckReport<'_>) -> Result<()> {
    let folder = report.folder("archive")?;
    let archive = report.release.out.join(binary_archive::name(report.release));
    release::output(report.command("tar").arg("-xzf").arg(archive).arg("-C").arg(&folder))?;
    let program = folder.join(binary_archive::stem(report.release)).join("portcullis");
    report.answers(&program, "archive-home")
}

/// Writes everything once more, elsewhere, and compares.
fn writes_the_same(layout: &Layout, release: &mut Release) -> Result<()> {
    let sums = |release: &Release| fs::read_to_string(release.out.join(checksums::NAME));
    let first = sums(release)?;
    let out = std::mem::replace(&mut release.out, layout.work("packages").join("again"));
    let written = super::write(layout, release);
    let second = sums(release);
    release.out = out;
    written?;
    let second = second?;
    let differs = first.lines().zip(second.lines()).find(|(first, second)| first != second);
    match differs {
        Some((line, _)) => bail!("not the same again: {line}"),
        None if first.len() != second.len() => bail!("another number of files"),
        None => Ok(()),
    }
}
