//! Chromium of the distribution. No task downloads a browser.

use crate::layout::Layout;
use crate::run;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};

/// Returns the path of the browser. Installs it if missing and permitted.
pub(crate) fn find(layout: &Layout) -> Result<PathBuf> {
    let found = || {
        ["chromium", "chromium-browser", "google-chrome"]
            .into_iter()
            .find(|name| run::exists(&mut layout.command(name)))
            .map(PathBuf::from)
    };
    if let Some(found) = found() {
        return located(&found);
    }
    let is_root = rustix::process::geteuid().is_root();
    if !is_root || !run::exists(&mut layout.command("apt-get")) {
        bail!("Chromium is not installed: apt-get install chromium");
    }
    println!("Installing Chromium from the distribution.");
    for words in [&["update"][..], &["install", "--yes", "--no-install-recommends", "chromium"]] {
        let mut apt = layout.command("apt-get");
        apt.args(words).env("DEBIAN_FRONTEND", "noninteractive");
        run::prepare("apt-get", &mut apt, &layout.log("apt-get"), run::INSTALL_LIMIT)?;
    }
    located(&found().context("Chromium was installed but is not found")?)
}

/// Playwright needs a path, not a program name.
fn located(name: &Path) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").context("PATH is not set")?;
    let places = std::env::split_paths(&path).map(|folder| folder.join(name));
    places.into_iter().find(|place| place.exists()).context("a program that starts is on PATH")
}
