//! Node, and what runs under it: the conformance suite, the TypeScript SDKs, the Inspector, and what
//! drives the browser.
//!
//! Versions are pinned in `xtask/node`. Node itself is one of the packages, because the suite needs a newer one
//! than distributions have; the machine's own npm only installs it.

use crate::layout::Layout;
use crate::run;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};

/// The installed packages.
pub(crate) struct Node {
    folder: PathBuf,
}

impl Node {
    /// Installs the packages, unless those of the same lock file are there.
    pub(crate) fn install(layout: &Layout) -> Result<Node> {
        let node = Node { folder: layout.work("node") };
        let pinned = layout.root.join("xtask/node");
        let lock =
            fs::read_to_string(pinned.join("package-lock.json")).context("xtask/node/package-lock.json")?;
        let stamp = node.folder.join("installed-lock.json");
        if fs::read_to_string(&stamp).is_ok_and(|installed| installed == lock) {
            return Ok(node);
        }
        if !run::exists(&mut layout.command("npm")) {
            bail!("npm is not installed: apt-get install nodejs npm");
        }
        renew(&node.folder)?;
        for name in ["package.json", "package-lock.json"] {
            fs::copy(pinned.join(name), node.folder.join(name))?;
        }
        println!(
            "Installing Node, the conformance suite, the TypeScript SDKs and the Inspector below target/xtask/node."
        );
        let mut npm = layout.command("npm");
        // None of the packages needs its scripts, and npm itself runs under whatever Node the machine has. `npm ci`
        // would refuse a lock file without the packages for other systems, which not every registry has.
        npm.args(["install", "--ignore-scripts", "--no-audit", "--no-fund", "--engine-strict=false"]);
        npm.current_dir(&node.folder);
        run::prepare("npm", &mut npm, &layout.log("npm"), run::INSTALL_LIMIT)?;
        fs::write(&stamp, &lock)?;
        Ok(node)
    }

    /// Returns the path of Node: the pinned one, or on other systems the machine's own.
    pub(crate) fn program(&self) -> PathBuf {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "x64",
            "aarch64" => "arm64",
            other => other,
        };
        let package = format!("node-{}-{architecture}", std::env::consts::OS);
        let pinned = self.folder.join("node_modules").join(package).join("bin/node");
        if pinned.exists() { pinned } else { "node".into() }
    }

    /// Returns the path of a file of an installed package.
    pub(crate) fn module(&self, path: &str) -> PathBuf {
        self.folder.join("node_modules").join(path)
    }

    /// Copies scripts to where Node finds the packages that they import, and returns that folder.
    pub(crate) fn adopt(&self, scripts: &Path) -> Result<PathBuf> {
        let folder = self.folder.join("scripts");
        renew(&folder)?;
        for script in
            fs::read_dir(scripts).with_context(|| format!("no scripts in `{}`", scripts.display()))?
        {
            let script = script?;
            fs::copy(script.path(), folder.join(script.file_name()))?;
        }
        Ok(folder)
    }
}

/// Makes an empty folder, whatever was there.
pub(crate) fn renew(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("cannot empty `{}`", folder.display()))?;
    }
    fs::create_dir_all(folder).with_context(|| format!("cannot make `{}`", folder.display()))
}
