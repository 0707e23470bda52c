//! Checks of the packages for npm: both are installed from their files, and the launcher passes everything on.

use super::{CheckReport, handshake};
use crate::package::npm;
use crate::package::release;
use crate::run;
use anyhow::{Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Exit code for bad usage.
const BAD_USAGE: i32 = 2;

pub(super) fn run(report: &mut CheckReport<'_>) {
    let mut program = PathBuf::new();
    report.check("npm: both packages install offline, and npx runs them", |report| {
        let platform = report.release.out.join(npm::platform_name(report.release));
        let folder = report.folder("npm")?;
        install(report, &folder, &[], &[&platform, &launcher(report)])?;
        program = folder.join("node_modules/.bin/portcullis");
        let mut npx = report.command("npx");
        npx.args(["--offline", "--no", "--", "portcullis", "--version"]).current_dir(&folder);
        report.says_its_version(with_cache(report, &mut npx))
    });
    report.check("npm: the program answers through the launcher", |report| {
        report.answers(&program, "npm-home")
    });
    report.check("npm: the launcher passes the exit code on", |report| {
        let ended = report.command(&program).arg("no-such-command").output()?;
        match ended.status.code() {
            Some(BAD_USAGE) => Ok(()),
            other => bail!("exit code {other:?}, expected {BAD_USAGE}"),
        }
    });
    report.check("npm: the launcher passes SIGTERM on", |report| {
        let home = report.folder("npm-signal-home")?;
        let mut serve = report.command(&program);
        serve.arg("--home").arg(&home).args(["serve", "--json"]).env("MCP_HTTP_PORT", "0");
        handshake::ends_on_sigterm(&mut serve, &report.log(&home))
    });
    report.check("npm: without the platform's package, the launcher says what to do", |report| {
        let folder = report.folder("npm-omitted")?;
        install(report, &folder, &["--omit=optional"], &[&launcher(report)])?;
        let ended = report.command(folder.join("node_modules/.bin/portcullis")).arg("--version").output()?;
        let said = String::from_utf8_lossy(&ended.stderr);
        if ended.status.code() != Some(1) || !said.contains("without `--omit=optional`") {
            bail!("{}: {said}", ended.status);
        }
        Ok(())
    });
}

fn launcher(report: &CheckReport<'_>) -> PathBuf {
    report.release.out.join(npm::launcher_name(report.release))
}

fn install(report: &CheckReport<'_>, folder: &Path, options: &[&str], packages: &[&Path]) -> Result<()> {
    if !run::exists(&mut report.command("npm")) {
        bail!("npm is not installed: apt-get install nodejs npm");
    }
    // Without one, npm looks for it in the folders above.
    fs::write(folder.join("package.json"), "{}\n")?;
    let mut npm = report.command("npm");
    npm.args(["install", "--offline", "--no-audit", "--no-fund"]).args(options).args(packages);
    release::output(with_cache(report, npm.current_dir(folder))).map(|_| ())
}

fn with_cache<'c>(report: &CheckReport<'_>, command: &'c mut Command) -> &'c mut Command {
    command.env("npm_config_cache", report.work.join("npm-cache")).env("npm_config_update_notifier", "false")
}
