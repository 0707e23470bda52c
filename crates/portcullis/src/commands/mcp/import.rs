//! `portcullis mcp import`: servers from other applications' configuration.

use super::McpCommandContext;
use crate::cli::McpImportArgs;
use crate::commands::this_user;
use crate::{BadUsage, print};
use anyhow::Result;
use portcullis_core::json::printable;
use portcullis_interop::import::{ImportedFile, ImportedServer};
use portcullis_ops::listing::import_listing;
use portcullis_ops::servers::import::{ServerImport, check_names, read_file, read_usual_places};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;

/// An unreadable file and the reason.
type UnreadableFile = (PathBuf, String);

impl McpCommandContext {
    pub(super) fn import(&self, args: &McpImportArgs) -> Result<ExitCode> {
        let (mut files, unreadable) = self.files(args)?;
        check_names(&files, &args.only)?;
        let any = self.ops.select_imports(&self.config, &mut files, &args.only);
        let written =
            if args.yes && any { Some(self.ops.import_servers(&mut files, &this_user())?) } else { None };
        self.tell(&files, &unreadable, written.as_ref());
        Ok(ExitCode::SUCCESS)
    }

    /// Returns the readable files, and the unreadable ones with reasons.
    fn files(&self, args: &McpImportArgs) -> Result<(Vec<ImportedFile>, Vec<UnreadableFile>)> {
        let project = std::env::current_dir().ok();
        if let Some(path) = &args.file {
            let found = read_file(path, project.as_deref())
                .map_err(|why| BadUsage(format!("cannot import `{}`: {why}", path.display())))?;
            return Ok((vec![found], Vec::new()));
        }
        let (mut files, mut unreadable) = (Vec::new(), Vec::new());
        for (path, found) in read_usual_places(project.as_deref()) {
            match found {
                Ok(found) => files.push(found),
                Err(why) => unreadable.push((path, why)),
            }
        }
        Ok((files, unreadable))
    }

    fn tell(&self, files: &[ImportedFile], unreadable: &[UnreadableFile], written: Option<&ServerImport>) {
        if self.as_json {
            let files: Vec<Value> = files.iter().map(import_listing).collect();
            let unreadable: Vec<Value> =
                unreadable.iter().map(|(path, why)| json!({ "path": path, "why": why })).collect();
            print::configured_json(
                &json!({ "files": files, "unreadable": unreadable, "written_to": written.map(|written| &written.path) }),
            );
            return;
        }
        for (path, why) in unreadable {
            print::note(format!("{}: {why}", path.display()));
        }
        for found in files {
            print::line(format!("{}:", found.path.display()));
            for server in &found.servers {
                let entry = server.server.shown().written().replace('\n', "\n    ");
                print::configured(format!("    {}\n", entry.trim_end()));
                print::out(details(server));
            }
            for (own, why) in &found.skipped {
                print::line(format!("  {} skipped: {why}", printable(own)));
            }
            if found.servers.is_empty() && found.skipped.is_empty() {
                print::line("  no servers");
            }
            for note in &found.notes {
                print::line(format!("  note: {note}"));
            }
        }
        let count: usize = files.iter().map(|found| found.servers.len()).sum();
        match written {
            Some(written) => {
                print::line(format!("\n{}", written.sentence()));
                for server in files.iter().flat_map(|found| &found.servers) {
                    print::line(format!("  portcullis mcp trust {}", server.server.name));
                }
            }
            None if files.is_empty() => print::note(
                "No configuration found in the usual places. Name a file: portcullis mcp import FILE",
            ),
            None if count > 0 => print::note("Dry run: nothing was written. To import, pass `--yes`."),
            None => print::note("No servers to import."),
        }
    }
}

/// Describes the secrets and notes of an imported server.
fn details(imported: &ImportedServer) -> String {
    let mut text = String::new();
    for secret in imported.secrets.iter().filter(|secret| secret.value.is_some()) {
        text.push_str(&format!(
            "    {}: value moves to the secret store as {}\n",
            printable(&secret.key),
            secret.name
        ));
    }
    for note in imported.all_notes() {
        text.push_str(&format!("    note: {note}\n"));
    }
    text
}
