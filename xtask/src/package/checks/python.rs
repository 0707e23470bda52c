//! Checks of the wheel: another zip reader agrees, RECORD matches, and pip installs it without an index.

use super::CheckReport;
use crate::package::{release, wheel};
use crate::run;
use anyhow::{Context, Result, bail};

/// Reads every file, and compares it with RECORD.
const VERIFY: &str = r#"
import base64, csv, hashlib, io, sys, zipfile

wheel = zipfile.ZipFile(sys.argv[1])
assert wheel.testzip() is None, "a checksum of the archive is wrong"
[name] = [name for name in wheel.namelist() if name.endswith("/RECORD")]
rows = list(csv.reader(io.StringIO(wheel.read(name).decode())))
assert sorted(row[0] for row in rows) == sorted(wheel.namelist()), "RECORD lists other files"
for path, digest, size in rows:
    if path == name:
        continue
    content = wheel.read(path)
    found = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    assert digest == "sha256=" + found and int(size) == len(content), path
"#;

pub(super) fn run(report: &mut CheckReport<'_>) {
    report.check("wheel: RECORD matches", |report| {
        let path = report.release.out.join(wheel::name(report.release));
        release::output(python(report)?.args(["-c", VERIFY]).arg(path)).map(|_| ())
    });
    report.check("wheel: pip installs it without an index, and it answers", |report| {
        let folder = report.folder("venv")?;
        release::output(python(report)?.args(["-m", "venv"]).arg(&folder))
            .context("Python cannot make environments: apt-get install python3-venv")?;
        let mut pip = report.command(folder.join("bin/python"));
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"]);
        pip.args(["--no-cache-dir", "--find-links"]).arg(report.release.out.join("pypi")).arg("portcullis");
        release::output(&mut pip)?;
        report.answers(&folder.join("bin/portcullis"), "pip-home")
    });
    let what = "wheel: uv runs it from the file";
    if run::exists(&mut report.command("uv")) {
        report.check(what, |report| {
            let mut uv = report.command("uv");
            uv.args(["tool", "run", "--offline", "--no-index", "--find-links"]);
            uv.arg(report.release.out.join("pypi")).args(["--from", "portcullis", "portcullis", "--version"]);
            report.says_its_version(uv.env("UV_CACHE_DIR", report.work.join("uv-cache")))
        });
    } else {
        report.skip(what, "`uv` is not installed");
    }
}

fn python(report: &CheckReport<'_>) -> Result<std::process::Command> {
    if !run::exists(&mut report.command("python3")) {
        bail!("Python is not installed: apt-get install python3 python3-venv");
    }
    Ok(report.command("python3"))
}
