//! `portcullis store`: look after the database.

use super::{LoadedHome, open};
use crate::cli::{StoreArgs, StoreCommand};
use crate::{database, print};
use anyhow::Result;
use portcullis_store::database::wait;
use serde_json::json;
use std::path::Path;
use std::process::ExitCode;

pub(crate) fn run(home: Option<&Path>, args: StoreArgs, as_json: bool) -> Result<ExitCode> {
    let LoadedHome { loaded, .. } = open(home)?;
    let database = database::open(&loaded.config)?;
    match args.command {
        StoreCommand::Check => {
            let problems = wait(database.check())?;
            if as_json {
                print::json(&json!({ "path": database.path().display().to_string(), "problems": problems }));
            } else if problems.is_empty() {
                print::line("The database is sound.");
            } else {
                problems.iter().for_each(print::line);
                print::note("The database is damaged: stop the hub and restore a backup.");
            }
            Ok(if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        StoreCommand::Backup { file } => {
            let file = std::path::absolute(file)?;
            wait(database.backup(&file))?;
            if as_json {
                print::json(&json!({ "file": file.display().to_string() }));
            } else {
                print::line(format!("Wrote {}.", file.display()));
            }
            Ok(ExitCode::SUCCESS)
        }
        StoreCommand::Export => {
            print::json(&wait(database.export())?);
            Ok(ExitCode::SUCCESS)
        }
    }
}
