//! `portcullis tools`: list the tools, or call one, through every guard.

use super::link::Link;
use super::{Opened, block_on, open};
use crate::cli::{ToolsArgs, ToolsCommand};
use crate::config::Config;
use crate::labels::KnownLabels;
use crate::{BadUsage, logging, print};
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

/// How much is read from standard input for arguments.
const ARGUMENTS_BYTES_MAX: u64 = 4 * 1024 * 1024;

pub(crate) fn run(home: Option<&Path>, args: ToolsArgs, as_json: bool) -> Result<ExitCode> {
    let Opened { home, loaded, .. } = open(home)?;
    logging::start(crate::config::Logging { level: crate::config::Level::Warn, ..loaded.config.logging });
    let command = args.command.unwrap_or(ToolsCommand::List);
    block_on(async {
        let mut link = Link::open(&home, &loaded.config).await?;
        match command {
            ToolsCommand::List => list(&mut link, &loaded.config, as_json).await,
            ToolsCommand::Call { name, arguments } => call(&mut link, &name, &arguments, as_json).await,
        }
    })?
}

async fn list(link: &mut Link, config: &Config, as_json: bool) -> Result<ExitCode> {
    let mut tools = link.list("tools/list", "tools").await?;
    if as_json {
        // The hub's own words on a tool are no part of what agents are told of it.
        let labels = KnownLabels::of(config)?;
        for tool in &mut tools {
            tool["labels"] = json!(labels.find(tool["name"].as_str().unwrap_or_default()).names());
        }
        print::json(&Value::Array(tools));
        return Ok(ExitCode::SUCCESS);
    }
    let mut rows = vec![vec!["TOOL".to_owned(), "EFFECT".to_owned(), "WHAT IT DOES".to_owned()]];
    for tool in &tools {
        let text = |key: &str| tool[key].as_str().unwrap_or_default().to_owned();
        rows.push(vec![text("name"), effect(tool).to_owned(), text("title")]);
    }
    print::out(print::table(&rows));
    Ok(ExitCode::SUCCESS)
}

fn effect(tool: &Value) -> &'static str {
    let hint = |name: &str| tool["annotations"][name].as_bool().unwrap_or(false);
    match (hint("readOnlyHint"), hint("destructiveHint")) {
        (true, _) => "read",
        (false, true) => "change",
        (false, false) => "create",
    }
}

/// Reads arguments as they are given on the command line; `-` is standard input.
pub(super) fn read_arguments(arguments: &str) -> Result<Value> {
    let mut text = arguments.to_owned();
    if arguments == "-" {
        text.clear();
        std::io::stdin().take(ARGUMENTS_BYTES_MAX).read_to_string(&mut text).context("standard input")?;
    }
    let value = portcullis_core::json::parse_strict(&text)
        .map_err(|error| BadUsage(format!("the arguments are not a JSON object: {error}")))?;
    Ok(value)
}

pub(super) async fn call(link: &mut Link, name: &str, arguments: &str, as_json: bool) -> Result<ExitCode> {
    let arguments = read_arguments(arguments)?;
    let result = link.call(name, arguments).await?;
    let failed = result["isError"].as_bool().unwrap_or(false);
    if as_json {
        print::json(&result);
    } else {
        for content in result["content"].as_array().into_iter().flatten() {
            match content["text"].as_str() {
                Some(text) if failed => print::note(text),
                Some(text) => print::line(text),
                None => print::line(content.to_string()),
            }
        }
    }
    Ok(ExitCode::from(u8::from(failed)))
}
