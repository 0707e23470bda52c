//! Paths of this repository and of build output.

use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Variables that change what Portcullis does; a developer's own must not affect the tests.
const PORTCULLIS_VARIABLES: [&str; 6] = [
    "PORTCULLIS_HOME",
    "PORTCULLIS_KEY",
    "PORTCULLIS_KEY_FILE",
    "PORTCULLIS_PASSPHRASE_FILE",
    "MCP_TRANSPORT",
    "MCP_HTTP_PORT",
];

/// The folders of this repository.
pub(crate) struct Layout {
    pub(crate) root: PathBuf,
    target: PathBuf,
}

impl Layout {
    pub(crate) fn find() -> Result<Layout> {
        let root =
            Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask is not inside of a folder")?;
        let target = match std::env::var_os("CARGO_TARGET_DIR").filter(|path| !path.is_empty()) {
            Some(path) => std::path::absolute(path)?,
            None => root.join("target"),
        };
        Ok(Layout { root: root.to_owned(), target })
    }

    /// Returns a folder or file of these tasks, below `target/xtask`.
    pub(crate) fn work(&self, name: &str) -> PathBuf {
        self.target.join("xtask").join(name)
    }

    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.work("logs").join(format!("{name}.log"))
    }

    /// Returns the path of a debug build.
    pub(crate) fn built(&self, program: &str) -> PathBuf {
        self.target.join("debug").join(program)
    }

    /// Returns the path of a release build.
    pub(crate) fn released(&self, program: &str) -> PathBuf {
        self.target.join("release").join(program)
    }

    /// Returns the path of a shipped build (`dist`).
    pub(crate) fn shipped(&self, program: &str) -> PathBuf {
        self.target.join("shipped").join(program)
    }

    /// Returns the folder of the packages.
    pub(crate) fn packages(&self) -> PathBuf {
        self.target.join("packages")
    }

    /// Returns the folder for screenshots of the admin page.
    pub(crate) fn pages(&self) -> PathBuf {
        self.target.join("pages")
    }

    /// Returns the folder of the documentation site.
    pub(crate) fn docs_site(&self) -> PathBuf {
        self.target.join("docs-site")
    }

    /// Returns a file or folder of `torture`, below `target/torture`.
    pub(crate) fn torture(&self, name: &str) -> PathBuf {
        self.target.join("torture").join(name)
    }

    /// Returns a command that runs at the root of the repository.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.root);
        for variable in PORTCULLIS_VARIABLES {
            command.env_remove(variable);
        }
        command
    }

    /// Returns a command for the Cargo that started this program.
    pub(crate) fn cargo(&self) -> Command {
        self.command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
    }

    /// Returns a path relative to the root of the repository.
    pub(crate) fn shown<'a>(&self, path: &'a Path) -> std::path::Display<'a> {
        path.strip_prefix(&self.root).unwrap_or(path).display()
    }
}
