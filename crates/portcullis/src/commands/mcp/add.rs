//! `portcullis mcp add`: connect, show, write, trust.

use super::probe::probe_text;
use super::{McpCommandContext, explained, trust};
use crate::cli::McpAddArgs;
use crate::commands::mcp_auth::{Browser, log_in};
use crate::commands::this_user;
use crate::config::{Config, McpServerSettings, NewServer};
use crate::{BadUsage, print};
use anyhow::{Context, Result, anyhow};
use portcullis_core::json::printable;
use portcullis_ops::servers::EnvRemedy;
use portcullis_ops::servers::add::{AddedServer, plain_text_warnings};
use portcullis_ops::servers::probe::ProbeReport;
use portcullis_store::pins::ToolReview;
use portcullis_upstream::StatusKind;
use serde_json::json;
use std::path::Path;
use std::process::ExitCode;

/// What became of a server that was to be added.
#[derive(Debug, PartialEq, Eq)]
enum AddOutcome {
    Added,
    /// The person answered no.
    Declined,
}

impl McpCommandContext {
    pub(super) fn add(&self, args: &McpAddArgs) -> Result<ExitCode> {
        let new = new_server(args)?;
        let name = args.name.as_str();
        let config = self.ops.preview_server(&new).map_err(explained)?;
        let server = config.mcp.iter().find(|server| server.name == name).context("the server")?;
        let logs_in = args.oauth && !args.no_test;
        let draft = logs_in.then(|| self.ops.draft_login(&config, server)).transpose()?;
        let trial = self.ops.begin_trial(server, &config)?;
        let logged_in = draft
            .as_ref()
            .map(|draft| log_in(&self.ops, name, &draft.login, Browser::Leave, self.as_json))
            .transpose();
        let added = logged_in.and_then(|_| self.add_looked(args, new, server, &config));
        if !matches!(added, Ok(AddOutcome::Added)) {
            trial.undo().into_iter().for_each(print::note);
            if let Some(draft) = draft {
                self.block_on(draft.undo())?.into_iter().for_each(print::note);
            }
        }
        if added? == AddOutcome::Declined {
            print::line(format!("Not added: nothing of `{name}` is kept."));
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Probes the server, unless `--no-test`, and writes it to the configuration.
    fn add_looked(
        &self,
        args: &McpAddArgs,
        new: NewServer,
        server: &McpServerSettings,
        config: &Config,
    ) -> Result<AddOutcome> {
        let name = args.name.as_str();
        let mut looked: Option<ProbeReport> =
            if args.no_test { None } else { Some(self.probe(server, config, EnvRemedy::Option)?) };
        if let Some(looked) = looked.as_mut().filter(|looked| looked.seen.is_none()) {
            let kind = looked.status.kind;
            looked.hint = match (hint(args, kind), looked.hint.take()) {
                (Some(own), Some(other)) if kind == StatusKind::Failed => Some(format!("{own}\n{other}")),
                (own, other) => own.or(other),
            };
        }
        let choices = trust::choices(args.policy.as_deref(), &args.effects)?;
        let mut chosen: Option<ToolReview> = None;
        if let Some(looked) = &looked {
            let seen = looked.connected().map_err(|error| {
                anyhow!("{error}\nNothing was written. To add it without a test, pass `--no-test`.")
            })?;
            let review =
                choices.apply(ToolReview::proposed(&seen, None), &seen).map_err(trust::bad_choice)?;
            if !self.as_json {
                print::out(probe_text(looked, &seen) + &trust::choices_text(server, &seen, &review));
            }
            let asks = !args.yes && !self.as_json;
            let question = format!("Add `{name}`, trust it and {}?", trust::exposing(seen.tools.len()));
            let answer = if asks { print::confirm(&question)? } else { Some(args.yes) };
            if asks && answer == Some(false) {
                return Ok(AddOutcome::Declined);
            }
            chosen = (answer == Some(true)).then_some(review);
        }
        let in_clear = plain_text_warnings(&new);
        let trusted = chosen.is_some();
        let seen = looked.as_ref().and_then(|looked| looked.seen.as_ref());
        let added = match seen.zip(chosen) {
            Some((seen, chosen)) => AddedServer::Trusted(seen, chosen),
            None => AddedServer::Untrusted,
        };
        let added = self.ops.add_server(new, added, &this_user())?;
        if self.as_json {
            let tested = looked.as_ref().map(ProbeReport::listing);
            print::json(&json!({
                "added": name, "file": added.path, "trusted": trusted, "test": tested, "notes": in_clear,
            }));
            return Ok(AddOutcome::Added);
        }
        print::line(format!("\n{}", added.sentence()));
        in_clear.into_iter().for_each(print::note);
        Ok(AddOutcome::Added)
    }
}

/// Returns an option that may fix the connection.
fn hint(args: &McpAddArgs, status: StatusKind) -> Option<String> {
    if status == StatusKind::NeedsAuth && !args.oauth && args.headers.is_empty() {
        return Some("it needs a login: pass `--oauth` to log in before the test".to_owned());
    }
    let is_here = |word: &&String| Path::new(word).is_relative() && Path::new(word).is_file();
    let here = args.words().skip(1).find(is_here).filter(|_| args.cwd.is_none())?;
    Some(format!(
        "`{}` exists here, but the server starts in a private folder; pass `--cwd .` to start it here",
        printable(here)
    ))
}

fn new_server(args: &McpAddArgs) -> Result<NewServer> {
    let mut command = args.words().cloned();
    Ok(NewServer {
        name: args.name.clone(),
        command: command.next().map(from_here).transpose()?,
        args: command.collect(),
        cwd: args.cwd.clone().map(whole).transpose()?,
        env: pairs("--env", &['='], &args.env)?,
        url: args.url.clone(),
        // Headers are often written `NAME: VALUE`.
        headers: pairs("--header", &['=', ':'], &args.headers)?,
        oauth: args.oauth.then(Vec::new),
        timeout_ms: args.timeout_ms,
        start_timeout_ms: args.start_timeout_ms,
        ..NewServer::default()
    })
}

/// Makes a path absolute: it is relative to the current directory, not to where the server will run.
fn from_here(command: String) -> Result<String> {
    if command.contains('/') { whole(command) } else { Ok(command) }
}

fn whole(path: String) -> Result<String> {
    if path == "~" || path.starts_with("~/") {
        return Ok(path);
    }
    let whole = std::path::absolute(&path).context("no current folder")?;
    whole.into_os_string().into_string().map_err(|_| anyhow!("the path of `{path}` is not UTF-8"))
}

fn pairs(option: &str, separators: &[char], given: &[String]) -> Result<Vec<(String, String)>> {
    let pair = |text: &String| match text.split_once(separators) {
        Some((key, value)) if !key.is_empty() => {
            let is_spaced = text[key.len()..].starts_with(':');
            let value = if is_spaced { value.trim_start() } else { value };
            Ok((key.to_owned(), value.to_owned()))
        }
        // The value is not repeated: it may be a secret.
        _ => Err(BadUsage(format!("`{option}` expects KEY=VALUE")).into()),
    };
    given.iter().map(pair).collect()
}
