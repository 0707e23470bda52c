//! `portcullis mcp add`: connect, show, write, trust.

use super::look::{Looked, look, needs_secrets};
use super::{Desk, explained, trust};
use crate::cli::McpAddArgs;
use crate::commands::mcp_auth::{Browser, ended as ended_words, log_in, login_of};
use crate::commands::{block_on, environment};
use crate::config::{Config, McpServer, NewServer, add_servers, preview_servers};
use crate::login::Login;
use crate::mcp::Makers;
use crate::secrets::Asking;
use crate::{BadUsage, import, print};
use anyhow::{Context, Result, anyhow};
use portcullis_core::json::printable;
use portcullis_upstream::StatusKind;
use serde_json::json;
use std::path::Path;
use std::process::ExitCode;

impl Desk {
    pub(super) fn add(&self, args: &McpAddArgs) -> Result<ExitCode> {
        let new = new_server(args)?;
        let name = args.name.as_str();
        let config =
            preview_servers(self.home.path(), &environment, std::slice::from_ref(&new)).map_err(explained)?;
        let server = config.mcp.iter().find(|server| server.name == name).context("the server")?;
        let makers = self.makers(needs_secrets(server))?;
        makers.programs.forget(name)?;
        let logs_in = args.oauth && !args.no_test;
        let login = logs_in.then(|| login_of(&self.home, &config, server, Asking::ToMake)).transpose()?;
        let had_login = login.as_ref().is_some_and(Login::is_kept);
        let logged_in = login.as_ref().map(|login| log_in(login, Browser::Leave, self.as_json)).transpose();
        let added = logged_in.and_then(|_| self.add_looked(args, new, server, &config, &makers));
        if let (Err(_), Some(login), false) = (&added, login, had_login) {
            // Nothing was written that speaks of it, so nobody could end it later.
            let ended = block_on(async { login.oauth().log_out().await })?;
            ended_words(name, ended).into_iter().for_each(print::note);
        }
        added
    }

    /// Looks at the server, unless that is not wanted, and writes it down.
    fn add_looked(
        &self,
        args: &McpAddArgs,
        new: NewServer,
        server: &McpServer,
        config: &Config,
        makers: &Makers,
    ) -> Result<ExitCode> {
        let name = args.name.as_str();
        let mut looked: Option<Looked> =
            if args.no_test { None } else { Some(look(server, config, makers)?) };
        if let Some(looked) = looked.as_mut().filter(|looked| looked.seen.is_none()) {
            looked.hint = hint(args, looked.status.kind).or(looked.hint.take());
        }
        let mut trusted = false;
        if let Some(looked) = &looked {
            let seen = looked.connected(name).map_err(|error| {
                anyhow!("{error}\nNothing was written; `--no-test` writes it down all the same.")
            })?;
            if !self.as_json {
                print::out(looked.text(name, &seen));
            }
            let question = format!("Let all of this in, as it is now, for `{name}`?");
            trusted = args.yes || (!self.as_json && print::confirm(&question)? == Some(true));
        }
        let in_clear = in_clear(&new);
        let path = add_servers(self.home.path(), &environment, &[new]).map_err(explained)?;
        // One that had the name before is not this one.
        if makers.toggles.of(name).removed {
            // A hub that has yet to read the configuration would take this for a word on that other.
            self.forget_removed(name, makers)?;
        } else {
            makers.toggles.forget(name)?;
        }
        makers.pins.revoke(name)?;
        if let Some(seen) = looked.as_ref().and_then(|looked| looked.seen.as_ref()).filter(|_| trusted) {
            makers.pins.trust(name, (**seen).clone(), &trust::by())?;
        }
        if self.as_json {
            let tested = looked.as_ref().map(|looked| looked.json(name));
            print::json(&json!({
                "added": name, "file": path, "trusted": trusted, "test": tested, "notes": in_clear,
            }));
            return Ok(ExitCode::SUCCESS);
        }
        let next = if trusted {
            "It is trusted as it is; what changes waits until you look again.".to_owned()
        } else {
            format!("Nothing of it is let in until: portcullis mcp trust {name}")
        };
        print::line(format!("\nServer `{name}` is in {}. {next}", path.display()));
        in_clear.into_iter().for_each(print::note);
        Ok(ExitCode::SUCCESS)
    }
}

/// Says what else could be given, where the server could not be connected so.
fn hint(args: &McpAddArgs, status: StatusKind) -> Option<String> {
    if status == StatusKind::NeedsAuth && !args.oauth && args.headers.is_empty() {
        return Some("it wants a login: give `--oauth` too, and log in before it is tested".to_owned());
    }
    let is_here = |word: &&String| Path::new(word).is_relative() && Path::new(word).is_file();
    let here = args.command.iter().skip(1).find(is_here).filter(|_| args.cwd.is_none())?;
    Some(format!(
        "`{}` is here, but it starts in a folder of its own; `--cwd .` starts it here",
        printable(here)
    ))
}

fn new_server(args: &McpAddArgs) -> Result<NewServer> {
    let mut command = args.command.iter().cloned();
    Ok(NewServer {
        name: args.name.clone(),
        command: command.next().map(from_here).transpose()?,
        args: command.collect(),
        cwd: args.cwd.clone().map(whole).transpose()?,
        env: pairs("--env", &['='], &args.env)?,
        url: args.url.clone(),
        // `NAME: VALUE` is how headers are written elsewhere.
        headers: pairs("--header", &['=', ':'], &args.headers)?,
        oauth: args.oauth.then(Vec::new),
        timeout_ms: args.timeout_ms,
        ..NewServer::default()
    })
}

/// A path is meant from where the command is given, which is not where the server will run.
fn from_here(command: String) -> Result<String> {
    if command.contains('/') { whole(command) } else { Ok(command) }
}

fn whole(path: String) -> Result<String> {
    if path == "~" || path.starts_with("~/") {
        return Ok(path);
    }
    let whole = std::path::absolute(&path).context("no current folder")?;
    whole.into_os_string().into_string().map_err(|_| anyhow!("the path of `{path}` is no text"))
}

fn pairs(option: &str, separators: &[char], given: &[String]) -> Result<Vec<(String, String)>> {
    let pair = |text: &String| match text.split_once(separators) {
        Some((key, value)) if !key.is_empty() => {
            let is_spaced = text[key.len()..].starts_with(':');
            let value = if is_spaced { value.trim_start() } else { value };
            Ok((key.to_owned(), value.to_owned()))
        }
        // What was given is not repeated: it may be a secret.
        _ => Err(BadUsage(format!("`{option}` wants KEY=VALUE")).into()),
    };
    given.iter().map(pair).collect()
}

/// Says what stands in the configuration in clear now, and how it need not.
fn in_clear(new: &NewServer) -> Vec<String> {
    let name = &new.name;
    let host = new.url.as_deref().map(import::host_of).unwrap_or_default();
    let env = new.env.iter().map(|pair| (pair, "env", format!("mcp.{name}:env")));
    let headers = new.headers.iter().map(|pair| {
        let grant = format!("{host}:{}", pair.0.to_ascii_lowercase());
        (pair, "headers", grant)
    });
    let all = env.chain(headers).filter(|((key, value), ..)| import::is_secret(key, value));
    let told = all.map(|((key, value), place, grant)| {
        let scheme = if value.to_ascii_lowercase().starts_with("bearer ") { "Bearer " } else { "" };
        format!(
            "`{}` stands in the configuration in clear. To keep it in the secret store instead: \
             portcullis secrets set NAME --grant '{grant}', then in `mcp.{name}.{place}`: {} = \"{scheme}secret:NAME\"",
            printable(key),
            printable(key)
        )
    });
    let mut told: Vec<String> = told.collect();
    // An address that holds a password was refused before.
    let _ = import::in_clear(name, &new.args, new.url.as_deref(), &mut told);
    told
}
