//! `portcullis tools`: list the tools, show one, or call one through all checks.

mod saved_content;
mod schema_table;
mod show;

use super::approvals::decide_in_place;
use super::hub_client::with_hub;
use super::{LoadedHome, block_on, open, open_operations_for_reading};
use crate::cli::{ToolsArgs, ToolsCommand};
use crate::config::Config;
use crate::home::Home;
use crate::known_tools::KnownTools;
use crate::{BadUsage, logging, print};
use anyhow::{Context, Result, anyhow};
use portcullis_core::Effect;
use portcullis_ops::Operations;
use portcullis_server::local::HubClient;
use saved_content::BinaryContent;
use serde_json::{Value, json};
use std::io::Read;
use std::path::Path;
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;

/// Limit of arguments read from stdin.
const ARGUMENTS_BYTES_MAX: u64 = 4 * 1024 * 1024;

pub(crate) fn run(home: Option<&Path>, args: ToolsArgs, as_json: bool) -> Result<ExitCode> {
    let LoadedHome { home, loaded, .. } = open(home)?;
    let level = crate::config::Level::Warn;
    let settings = crate::config::LoggingSettings { level, ..loaded.config.logging };
    logging::start(settings, print::redaction());
    match args.command.unwrap_or(ToolsCommand::List) {
        ToolsCommand::List => block_on(async {
            with_hub(&home, async |link| list(link, &home, &loaded.config, as_json).await).await
        })?,
        ToolsCommand::Show { name } => {
            show::run(&open_operations_for_reading(home, loaded.config)?, &name, as_json)
        }
        ToolsCommand::Call { name, arguments, save } => {
            let prompts = !as_json && print::is_interactive() && arguments != "-";
            let called = block_on(async {
                with_hub(&home, async |link| {
                    let desk = if prompts { Some(terminal_desk(&home, &loaded.config)?) } else { None };
                    call(link, desk, &name, &arguments, &save, as_json).await
                })
                .await
            })?;
            called.map_err(|error| with_absence(error, home, loaded.config, &name))
        }
    }
}

/// Adds to the failure of a call that the tool's server is disabled or not trusted, if it is.
fn with_absence(error: anyhow::Error, home: Home, config: Config, name: &str) -> anyhow::Error {
    if !error.to_string().starts_with("Unknown tool") {
        return error;
    }
    let absence = open_operations_for_reading(home, config).and_then(|ops| Ok(ops.absence_of(name)?));
    match absence {
        Ok(Some(why)) => anyhow!("{error}; {why}"),
        // The first error counts.
        Ok(None) | Err(_) => error,
    }
}

async fn list(link: &mut HubClient, home: &Home, config: &Config, as_json: bool) -> Result<ExitCode> {
    let mut tools = link.list("tools/list", "tools").await?;
    // Agents do not see the hub's effects and labels, and the hub does not rely on a server's own annotations.
    let known = KnownTools::of(config, None)?;
    let trusted = open_operations_for_reading(home.clone(), config.clone())?.pinned_tools(config)?;
    let effect = |tool: &Value| {
        let name = tool["name"].as_str().unwrap_or_default();
        let looked_at = trusted.iter().find(|known| known.name == name).map(|known| known.effect);
        looked_at.or_else(|| known.effect(name)).unwrap_or_else(|| hinted(tool)).as_str()
    };
    if as_json {
        for tool in &mut tools {
            tool["effect"] = effect(tool).into();
            tool["labels"] = json!(known.labels(tool["name"].as_str().unwrap_or_default()).names());
        }
        print::json(&Value::Array(tools));
        return Ok(ExitCode::SUCCESS);
    }
    let mut rows = vec![vec!["TOOL".to_owned(), "EFFECT".to_owned(), "TITLE".to_owned()]];
    for tool in &tools {
        let text = |key: &str| tool[key].as_str().unwrap_or_default().to_owned();
        rows.push(vec![text("name"), effect(tool).to_owned(), text("title")]);
    }
    print::table_out(&rows);
    Ok(ExitCode::SUCCESS)
}

/// Effect of a tool outside the families, from its annotations; the worst if it has none.
fn hinted(tool: &Value) -> Effect {
    let hint = |name: &str| tool["annotations"][name].as_bool();
    match (hint("readOnlyHint"), hint("destructiveHint")) {
        (Some(true), _) => Effect::Read,
        (_, Some(false)) => Effect::Create,
        _ => Effect::Destroy,
    }
}

/// Parses arguments from the command line; `-` reads stdin.
pub(super) fn read_arguments(arguments: &str) -> Result<Value> {
    let mut text = arguments.to_owned();
    if arguments == "-" {
        text.clear();
        std::io::stdin().take(ARGUMENTS_BYTES_MAX).read_to_string(&mut text).context("standard input")?;
    }
    let value = portcullis_core::json::parse_strict(&text)
        .map_err(|error| BadUsage(format!("invalid arguments: not a JSON object: {error}")))?;
    Ok(value)
}

/// Where the user of the terminal, who administers this home, decides about the call of this command.
pub(super) struct TerminalDesk {
    ops: Arc<Operations>,
    /// The client that the command speaks as.
    client: String,
}

fn terminal_desk(home: &Home, config: &Config) -> Result<TerminalDesk> {
    let database = crate::database::open(home, config)?;
    let client = config.stdio.client.clone();
    let ops = Operations::in_command(home.clone(), config.clone(), database, super::USER);
    Ok(TerminalDesk { ops: Arc::new(ops), client })
}

/// Makes the call. If it waits for approval, the user of the terminal is asked in place.
async fn call_and_ask(
    link: &mut HubClient,
    desk: Option<TerminalDesk>,
    name: &str,
    arguments: Value,
) -> Result<Value> {
    let Some(TerminalDesk { ops, client }) = desk else {
        return Ok(link.call(name, arguments).await?);
    };
    let decision = decide_in_place(ops, client, name.to_owned(), arguments.clone()).await?;
    let mut asking = pin!(decision.ask());
    let result = {
        let mut calling = pin!(link.call(name, arguments.clone()));
        tokio::select! {
            biased;
            result = &mut calling => result?,
            // The call goes on, and its result says what became of it. If it stays pending, so does the call.
            answered = &mut asking => {
                answered?;
                return Ok(calling.await?);
            }
        }
    };
    if result["structuredContent"]["code"] != "needs_approval" {
        return Ok(result);
    }
    // The call gave up waiting. With a yes to the question, which is on the screen or soon will be, it is made again.
    decision.call_ended();
    match asking.await? {
        Some(true) => Ok(link.call(name, arguments).await?),
        Some(false) | None => Ok(result),
    }
}

pub(super) async fn call(
    link: &mut HubClient,
    desk: Option<TerminalDesk>,
    name: &str,
    arguments: &str,
    save: &Path,
    as_json: bool,
) -> Result<ExitCode> {
    let arguments = read_arguments(arguments)?;
    let result = call_and_ask(link, desk, name, arguments).await?;
    let failed = result["isError"].as_bool().unwrap_or(false);
    if as_json {
        print::json(&result);
    } else {
        for content in result["content"].as_array().into_iter().flatten() {
            match (content["text"].as_str(), BinaryContent::of(content)) {
                (Some(text), _) if failed => print::note(text),
                (Some(text), _) => print::line(text),
                (None, Some(binary)) => print::line(binary.save(save, name)?),
                (None, None) => print::line(content.to_string()),
            }
        }
    }
    Ok(ExitCode::from(u8::from(failed)))
}
