//! `portcullis secrets`: set, list, grant, remove.

use super::{LoadedHome, open};
use crate::cli::{SecretSetArgs, SecretsArgs, SecretsCommand};
use crate::database;
use crate::passphrase::PassphrasePrompt;
use crate::{BadUsage, password_prompt, print};
use anyhow::{Context, Result};
use portcullis_core::{Clock, Secret, SystemClock};
use portcullis_store::secrets::{
    Grant, SecretError, SecretInfo, SecretRef, SecretStore, VALUE_BYTES_MAX, VALUE_BYTES_MIN, check_strength,
    vocabulary,
};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{IsTerminal, Read};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use zeroize::Zeroizing;

pub(crate) fn run(home: Option<&Path>, args: SecretsArgs, as_json: bool) -> Result<ExitCode> {
    let command = args.command.unwrap_or(SecretsCommand::List);
    // Usage errors come before any prompt.
    let (asking, grants) = match &command {
        SecretsCommand::Set(args) => {
            refuse_value(args)?;
            (PassphrasePrompt::ToMake, checked(&args.name, &args.grants)?)
        }
        SecretsCommand::Grant { name, grants } => (PassphrasePrompt::ToOpen, checked(name, grants)?),
        SecretsCommand::Remove { name } => (PassphrasePrompt::ToOpen, checked(name, &[])?),
        SecretsCommand::List => (PassphrasePrompt::ToOpen, Vec::new()),
    };
    let LoadedHome { home, loaded, .. } = open(home)?;
    let database = database::open(&loaded.config)?;
    let store =
        crate::passphrase::open_secrets(&home, &loaded.config, &database, Arc::new(SystemClock), asking)?;
    match command {
        SecretsCommand::Set(args) => set(&store, &args, grants, as_json),
        SecretsCommand::List => list(&store, as_json),
        SecretsCommand::Grant { name, .. } => grant(&store, &name, grants, as_json),
        SecretsCommand::Remove { name } => remove(&store, &name, as_json),
    }
}

/// Maps an error to bad usage or failure.
fn explained(error: SecretError) -> anyhow::Error {
    match error {
        SecretError::Name(_)
        | SecretError::NoHandle
        | SecretError::TooShort { .. }
        | SecretError::TooLong { .. }
        | SecretError::Weak { .. }
        | SecretError::Grant { .. }
        | SecretError::Ordinary { .. }
        | SecretError::WeakPassphrase { .. } => BadUsage(error.to_string()).into(),
        other => other.into(),
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

fn checked(name: &str, grants: &[String]) -> Result<Vec<Grant>> {
    format!("secret:{name}").parse::<SecretRef>().map_err(explained)?;
    grants.iter().map(|text| text.parse().map_err(explained)).collect()
}

fn set(store: &SecretStore, args: &SecretSetArgs, grants: Vec<Grant>, as_json: bool) -> Result<ExitCode> {
    let name = args.name.as_str();
    let value = read_value(name)?;
    let check = if args.weak { vocabulary::check_confirmed } else { vocabulary::check };
    check(name, value.expose()).map_err(explained)?;
    if let Err(weak) = weakness(name, &value) {
        if !args.weak {
            return Err(BadUsage(format!("{weak}, or accept it with --weak")).into());
        }
        print::note(format!("Warning: {weak}."));
    }
    let had_key = store.key_file().is_none_or(Path::exists);
    let grants = (!grants.is_empty()).then_some(grants);
    let info = store.set(name, &value, grants).map_err(explained)?;
    if let (false, Some(path)) = (had_key, store.key_file()) {
        let place = path.display();
        print::note(format!(
            "Created the key `{place}`. Without it the secrets are lost: keep a backup, separate from the data."
        ));
    }
    report(&info, "Saved", as_json);
    Ok(ExitCode::SUCCESS)
}

/// Returns why clients could guess the value. The store rejects values that are not secrets at all.
fn weakness(name: &str, value: &Secret<Zeroizing<String>>) -> Result<(), SecretError> {
    let value = value.expose();
    if value.len() < VALUE_BYTES_MIN { Ok(()) } else { check_strength(name, value) }
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

fn grant(store: &SecretStore, name: &str, grants: Vec<Grant>, as_json: bool) -> Result<ExitCode> {
    let mut info = None;
    for grant in grants {
        info = Some(store.grant(name, grant).map_err(explained)?);
    }
    let info = info.context("no grant was given")?;
    report(&info, "Updated", as_json);
    Ok(ExitCode::SUCCESS)
}

fn remove(store: &SecretStore, name: &str, as_json: bool) -> Result<ExitCode> {
    let info = store.remove(name).map_err(explained)?;
    if as_json {
        print::json(&json!({ "removed": info.name }));
    } else {
        print::line(format!("Removed secret `{}`; it is no longer redacted.", info.name));
    }
    Ok(ExitCode::SUCCESS)
}

fn report(info: &SecretInfo, what: &str, as_json: bool) {
    if as_json {
        print::json(&shown(info));
        return;
    }
    let name = &info.name;
    let places = match info.grants.as_slice() {
        [] => format!("It has no allowed hosts yet: portcullis secrets grant {name} HOST[:FIELD]"),
        grants => format!("Allowed hosts: {}.", words(grants)),
    };
    print::line(format!("{what} secret `{name}`. {places}"));
}

fn list(store: &SecretStore, as_json: bool) -> Result<ExitCode> {
    let secrets = store.list().map_err(explained)?;
    if as_json {
        print::json(&Value::Array(secrets.iter().map(shown).collect()));
        return Ok(ExitCode::SUCCESS);
    }
    let mut rows = vec![["SECRET", "AGE", "ALLOWED HOSTS"].map(str::to_owned).to_vec()];
    for info in &secrets {
        let mut places = if info.grants.is_empty() { "nowhere".to_owned() } else { words(&info.grants) };
        if info.pending {
            places.push_str(" (once its server is trusted)");
        }
        rows.push(vec![info.name.clone(), age(age_secs(info)), places]);
    }
    print::out(print::table(&rows));
    if secrets.is_empty() {
        print::note("No secrets yet. Add one: portcullis secrets set NAME");
    }
    Ok(ExitCode::SUCCESS)
}

fn words(grants: &[Grant]) -> String {
    grants.iter().map(Grant::to_string).collect::<Vec<_>>().join(" ")
}

fn shown(info: &SecretInfo) -> Value {
    let grant = |grant: &Grant| json!({ "host": grant.host(), "field": grant.field() });
    json!({
        "name": info.name,
        "grants": info.grants.iter().map(grant).collect::<Vec<_>>(),
        "created": info.created.to_string(),
        "updated": info.updated.to_string(),
        "age_secs": age_secs(info),
        "pending": info.pending,
    })
}

/// Age of the value.
fn age_secs(info: &SecretInfo) -> u64 {
    let now = SystemClock.since_epoch().as_secs();
    now.saturating_sub(u64::try_from(info.updated.as_second()).unwrap_or(0))
}

fn age(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..86_400 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}
