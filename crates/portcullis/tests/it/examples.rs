//! What the examples and the pages for beginners say is what the program does.

use crate::changing_server::program;
use crate::support::BINARY;
use portcullis_testkit::console::{Console, of_page, parse};
use std::path::{Path, PathBuf};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Servers of the registries have stand-ins here with the same names and tools: `cargo xtask upstreams` runs real ones.
fn add_registries(console: &Console) {
    let definitions = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stand_ins");
    let calls = console.user().join("calls");
    for (name, options) in [("uvx", ""), ("npx", "test \"$1\" = -y && shift; ")] {
        // Without the scope and the version of the package.
        let package = "package=${1##*/}; package=${package%@*}; package=${package%%=*}";
        let serve = format!(
            "exec '{}' '{}'/\"$package\".json '{}'",
            program().display(),
            definitions.display(),
            calls.display()
        );
        console.add_program(name, &format!("{options}{package}\n{serve}"));
    }
}

async fn check_example(name: &str) {
    let folder = repository().join("examples").join(name);
    let transcript = std::fs::read_to_string(folder.join("commands.txt")).unwrap();
    let mut console = Console::in_copy_of(BINARY, &folder);
    add_registries(&console);
    console.perform(&parse(&transcript)).await;
}

/// Performs a page. A recipe is for a home that is in use.
async fn check_page(path: &str) {
    let page = std::fs::read_to_string(repository().join("docs").join(path)).unwrap();
    let mut console = Console::new(BINARY);
    add_registries(&console);
    if path.starts_with("recipes/") {
        console.perform(&parse("$ portcullis clients add earlier\n…")).await;
    }
    console.perform(&parse(&of_page(&page))).await;
}

#[tokio::test]
async fn the_read_only_client_reads() {
    check_example("read-only-client").await;
}

#[tokio::test]
async fn writes_are_asked_about() {
    check_example("ask-before-writes").await;
}

#[tokio::test]
async fn servers_of_registries_are_trusted_and_called() {
    check_example("npm-and-pypi").await;
}

#[tokio::test]
async fn private_notes_and_the_web_are_kept_apart() {
    check_example("private-notes-and-web").await;
}

#[tokio::test]
async fn a_script_is_approved_and_run() {
    check_example("script-with-approval").await;
}

#[tokio::test]
async fn a_team_is_served_under_its_name() {
    check_example("team-behind-caddy").await;
}

#[tokio::test]
async fn the_tutorial_is_true() {
    check_page("tutorial.md").await;
}

#[tokio::test]
async fn recipes_are_true() {
    let mut performed = 0;
    for entry in std::fs::read_dir(repository().join("docs/recipes")).unwrap() {
        let entry = entry.unwrap();
        // Those for programs that are not here have no transcript.
        if !of_page(&std::fs::read_to_string(entry.path()).unwrap()).is_empty() {
            check_page(&format!("recipes/{}", entry.file_name().into_string().unwrap())).await;
            performed += 1;
        }
    }
    assert!(performed >= 7, "{performed}");
}

/// A folder that no test performs is no example.
#[test]
fn every_example_is_performed() {
    let own = include_str!("examples.rs");
    for entry in std::fs::read_dir(repository().join("examples")).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let performed = own.contains(&format!("check_example(\"{name}\")"));
        assert!(performed || entry.path().is_file(), "no test performs examples/{name}");
    }
}
