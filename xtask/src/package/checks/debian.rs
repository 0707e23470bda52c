//! Checks of the package for Debian: its fields and modes, and the unpacked program, manual and completions.

use super::CheckReport;
use crate::package::deb;
use crate::package::release;
use crate::run;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};

/// The shells that read the completions, with the option that only parses.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/portcullis"),
    ("zsh", "usr/share/zsh/vendor-completions/_portcullis"),
    ("fish", "usr/share/fish/vendor_completions.d/portcullis.fish"),
];

pub(super) fn run(report: &mut CheckReport<'_>) {
    report.check("deb: fields", fields);
    report.check("deb: owners and modes", owners_and_modes);
    let mut root = PathBuf::new();
    report.check("deb: unpacks, and md5sums match", |report| {
        root = unpack(report)?;
        Ok(())
    });
    report.check("deb: maintainer scripts parse", |_| scripts_parse(&root));
    report.check("deb: the program answers", |report| {
        report.answers(&root.join("usr/bin/portcullis"), "deb-home")
    });
    let what = "deb: the manual has no warnings";
    if run::exists(&mut report.command("man")) {
        report.check(what, |report| manual_has_no_warnings(report, &root));
    } else {
        report.skip(what, "`man` is not installed");
    }
    for (shell, path) in COMPLETIONS {
        let what = format!("deb: the completions for {shell} parse");
        if run::exists(&mut report.command(shell)) {
            report.check(&what, |report| {
                release::output(report.command(shell).arg("-n").arg(root.join(path))).map(|_| ())
            });
        } else {
            report.skip(&what, "the shell is not installed");
        }
    }
}

fn package(report: &CheckReport<'_>) -> PathBuf {
    report.release.out.join(deb::name(report.release))
}

fn fields(report: &CheckReport<'_>) -> Result<()> {
    // It parses the fields, and warns of what it does not know.
    let output = report.command("dpkg-deb").arg("--field").arg(package(report)).output()?;
    if !output.status.success() || !output.stderr.is_empty() {
        bail!("{}", String::from_utf8_lossy(&output.stderr));
    }
    let fields = String::from_utf8(output.stdout)?;
    let (version, architecture) = (&report.release.version, report.release.architecture.debian);
    for line in [
        "Package: portcullis".to_owned(),
        format!("Version: {version}"),
        format!("Architecture: {architecture}"),
    ] {
        if !fields.lines().any(|field| field == line) {
            bail!("no field `{line}`");
        }
    }
    let depends = fields.lines().find_map(|line| line.strip_prefix("Depends: ")).context("no `Depends`")?;
    if !depends.contains("libc6 (>= 2.") {
        bail!("`Depends: {depends}` names no version of the C library");
    }
    if fields.contains('{') {
        bail!("a field is not filled in:\n{fields}");
    }
    Ok(())
}

fn owners_and_modes(report: &CheckReport<'_>) -> Result<()> {
    let listed = release::output(report.command("dpkg-deb").arg("--contents").arg(package(report)))?;
    for line in String::from_utf8(listed)?.lines() {
        let expected = match line {
            folder if folder.starts_with('d') => "drwxr-xr-x root/root ",
            program if program.ends_with("./usr/bin/portcullis") => "-rwxr-xr-x root/root ",
            _ => "-rw-r--r-- root/root ",
        };
        if !line.starts_with(expected) {
            bail!("expected `{expected}`: {line}");
        }
    }
    Ok(())
}

fn unpack(report: &CheckReport<'_>) -> Result<PathBuf> {
    let root = report.folder("deb")?;
    release::output(report.command("dpkg-deb").arg("--raw-extract").arg(package(report)).arg(&root))?;
    let mut md5sum = report.command("md5sum");
    md5sum.args(["--check", "--strict", "--quiet", "DEBIAN/md5sums"]).current_dir(&root);
    release::output(&mut md5sum)?;
    let listed = fs::read_to_string(root.join("DEBIAN/md5sums"))?.lines().count();
    let found = release::output(report.command("find").arg(root.join("usr")).args(["-type", "f"]))?;
    let found = String::from_utf8(found)?.lines().count();
    if listed != found {
        bail!("md5sums has {listed} of {found} files");
    }
    Ok(root)
}

fn scripts_parse(root: &Path) -> Result<()> {
    for script in ["postinst", "prerm", "postrm"] {
        let path = root.join("DEBIAN").join(script);
        release::output(std::process::Command::new("sh").arg("-n").arg(&path))
            .with_context(|| script.to_owned())?;
    }
    Ok(())
}

fn manual_has_no_warnings(report: &CheckReport<'_>, root: &Path) -> Result<()> {
    let folder = root.join("usr/share/man/man1");
    let mut pages = 0;
    for page in fs::read_dir(&folder)? {
        let page = page?.path();
        let mut man = report.command("man");
        man.args(["--warnings", "-E", "UTF-8", "-Tutf8", "-Z", "-l"]).arg(&page).env("LC_ALL", "C.UTF-8");
        let output = man.output()?;
        if !output.status.success() || !output.stderr.is_empty() {
            bail!("{}: {}", page.display(), String::from_utf8_lossy(&output.stderr));
        }
        pages += 1;
    }
    if pages < 20 || !folder.join("portcullis.1.gz").exists() {
        bail!("there are only {pages} pages");
    }
    Ok(())
}
