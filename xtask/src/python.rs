//! Python environments with pinned packages.

use crate::layout::Layout;
use crate::node::renew;
use crate::run;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::PathBuf;

/// Makes the environment of a requirements file, if missing, and returns the path of its Python.
pub(crate) fn install(layout: &Layout, name: &str) -> Result<PathBuf> {
    let requirements = layout.root.join(format!("tests/clients/python/requirements-{name}.txt"));
    let wanted = fs::read_to_string(&requirements).with_context(|| requirements.display().to_string())?;
    let folder = layout.work("venv").join(name);
    let python = folder.join("bin/python");
    let stamp = folder.join("installed-requirements.txt");
    // The machine's Python may have been replaced since, which leaves an environment that does not start.
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted)
        && run::exists(&mut layout.command(&python))
    {
        return Ok(python);
    }
    if !run::exists(&mut layout.command("python3")) {
        bail!("Python is not installed: apt-get install python3 python3-venv");
    }
    renew(&folder)?;
    println!("Installing {name} below target/xtask/venv.");
    let mut venv = layout.command("python3");
    venv.args(["-m", "venv"]).arg(&folder);
    run::prepare("venv", &mut venv, &layout.log(&format!("venv-{name}")), run::INSTALL_LIMIT)
        .context("Python cannot make environments: apt-get install python3-venv")?;
    let mut pip = layout.command(&python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement"]);
    pip.arg(&requirements);
    run::prepare("pip", &mut pip, &layout.log(&format!("pip-{name}")), run::INSTALL_LIMIT)?;
    fs::write(&stamp, &wanted)?;
    Ok(python)
}
