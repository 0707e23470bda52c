//! The package for Debian and Ubuntu, written by `dpkg-deb`.

use super::digest::gzip;
use super::release::{self, Release};
use crate::layout::Layout;
use crate::node::renew;
use crate::run;
use anyhow::{Context, Result, bail};
use flate2::Compression;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// First glibc with relative relocations in their packed form, which the linker marks instead of a version.
const PACKED_RELOCATIONS: (&str, GlibcVersion) = ("GLIBC_ABI_DT_RELR", GlibcVersion(2, 36));

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct GlibcVersion(u32, u32);

pub(super) fn name(release: &Release) -> String {
    format!("portcullis_{}_{}.deb", release.version, release.architecture.debian)
}

pub(super) fn write(layout: &Layout, release: &Release) -> Result<()> {
    let tree = layout.work("packages").join("deb");
    renew(&tree)?;
    fs::set_permissions(&tree, fs::Permissions::from_mode(0o755))?;
    let mut sums = String::new();
    let files = files(release)?;
    let size: usize = files.values().map(|(content, _)| content.len()).sum();
    for (path, (content, mode)) in &files {
        put(&tree.join(path), content, *mode)?;
        sums.push_str(&format!("{}  {path}\n", md5(&tree.join(path))?));
    }
    let depends = depends(&release.dynamic_path)?;
    let control = release.template(
        "deb/control",
        &[
            ("VERSION", &release.version),
            ("ARCHITECTURE", release.architecture.debian),
            ("SIZE", &size.div_ceil(1024).to_string()),
            ("DEPENDS", &depends),
        ],
    )?;
    put(&tree.join("DEBIAN/control"), control.as_bytes(), 0o644)?;
    put(&tree.join("DEBIAN/md5sums"), sums.as_bytes(), 0o644)?;
    for script in ["postinst", "prerm", "postrm"] {
        let text = release.source(&format!("packaging/deb/{script}"))?;
        put(&tree.join("DEBIAN").join(script), text.as_bytes(), 0o755)?;
    }
    let mut dpkg = layout.command("dpkg-deb");
    dpkg.arg("--root-owner-group").args(if release.is_quick() { ["-Zgzip", "-z1"] } else { ["-Zxz", "-z6"] });
    dpkg.arg("--build").arg(&tree).arg(release.out.join(name(release)));
    dpkg.env("SOURCE_DATE_EPOCH", release.epoch.to_string());
    run::prepare("dpkg-deb", &mut dpkg, &layout.log("package-deb"), run::INSTALL_LIMIT)
        .context("`dpkg-deb` is needed: apt-get install dpkg")
}

/// Returns contents and modes by path.
fn files(release: &Release) -> Result<BTreeMap<String, (Vec<u8>, u32)>> {
    let mut files = BTreeMap::new();
    let mut add = |path: &str, content: Vec<u8>, mode| files.insert(path.to_owned(), (content, mode));
    add("usr/bin/portcullis", release.dynamic.clone(), 0o755);
    for (path, content) in &release.shared {
        if path.starts_with("man/") {
            add(&format!("usr/share/{path}.gz"), gzip(content, Compression::best())?, 0o644);
        } else {
            add(&format!("usr/share/{path}"), content.clone(), 0o644);
        }
    }
    for (source, path) in [
        ("packaging/systemd/portcullis.service", "usr/lib/systemd/system/portcullis.service"),
        ("packaging/systemd/portcullis-user.service", "usr/lib/systemd/user/portcullis.service"),
        ("packaging/systemd/portcullis.sysusers", "usr/lib/sysusers.d/portcullis.conf"),
        (
            "packaging/systemd/portcullis-children.conf",
            "usr/share/doc/portcullis/examples/portcullis-children.conf",
        ),
        ("packaging/deb/copyright", "usr/share/doc/portcullis/copyright"),
        ("LICENSE-MIT", "usr/share/doc/portcullis/LICENSE-MIT"),
    ] {
        add(path, release.source(source)?.into_bytes(), 0o644);
    }
    let changes = gzip(release.source("CHANGELOG.md")?.as_bytes(), Compression::best())?;
    add("usr/share/doc/portcullis/changelog.gz", changes, 0o644);
    Ok(files)
}

fn put(path: &Path, content: &[u8], mode: u32) -> Result<()> {
    let folder = path.parent().context("a file of a package is in a folder")?;
    fs::create_dir_all(folder)?;
    // Whatever the umask of the build is.
    for folder in folder.ancestors().take_while(|folder| !folder.ends_with("deb")) {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
    }
    fs::write(path, content).with_context(|| format!("cannot write `{}`", path.display()))?;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(mode))?)
}

fn md5(path: &Path) -> Result<String> {
    let printed = String::from_utf8(release::output(Command::new("md5sum").arg("-b").arg(path))?)?;
    let sum = printed.split(' ').next().unwrap_or_default().trim_start_matches('\\');
    if sum.len() != 32 {
        bail!("md5sum prints `{printed}`");
    }
    Ok(sum.to_owned())
}

/// Returns the packages with the libraries that a program is linked to, in versions that have what it uses.
fn depends(program: &Path) -> Result<String> {
    let printed = release::output(Command::new("objdump").arg("-p").arg(program))
        .context("`objdump` is needed: apt-get install binutils")?;
    depends_of(&String::from_utf8_lossy(&printed))
}

fn depends_of(headers: &str) -> Result<String> {
    let mut packages = Vec::new();
    let needed = headers.lines().filter_map(|line| line.trim().strip_prefix("NEEDED"));
    for library in needed.map(str::trim) {
        let package = match library {
            "libc.so.6" | "libm.so.6" => "libc6",
            "libgcc_s.so.1" => "libgcc-s1",
            // The loader itself.
            loader if loader.starts_with("ld-linux") => "libc6",
            other => bail!("the program needs `{other}`, whose package is not known here"),
        };
        packages.push(package);
    }
    packages.sort_unstable();
    packages.dedup();
    let glibc = headers.split_whitespace().filter_map(glibc_version).max();
    let depends: Vec<String> = packages
        .into_iter()
        .map(|package| match (package, glibc) {
            ("libc6", Some(GlibcVersion(major, minor))) => format!("libc6 (>= {major}.{minor})"),
            _ => package.to_owned(),
        })
        .collect();
    if depends.is_empty() {
        bail!("the program is not linked to the C library; the package for Debian has the dynamic one");
    }
    Ok(depends.join(", "))
}

fn glibc_version(word: &str) -> Option<GlibcVersion> {
    if word == PACKED_RELOCATIONS.0 {
        return Some(PACKED_RELOCATIONS.1);
    }
    let mut numbers = word.strip_prefix("GLIBC_")?.split('.');
    Some(GlibcVersion(numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_those_of_the_program() {
        let headers = |version: &str| {
            format!(
                "Dynamic Section:\n  NEEDED               libgcc_s.so.1\n  NEEDED               libm.so.6\n  NEEDED               libc.so.6\n\
                 Version References:\n  required from libc.so.6:\n    0x0d696919 0x00 14 GLIBC_2.9\n    0x069691b9 0x00 06 {version}\n\
                 \x20   0x09691a75 0x00 02 GLIBC_2.2.5\n  required from libgcc_s.so.1:\n    0x0b792650 0x00 03 GCC_3.0\n"
            )
        };
        let of = |version| depends_of(&headers(version)).unwrap();
        assert_eq!(of("GLIBC_2.34"), "libc6 (>= 2.34), libgcc-s1");
        assert_eq!(of("GLIBC_ABI_DT_RELR"), "libc6 (>= 2.36), libgcc-s1");
        let other = depends_of("  NEEDED               libssl.so.3\n").unwrap_err().to_string();
        assert_eq!(other, "the program needs `libssl.so.3`, whose package is not known here");
        assert!(depends_of("").is_err());
    }
}
