//! Node and its packages: the conformance suite, the TypeScript SDKs, the Inspector, real servers, and
//! Playwright.
//!
//! Versions are pinned in `xtask/node` and its sibling folders. Node itself is one of the packages, because
//! the suite needs a newer one than distributions have; the machine's npm only installs it.

use crate::layout::Layout;
use crate::run;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};

/// The installed packages.
pub(crate) struct NodePackages {
    folder: PathBuf,
}

impl NodePackages {
    /// Installs Node with what most tasks need, if missing.
    pub(crate) fn install(layout: &Layout) -> Result<NodePackages> {
        let what = "Node, the conformance suite, the TypeScript SDKs and the Inspector";
        NodePackages::packages(layout, "node", what)
    }

    /// Installs the packages that `xtask/NAME` pins, unless those of the same lock file are installed.
    pub(crate) fn packages(layout: &Layout, name: &str, what: &str) -> Result<NodePackages> {
        let node = NodePackages { folder: layout.work(name) };
        let pinned = layout.root.join("xtask").join(name);
        let lock = fs::read_to_string(pinned.join("package-lock.json"))
            .with_context(|| format!("xtask/{name}/package-lock.json"))?;
        let stamp = node.folder.join("installed-lock.json");
        if fs::read_to_string(&stamp).is_ok_and(|installed| installed == lock) {
            return Ok(node);
        }
        if !run::exists(&mut layout.command("npm")) {
            bail!("npm is not installed: apt-get install nodejs npm");
        }
        renew(&node.folder)?;
        for file in ["package.json", "package-lock.json"] {
            fs::copy(pinned.join(file), node.folder.join(file))?;
        }
        println!("Installing {what} below target/xtask/{name}.");
        let mut npm = layout.command("npm");
        // None of the packages needs its scripts, and npm itself runs under any Node of the machine. `npm ci`
        // would refuse a lock file without the packages for other systems, which not every registry has.
        npm.args(["install", "--ignore-scripts", "--no-audit", "--no-fund", "--engine-strict=false"]);
        npm.current_dir(&node.folder);
        run::prepare("npm", &mut npm, &layout.log(&format!("npm-{name}")), run::INSTALL_LIMIT)?;
        fs::write(&stamp, &lock)?;
        Ok(node)
    }

    /// Returns the path of Node: the pinned one, or on other systems the machine's.
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

/// Makes an empty folder; deletes an existing one.
pub(crate) fn renew(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("cannot empty `{}`", folder.display()))?;
    }
    fs::create_dir_all(folder).with_context(|| format!("cannot make `{}`", folder.display()))
}
