//! `portcullis init`: writes a commented configuration file.

use super::environment;
use crate::cli::InitArgs;
use crate::home::Home;
use crate::{config, print};
use anyhow::{Context, Result, anyhow};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::ExitCode;

pub(crate) fn run(home: Option<&Path>, args: &InitArgs, json: bool) -> Result<ExitCode> {
    let home = Home::open(Home::locate(home, environment)?)?;
    let path = home.path().join("portcullis.toml");
    // Waits for a concurrent edit.
    let _editing = config::ConfigEditLock::of(home.path())?;
    let mut options = std::fs::OpenOptions::new();
    options.write(true).mode(0o600);
    if args.force {
        options.create(true).truncate(true);
    } else {
        options.create_new(true);
    }
    let mut file = options.open(&path).map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            anyhow!("`{}` already exists; edit it, or overwrite it with `--force`", path.display())
        }
        _ => anyhow!("cannot write `{}`: {error}", path.display()),
    })?;
    file.write_all(config::example().as_bytes())
        .and_then(|()| file.sync_all())
        .context("writing the file")?;
    if json {
        print::json(&serde_json::json!({ "config": path }));
    } else {
        print::line(format!("Wrote {}. A running hub reloads it on change.", path.display()));
    }
    Ok(ExitCode::SUCCESS)
}
