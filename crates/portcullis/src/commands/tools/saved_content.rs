//! Images and other binary content of results, which a terminal cannot show.

use anyhow::{Context, Result, bail};
use data_encoding::BASE64;
use portcullis_config::atomic_write::write_new;
use portcullis_core::json::printable;
use serde_json::Value;
use std::io;
use std::path::Path;

/// Files of one tool in a folder. More mean that nothing reads them.
const FILES_MAX: usize = 999;
const PRIVATE_FILE: u32 = 0o600;

/// An image, a recording or a binary resource in a result.
pub(super) struct BinaryContent<'a> {
    kind: &'a str,
    base64: &'a str,
}

impl BinaryContent<'_> {
    /// Returns the binary part of a content item, if it is one.
    pub(super) fn of(content: &Value) -> Option<BinaryContent<'_>> {
        let (item, key) = match content["type"].as_str()? {
            "image" | "audio" => (content, "data"),
            "resource" => (&content["resource"], "blob"),
            _ => return None,
        };
        Some(BinaryContent {
            kind: item["mimeType"].as_str().unwrap_or_default(),
            base64: item[key].as_str()?,
        })
    }

    /// Writes a new file. Returns what was done, in one sentence.
    pub(super) fn save(&self, folder: &Path, tool: &str) -> Result<String> {
        let bytes =
            BASE64.decode(self.base64.as_bytes()).context("binary content of the result is not base64")?;
        let tool: String = tool.chars().filter(|c| c.is_ascii_alphanumeric() || "_-".contains(*c)).collect();
        for number in 1..=FILES_MAX {
            let path = folder.join(format!("{tool}-{number}.{}", self.extension()));
            match write_new(&path, &bytes, PRIVATE_FILE) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    let path = path.display();
                    bail!("cannot write `{path}`: {error}; choose another folder with `--save DIR`");
                }
                Ok(()) => {
                    let kind = if self.kind.is_empty() { "binary content" } else { self.kind };
                    return Ok(format!(
                        "Saved {} ({} bytes) as {}.",
                        printable(kind),
                        bytes.len(),
                        path.display()
                    ));
                }
            }
        }
        bail!(
            "`{}` has {FILES_MAX} files of `{tool}` already; choose another folder with `--save DIR`",
            folder.display()
        )
    }

    /// The server chooses the type, so only extensions that start no program are used.
    fn extension(&self) -> &'static str {
        match self.kind.split(';').next().unwrap_or_default().trim() {
            "image/png" => "png",
            "image/jpeg" => "jpg",
            "image/gif" => "gif",
            "image/webp" => "webp",
            "audio/wav" | "audio/x-wav" => "wav",
            "audio/mpeg" => "mp3",
            "audio/ogg" => "ogg",
            "application/pdf" => "pdf",
            _ => "bin",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_is_a_new_file_with_a_harmless_name() {
        let folder = tempfile::tempdir().unwrap();
        let save = |content: &Value, tool: &str| {
            let said = BinaryContent::of(content).unwrap().save(folder.path(), tool).unwrap();
            said.replace(&folder.path().display().to_string(), "DIR")
        };
        let image = json!({ "type": "image", "data": "aGk=", "mimeType": "image/png" });
        assert_eq!(save(&image, "shot_take"), "Saved image/png (2 bytes) as DIR/shot_take-1.png.");
        assert_eq!(save(&image, "shot_take"), "Saved image/png (2 bytes) as DIR/shot_take-2.png.");
        let odd = json!({ "type": "audio", "data": "aGk=", "mimeType": "audio/x-sh\u{1b}" });
        assert_eq!(save(&odd, "../../x"), "Saved audio/x-sh\\u{1b} (2 bytes) as DIR/x-1.bin.");
        let blob = json!({ "type": "resource", "resource": { "uri": "a:b", "blob": "aGk=" } });
        assert_eq!(save(&blob, "x"), "Saved binary content (2 bytes) as DIR/x-2.bin.");
        assert_eq!(std::fs::read(folder.path().join("shot_take-1.png")).unwrap(), b"hi");
        for content in [
            json!({ "type": "text", "text": "x" }),
            json!({ "type": "resource", "resource": { "uri": "a:b", "text": "x" } }),
            json!({ "type": "image" }),
        ] {
            assert!(BinaryContent::of(&content).is_none(), "{content}");
        }
        let broken = json!({ "type": "image", "data": "?", "mimeType": "image/png" });
        assert!(BinaryContent::of(&broken).unwrap().save(folder.path(), "x").is_err());
    }
}
