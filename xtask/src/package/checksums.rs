//! `SHA256SUMS`: every other file of the packages, by path.

use super::digest::sha256;
use super::release::Release;
use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

pub(super) const NAME: &str = "SHA256SUMS";

pub(super) fn write(release: &Release) -> Result<()> {
    let mut sums = String::new();
    for path in files(&release.out)? {
        sums.push_str(&format!("{}  {path}\n", sha256(&fs::read(release.out.join(&path))?)));
    }
    release.write(NAME, sums.as_bytes())
}

/// Returns the paths of all files in a folder, relative to it, without the checksums.
pub(super) fn files(folder: &Path) -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).with_context(|| format!("cannot read `{}`", next.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.insert(path.strip_prefix(folder)?.to_string_lossy().into_owned());
            }
        }
    }
    found.remove(NAME);
    Ok(found)
}
