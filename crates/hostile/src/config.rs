//! Configuration files that went wrong.

use crate::{Verdict, hold};
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
/// By the first byte: what the file is called.
const NAMES: [&str; 3] = ["portcullis.toml", "portcullis.yaml", "portcullis.json"];
/// All problems together are less than this, so that a person reads them.
const TOLD_BYTES_MAX: usize = 100 * 2048;

/// Reads a configuration in a folder. What is tested; a weak one can take its place.
pub type Load = fn(&Path) -> Result<Config, ConfigErrors>;

pub fn check(input: &[u8]) -> Verdict {
    check_with(input, |home| Config::load(home, &|_| None).map(|loaded| loaded.config))
}

pub fn check_with(input: &[u8], load: Load) -> Verdict {
    let (first, text) = input.split_first().unwrap_or((&0, &[]));
    let name = NAMES[usize::from(first % 3)];
    // In memory where there is such a place: it is written for every input.
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

fn check_problems(errors: &ConfigErrors, text: &[u8], name: &str) -> Verdict {
    let told = errors.to_string();
    hold!(!errors.problems.is_empty() && errors.problems.len() <= 100, "{} problems", errors.problems.len());
    hold!(told.len() <= TOLD_BYTES_MAX, "the problems have {} bytes", told.len());
    // A file that ends in a line break may lack something on the line after it. YAML counts as old editors did.
    let next = text.iter().skip(1).chain(&[0]);
    let lone = text.iter().zip(next).filter(|(byte, next)| **byte == b'\r' && **next != b'\n').count();
    let lines = 1 + lone + text.iter().filter(|byte| **byte == b'\n').count();
    for problem in &errors.problems {
        hold!(problem.place == name, "a problem of `{}` is told of `{name}`", problem.place);
        let line = problem.line.unwrap_or(1);
        hold!((1..=lines).contains(&line), "line {line} is told, and the file has {lines}: {problem}");
        let odd = problem.text.chars().find(|c| c.is_control() || portcullis_core::text::is_invisible(*c));
        hold!(odd.is_none(), "a problem holds {odd:?}: {:?}", problem.text);
        hold!(!problem.text.trim().is_empty(), "a problem without words");
    }
    Ok(())
}
