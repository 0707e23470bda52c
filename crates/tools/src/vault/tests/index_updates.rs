//! The index follows the files, regardless of which program changes them.

use super::{VaultFixture, put};
use crate::vault::note_store::NoteStore;
use crate::vault::query::Query;
use portcullis_core::Root;
use std::sync::Arc;
use std::time::Duration;

/// Far longer than a change takes to be noticed.
const PATIENCE: Duration = Duration::from_secs(20);

async fn until(vault: &VaultFixture, query: &str, expected: &[&str]) {
    let look = async {
        while vault.found(query).await != expected {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, look)
        .await
        .unwrap_or_else(|_| panic!("{query}: {expected:?} was never found"));
}

#[tokio::test]
async fn changes_by_other_programs_are_found() {
    let vault = VaultFixture::with(&[("a.md", "apple\n")]);
    assert_eq!(vault.found("apple").await, ["a.md"]);
    let folder = vault.vault();
    put(&folder, "a.md", "pear\n");
    until(&vault, "pear", &["a.md"]).await;
    until(&vault, "apple", &[]).await;
    put(&folder, "deep/er/b.md", "plum\n");
    until(&vault, "plum", &["deep/er/b.md"]).await;
    std::fs::rename(folder.join("deep"), folder.join("moved")).unwrap();
    until(&vault, "plum", &["moved/er/b.md"]).await;
    // An atomic save, as editors do it: a temporary file, then a rename.
    put(&folder, "moved/er/.b.md.swp", "quince\n");
    std::fs::rename(folder.join("moved/er/.b.md.swp"), folder.join("moved/er/b.md")).unwrap();
    until(&vault, "quince", &["moved/er/b.md"]).await;
    std::fs::remove_dir_all(folder.join("moved")).unwrap();
    until(&vault, "quince", &[]).await;
    // Hidden files are not indexed.
    put(&folder, ".trash/c.md", "cherry\n");
    put(&folder, "c.txt", "cherry\n");
    put(&folder, "d.md", "cherry\n");
    until(&vault, "cherry", &["d.md"]).await;
}

/// Without a watch, as at the kernel's watch limit, and with changes that keep size and time.
#[test]
fn a_change_that_nobody_tells_of_is_found_by_its_stamp() {
    let folder = tempfile::tempdir().unwrap();
    let notes: Arc<NoteStore> = NoteStore::open(Root::open(folder.path()).unwrap(), folder.path()).unwrap();
    let found = |word: &str| notes.find(&Query::parse(word).unwrap()).ranked.len();
    put(folder.path(), "a.md", "apple\n");
    notes.rescan();
    assert_eq!(found("apple"), 1);
    let time = std::fs::metadata(folder.path().join("a.md")).unwrap().modified().unwrap();
    std::fs::write(folder.path().join("a.md"), "melon\n").unwrap();
    std::fs::File::options()
        .write(true)
        .open(folder.path().join("a.md"))
        .unwrap()
        .set_modified(time)
        .unwrap();
    notes.rescan();
    assert_eq!((found("melon"), found("apple")), (1, 0));
    // Control: size and modification time, which most programs compare, are unchanged.
    let after = std::fs::metadata(folder.path().join("a.md")).unwrap();
    assert_eq!((after.len(), after.modified().unwrap()), (6, time));
}

#[tokio::test]
async fn a_note_that_is_gone_is_not_shown() {
    let vault = VaultFixture::with(&[("a.md", "apple\n"), ("b.md", "apple\n")]);
    assert_eq!(vault.found("apple").await.len(), 2);
    std::fs::remove_file(vault.vault().join("a.md")).unwrap();
    // At once, even if the index is stale.
    assert_eq!(vault.found("apple").await, ["b.md"]);
}

#[tokio::test]
async fn odd_notes_do_no_harm() {
    let vault = VaultFixture::with(&[("good.md", "apple\n")]);
    let folder = vault.vault();
    std::fs::write(folder.join("latin.md"), b"caf\xe9 apple\n").unwrap();
    std::fs::write(folder.join("huge.md"), vec![b'x'; 2_000_000]).unwrap();
    std::fs::write(folder.join("empty.md"), "").unwrap();
    std::fs::write(
        folder.join("deep.md"),
        "---\n".to_owned() + &"[".repeat(60_000) + "\n---\n" + &"[".repeat(100_000),
    )
    .unwrap();
    std::os::unix::fs::symlink("/etc/passwd", folder.join("link.md")).unwrap();
    std::os::unix::fs::symlink(".", folder.join("loop")).unwrap();
    until(&vault, "apple", &["good.md", "latin.md"]).await;
    assert_eq!(vault.found("root").await, Vec::<String>::new());
}
