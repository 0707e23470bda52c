//! `portcullis store`: look after the database.

use super::{LoadedHome, open, this_user};
use crate::cli::{StoreArgs, StoreCommand};
use crate::{database, print};
use anyhow::{Context, Result, bail};
use portcullis_guard::AuditSettings;
use portcullis_ops::Problem;
use portcullis_ops::change::ChangeRecorder;
use portcullis_server::local;
use portcullis_store::database::wait;
use serde_json::json;
use std::path::Path;
use std::process::ExitCode;

pub(crate) fn run(home: Option<&Path>, args: StoreArgs, as_json: bool) -> Result<ExitCode> {
    let home = open(home)?;
    let opened = || database::open_existing(&home.home, &home.loaded.config);
    match args.command {
        StoreCommand::Check => {
            let database = opened()?;
            let problems = wait(database.check())?;
            if as_json {
                print::json(&json!({ "path": database.path().display().to_string(), "problems": problems }));
            } else if problems.is_empty() {
                print::line("The database is sound.");
            } else {
                problems.iter().for_each(print::line);
                print::note(
                    "The database is damaged: stop the hub and restore a backup with `portcullis store restore FILE`.",
                );
            }
            Ok(if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        StoreCommand::Backup { file } => {
            let file = std::path::absolute(file)?;
            wait(opened()?.backup(&file))?;
            let view = json!({ "file": file.display().to_string() });
            print::either(as_json, &view, format!("Wrote {}.", file.display()));
            if !as_json {
                print::note(
                    "Not in it: `row.key` and the key of the secrets, the configuration, the folder of scripts, the audit log. \
                     See `portcullis store backup --help`.",
                );
            }
            Ok(ExitCode::SUCCESS)
        }
        StoreCommand::Restore { file } => restore(&home, &file, as_json),
        StoreCommand::Export => {
            print::json(&wait(opened()?.export())?);
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn restore(home: &LoadedHome, file: &Path, as_json: bool) -> Result<ExitCode> {
    // Held until the end, so that no hub starts meanwhile.
    let Some(_lock) = local::claim(home.home.path()).context("the lock of the home folder")? else {
        bail!("the hub is running; stop it first");
    };
    let config = &home.loaded.config;
    // Beside the database, so that it is on record whichever database is in force.
    let settings = AuditSettings::in_folder(&config.workspace.secure_dir());
    let changes = ChangeRecorder::Spool { settings, warn: |warning| print::note(warning) };
    let details = json!({ "file": file.display().to_string() });
    let replaced = changes.record(&this_user(), "store.restore", details, || {
        database::restore(config, file).map_err(Problem::from)
    })?;
    let replaced = replaced.map(|path| path.display().to_string());
    if as_json {
        print::json(&json!({ "restored": file.display().to_string(), "replaced": replaced }));
    } else {
        print::line(format!("Restored {}.", file.display()));
        if let Some(replaced) = replaced {
            print::note(format!("The database that it replaces is now {replaced}."));
        }
    }
    Ok(ExitCode::SUCCESS)
}
