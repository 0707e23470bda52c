//! Zip archives that depend on their contents alone: in the given order, with one date.

use anyhow::{Context, Result};
use flate2::Compression;
use flate2::write::DeflateEncoder;
use std::io::Write;

/// The first date that the format knows, 1 January 1980.
const FIRST_DATE: u16 = (1 << 5) | 1;
const VERSION_NEEDED: u16 = 20;
/// Made on Unix, so that the modes count.
const MADE_BY: u16 = (3 << 8) | VERSION_NEEDED;
const DEFLATED: u16 = 8;
const REGULAR_FILE: u32 = 0o100_000;

/// An archive in the making. Files of 4 GiB and more are an error.
#[derive(Debug, Default)]
pub(super) struct ZipArchive {
    files: Vec<u8>,
    directory: Vec<u8>,
    count: u16,
}

impl ZipArchive {
    pub(super) fn add(&mut self, path: &str, content: &[u8], mode: u32, level: Compression) -> Result<()> {
        let mut checksum = flate2::Crc::new();
        checksum.update(content);
        let mut encoder = DeflateEncoder::new(Vec::new(), level);
        encoder.write_all(content)?;
        let deflated = encoder.finish()?;
        let start = small(self.files.len())?;
        let mut shared = Vec::new();
        for field in [VERSION_NEEDED, 0, DEFLATED, 0, FIRST_DATE] {
            shared.extend_from_slice(&field.to_le_bytes());
        }
        for field in [checksum.sum(), small(deflated.len())?, small(content.len())?] {
            shared.extend_from_slice(&field.to_le_bytes());
        }
        shared.extend_from_slice(&u16::try_from(path.len())?.to_le_bytes());
        shared.extend_from_slice(&[0; 2]);

        self.files.extend_from_slice(b"PK\x03\x04");
        self.files.extend_from_slice(&shared);
        self.files.extend_from_slice(path.as_bytes());
        self.files.extend_from_slice(&deflated);

        self.directory.extend_from_slice(b"PK\x01\x02");
        self.directory.extend_from_slice(&MADE_BY.to_le_bytes());
        self.directory.extend_from_slice(&shared);
        // No comment, the first disk, no internal attributes.
        self.directory.extend_from_slice(&[0; 6]);
        self.directory.extend_from_slice(&((REGULAR_FILE | mode) << 16).to_le_bytes());
        self.directory.extend_from_slice(&start.to_le_bytes());
        self.directory.extend_from_slice(path.as_bytes());
        self.count = self.count.checked_add(1).context("an archive has at most 65,535 files")?;
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<Vec<u8>> {
        let (start, length) = (small(self.files.len())?, small(self.directory.len())?);
        self.files.append(&mut self.directory);
        self.files.extend_from_slice(b"PK\x05\x06\0\0\0\0");
        self.files.extend_from_slice(&self.count.to_le_bytes());
        self.files.extend_from_slice(&self.count.to_le_bytes());
        self.files.extend_from_slice(&length.to_le_bytes());
        self.files.extend_from_slice(&start.to_le_bytes());
        self.files.extend_from_slice(&[0; 2]);
        Ok(self.files)
    }
}

fn small(length: usize) -> Result<u32> {
    u32::try_from(length).context("the archive is too large for its format")
}
