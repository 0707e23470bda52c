use super::*;
use crate::testing::{ToolsFixture, hear, hear_list};
use portcullis_core::{CatalogChange, CompletionRef};
use std::fs;
use std::os::unix::fs::symlink;

#[tokio::test]
async fn files_are_written_read_and_listed() {
    let hub = ToolsFixture::new();
    insta::assert_snapshot!(hub.check(&[
        r#"workspace_list {}"#,
        r#"workspace_write {"path": "notes/todo.md", "content": "milk\n"}"#,
        r#"workspace_write {"path": "/workspace/notes/todo.md", "content": "bread and butter\n"}"#,
        r#"workspace_write {"path": "a.md", "content": ""}"#,
        r#"workspace_read {"path": "./notes//todo.md"}"#,
        r#"workspace_read {"path": "a.md"}"#,
        r#"workspace_list {"path": "/workspace"}"#,
        r#"workspace_list {"path": "notes"}"#,
    ]).await, @r#"
    > workspace_list {}
    json: {"path":".","entries":[],"truncated":false}
    > workspace_write {"path": "notes/todo.md", "content": "milk\n"}
    "Wrote 5 bytes to notes/todo.md"
    facts: {"path":"notes/todo.md","bytes":5,"created":true}
    > workspace_write {"path": "/workspace/notes/todo.md", "content": "bread and butter\n"}
    "Wrote 17 bytes to notes/todo.md"
    facts: {"path":"notes/todo.md","bytes":17,"created":false}
    > workspace_write {"path": "a.md", "content": ""}
    "Wrote 0 bytes to a.md"
    facts: {"path":"a.md","bytes":0,"created":true}
    > workspace_read {"path": "./notes//todo.md"}
    "bread and butter\n"
    > workspace_read {"path": "a.md"}
    "a.md is empty."
    > workspace_list {"path": "/workspace"}
    json: {"path":".","entries":[{"name":"notes","kind":"directory","size":0},{"name":"a.md","kind":"file","size":0}],"truncated":false}
    > workspace_list {"path": "notes"}
    json: {"path":"notes","entries":[{"name":"todo.md","kind":"file","size":17}],"truncated":false}
    "#);
}

#[tokio::test]
async fn what_fails_says_what_to_do() {
    let hub = ToolsFixture::new();
    fs::write(hub.workspace().join("image.png"), [0x89, b'P', b'N', b'G', 0xff]).unwrap();
    fs::create_dir(hub.workspace().join("notes")).unwrap();
    symlink("/etc", hub.workspace().join("link")).unwrap();
    fs::write(hub.workspace().join("large"), vec![b'x'; files::FILE_BYTES_MAX + 1]).unwrap();
    insta::assert_snapshot!(hub.check(&[
        r#"workspace_read {"path": "gone.md"}"#,
        r#"workspace_read {"path": "notes"}"#,
        r#"workspace_read {"path": "image.png"}"#,
        r#"workspace_read {"path": "large"}"#,
        r#"workspace_read {"path": "../secure/CANARY"}"#,
        r#"workspace_read {"path": "/etc/passwd"}"#,
        r#"workspace_read {"path": "link/passwd"}"#,
        r#"workspace_read {"path": "a\u0000b"}"#,
        r#"workspace_write {"path": "link/x", "content": ""}"#,
        r#"workspace_write {"path": "image.png/x", "content": ""}"#,
        r#"workspace_write {"path": "x"}"#,
        r#"workspace_list {"path": "gone"}"#,
        r#"workspace_list {"path": "image.png"}"#,
        r#"workspace_list {"pth": "notes"}"#,
    ]).await, @r#"
    > workspace_read {"path": "gone.md"}
    not_found: file `gone.md` not found
    hint: `workspace_list` shows what exists
    > workspace_read {"path": "notes"}
    invalid_args: `notes` is a folder, not a file
    hint: `workspace_list` shows what is in it
    > workspace_read {"path": "image.png"}
    invalid_args: file `image.png` is not text (5 bytes); only UTF-8 text can be read
    hint: the resource `workspace:///image.png` gives it in base64
    > workspace_read {"path": "large"}
    too_large: file `large` has 1048577 bytes, at most 1048576 are allowed
    hint: split it into smaller files
    > workspace_read {"path": "../secure/CANARY"}
    denied: path `../secure/CANARY` leads outside the folder of this tool
    hint: paths are relative, like `notes/todo.md`, and `..` is not allowed
    > workspace_read {"path": "/etc/passwd"}
    denied: path `/etc/passwd` leads outside the folder of this tool
    hint: paths are relative, like `notes/todo.md`, and `..` is not allowed
    > workspace_read {"path": "link/passwd"}
    denied: path `link/passwd` leads outside the folder of this tool
    hint: paths are relative, like `notes/todo.md`, and `..` is not allowed
    > workspace_read {"path": "a\u0000b"}
    invalid_args: invalid path `a\u{0}b`: a path must not hold control or invisible characters
    hint: paths are relative, like `notes/todo.md`, and `..` is not allowed
    > workspace_write {"path": "link/x", "content": ""}
    denied: path `link/x` goes through a symbolic link that is not followed
    hint: use the path of the file itself
    > workspace_write {"path": "image.png/x", "content": ""}
    invalid_args: a part of `image.png/x` is a file, not a folder
    hint: `workspace_list` shows which entries are folders
    > workspace_write {"path": "x"}
    invalid_args: invalid arguments: they do not fit the tool's schema
    hint: compare them with the description and the schema of the tool, in `tools/list`
    > workspace_list {"path": "gone"}
    not_found: folder `gone` not found
    hint: `workspace_list` shows what exists
    > workspace_list {"path": "image.png"}
    invalid_args: a part of `image.png` is a file, not a folder
    hint: `workspace_list` shows which entries are folders
    > workspace_list {"pth": "notes"}
    invalid_args: invalid arguments: `pth` does not fit the tool's schema
    hint: compare them with the description and the schema of the tool, in `tools/list`
    "#);
}

#[tokio::test]
async fn contents_have_a_bound_and_large_ones_pass() {
    let hub = ToolsFixture::new();
    let write = async |bytes: usize| {
        let arguments = serde_json::json!({ "path": "big", "content": "x".repeat(bytes) });
        crate::testing::shown(hub.call(portcullis_core::Target::Tool(WRITE.name.to_owned()), arguments).await)
    };
    assert!(write(files::FILE_BYTES_MAX).await.starts_with("\"Wrote 1048576 bytes to big\""));
    assert_eq!(
        write(files::FILE_BYTES_MAX + 1).await,
        "too_large: `content` has 1048577 bytes, at most 1048576 are allowed\nhint: split it into several files"
    );
    let read = hub.check(&[r#"workspace_read {"path": "big"}"#]).await;
    assert_eq!(read.matches('x').count(), files::FILE_BYTES_MAX);
}

#[tokio::test]
async fn a_long_list_says_that_it_is_cut() {
    let hub = ToolsFixture::new();
    for count in 0..=ENTRIES_MAX {
        fs::write(hub.workspace().join(format!("{count:04}")), "").unwrap();
    }
    let listed = hub.check(&["workspace_list {}"]).await;
    assert!(listed.contains(r#""truncated":true"#));
    assert!(listed.contains(r#""0999""#) && !listed.contains(r#""1000""#));
}

#[tokio::test]
async fn files_are_resources() {
    let hub = ToolsFixture::new();
    fs::create_dir(hub.workspace().join("my notes")).unwrap();
    fs::write(hub.workspace().join("my notes/todo.md"), "milk").unwrap();
    fs::write(hub.workspace().join("image.PNG"), [0x89, 0xff]).unwrap();
    fs::write(hub.workspace().join("plain"), "x").unwrap();
    symlink("/etc/passwd", hub.workspace().join("link")).unwrap();

    let (resources, failed) = hub.gate.resources(&hub.caller()).await.unwrap();
    assert!(failed.is_empty());
    let listed: Vec<String> = resources
        .iter()
        .map(|r| format!("{} {} {}", r.uri, r.mime_type.as_deref().unwrap_or("-"), r.size.unwrap()))
        .collect();
    insta::assert_snapshot!(listed.join("\n"), @"
    workspace:///image.PNG image/png 2
    workspace:///my%20notes/todo.md text/markdown 4
    workspace:///plain - 1
    ");

    let mut read = Vec::new();
    for uri in [
        "workspace:///my%20notes/todo.md",
        "workspace:///image.PNG",
        "workspace:///plain",
        "workspace:///gone",
        "workspace:///link",
        "workspace:///my notes/todo.md",
        "workspace:///%2e%2e/secure",
        "other:///x",
    ] {
        read.push(hub.resource(uri).await);
    }
    insta::assert_snapshot!(read.join("\n"), @r#"
    workspace:///my%20notes/todo.md text/markdown text "milk"
    workspace:///image.PNG image/png base64 if8=
    workspace:///plain text/plain text "x"
    not_found: resource `gone` not found
    hint: `workspace_list` shows what exists
    denied: path `link` leads outside the folder of this tool
    hint: paths are relative, like `notes/todo.md`, and `..` is not allowed
    invalid_args: `workspace:///my notes/todo.md` is not written as addresses are
    hint: use `workspace:///my%20notes/todo.md`
    denied: path `../secure` leads outside the folder of this tool
    hint: paths are relative, like `notes/todo.md`, and `..` is not allowed
    unknown: Unknown resource: other:///x
    "#);

    let template = || CompletionRef::Template("workspace:///{+path}".to_owned());
    assert_eq!(hub.complete(template(), "path", "my").await, ["my notes/todo.md"]);
    assert_eq!(hub.complete(template(), "path", "").await.len(), 3);
    assert_eq!(hub.complete(template(), "other", "").await, Vec::<String>::new());
}

#[tokio::test]
async fn a_change_is_told_by_whomever_it_is_made() {
    let hub = ToolsFixture::new();
    let mut changes = hub.gate.subscribe();
    let updated = |path: &str| CatalogChange::ResourceUpdated(format!("workspace:///{path}"));

    // By a tool, in a folder that did not exist.
    hub.check(&[r#"workspace_write {"path": "notes/todo.md", "content": "milk"}"#]).await;
    hear_list(&mut changes).await;
    hear(&mut changes, updated("notes/todo.md")).await;

    // By a person, in that folder; the list is unchanged, so only the update is announced.
    fs::write(hub.workspace().join("notes/todo.md"), "bread").unwrap();
    assert_eq!(changes.recv().await.unwrap(), updated("notes/todo.md"));

    // By a rename of the folder.
    fs::rename(hub.workspace().join("notes"), hub.workspace().join("archive")).unwrap();
    hear_list(&mut changes).await;
    hear(&mut changes, updated("archive/todo.md")).await;
    hear(&mut changes, updated("notes/todo.md")).await;
    fs::write(hub.workspace().join("archive/new.md"), "x").unwrap();
    hear(&mut changes, updated("archive/new.md")).await;

    fs::remove_file(hub.workspace().join("archive/todo.md")).unwrap();
    hear_list(&mut changes).await;
    hear(&mut changes, updated("archive/todo.md")).await;
}

#[tokio::test]
async fn what_a_crash_left_is_removed_at_the_start() {
    let name = format!(".portcullis-{}.tmp", "0".repeat(32));
    let hub = ToolsFixture::with(|folder| {
        fs::create_dir(folder.join("ai-data")).unwrap();
        fs::write(folder.join("ai-data").join(&name), "half").unwrap();
    });
    assert_eq!(fs::read_dir(hub.workspace()).unwrap().count(), 0);
}
