//! The packages for npm: one with the launcher, and one with the program of a platform.
//!
//! Publish the platform's package first: an optional dependency that does not exist yet is left out without a word.

use super::digest::gzip;
use super::release::Release;
use super::tar::{TarEntry, TarTree};
use anyhow::Result;

/// The date that npm itself gives to all files, 26 October 1985.
const NPM_DATE: u64 = 499_162_500;

pub(super) fn launcher_name(release: &Release) -> String {
    format!("npm/portcullis-{}.tgz", release.version)
}

pub(super) fn platform_name(release: &Release) -> String {
    format!("npm/portcullis-linux-{}-{}.tgz", release.architecture.node, release.version)
}

pub(super) fn write(release: &Release) -> Result<()> {
    let launcher = TarEntry::program(release.source("packaging/npm/portcullis.js")?);
    let package = package(release, "npm/package.json", "bin/portcullis.js", launcher)?;
    release.write(&launcher_name(release), &package)?;
    let program = TarEntry::program(release.portable.clone());
    let package = self::package(release, "npm/package-platform.json", "bin/portcullis", program)?;
    release.write(&platform_name(release), &package)
}

fn package(release: &Release, manifest: &str, path: &str, program: TarEntry) -> Result<Vec<u8>> {
    let fields = [("VERSION", release.version.as_str()), ("CPU", release.architecture.node)];
    let mut tree = TarTree::default();
    tree.add("package/package.json", TarEntry::file(release.template(manifest, &fields)?));
    tree.add("package/README.md", TarEntry::file(release.source("packaging/README.md")?));
    tree.add(format!("package/{path}"), program);
    release.add_licenses(&mut tree, "package")?;
    gzip(&tree.archive(NPM_DATE)?, release.compression)
}
