//! Checks of the checksums and of the bill of materials, each against another program's view.

use crate::layout::Layout;
use crate::package::release::{self, PROGRAM, Release};
use crate::package::{checksums, sbom};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;

pub(super) fn checksums(release: &Release) -> Result<()> {
    let mut sha256sum = std::process::Command::new("sha256sum");
    sha256sum.args(["--check", "--strict", "--quiet", checksums::NAME]).current_dir(&release.out);
    release::output(&mut sha256sum)?;
    let listed: BTreeSet<String> = fs::read_to_string(release.out.join(checksums::NAME))?
        .lines()
        .filter_map(|line| Some(line.split_once("  ")?.1.to_owned()))
        .collect();
    let found = checksums::files(&release.out)?;
    match found.symmetric_difference(&listed).next() {
        Some(path) => bail!("`{path}` is a file or listed, but not both"),
        None => Ok(()),
    }
}

/// Compares it with what `cargo tree` lists, and with the lock file.
pub(super) fn bill_of_materials(layout: &Layout, release: &Release) -> Result<()> {
    let bill: Value = serde_json::from_slice(&fs::read(release.out.join(sbom::name(release)))?)?;
    if bill.get("bomFormat").and_then(Value::as_str) != Some("CycloneDX") {
        bail!("it is not a CycloneDX document");
    }
    let components = bill.get("components").and_then(Value::as_array).context("it has no components")?;
    let mut listed = BTreeSet::new();
    for component in components {
        let text = |name: &str| component.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        if component.get("licenses").is_none() {
            bail!("`{}` has no license", text("name"));
        }
        if !listed.insert((text("name"), text("version"))) {
            bail!("`{}` is there twice", text("name"));
        }
    }
    let mut cargo = layout.cargo();
    cargo.args(["tree", "--locked", "--package", PROGRAM, "--edges", "normal,build", "--prefix", "none"]);
    cargo.args(["--target", &release.architecture.target(), "--format", "{p}"]);
    let tree = String::from_utf8(release::output(&mut cargo)?)?;
    let mut built = BTreeSet::new();
    for line in tree.lines() {
        let mut words = line.split_whitespace();
        if let (Some(name), Some(version)) = (words.next(), words.next()) {
            built.insert((name.to_owned(), version.trim_start_matches('v').to_owned()));
        }
    }
    built.remove(&(PROGRAM.to_owned(), release.version.clone()));
    if built.len() < 100 {
        bail!("`cargo tree` lists only {} packages", built.len());
    }
    if let Some((name, version)) = built.difference(&listed).next() {
        bail!("`{name}` {version} is built, but not listed");
    }
    let lock = release.source("Cargo.lock")?;
    for (name, version) in &listed {
        if !lock.contains(&format!("name = \"{name}\"\nversion = \"{version}\"\n")) {
            bail!("`{name}` {version} is not in Cargo.lock");
        }
    }
    Ok(())
}
