//! `portcullis secrets`: set, list, grant, remove.

use super::{open_operations, this_user};
use crate::cli::{SecretSetArgs, SecretsArgs, SecretsCommand};
use crate::{BadUsage, password_prompt, print};
use anyhow::{Context, Result};
use portcullis_core::Secret;
use portcullis_ops::Operations;
use portcullis_ops::desk::{SecretValue, SetSecret};
use portcullis_ops::listing::SecretListing;
use portcullis_ops::secret_store::PassphrasePrompt;
use portcullis_ops::secrets::{check_request, grant_words, new_key_warning};
use portcullis_store::secrets::{SecretInfo, VALUE_BYTES_MAX};
use serde_json::json;
use std::fs::File;
use std::io::{IsTerminal, Read};
use std::path::Path;
use std::process::ExitCode;
use zeroize::Zeroizing;

pub(crate) fn run(home: Option<&Path>, args: SecretsArgs, as_json: bool) -> Result<ExitCode> {
    let command = args.command.unwrap_or(SecretsCommand::List);
    // Usage errors come before any prompt.
    let asking = match &command {
        SecretsCommand::Set(args) => {
            refuse_value(args)?;
            check_request(&args.name, &args.grants)?;
            PassphrasePrompt::ToMake
        }
        SecretsCommand::Grant { name, grants } => {
            check_request(name, grants)?;
            PassphrasePrompt::ToOpen
        }
        SecretsCommand::Remove { name } => {
            check_request(name, &[])?;
            PassphrasePrompt::ToOpen
        }
        SecretsCommand::List => PassphrasePrompt::ToOpen,
    };
    let ops = open_operations(home)?;
    ops.unlock_secrets(asking)?;
    match command {
        SecretsCommand::Set(args) => set(&ops, args, as_json),
        SecretsCommand::List => list(&ops, as_json),
        SecretsCommand::Grant { name, grants } => {
            let granted = ops.grant_secret(&name, &grants, &this_user())?;
            report(&granted.0, &granted.sentence(), as_json);
            Ok(ExitCode::SUCCESS)
        }
        SecretsCommand::Remove { name } => remove(&ops, &name, as_json),
    }
}

fn refuse_value(args: &SecretSetArgs) -> Result<()> {
    if args.value.is_empty() {
        return Ok(());
    }
    let reason = "a value is never taken from the command line, where other programs and the shell's history keep it; \
        leave it out to be asked for it, or send it to standard input. If that was the real value, replace it \
        where it comes from";
    Err(BadUsage(reason.to_owned()).into())
}

fn set(ops: &Operations, args: SecretSetArgs, as_json: bool) -> Result<ExitCode> {
    let SecretSetArgs { name, grants, weak, .. } = args;
    let value = SecretValue(read_value(&name)?);
    let grants = (!grants.is_empty()).then_some(grants);
    let saved = ops.set_secret(&name, SetSecret { value, grants, weak }, &this_user())?;
    let said = saved.sentence();
    if let Some(weakness) = saved.weakness {
        print::note(format!("Warning: {weakness}."));
    }
    if let Some(key) = saved.new_key {
        print::note(new_key_warning(&key));
    }
    report(&saved.info, &said, as_json);
    Ok(ExitCode::SUCCESS)
}

/// Reads the value from a terminal prompt, or from stdin.
fn read_value(name: &str) -> Result<Secret<Zeroizing<String>>> {
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        let value = password_prompt::ask(&format!("Value of {name} (not shown)"), VALUE_BYTES_MAX);
        return value.map(Secret::new).context("the value");
    }
    // Bypasses the standard library's buffer, which is not zeroized; ours never reallocates.
    let from = File::from(rustix::io::dup(&stdin).context("standard input")?);
    let mut bytes = Zeroizing::new(Vec::with_capacity(VALUE_BYTES_MAX + 64));
    from.take(VALUE_BYTES_MAX as u64 + 3).read_to_end(&mut bytes).context("standard input")?;
    let text =
        std::str::from_utf8(&bytes).map_err(|_| BadUsage(format!("the value of `{name}` is not UTF-8")))?;
    let line = text.strip_suffix('\n').map_or(text, |line| line.strip_suffix('\r').unwrap_or(line));
    Ok(Secret::new(Zeroizing::new(line.to_owned())))
}

fn remove(ops: &Operations, name: &str, as_json: bool) -> Result<ExitCode> {
    let removed = ops.remove_secret(name, &this_user())?;
    print::either(as_json, &json!({ "removed": removed.0.name }), removed.sentence());
    Ok(ExitCode::SUCCESS)
}

fn report(info: &SecretInfo, said: &str, as_json: bool) {
    if as_json {
        print::json(&json!(SecretListing::of(info)));
        return;
    }
    print::line(said);
    if info.grants.is_empty() {
        print::line(format!("To allow one: portcullis secrets grant {} HOST[:FIELD]", info.name));
    }
}

fn list(ops: &Operations, as_json: bool) -> Result<ExitCode> {
    let secrets = ops.list_secrets()?;
    if as_json {
        print::json(&json!(secrets.iter().map(SecretListing::of).collect::<Vec<_>>()));
        return Ok(ExitCode::SUCCESS);
    }
    let mut rows = vec![["SECRET", "AGE", "ALLOWED HOSTS"].map(str::to_owned).to_vec()];
    for info in &secrets {
        let mut places =
            if info.grants.is_empty() { "nowhere".to_owned() } else { grant_words(&info.grants) };
        if info.pending {
            places.push_str(" (once its server is trusted)");
        }
        rows.push(vec![info.name.clone(), print::age(SecretListing::of(info).age_secs), places]);
    }
    print::table_out(&rows);
    if secrets.is_empty() {
        print::note("No secrets yet. Add one: portcullis secrets set NAME");
    }
    Ok(ExitCode::SUCCESS)
}
