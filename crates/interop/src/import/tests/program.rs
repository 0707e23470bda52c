//! Programs that are started by way of something else, and from somewhere.

use super::*;
use serde_json::json;

#[test]
fn what_is_around_a_program_is_taken_away() {
    insta::assert_snapshot!(check("/home/me/.cursor/mcp.json", r#"{ "mcpServers": {
        "win": { "command": "CMD", "args": ["/C", "npx", "-y", "foo"] },
        "one": { "command": "npx -y foo" },
        "both": { "command": "cmd.exe /c npx foo" },
        "inner": { "command": ["C:\\Windows\\System32\\cmd.exe", "/c", "npx foo"] },
        "quoted": { "command": "sh -c 'run it'" },
        "hub": { "command": "portcullis stdio" },
        "home": { "command": "run", "args": ["${HOME}/a", "${env:HOME}/b", "--dir={env:HOME}"] }
    } }"#), @r#"
    [mcp.win]
    command = "npx"
    args = ["-y", "foo"]
      note: `cmd /c` before its command is for Windows and was removed
    [mcp.one]
    command = "npx"
    args = ["-y", "foo"]
      note: its command is one string there; it was split at spaces
    [mcp.both]
    command = "npx"
    args = ["foo"]
      note: its command is one string there; it was split at spaces
      note: `cmd /c` before its command is for Windows and was removed
    [mcp.inner]
    command = "npx"
    args = ["foo"]
      note: `cmd /c` before its command is for Windows and was removed
      note: its command is one string there; it was split at spaces
    [mcp.home]
    command = "run"
    args = ["/home/me/a", "/home/me/b", "--dir=/home/me"]
    quoted is left out: its command is one string with quotes, and no file has that name; add it yourself: portcullis mcp add
    hub is left out: it is this hub
    "#);
}

#[test]
fn a_program_with_blanks_in_its_name_stays_one() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("my 'own' server");
    std::fs::write(&program, "").unwrap();
    let text = json!({ "mcpServers": { "a": { "command": program } } }).to_string();
    let around = ImportEnvironment { user_home: None, project: None, is_set: &|_| false };
    let found = of_text(Path::new("/x.json"), &text, &around).unwrap();
    let server = &found.servers[0].server;
    assert_eq!((server.command.as_deref(), server.args.len()), (program.to_str(), 0));
}

#[test]
fn a_folder_is_meant_from_where_the_file_says() {
    let text = r#"{ "mcpServers": {
        "mine": { "command": "./run", "cwd": "~/tools" },
        "below": { "command": "./run", "cwd": "tools" },
        "whole": { "command": "./run", "cwd": "/opt/tools" },
        "other": { "command": "run", "cwd": "~ann/tools" }
    } }"#;
    insta::assert_snapshot!(check("/home/me/work/.mcp.json", text), @r#"
    [mcp.mine]
    command = "./run"
    cwd = "~/tools"
    [mcp.below]
    command = "/home/me/work/tools/run"
    cwd = "/home/me/work/tools"
    [mcp.whole]
    command = "/opt/tools/run"
    cwd = "/opt/tools"
    [mcp.other]
    command = "run"
      note: its `cwd`, `~ann/tools`, is no whole path, and it is not known from where; it is left out. If it is needed, write the whole path into `mcp.other.cwd`
    "#);
    insta::assert_snapshot!(check("/home/me/.cursor/mcp.json", text), @r#"
    [mcp.mine]
    command = "./run"
    cwd = "~/tools"
    [mcp.below]
    command = "./run"
      note: its `cwd`, `tools`, is no whole path, and it is not known from where; it is left out. If it is needed, write the whole path into `mcp.below.cwd`
      note: its command is a relative path, and its base folder is unknown
    [mcp.whole]
    command = "/opt/tools/run"
    cwd = "/opt/tools"
    [mcp.other]
    command = "run"
      note: its `cwd`, `~ann/tools`, is no whole path, and it is not known from where; it is left out. If it is needed, write the whole path into `mcp.other.cwd`
    "#);
}

#[test]
fn a_home_that_is_a_link_is_no_project() {
    let folder = tempfile::tempdir().unwrap();
    let (real, link) = (folder.path().join("real"), folder.path().join("link"));
    std::fs::create_dir_all(real.join(".cursor")).unwrap();
    std::os::unix::fs::symlink(&real, &link).unwrap();
    let file = link.join(".cursor/mcp.json");
    std::fs::write(&file, r#"{ "mcpServers": { "a": { "command": "run" } } }"#).unwrap();
    let cwd_for = |user_home: &Path| {
        let around = ImportEnvironment { user_home: Some(user_home), project: None, is_set: &|_| false };
        read(&file, &around).unwrap().servers[0].server.cwd.clone()
    };
    assert_eq!(cwd_for(&link), None);
    // To anybody else it is one.
    assert!(cwd_for(Path::new("/home/me")).is_some());
}
