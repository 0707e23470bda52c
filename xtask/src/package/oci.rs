//! The container image, as an OCI layout: blobs named by their digest, and an index. It needs no daemon.
//!
//! It has the program and no shell, so the hub in it starts no MCP servers of its own.

use super::digest::{gzip, sha256};
use super::release::Release;
use super::tar::{TarEntry, TarTree};
use anyhow::Result;
use serde_json::{Value, json};

/// The user that "distroless" images have, and no one else.
pub(super) const USER: u32 = 65_532;
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// The folder of the layout.
pub(super) const FOLDER: &str = "oci";

/// The same layout as one file.
pub(super) fn archive_name(release: &Release) -> String {
    format!("portcullis-{}-{}.oci.tar", release.version, release.architecture.debian)
}

pub(super) fn write(release: &Release) -> Result<()> {
    let layer = layer(release)?.archive(release.epoch)?;
    let diff_id = format!("sha256:{}", sha256(&layer));
    let layer = gzip(&layer, release.compression)?;
    let created = date(release.epoch);
    let config = json!({
        "created": created,
        "architecture": release.architecture.debian,
        "os": "linux",
        "config": {
            "User": format!("{USER}:{USER}"),
            "Env": ["PATH=/usr/bin", "HOME=/tmp", "PORTCULLIS_HOME=/data"],
            "Entrypoint": ["/usr/bin/portcullis"],
            "Cmd": ["serve"],
            "ExposedPorts": { "3000/tcp": {} },
            "Volumes": { "/data": {} },
            "WorkingDir": "/data",
            "StopSignal": "SIGTERM",
            "Labels": {
                "org.opencontainers.image.title": "portcullis",
                "org.opencontainers.image.version": release.version,
                "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
            },
        },
        "rootfs": { "type": "layers", "diff_ids": [diff_id] },
        "history": [{ "created": created, "created_by": "cargo xtask package" }],
    });
    let mut tree = TarTree::default();
    let layer = blob(&mut tree, "application/vnd.oci.image.layer.v1.tar+gzip", layer);
    let config = blob(&mut tree, "application/vnd.oci.image.config.v1+json", serde_json::to_vec(&config)?);
    let manifest = json!({ "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer] });
    let mut manifest = blob(&mut tree, MANIFEST, serde_json::to_vec(&manifest)?);
    if let Some(manifest) = manifest.as_object_mut() {
        let architecture = release.architecture.debian;
        manifest.insert("platform".to_owned(), json!({ "architecture": architecture, "os": "linux" }));
        let names = json!({
            "org.opencontainers.image.ref.name": release.version,
            "io.containerd.image.name": format!("localhost/portcullis:{}", release.version),
        });
        manifest.insert("annotations".to_owned(), names);
    }
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [manifest],
    });
    tree.add("index.json", TarEntry::file(serde_json::to_vec(&index)?));
    tree.add("oci-layout", TarEntry::file(r#"{"imageLayoutVersion":"1.0.0"}"#));
    for (path, content) in tree.files() {
        release.write(&format!("{FOLDER}/{path}"), content)?;
    }
    release.write(&archive_name(release), &tree.with_folders().archive(release.epoch)?)
}

/// Adds a blob, and returns its descriptor.
fn blob(tree: &mut TarTree, media_type: &str, content: Vec<u8>) -> Value {
    let digest = sha256(&content);
    let descriptor =
        json!({ "mediaType": media_type, "digest": format!("sha256:{digest}"), "size": content.len() });
    tree.add(format!("blobs/sha256/{digest}"), TarEntry::file(content));
    descriptor
}

fn layer(release: &Release) -> Result<TarTree> {
    let mut tree = TarTree::default();
    tree.add("usr/bin/portcullis", TarEntry::program(release.portable.clone()));
    for file in ["passwd", "group", "hosts", "nsswitch.conf"] {
        tree.add(format!("etc/{file}"), TarEntry::file(release.source(&format!("packaging/oci/{file}"))?));
    }
    tree.add("tmp", TarEntry::folder(0o1777));
    tree.add("data", TarEntry::folder(0o700).owned_by(USER));
    let settings = TarEntry::file(release.source("packaging/oci/portcullis.toml")?);
    tree.add("data/portcullis.toml", settings.owned_by(USER).with_mode(0o600));
    release.add_licenses(&mut tree, "usr/share/doc/portcullis")?;
    Ok(tree.with_folders())
}

/// Returns a date as RFC 3339 has it.
pub(super) fn date(epoch: u64) -> String {
    let (days, second) = (epoch / 86_400, epoch % 86_400);
    // Years that begin in March have the leap day at their end. Day 0 is then 1 March of the year 0.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = era * 400 + year + later;
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (epoch, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_795_125_274, "2026-11-19T21:54:34Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(date(epoch), expected);
        }
    }
}
