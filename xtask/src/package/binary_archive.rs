//! The plain archive: the static program with its manual, completions and units.

use super::digest::gzip;
use super::release::{PROGRAM, Release};
use super::tar::{TarEntry, TarTree};
use anyhow::Result;

/// The units, by their path below `packaging/systemd`.
const UNITS: [&str; 4] =
    ["portcullis.service", "portcullis-children.conf", "portcullis-user.service", "portcullis.sysusers"];

pub(super) fn name(release: &Release) -> String {
    format!("{}.tar.gz", stem(release))
}

pub(super) fn stem(release: &Release) -> String {
    format!("portcullis-{}-{}-linux", release.version, release.architecture.machine)
}

pub(super) fn write(release: &Release) -> Result<()> {
    let stem = stem(release);
    let mut tree = TarTree::default();
    tree.add(format!("{stem}/{PROGRAM}"), TarEntry::program(release.portable.clone()));
    tree.add(format!("{stem}/README.md"), TarEntry::file(release.source("packaging/README.md")?));
    for (path, content) in &release.shared {
        tree.add(format!("{stem}/share/{path}"), TarEntry::file(content.clone()));
    }
    for unit in UNITS {
        let text = release.source(&format!("packaging/systemd/{unit}"))?;
        tree.add(format!("{stem}/systemd/{unit}"), TarEntry::file(text));
    }
    release.add_licenses(&mut tree, &stem)?;
    release.write(&name(release), &gzip(&tree.with_folders().archive(release.epoch)?, release.compression)?)
}
