//! Property: any configuration file is loaded or refused with readable errors.

use crate::{PropertyResult, hold};
use portcullis::config::{Config, ConfigErrors};
use std::path::Path;

pub const WORDS: &[&str] = &[
    "[http]\n",
    "listen = ",
    "[[policy]]\n",
    "tools = [\"*\"]\n",
    "decision = \"ask\"\n",
    "[limits]\n",
    "[rate_limit]\n",
    "burst = ",
    "[workspace]\n",
    "path = ",
    "enabled = ",
    "true",
    "\"\"\"",
    "'''",
    "0x",
    "1e400",
    "-1",
    "9223372036854775808",
    "\u{feff}",
    "\u{202e}",
    "policy:\n  - tools: [a]\n",
    "&a",
    "*a",
    "<<: ",
    "{\"http\": {}}",
    "\t",
    "\r\n",
    "= =",
    "[a.b.c]\n",
    "1979-05-27",
    "inf",
    "[",
];
/// The first byte selects the file name.
const NAMES: [&str; 3] = ["portcullis.toml", "portcullis.yaml", "portcullis.json"];
/// Bound on all errors together, so that a person reads them.
const MESSAGE_BYTES_MAX: usize = 100 * 2048;

/// Loads a configuration from a folder. The system under test; tests substitute a weak one.
pub type LoadConfigFn = fn(&Path) -> Result<Config, ConfigErrors>;

pub fn check(input: &[u8]) -> PropertyResult {
    check_with(input, |home| Config::load(home, &|_| None).map(|loaded| loaded.config))
}

pub fn check_with(input: &[u8], load: LoadConfigFn) -> PropertyResult {
    let (first, text) = input.split_first().unwrap_or((&0, &[]));
    let name = NAMES[usize::from(first % 3)];
    // In memory if possible: it is written for every input.
    let memory = Path::new("/dev/shm");
    let home = tempfile::tempdir_in(memory).or_else(|_| tempfile::tempdir());
    let written = home.and_then(|home| std::fs::write(home.path().join(name), text).map(|()| home));
    let Ok(home) = written else { return Err("the file cannot be written".to_owned()) };
    match load(home.path()) {
        Ok(config) => {
            let again = load(home.path());
            let same = again.as_ref().is_ok_and(|again| format!("{again:?}") == format!("{config:?}"));
            hold!(same, "the same file means something else: {again:?}");
            hold!(config.diff_needs_restart(&config).is_empty(), "a configuration differs from itself");
        }
        Err(errors) => check_problems(&errors, text, name)?,
    }
    Ok(())
}

fn check_problems(errors: &ConfigErrors, text: &[u8], name: &str) -> PropertyResult {
    let message = errors.to_string();
    hold!(!errors.problems.is_empty() && errors.problems.len() <= 100, "{} problems", errors.problems.len());
    hold!(message.len() <= MESSAGE_BYTES_MAX, "the errors have {} bytes", message.len());
    // An error may be on the line after a final line break. YAML also counts the line breaks of old editors.
    let next = text.iter().skip(1).chain(&[0]);
    let lone = text.iter().zip(next).filter(|(byte, next)| **byte == b'\r' && **next != b'\n').count();
    let lines = 1 + lone + text.iter().filter(|byte| **byte == b'\n').count();
    for problem in &errors.problems {
        hold!(problem.place == name, "an error of `{}` is reported for `{name}`", problem.place);
        let line = problem.line.unwrap_or(1);
        hold!((1..=lines).contains(&line), "line {line} is reported, but the file has {lines}: {problem}");
        let odd =
            problem.text.chars().find(|c| c.is_control() || portcullis_core::hidden_chars::is_invisible(*c));
        hold!(odd.is_none(), "a problem holds {odd:?}: {:?}", problem.text);
        hold!(!problem.text.trim().is_empty(), "a problem without words");
    }
    Ok(())
}
