//! Writes the files that are generated from the code: snapshots of the tools, and the reference pages.
//!
//! `cargo xtask gen` runs it; with `--check` nothing is written and a difference is an error.

use anyhow::{Context, Result, bail};
use clap::CommandFactory;
use portcullis::cli::Cli;
use portcullis::{config, surface};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

const SURFACE: &str = "crates/portcullis/src/surface";
const HEADER: &str = "<!-- Written by `cargo xtask gen`; change the code instead. -->\n\n";

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let root = PathBuf::from(args.next().context("usage: gen ROOT [--check]")?);
    let check = args.next().as_deref() == Some("--check");
    let files = generated()?;
    let stale: Vec<&PathBuf> = files
        .iter()
        .filter(|(path, text)| std::fs::read_to_string(root.join(path)).ok().as_ref() != Some(*text))
        .map(|(path, _)| path)
        .collect();
    let leftover = leftover(&root, &files)?;
    if check {
        if stale.is_empty() && leftover.is_empty() {
            return Ok(());
        }
        let names: Vec<String> =
            stale.into_iter().chain(&leftover).map(|p| p.display().to_string()).collect();
        bail!("not up to date: {}; run `cargo xtask gen` and read the difference", names.join(", "));
    }
    for path in stale {
        let to = root.join(path);
        std::fs::create_dir_all(to.parent().context("a file in a folder")?)?;
        std::fs::write(&to, &files[path])?;
    }
    for path in leftover {
        std::fs::remove_file(root.join(path))?;
    }
    Ok(())
}

/// Snapshots of tools that are no more.
fn leftover(root: &Path, files: &BTreeMap<PathBuf, String>) -> Result<Vec<PathBuf>> {
    let mut leftover = Vec::new();
    for entry in std::fs::read_dir(root.join(SURFACE))? {
        let path = Path::new(SURFACE).join(entry?.file_name());
        if !files.contains_key(&path) {
            leftover.push(path);
        }
    }
    Ok(leftover)
}

fn generated() -> Result<BTreeMap<PathBuf, String>> {
    let tools = surface::current()?;
    let mut files = BTreeMap::new();
    let mut index = String::from("// Written by `cargo xtask gen`.\nconst SNAPSHOTS: &[(&str, &str)] = &[\n");
    for (name, snapshot) in &tools {
        files.insert(Path::new(SURFACE).join(format!("{name}.json")), format!("{snapshot:#}\n"));
        writeln!(index, "    (\"{name}\", include_str!(\"{name}.json\")),")?;
    }
    index.push_str("];\n");
    files.insert(Path::new(SURFACE).join("index.rs"), index);
    files.insert("docs/tools.md".into(), tools_page(&tools)?);
    files.insert("docs/configuration.md".into(), configuration_page());
    files.insert("docs/portcullis.schema.json".into(), format!("{:#}\n", config::schema()));
    files.insert("docs/command-line.md".into(), command_line_page());
    files.insert("docs/openapi.json".into(), format!("{:#}\n", portcullis_admin::api::document()));
    Ok(files)
}

fn tools_page(tools: &[(String, Value)]) -> Result<String> {
    let mut page = format!(
        "{HEADER}# Tools\n\nEvery call passes the same checks. A client sees only the tools it may call.\n"
    );
    for (name, tool) in tools {
        let definition = &tool["definition"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        writeln!(page, "\n## `{name}`\n\n{}\n", text(&definition["description"]))?;
        let (effect, reach) = (text(&tool["effect"]), text(&tool["reach"]));
        let limits = &tool["limits"];
        writeln!(
            page,
            "Effect: {effect}, {reach}. Deadline: {} ms. Result: at most {} bytes.\n",
            limits["deadline_ms"], limits["output_bytes_max"]
        )?;
        let required: Vec<&str> = definition["inputSchema"]["required"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let properties = definition["inputSchema"]["properties"].as_object();
        if properties.is_some_and(|properties| !properties.is_empty()) {
            page.push_str("| argument | type | |\n|---|---|---|\n");
        }
        for (field, schema) in properties.into_iter().flatten() {
            let star = if required.contains(&field.as_str()) { "\\*" } else { "" };
            let default =
                schema.get("default").map(|value| format!(" Default: `{value}`.")).unwrap_or_default();
            let kind = match &schema["type"] {
                Value::String(kind) => kind.clone(),
                other => other.to_string().replace('"', ""),
            };
            writeln!(page, "| `{field}`{star} | {kind} | {}{default} |", text(&schema["description"]))?;
        }
        let example = &tool["example"];
        writeln!(page, "\n{}:\n\n```json\n{:#}\n```", text(&example["what"]), example["arguments"])?;
    }
    Ok(page)
}

fn configuration_page() -> String {
    format!(
        "{HEADER}# Configuration\n\n`portcullis.toml` in the home folder (or `.yaml`, `.json` with the same keys). \
         `portcullis init` writes this file. It is strict: an unknown key is an error that names the nearest one, and all \
         errors are reported at once. A running hub reloads the file; an invalid file keeps the previous configuration in force. \
         `portcullis config-schema` prints a JSON schema for editors, which is also in `docs/portcullis.schema.json`.\n\n\
         Changes of these settings need a restart, and the hub names them in its log: {}.\n\n```toml\n{}```\n\n\
         ## Limits\n\nEverything that a client can drive has a bound. What runs into one is counted as \
         `portcullis_limit_hits_total{{limit=\"…\"}}` at `/metrics`.\n\n{}",
        config::restart_list(),
        config::example(),
        config::limit_table()
    )
}

fn command_line_page() -> String {
    let mut page = format!("{HEADER}# Command line\n");
    let mut command = Cli::command();
    command.build();
    write_command(&mut page, &mut command, "portcullis");
    page
}

fn write_command(page: &mut String, command: &mut clap::Command, name: &str) {
    if command.get_name() == "help" {
        return;
    }
    // Long enough that nothing is wrapped: a page is not a terminal.
    let help = command.clone().bin_name(name).term_width(200).render_long_help().to_string();
    let help: Vec<&str> = help.lines().map(str::trim_end).collect();
    page.push_str(&format!("\n## `{name}`\n\n```text\n{}\n```\n", help.join("\n").trim_end()));
    let children: Vec<clap::Command> = command.get_subcommands().cloned().collect();
    for mut child in children {
        let name = format!("{name} {}", child.get_name());
        write_command(page, &mut child, &name);
    }
}
