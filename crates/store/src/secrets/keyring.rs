//! The key in the desktop's keyring, through `secret-tool`.
//!
//! A library for the Secret Service brings its own D-Bus, some forty packages for a place where servers have
//! no key. The program comes with libsecret, which every keyring has. The hub runs it only if
//! `PORTCULLIS_KEY` says so: a locked keyring prompts its owner in a window, and a start must not block on
//! that by surprise.

use super::SecretError;
use super::key::{KeyCreation, MasterKey};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;
use zeroize::Zeroizing;

pub(super) const PROGRAM: &str = "secret-tool";
const ATTRIBUTES: [&str; 4] = ["application", "portcullis", "purpose", "secrets-key"];
const LABEL: &str = "--label=Portcullis: key of the secret store";
/// A person has to find the window and type a password.
const PROMPT_TIMEOUT: Duration = Duration::from_secs(60);
/// More than a key as hex digits.
const OUTPUT_BYTES_MAX: usize = 1024;

pub(super) fn key(program: &Path, make: KeyCreation) -> Result<MasterKey, SecretError> {
    if let Some(found) = look_up(program)? {
        return Ok(found);
    }
    if make == KeyCreation::Never {
        return Err(SecretError::Locked("the keyring has no key for Portcullis".to_owned()));
    }
    let key = MasterKey::random()?;
    let mut store = Command::new(program);
    store.arg("store").arg(LABEL).args(ATTRIBUTES);
    if !run(store, &key.to_hex())?.0 {
        return Err(SecretError::Locked("the keyring took no key".to_owned()));
    }
    // Read back: a key that was not stored must not encrypt anything. Another process may have been faster,
    // too.
    look_up(program)?.ok_or_else(|| SecretError::Locked("the keyring did not store the key".to_owned()))
}

fn look_up(program: &Path) -> Result<Option<MasterKey>, SecretError> {
    let mut lookup = Command::new(program);
    lookup.arg("lookup").args(ATTRIBUTES);
    let (succeeded, output) = run(lookup, "")?;
    if output.is_empty() && !succeeded {
        return Ok(None);
    }
    let not_ours = || SecretError::Locked("the keyring entry for Portcullis is not a key".to_owned());
    MasterKey::parse(&output).map(Some).ok_or_else(not_ours)
}

/// Returns whether the program succeeded, and its output.
fn run(mut command: Command, input: &str) -> Result<(bool, Zeroizing<Vec<u8>>), SecretError> {
    let failed = |e: std::io::Error| SecretError::Locked(format!("`{PROGRAM}` does not run: {e}"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(failed)?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that does not read its input shows in its exit status.
        let _ = stdin.write_all(input.as_bytes());
    }
    let (sender, receiver) = mpsc::sync_channel(1);
    if let Some(stdout) = child.stdout.take() {
        std::thread::spawn(move || {
            let mut output = Zeroizing::new(Vec::with_capacity(OUTPUT_BYTES_MAX));
            let read = stdout.take(OUTPUT_BYTES_MAX as u64).read_to_end(&mut output);
            let _ = sender.send(read.map(|_| output));
        });
    }
    let output = receiver.recv_timeout(PROMPT_TIMEOUT);
    if output.is_err() {
        let _ = child.kill();
    }
    let status = child.wait().map_err(failed)?;
    match output {
        Ok(output) => Ok((status.success(), output.map_err(failed)?)),
        Err(_) => Err(SecretError::Locked("the keyring did not respond within a minute".to_owned())),
    }
}
