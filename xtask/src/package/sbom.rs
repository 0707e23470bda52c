//! The software bill of materials, in CycloneDX: every crate that the program is built from.

use super::digest::sha256;
use super::oci::date;
use super::release::{self, PROGRAM, Release};
use crate::layout::Layout;
use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn name(release: &Release) -> String {
    format!("portcullis-{}.cdx.json", release.version)
}

/// What `cargo metadata` prints, as far as it is needed.
#[derive(Deserialize)]
struct CargoMetadata {
    packages: Vec<CargoPackage>,
    resolve: CargoResolve,
}

#[derive(Deserialize)]
struct CargoPackage {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    source: Option<String>,
    description: Option<String>,
}

#[derive(Deserialize)]
struct CargoResolve {
    nodes: Vec<CargoNode>,
}

#[derive(Deserialize)]
struct CargoNode {
    id: String,
    deps: Vec<CargoDependency>,
}

#[derive(Deserialize)]
struct CargoDependency {
    pkg: String,
    dep_kinds: Vec<CargoDependencyKind>,
}

#[derive(Deserialize)]
struct CargoDependencyKind {
    /// `None` for an ordinary one; `dev` and `build` otherwise.
    kind: Option<String>,
}

/// The lock file, as far as it is needed.
#[derive(Deserialize)]
struct CargoLock {
    package: Vec<LockedPackage>,
}

#[derive(Deserialize)]
struct LockedPackage {
    name: String,
    version: String,
    checksum: Option<String>,
}

pub(super) fn write(layout: &Layout, release: &Release) -> Result<()> {
    let mut cargo = layout.cargo();
    cargo.args(["metadata", "--format-version", "1", "--locked", "--filter-platform"]);
    let metadata = release::output(cargo.arg(release.architecture.target()))?;
    let bill = bill(&serde_json::from_slice(&metadata)?, &release.source("Cargo.lock")?, release.epoch)?;
    release.write(&name(release), format!("{bill:#}\n").as_bytes())
}

fn bill(metadata: &CargoMetadata, lock: &str, epoch: u64) -> Result<Value> {
    let locked: CargoLock = toml::from_str(lock).context("Cargo.lock")?;
    let checksums: BTreeMap<(String, String), String> = locked
        .package
        .into_iter()
        .filter_map(|package| Some(((package.name, package.version), package.checksum?)))
        .collect();
    let packages: BTreeMap<&str, &CargoPackage> =
        metadata.packages.iter().map(|package| (package.id.as_str(), package)).collect();
    let nodes: BTreeMap<&str, &CargoNode> =
        metadata.resolve.nodes.iter().map(|node| (node.id.as_str(), node)).collect();
    let of = |id: &str| packages.get(id).copied().with_context(|| format!("Cargo does not describe `{id}`"));
    let root = metadata.packages.iter().find(|package| package.name == PROGRAM && package.source.is_none());
    let root = root.context("Cargo does not list the program's package")?;

    let mut reached = BTreeSet::from([root.id.as_str()]);
    let mut ahead = vec![root.id.as_str()];
    let mut dependencies = BTreeMap::new();
    while let Some(id) = ahead.pop() {
        let node = nodes.get(id).with_context(|| format!("Cargo does not resolve `{id}`"))?;
        let built =
            |dep: &&CargoDependency| dep.dep_kinds.iter().any(|kind| kind.kind.as_deref() != Some("dev"));
        let mut needed = BTreeSet::new();
        for dependency in node.deps.iter().filter(built) {
            needed.insert(purl(of(&dependency.pkg)?));
            if reached.insert(&dependency.pkg) {
                ahead.push(&dependency.pkg);
            }
        }
        dependencies.insert(purl(of(id)?), needed);
    }
    reached.remove(root.id.as_str());
    let mut components = BTreeMap::new();
    for id in reached {
        let package = of(id)?;
        let checksum = checksums.get(&(package.name.clone(), package.version.clone()));
        components.insert(purl(package), component(package, "library", checksum));
    }
    let dependencies: Vec<Value> = dependencies
        .into_iter()
        .map(|(package, needed)| json!({ "ref": package, "dependsOn": needed }))
        .collect();
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": serial_number(&format!("{lock}{epoch}")),
        "version": 1,
        "metadata": { "timestamp": date(epoch), "component": component(root, "application", None) },
        "components": components.into_values().collect::<Vec<Value>>(),
        "dependencies": dependencies,
    }))
}

/// Returns the package URL, which is also the identity within the bill.
fn purl(package: &CargoPackage) -> String {
    format!("pkg:cargo/{}@{}", package.name, package.version)
}

fn component(package: &CargoPackage, kind: &str, checksum: Option<&String>) -> Value {
    let mut component = json!({
        "type": kind,
        "bom-ref": purl(package),
        "name": package.name,
        "version": package.version,
        "purl": purl(package),
    });
    let mut insert = |name: &str, value: Value| {
        if let Some(component) = component.as_object_mut() {
            component.insert(name.to_owned(), value);
        }
    };
    if let Some(description) = &package.description {
        insert("description", json!(description.split_whitespace().collect::<Vec<_>>().join(" ")));
    }
    if let Some(license) = &package.license {
        // Old packages separate alternatives by a slash.
        let expression = license.split('/').map(str::trim).collect::<Vec<_>>().join(" OR ");
        insert("licenses", json!([{ "expression": expression }]));
    }
    if let Some(checksum) = checksum {
        insert("hashes", json!([{ "alg": "SHA-256", "content": checksum }]));
    }
    component
}

/// Returns a UUID that the contents determine (version 8).
fn serial_number(content: &str) -> String {
    let digits = sha256(content.as_bytes());
    let part = |from: usize, to: usize| digits.get(from..to).unwrap_or_default();
    format!("urn:uuid:{}-{}-8{}-a{}-{}", part(0, 8), part(8, 12), part(13, 16), part(17, 20), part(20, 32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bill_has_what_is_built_and_not_what_tests_use() {
        let package = |name: &str, source: Option<&str>, license: &str| json!({ "id": name, "name": name, "version": "1.0.0", "source": source, "license": license });
        let needs = |name: &str, kind: Option<&str>| json!({ "pkg": name, "dep_kinds": [{ "kind": kind }] });
        let metadata: CargoMetadata = serde_json::from_value(json!({
            "packages": [
                package("portcullis", None, "MIT"),
                package("used", Some("registry"), "MIT/Apache-2.0"),
                package("compiler", Some("registry"), "MIT"),
                package("tester", Some("registry"), "MIT"),
            ],
            "resolve": { "nodes": [
                { "id": "portcullis", "deps": [needs("used", None), needs("tester", Some("dev"))] },
                { "id": "used", "deps": [needs("compiler", Some("build"))] },
                { "id": "compiler", "deps": [] },
                { "id": "tester", "deps": [] },
            ]},
        }))
        .unwrap();
        let lock = "[[package]]\nname = \"used\"\nversion = \"1.0.0\"\nchecksum = \"ab\"\n";
        let bill = bill(&metadata, lock, 0).unwrap();
        let names: Vec<&Value> =
            bill["components"].as_array().unwrap().iter().map(|component| &component["name"]).collect();
        assert_eq!(names, ["compiler", "used"]);
        assert_eq!(bill["components"][1]["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(bill["components"][1]["hashes"], json!([{ "alg": "SHA-256", "content": "ab" }]));
        assert_eq!(
            bill["dependencies"][1],
            json!({
                "ref": "pkg:cargo/portcullis@1.0.0", "dependsOn": ["pkg:cargo/used@1.0.0"],
            })
        );
        assert_eq!(bill["serialNumber"].as_str().unwrap().len(), "urn:uuid:".len() + 36);
    }
}
