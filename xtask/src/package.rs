//! `cargo xtask package`: everything that is handed out, from one commit, into `target/packages`.
//!
//! One file per format. Each depends on its contents alone: the same commit gives the same bytes. Then every package is
//! installed and started, as far as this machine can.

mod binary_archive;
mod checks;
mod checksums;
mod deb;
mod digest;
mod npm;
mod oci;
mod release;
mod sbom;
mod tar;
mod wheel;
mod zip;

use crate::layout::Layout;
use crate::node::renew;
use anyhow::Result;
use release::Release;

/// What to package.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PackageProfile {
    /// The existing development build, quickly. It is dynamic everywhere.
    Dev,
    /// A build of its own, with this profile, for each linkage.
    Named(String),
}

/// The profile of what is handed out.
pub(crate) const RELEASE: &str = "release";

/// Writes and checks all packages, and returns whether all checks passed.
pub(crate) fn run(layout: &Layout, profile: &PackageProfile) -> Result<bool> {
    let mut release = Release::build(layout, profile)?;
    write(layout, &release)?;
    for path in checksums::files(&release.out)?.iter().filter(|path| !path.starts_with(oci::FOLDER)) {
        println!("{}", layout.shown(&release.out.join(path)));
    }
    println!("{}\n", layout.shown(&release.out.join(oci::FOLDER)));
    checks::run(layout, &mut release)
}

/// Writes all packages into the folder of the release.
fn write(layout: &Layout, release: &Release) -> Result<()> {
    renew(&release.out)?;
    binary_archive::write(release)?;
    deb::write(layout, release)?;
    npm::write(release)?;
    wheel::write(release)?;
    oci::write(release)?;
    sbom::write(layout, release)?;
    // Last: it lists the others.
    checksums::write(release)
}
