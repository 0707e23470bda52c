//! Checks of the units, by systemd's own tools. Nothing is installed.

use super::CheckReport;
use crate::package::release;
use crate::run;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};

/// Highest exposure of the service without local servers, in tenths.
const STRICT_MAX: u32 = 15;
/// The same with them.
const CHILDREN_MAX: u32 = 30;

pub(super) fn run(report: &mut CheckReport<'_>) {
    let what = ["system unit", "exposure at most 1.5", "exposure at most 3 with servers", "user unit"];
    if run::exists(&mut report.command("systemd-analyze")) {
        let [system, strict, children, user] = what;
        report.check(&format!("systemd: {system}"), |report| {
            let unit = unit(report, "units", "portcullis.service")?;
            verify(report, &unit, &[])
        });
        report.check(&format!("systemd: {strict}"), |report| {
            let unit = unit(report, "units-strict", "portcullis.service")?;
            is_hardened(report, &unit, STRICT_MAX)
        });
        report.check(&format!("systemd: {children}"), |report| {
            let unit = unit(report, "units-children", "portcullis.service")?;
            add_drop_in(report, &unit)?;
            verify(report, &unit, &[])?;
            is_hardened(report, &unit, CHILDREN_MAX)
        });
        report.check(&format!("systemd: {user}"), |report| {
            let unit = unit(report, "units-user", "portcullis-user.service")?;
            verify(report, &unit, &["--user"])
        });
    } else {
        for what in what {
            report.skip(&format!("systemd: {what}"), "`systemd-analyze` is not installed");
        }
    }
    let what = "systemd: sysusers makes the service's user";
    if run::exists(&mut report.command("systemd-sysusers")) {
        report.check(what, makes_the_user);
    } else {
        report.skip(what, "`systemd-sysusers` is not installed");
    }
}

/// Copies a unit into a folder of its own, as `portcullis.service`, with a program that exists.
fn unit(report: &CheckReport<'_>, folder: &str, name: &str) -> Result<PathBuf> {
    let text = report.release.source(&format!("packaging/systemd/{name}"))?;
    let installed = "ExecStart=/usr/bin/portcullis ";
    if !text.contains(installed) {
        bail!("the unit does not start `/usr/bin/portcullis`");
    }
    let program = report.release.dynamic_path.display();
    let unit = report.folder(folder)?.join("portcullis.service");
    fs::write(&unit, text.replace(installed, &format!("ExecStart={program} ")))?;
    Ok(unit)
}

fn add_drop_in(report: &CheckReport<'_>, unit: &Path) -> Result<()> {
    let folder = unit.with_extension("service.d");
    fs::create_dir_all(&folder)?;
    let text = report.release.source("packaging/systemd/portcullis-children.conf")?;
    fs::write(folder.join("children.conf"), text).context("children.conf")
}

/// Unknown keys and values are warnings, with success.
fn verify(report: &CheckReport<'_>, unit: &Path, options: &[&str]) -> Result<()> {
    let mut analyze = report.command("systemd-analyze");
    // Of a login, which a build machine need not have.
    analyze.env("XDG_RUNTIME_DIR", report.folder("run")?);
    let output = analyze.args(options).args(["verify", "--man=no"]).arg(unit).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    // Of this unit: others on this machine are looked at too.
    let complaint = said.lines().find(|line| line.contains("portcullis"));
    match complaint {
        Some(line) => bail!("{line}"),
        None if !output.status.success() => bail!("{}: {}", output.status, said.trim()),
        None => Ok(()),
    }
}

fn is_hardened(report: &CheckReport<'_>, unit: &Path, exposure_max: u32) -> Result<()> {
    let mut analyze = report.command("systemd-analyze");
    analyze.args(["security", "--offline=true", "--no-pager"]).arg(format!("--threshold={exposure_max}"));
    let output = analyze.arg(unit).output()?;
    let printed = String::from_utf8_lossy(&output.stdout);
    let level = printed.lines().rfind(|line| line.contains("exposure level")).unwrap_or_default();
    if !output.status.success() || level.is_empty() {
        bail!("{} {}", level, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

fn makes_the_user(report: &CheckReport<'_>) -> Result<()> {
    let root = report.folder("sysusers")?;
    fs::create_dir_all(root.join("etc"))?;
    let mut sysusers = report.command("systemd-sysusers");
    sysusers.arg(format!("--root={}", root.display()));
    release::output(sysusers.arg(report.release.root.join("packaging/systemd/portcullis.sysusers")))?;
    let users = fs::read_to_string(root.join("etc/passwd"))?;
    let user = users.lines().find(|line| line.starts_with("portcullis:")).context("there is no user")?;
    if !user.contains(":/var/lib/portcullis:") {
        bail!("{user}");
    }
    Ok(())
}
