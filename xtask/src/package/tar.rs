//! Tar archives (USTAR) that depend on their contents alone: sorted, owned by number, with one date.

use anyhow::{Result, bail};
use std::collections::BTreeMap;

const BLOCK: usize = 512;
/// Longest name of a USTAR header without its prefix field, which no package here needs.
const NAME_MAX: usize = 100;

/// A file or folder of an archive.
#[derive(Debug, Clone)]
pub(super) struct TarEntry {
    /// `None` for a folder.
    content: Option<Vec<u8>>,
    mode: u32,
    /// User and group.
    owner: u32,
}

impl TarEntry {
    pub(super) fn file(content: impl Into<Vec<u8>>) -> TarEntry {
        TarEntry { content: Some(content.into()), mode: 0o644, owner: 0 }
    }

    pub(super) fn program(content: impl Into<Vec<u8>>) -> TarEntry {
        TarEntry { mode: 0o755, ..TarEntry::file(content) }
    }

    pub(super) fn folder(mode: u32) -> TarEntry {
        TarEntry { content: None, mode, owner: 0 }
    }

    pub(super) fn owned_by(self, owner: u32) -> TarEntry {
        TarEntry { owner, ..self }
    }

    pub(super) fn with_mode(self, mode: u32) -> TarEntry {
        TarEntry { mode, ..self }
    }
}

/// The contents of an archive, by path. Folders need no entry, unless their mode or owner matters.
#[derive(Debug, Default, Clone)]
pub(super) struct TarTree(BTreeMap<String, TarEntry>);

impl TarTree {
    pub(super) fn add(&mut self, path: impl Into<String>, entry: TarEntry) {
        self.0.insert(path.into(), entry);
    }

    /// Returns the files, without folders.
    pub(super) fn files(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.0.iter().filter_map(|(path, entry)| Some((path.as_str(), entry.content.as_deref()?)))
    }

    /// Adds a folder for every path that has none, mode 755.
    pub(super) fn with_folders(mut self) -> TarTree {
        let paths: Vec<String> = self.0.keys().cloned().collect();
        for path in paths {
            for (at, _) in path.match_indices('/') {
                let folder = path.get(..at).unwrap_or_default().to_owned();
                self.0.entry(folder).or_insert_with(|| TarEntry::folder(0o755));
            }
        }
        self
    }

    /// Returns the archive, with all dates set to `epoch`.
    pub(super) fn archive(&self, epoch: u64) -> Result<Vec<u8>> {
        let mut archive = Vec::new();
        for (path, entry) in &self.0 {
            let content = entry.content.as_deref().unwrap_or_default();
            archive.extend_from_slice(&header(path, entry, content.len(), epoch)?);
            archive.extend_from_slice(content);
            archive.resize(archive.len().next_multiple_of(BLOCK), 0);
        }
        archive.resize(archive.len() + 2 * BLOCK, 0);
        Ok(archive)
    }
}

fn header(path: &str, entry: &TarEntry, size: usize, epoch: u64) -> Result<[u8; BLOCK]> {
    let is_folder = entry.content.is_none();
    let name = if is_folder { format!("{path}/") } else { path.to_owned() };
    if name.len() > NAME_MAX {
        bail!("`{path}` is too long for an archive");
    }
    let mut header = [0; BLOCK];
    let mut put = |at: usize, text: &str| {
        if let Some(field) = header.get_mut(at..at + text.len()) {
            field.copy_from_slice(text.as_bytes());
        }
    };
    put(0, &name);
    put(100, &format!("{:07o}", entry.mode));
    put(108, &format!("{:07o}", entry.owner));
    put(116, &format!("{:07o}", entry.owner));
    put(124, &format!("{size:011o}"));
    put(136, &format!("{epoch:011o}"));
    // The checksum is that of a header with spaces in its place.
    put(148, "        ");
    put(156, if is_folder { "5" } else { "0" });
    put(257, "ustar\u{0}00");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    let sum = format!("{sum:06o}\u{0} ");
    if let Some(field) = header.get_mut(148..156) {
        field.copy_from_slice(sum.as_bytes());
    }
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::{Command, Stdio};

    fn tree() -> TarTree {
        let mut tree = TarTree::default();
        tree.add("usr/bin/hub", TarEntry::program("#!/bin/sh\n"));
        tree.add("data", TarEntry::folder(0o700).owned_by(65532));
        tree.add("etc/hosts", TarEntry::file("127.0.0.1 localhost\n"));
        tree.with_folders()
    }

    #[test]
    fn tar_lists_what_was_added() {
        let archive = tree().archive(86_400).unwrap();
        let mut tar = Command::new("tar");
        tar.args(["--utc", "--numeric-owner", "-tvf", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut tar = tar.spawn().unwrap();
        tar.stdin.take().unwrap().write_all(&archive).unwrap();
        let listed = String::from_utf8(tar.wait_with_output().unwrap().stdout).unwrap();
        let listed: Vec<String> =
            listed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        let expected = [
            "drwx------ 65532/65532 0 1970-01-02 00:00 data/",
            "drwxr-xr-x 0/0 0 1970-01-02 00:00 etc/",
            "-rw-r--r-- 0/0 20 1970-01-02 00:00 etc/hosts",
            "drwxr-xr-x 0/0 0 1970-01-02 00:00 usr/",
            "drwxr-xr-x 0/0 0 1970-01-02 00:00 usr/bin/",
            "-rwxr-xr-x 0/0 10 1970-01-02 00:00 usr/bin/hub",
        ];
        assert_eq!(listed, expected);
    }

    #[test]
    fn a_path_that_does_not_fit_is_an_error() {
        let mut tree = TarTree::default();
        tree.add("x".repeat(NAME_MAX + 1), TarEntry::file(""));
        assert!(tree.archive(0).unwrap_err().to_string().ends_with("is too long for an archive"));
    }
}
