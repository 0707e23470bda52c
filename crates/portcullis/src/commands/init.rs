//! `portcullis init`: writes a commented configuration file, or completes the one that exists.

use super::{environment, this_user};
use crate::cli::InitArgs;
use crate::config::{InitMode, InitOutcome, example};
use crate::home::Home;
use crate::print;
use anyhow::Result;
use portcullis_ops::config_file;
use serde_json::json;
use std::path::Path;
use std::process::ExitCode;

pub(crate) fn run(home: Option<&Path>, args: &InitArgs, as_json: bool) -> Result<ExitCode> {
    if args.print {
        print::configured(example());
        return Ok(ExitCode::SUCCESS);
    }
    let home = Home::open(Home::locate(home, environment)?)?;
    let mode = if args.force { InitMode::Replace } else { InitMode::Complete };
    let outcome = config_file::init(&home, mode, &this_user(), |warning| print::note(warning))?;
    let (value, said) = match &outcome {
        InitOutcome::Written { path } => (
            json!({ "config": path }),
            format!("Wrote {}. A running hub reloads it on change.", path.display()),
        ),
        InitOutcome::Replaced { path, backup } => (
            json!({ "config": path, "backup": backup }),
            format!("Wrote {}. The previous file is {}.", path.display(), backup.display()),
        ),
        InitOutcome::Completed { path, sections } if sections.is_empty() => (
            json!({ "config": path, "added": sections }),
            format!("{} shows every section already; nothing was changed.", path.display()),
        ),
        InitOutcome::Completed { path, sections } => (
            json!({ "config": path, "added": sections }),
            format!(
                "Added to {}, with every setting at its default: {}.",
                path.display(),
                sections.join(", ")
            ),
        ),
    };
    print::either(as_json, &value, said);
    Ok(ExitCode::SUCCESS)
}
