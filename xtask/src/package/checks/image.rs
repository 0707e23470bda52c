//! Checks of the container image: every digest in the layout, and the unpacked layer as a root of its own.

use super::{CheckReport, handshake};
use crate::package::digest::sha256;
use crate::package::oci;
use crate::package::release::{self, Linkage};
use anyhow::{Context, Result, bail};
use flate2::read::GzDecoder;
use serde_json::Value;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Largest unpacked layer. A release is a fifth of it.
const LAYER_BYTES_MAX: u64 = 512 * 1024 * 1024;

/// What a layout says, after every digest and size in it was compared.
#[derive(Debug)]
struct VerifiedImage {
    config: Value,
    layers: Vec<PathBuf>,
}

pub(super) fn run(report: &mut CheckReport<'_>) {
    let mut image = None;
    report.check("image: digests, sizes and diff_ids match", |report| {
        image = Some(verify(&report.release.out.join(oci::FOLDER))?);
        Ok(())
    });
    let Some(image) = image else { return };
    report.check("image: the archive has the same files as the layout", archive_is_the_layout);
    let mut root = PathBuf::new();
    report.check("image: the layer has no shell, and its user is not root", |report| {
        root = unpack(report, &image)?;
        has_no_shell(&root, &image.config)
    });
    let what = "image: the program answers in the layer alone, as its user";
    if !rustix::process::geteuid().is_root() {
        report.skip(what, "only root may `chroot`");
    } else if report.release.portable_linkage == Linkage::Dynamic {
        let what = format!("{what} (with the libraries of this machine: a development build is dynamic)");
        report.check(&what, |report| {
            add_libraries(&report.release.dynamic_path, &root)?;
            answers_in(report, &root, &image.config)
        });
    } else {
        report.check(what, |report| answers_in(report, &root, &image.config));
    }
}

fn verify(layout: &Path) -> Result<VerifiedImage> {
    let version: Value = serde_json::from_slice(&fs::read(layout.join("oci-layout"))?)?;
    if version.get("imageLayoutVersion").and_then(Value::as_str) != Some("1.0.0") {
        bail!("`oci-layout` names no version");
    }
    let index: Value = serde_json::from_slice(&fs::read(layout.join("index.json"))?)?;
    let Some([manifest]) = list(&index, "/manifests") else { bail!("the index has not one manifest") };
    let manifest: Value = serde_json::from_slice(&blob(layout, manifest)?.0)?;
    let config = manifest.get("config").context("the manifest has no configuration")?;
    let config: Value = serde_json::from_slice(&blob(layout, config)?.0)?;
    let layers = list(&manifest, "/layers").unwrap_or_default();
    let diff_ids = list(&config, "/rootfs/diff_ids").unwrap_or_default();
    if layers.is_empty() || layers.len() != diff_ids.len() {
        bail!("{} layers, {} diff_ids", layers.len(), diff_ids.len());
    }
    let mut paths = Vec::new();
    for (layer, diff_id) in layers.iter().zip(diff_ids) {
        let (content, path) = blob(layout, layer)?;
        let mut tar = Vec::new();
        GzDecoder::new(content.as_slice()).take(LAYER_BYTES_MAX).read_to_end(&mut tar)?;
        let found = format!("sha256:{}", sha256(&tar));
        if diff_id.as_str() != Some(&found) {
            bail!("diff_id {diff_id} of a layer whose contents are {found}");
        }
        paths.push(path);
    }
    Ok(VerifiedImage { config, layers: paths })
}

fn list<'v>(value: &'v Value, pointer: &str) -> Option<&'v [Value]> {
    value.pointer(pointer)?.as_array().map(Vec::as_slice)
}

/// Returns a blob that is what its descriptor says, and its path.
fn blob(layout: &Path, descriptor: &Value) -> Result<(Vec<u8>, PathBuf)> {
    let digest = descriptor.get("digest").and_then(Value::as_str).unwrap_or_default();
    let digits = digest.strip_prefix("sha256:").context("a descriptor without SHA-256")?;
    let path = layout.join("blobs/sha256").join(digits);
    let content = fs::read(&path).with_context(|| format!("blob {digest}"))?;
    let size = descriptor.get("size").and_then(Value::as_u64);
    if sha256(&content) != digits || size != u64::try_from(content.len()).ok() {
        bail!("blob {digest} has other contents");
    }
    Ok((content, path))
}

fn archive_is_the_layout(report: &CheckReport<'_>) -> Result<()> {
    let (layout, unpacked) = (report.release.out.join(oci::FOLDER), unpacked_archive(report)?);
    release::output(report.command("diff").arg("--recursive").args([layout, unpacked])).map(|_| ())
}

fn unpacked_archive(report: &CheckReport<'_>) -> Result<PathBuf> {
    let folder = report.folder("image-archive")?;
    let archive = report.release.out.join(oci::archive_name(report.release));
    release::output(report.command("tar").arg("-xf").arg(archive).arg("-C").arg(&folder))?;
    Ok(folder)
}

fn unpack(report: &CheckReport<'_>, image: &VerifiedImage) -> Result<PathBuf> {
    let root = report.folder("image")?;
    for layer in &image.layers {
        release::output(report.command("tar").arg("-xpzf").arg(layer).arg("-C").arg(&root))?;
    }
    Ok(root)
}

fn has_no_shell(root: &Path, config: &Value) -> Result<()> {
    for shell in ["bin/sh", "usr/bin/sh", "bin/bash"] {
        if root.join(shell).exists() {
            bail!("there is `/{shell}`");
        }
    }
    let user = config.pointer("/config/User").and_then(Value::as_str).unwrap_or_default();
    let expected = format!("{}:{}", oci::USER, oci::USER);
    if user != expected {
        bail!("the user is `{user}`, expected `{expected}`");
    }
    Ok(())
}

/// Copies what the loader of this machine would load.
fn add_libraries(program: &Path, root: &Path) -> Result<()> {
    let printed = String::from_utf8(release::output(Command::new("ldd").arg(program))?)?;
    let paths = printed.split_whitespace().filter(|word| word.starts_with('/'));
    for path in paths {
        let copy = root.join(path.trim_start_matches('/'));
        fs::create_dir_all(copy.parent().context("a library is in a folder")?)?;
        fs::copy(path, &copy).with_context(|| format!("cannot copy `{path}`"))?;
    }
    Ok(())
}

/// Runs the program as a container would: with the layer as its root, the image's user and its environment.
fn answers_in(report: &CheckReport<'_>, root: &Path, config: &Value) -> Result<()> {
    let words = |pointer: &str| -> Vec<String> {
        let words = list(config, pointer).unwrap_or_default();
        words.iter().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let command = |args: &[&str]| {
        let mut command = report.command("chroot");
        command.arg(format!("--userspec={}:{}", oci::USER, oci::USER)).arg(root);
        command.args(words("/config/Entrypoint")).args(args).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        for variable in words("/config/Env").iter().filter(|variable| !variable.starts_with("PATH=")) {
            if let Some((name, value)) = variable.split_once('=') {
                command.env(name, value);
            }
        }
        command
    };
    report.says_its_version(&mut command(&["--version"]))?;
    handshake::converse(&mut command(&["stdio"]), &report.log(root))?;
    if !root.join("data/workspace").exists() {
        bail!("the hub keeps its state elsewhere than in `/data`");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::package::digest::gzip;
    use flate2::Compression;
    use serde_json::json;

    /// Writes a layout whose layer has these contents and this diff_id.
    fn layout(folder: &Path, tar: &[u8], diff_id: &str) {
        let blobs = folder.join("blobs/sha256");
        fs::create_dir_all(&blobs).unwrap();
        let put = |content: &[u8]| {
            fs::write(blobs.join(sha256(content)), content).unwrap();
            json!({ "digest": format!("sha256:{}", sha256(content)), "size": content.len() })
        };
        let layer = put(&gzip(tar, Compression::fast()).unwrap());
        let config = put(&serde_json::to_vec(&json!({ "rootfs": { "diff_ids": [diff_id] } })).unwrap());
        let manifest = put(&serde_json::to_vec(&json!({ "config": config, "layers": [layer] })).unwrap());
        fs::write(
            folder.join("index.json"),
            serde_json::to_vec(&json!({ "manifests": [manifest] })).unwrap(),
        )
        .unwrap();
        fs::write(folder.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
    }

    #[test]
    fn altered_layouts_are_refused() {
        let folder = std::env::temp_dir().join(format!("xtask-image-{}", std::process::id()));
        let right = format!("sha256:{}", sha256(b"layer"));
        layout(&folder, b"layer", &right);
        let image = verify(&folder).unwrap();
        fs::write(&image.layers[0], b"other").unwrap();
        assert!(verify(&folder).unwrap_err().to_string().ends_with("has other contents"));
        layout(&folder, b"another", &right);
        assert!(verify(&folder).unwrap_err().to_string().starts_with("diff_id \"sha256:"));
        fs::remove_dir_all(&folder).unwrap();
    }
}
