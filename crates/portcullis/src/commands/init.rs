//! `portcullis init`: writes a commented configuration file.

use super::{environment, this_user};
use crate::cli::InitArgs;
use crate::home::Home;
use crate::print;
use anyhow::Result;
use portcullis_ops::config_file::write_example;
use std::path::Path;
use std::process::ExitCode;

pub(crate) fn run(home: Option<&Path>, args: &InitArgs, json: bool) -> Result<ExitCode> {
    let home = Home::open(Home::locate(home, environment)?)?;
    let path = write_example(&home, args.force, &this_user(), |warning| print::note(warning))?;
    let said = format!("Wrote {}. A running hub reloads it on change.", path.display());
    print::either(json, &serde_json::json!({ "config": path }), said);
    Ok(ExitCode::SUCCESS)
}
