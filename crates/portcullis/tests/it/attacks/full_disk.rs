//! A disk with no room left.

use crate::support::{home, http, stdio, text};
use portcullis_testkit::mcp_client::McpClient;
use portcullis_testkit::process::{TestHome, UNHURRIED};
use serde_json::json;
use std::path::PathBuf;
use std::process::Command;

/// A small file system, gone when dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(home: &TestHome) -> Option<SmallDisk> {
        let path = home.path().join("small");
        std::fs::create_dir(&path).unwrap();
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"]).arg(&path).output();
        match mounted {
            Ok(output) if output.status.success() => Some(SmallDisk(path)),
            Ok(output) => {
                eprintln!(
                    "skipped: no file system can be mounted: {}",
                    String::from_utf8_lossy(&output.stderr)
                );
                None
            }
            Err(error) => {
                eprintln!("skipped: no file system can be mounted: {error}");
                None
            }
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

async fn check(client: &mut McpClient, disk: &SmallDisk) {
    let kept = "what was there before";
    client.call("workspace_write", json!({ "path": "kept.md", "content": kept })).await;
    let half = "x".repeat(600_000);
    client.call("workspace_write", json!({ "path": "half.md", "content": half })).await;
    // More than there is room for.
    let refused = client.call("workspace_write", json!({ "path": "kept.md", "content": half })).await;
    assert_eq!(refused["isError"], true, "{refused}");
    assert_eq!(refused["structuredContent"]["code"], "unavailable", "{refused}");
    assert!(text(&refused).contains("no space is left on the disk"), "{}", text(&refused));
    let read = client.call("workspace_read", json!({ "path": "kept.md" })).await;
    assert_eq!(text(&read), kept, "the old content is intact");
    // Now there is no room for anything, not even for the record of a write.
    std::fs::write(disk.0.join("ai-data/filler"), vec![0; 1 << 20]).unwrap_err();
    let full =
        client.call("workspace_write", json!({ "path": "new.md", "content": "y".repeat(10_000) })).await;
    assert_eq!(full["isError"], true, "{full}");
    assert!(!disk.0.join("ai-data/new.md").exists());
    assert_eq!(text(&client.call("workspace_read", json!({ "path": "kept.md" })).await), kept);
    let leftovers: Vec<_> =
        std::fs::read_dir(disk.0.join("ai-data")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(leftovers.len(), 3, "{leftovers:?}");
    // And when there is room again, it goes on by itself.
    std::fs::remove_file(disk.0.join("ai-data/filler")).unwrap();
    portcullis_testkit::wait::until("writing works again", async || {
        let again = client.call("workspace_write", json!({ "path": "new.md", "content": "room" })).await;
        (again["isError"] == false).then_some(())
    })
    .await;
}

fn small_home() -> Option<(TestHome, SmallDisk)> {
    let home = home();
    let disk = SmallDisk::mount(&home)?;
    home.configure(&format!("{UNHURRIED}[workspace]\npath = \"small\"\n"));
    Some((home, disk))
}

#[tokio::test]
async fn refuses_writes_and_goes_on_on_stdio() {
    let Some((home, disk)) = small_home() else { return };
    let mut client = stdio(&home, "2025-11-25");
    client.initialize(json!({})).await;
    check(&mut client, &disk).await;
}

#[tokio::test]
async fn refuses_writes_and_goes_on_over_http() {
    let Some((home, disk)) = small_home() else { return };
    let hub = home.serve().await;
    let mut client = http(&hub, "2025-11-25").await;
    check(&mut client, &disk).await;
}
