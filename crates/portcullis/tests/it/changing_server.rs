//! A real server behind the hub whose definitions change.

use crate::support::BINARY;
use portcullis_testkit::process::{TestHome, UNHURRIED};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// The server, and the files that say what it offers and what really reached it.
pub(crate) struct Shop {
    folder: tempfile::TempDir,
}

/// Returns the fixture, which is built beside the program.
pub(crate) fn program() -> PathBuf {
    Path::new(BINARY).parent().unwrap().join("examples/changeable-server")
}

impl Shop {
    pub(crate) fn new(offer: &Value) -> Shop {
        let shop = Shop { folder: tempfile::tempdir().unwrap() };
        // Its own copy, so that a test can replace the program.
        std::fs::copy(program(), shop.program()).unwrap();
        shop.offers(offer);
        shop
    }

    pub(crate) fn program(&self) -> PathBuf {
        self.folder.path().join("shop")
    }

    pub(crate) fn definitions(&self) -> PathBuf {
        self.folder.path().join("definitions.json")
    }

    /// Replaces what the server offers, in one step.
    pub(crate) fn offers(&self, offer: &Value) {
        let new = self.folder.path().join("new.json");
        std::fs::write(&new, offer.to_string()).unwrap();
        std::fs::rename(new, self.definitions()).unwrap();
    }

    /// Returns the names of what was really called, in order.
    pub(crate) fn calls(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.folder.path().join("calls")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Returns the program and its arguments, for a command line.
    pub(crate) fn words(&self) -> [String; 3] {
        [self.program(), self.definitions(), self.folder.path().join("calls")]
            .map(|path| path.display().to_string())
    }

    /// Writes the server into a home's configuration, with more settings of its own.
    pub(crate) fn configure(&self, home: &TestHome, more: &str) {
        home.configure(&format!("{UNHURRIED}{}", self.section("shop", more)));
    }

    /// Returns a section of the configuration with the server under this name.
    pub(crate) fn section(&self, name: &str, more: &str) -> String {
        let [command, definitions, calls] = self.words();
        format!("[mcp.{name}]\ncommand = \"{command}\"\nargs = [\"{definitions}\", \"{calls}\"]\n{more}\n")
    }
}

pub(crate) fn tool(name: &str, description: &str) -> Value {
    json!({ "name": name, "description": description, "inputSchema": { "type": "object" } })
}

/// Runs a command that has to work.
pub(crate) async fn done(home: &TestHome, args: &[&str]) -> String {
    let ran = home.run(args).await;
    assert_eq!(ran.code, 0, "{args:?}: {ran:?}");
    ran.stdout
}
