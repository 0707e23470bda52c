//! `portcullis scripts`: list, review, run, check.

mod show;

use super::hub_client::with_hub;
use super::{block_on, open_operations, this_user};
use crate::cli::{ScriptApproveArgs, ScriptRunArgs, ScriptsArgs, ScriptsCommand};
use crate::config::Config;
use crate::home::Home;
use crate::{BadUsage, config, logging, print};
use anyhow::{Context, Result};
use portcullis_ops::Operations;
use portcullis_ops::desk::{ApproveScript, RejectScript, ScriptGrants};
use portcullis_ops::listing::{script_decision_listing, script_listing, script_review_listing};
use portcullis_ops::scripts::{script_difference, version_to_decide};
use portcullis_server::local::HubClient;
use portcullis_tools::scripts::{ScriptError, ScriptHeader, ScriptName, ScriptReview};
use portcullis_tools::{ScriptCheckError, ScriptCheckReport};
use serde_json::{Value, json};
use show::{short, table};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;

pub(crate) fn run(home: Option<&Path>, args: ScriptsArgs, as_json: bool) -> Result<ExitCode> {
    let ops = open_operations(home)?;
    let desk = ScriptsCommandContext { ops, as_json };
    match args.command.unwrap_or(ScriptsCommand::List) {
        ScriptsCommand::List => desk.list(),
        ScriptsCommand::Show { name, diff, version } => desk.show(&name, diff, version.as_deref()),
        ScriptsCommand::Approve(args) => desk.approve(&args),
        ScriptsCommand::Reject { name, hash, reason } => desk.reject(&name, hash, reason),
        ScriptsCommand::History { name } => desk.history(&name),
        ScriptsCommand::Restore { name, hash } => desk.restore(&name, &hash),
        ScriptsCommand::Run(args) if args.dry_run => desk.dry_run(&args),
        ScriptsCommand::Run(args) => run_script(&desk.ops.home, &desk.ops.config(), &args, as_json),
        ScriptsCommand::Check { file } => desk.check(&file),
    }
}

fn named(name: &str) -> Result<ScriptName> {
    name.parse().map_err(|error| BadUsage(ScriptError::Name(error).to_string()).into())
}

struct ScriptsCommandContext {
    ops: Operations,
    as_json: bool,
}

impl ScriptsCommandContext {
    fn list(&self) -> Result<ExitCode> {
        let list = self.ops.list_scripts()?;
        if self.as_json {
            print::json(&Value::Array(list.iter().map(script_listing).collect()));
            return Ok(ExitCode::SUCCESS);
        }
        print::out(table(&list));
        if list.is_empty() {
            print::note(format!(
                "No scripts yet. Put `.star` files into {}.",
                self.ops.script_checker().scripts.folder().display()
            ));
        }
        Ok(ExitCode::SUCCESS)
    }

    fn show(&self, name: &str, diff: bool, version: Option<&str>) -> Result<ExitCode> {
        if let Some(hash) = version {
            let (name, source) = (named(name)?, self.ops.script_source(name, hash)?);
            match self.as_json {
                true => print::json(&json!({ "name": name.as_str(), "source": source })),
                false => print::out(portcullis_core::json::visible_lines(&source)),
            }
            return Ok(ExitCode::SUCCESS);
        }
        let looked = self.ops.review_script(name)?;
        match self.as_json {
            true => print::json(&script_review_listing(&looked)),
            false if diff => print::out(script_difference(&looked)),
            false => print::out(show::details(&looked)),
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Returns the version to decide on. Without `--hash` it is shown, and confirmed at the terminal.
    fn reviewed(&self, looked: &ScriptReview, hash: Option<String>, doing: &str) -> Result<String> {
        if let Some(hash) = hash {
            return Ok(hash);
        }
        let (name, (sha256, _)) = (&looked.listed.name, version_to_decide(looked));
        if !print::is_interactive() || self.as_json {
            return Err(BadUsage(format!(
                "pass the version you reviewed: `--hash {}`, from `portcullis scripts show {name}`",
                short(sha256)
            ))
            .into());
        }
        print::note(show::details(looked));
        match print::confirm(&format!("{doing} this version of `{name}`, {}?", short(sha256)))? {
            Some(true) => Ok(sha256.to_owned()),
            _ => Err(anyhow::anyhow!("cancelled: no decision made")),
        }
    }

    fn approve(&self, args: &ScriptApproveArgs) -> Result<ExitCode> {
        let looked = self.ops.review_script(&args.name)?;
        let sha256 = self.reviewed(&looked, args.hash.clone(), "Approve")?;
        // The requested grants are read from exactly the version that is approved.
        let source = looked.version(&sha256).unwrap_or(&looked.source);
        let header = ScriptHeader::of(source);
        if let (Some(problem), None) = (header.problems.first(), &args.secrets) {
            return Err(BadUsage(format!(
                "its header comment is invalid: {problem}; pass the grants yourself"
            ))
            .into());
        }
        let approval = ApproveScript {
            sha256,
            grant: grants(args, &header),
            expires: args.expires.clone(),
            seen: looked.listed.seen,
            beyond_requested: true,
        };
        let decided = self.ops.approve_script(&args.name, approval, &this_user())?;
        let listed = decided.now.unwrap_or(decided.was);
        if self.as_json {
            print::json(&script_listing(&listed));
            return Ok(ExitCode::SUCCESS);
        }
        print::line(format!("Approved script `{}` (version {}).", decided.name, short(&listed.sha256)));
        if let Some(granted) = listed.granted {
            print::line(show::capabilities(&granted));
        }
        if let Some(before) = decided.before {
            print::note(show::before(&before));
        }
        Ok(ExitCode::SUCCESS)
    }

    fn reject(&self, name: &str, hash: Option<String>, reason: Option<String>) -> Result<ExitCode> {
        let looked = self.ops.review_script(name)?;
        let sha256 = self.reviewed(&looked, hash, "Reject")?;
        let rejection = RejectScript { sha256, reason, seen: looked.listed.seen };
        let decided = self.ops.reject_script(name, rejection, &this_user())?;
        if self.as_json {
            let (decisions, _) = self.ops.script_history(name)?;
            print::json(&decisions.first().map(script_decision_listing).unwrap_or_default());
            return Ok(ExitCode::SUCCESS);
        }
        print::line(format!("Rejected script `{}` in this version.", decided.name));
        if let Some(before) = decided.before {
            print::note(show::before(&before));
        }
        Ok(ExitCode::SUCCESS)
    }

    fn history(&self, name: &str) -> Result<ExitCode> {
        let (name, (decisions, runs)) = (named(name)?, self.ops.script_history(name)?);
        if self.as_json {
            print::json(&json!({
                "name": name.as_str(),
                "decisions": decisions.iter().map(script_decision_listing).collect::<Vec<_>>(),
                "runs": runs,
            }));
            return Ok(ExitCode::SUCCESS);
        }
        print::out(show::history(&decisions, &runs));
        Ok(ExitCode::SUCCESS)
    }

    fn restore(&self, name: &str, hash: &str) -> Result<ExitCode> {
        let name = named(name)?;
        let decision = self.ops.restore_script(name.as_str(), hash, None, &this_user())?;
        let said =
            format!("Restored script `{name}` to version {}; it is approved.", short(&decision.sha256));
        print::either(self.as_json, &script_decision_listing(&decision), said);
        Ok(ExitCode::SUCCESS)
    }

    fn dry_run(&self, args: &ScriptRunArgs) -> Result<ExitCode> {
        let name = named(&args.name)?;
        let looked = self.ops.review_script(name.as_str())?;
        let given: Vec<Value> = args.args.iter().map(|text| value_of(text)).collect();
        let ran = block_on(self.ops.script_checker().dry_run(
            &name,
            &looked.source,
            args.function.clone(),
            &given,
        ))?;
        self.ended(ran)
    }

    fn check(&self, file: &Path) -> Result<ExitCode> {
        let told = || format!("`{}`", file.display());
        let bytes = std::fs::read(file).with_context(told)?;
        let source =
            String::from_utf8(bytes).map_err(|_| anyhow::anyhow!("`{}` is not UTF-8", file.display()))?;
        let name = file.file_name().map_or_else(|| "file".into(), |name| name.to_string_lossy());
        let checked = block_on(self.ops.script_checker().check(&name, &source))?;
        let header = ScriptHeader::of(&source);
        if checked.is_ok() && !self.as_json {
            print::line(format!("{}: valid script", file.display()));
            print::line(show::capabilities(&header.wants));
            header.problems.iter().for_each(|problem| print::note(format!("warning: {problem}")));
            return Ok(ExitCode::SUCCESS);
        }
        self.ended(checked)
    }

    fn ended(&self, ended: Result<ScriptCheckReport, ScriptCheckError>) -> Result<ExitCode> {
        match ended {
            Err(error @ ScriptCheckError::Fault { .. }) if self.as_json => {
                print::json(&json!({ "error": error.to_string() }));
                Ok(ExitCode::FAILURE)
            }
            Err(error) => Err(error.into()),
            Ok(checked) if self.as_json => {
                print::json(&json!({
                    "value": checked.value,
                    "printed": checked.printed,
                    "duration_ms": u64::try_from(checked.took.as_millis()).unwrap_or(u64::MAX),
                    "memory_bytes": checked.memory_bytes,
                }));
                Ok(ExitCode::SUCCESS)
            }
            Ok(checked) => {
                if !checked.printed.is_empty() {
                    print::note(checked.printed.trim_end());
                }
                print::line(serde_json::to_string_pretty(&checked.value.unwrap_or_default())?);
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

/// Runs a script as the local client, in the running hub if there is one.
fn run_script(home: &Home, config: &Config, args: &ScriptRunArgs, as_json: bool) -> Result<ExitCode> {
    let name = named(&args.name)?;
    let settings = config::LoggingSettings { level: config::Level::Warn, ..config.logging };
    logging::start(settings, print::redaction());
    let mut arguments = json!({ "name": name.as_str() });
    if let Some(function) = &args.function {
        arguments["function"] = json!(function);
    }
    if !args.args.is_empty() {
        arguments["args"] = args.args.iter().map(|text| value_of(text)).collect();
    }
    block_on(async {
        let arguments = arguments.to_string();
        let call = async |link: &mut HubClient| {
            super::tools::call(link, None, "script_run", &arguments, Path::new("."), as_json).await
        };
        with_hub(home, call).await
    })?
}

fn value_of(text: &str) -> Value {
    portcullis_core::json::parse_strict(text).unwrap_or_else(|_| Value::from(text))
}

/// Returns the grants that were given; without an option, those that the script requests.
fn grants(args: &ScriptApproveArgs, header: &ScriptHeader) -> ScriptGrants {
    let given = |given: &Option<Vec<String>>, wanted: &BTreeSet<String>| match given {
        Some(given) => {
            given.iter().map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect()
        }
        None if args.nothing => Vec::new(),
        None => wanted.iter().cloned().collect(),
    };
    let hosts = args.hosts.as_ref().map(|hosts| hosts.iter().map(|host| host.to_ascii_lowercase()).collect());
    ScriptGrants {
        secrets: given(&args.secrets, &header.wants.secrets),
        hosts: given(&hosts, &header.wants.hosts),
        tools: given(&args.tools, &header.wants.tools),
    }
}
