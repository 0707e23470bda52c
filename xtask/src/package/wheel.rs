//! The wheel for PyPI. It has no Python: installers put the program of `NAME.data/scripts` on the path.

use super::digest::sha256_base64url;
use super::release::{LICENSES, Linkage, Release};
use super::zip::ZipArchive;
use anyhow::Result;

/// Returns the platforms that the wheel is for. A static program runs with any C library.
fn platforms(release: &Release) -> Vec<String> {
    let machine = release.architecture.machine;
    match release.portable_linkage {
        Linkage::Static => {
            ["manylinux_2_17", "manylinux2014", "musllinux_1_1"].map(|tag| format!("{tag}_{machine}")).into()
        }
        // This machine's own, which indexes refuse.
        Linkage::Dynamic => vec![format!("linux_{machine}")],
    }
}

pub(super) fn name(release: &Release) -> String {
    format!("pypi/portcullis-{}-py3-none-{}.whl", release.version, platforms(release).join("."))
}

pub(super) fn write(release: &Release) -> Result<()> {
    let stem = format!("portcullis-{}", release.version);
    let info = format!("{stem}.dist-info");
    let metadata = release.template("pypi/METADATA", &[("VERSION", &release.version)])?
        + &release.source("packaging/README.md")?;
    let mut wheel = "Wheel-Version: 1.0\nGenerator: portcullis\nRoot-Is-Purelib: false\n".to_owned();
    for platform in platforms(release) {
        wheel.push_str(&format!("Tag: py3-none-{platform}\n"));
    }
    let mut files = vec![
        (format!("{stem}.data/scripts/portcullis"), release.portable.clone(), 0o755),
        (format!("{info}/METADATA"), metadata.into_bytes(), 0o644),
        (format!("{info}/WHEEL"), wheel.into_bytes(), 0o644),
    ];
    for license in LICENSES {
        files.push((format!("{info}/licenses/{license}"), release.source(license)?.into_bytes(), 0o644));
    }
    let mut record = String::new();
    let mut archive = ZipArchive::default();
    for (path, content, mode) in &files {
        record.push_str(&format!("{path},sha256={},{}\n", sha256_base64url(content), content.len()));
        archive.add(path, content, *mode, release.compression)?;
    }
    record.push_str(&format!("{info}/RECORD,,\n"));
    archive.add(&format!("{info}/RECORD"), record.as_bytes(), 0o644, release.compression)?;
    release.write(&name(release), &archive.finish()?)
}
