//! What goes to standard output. Logs and questions go to standard error. Nothing else writes to either, and all of it
//! passes [`voice`], which leaves no secret in it; of what is configured, it masks nothing that `private` has not masked.

use crate::commands::unless_told;
use crate::voice;
use anyhow::Result;
use serde_json::Value;
use std::io::{IsTerminal, Write};
use std::ops::ControlFlow;

/// Prints text. A reader that has gone away is no fault.
pub(crate) fn out(text: impl AsRef<str>) {
    let _ = write(&voice::text(text.as_ref()));
}

pub(crate) fn line(text: impl AsRef<str>) {
    let _ = write(&format!("{}\n", voice::text(text.as_ref())));
}

pub(crate) fn json(value: &Value) {
    let _ = write(&format!("{}\n", voice::value(value)));
}

/// Prints how servers are configured, as it is.
pub(crate) fn configured(text: impl AsRef<str>) {
    let _ = write(&voice::configured_text(text.as_ref()));
}

/// The same, for programs.
pub(crate) fn configured_json(value: &Value) {
    let _ = write(&format!("{}\n", voice::configured_value(value)));
}

/// Says to the person how a server is configured, as it is.
pub(crate) fn configured_note(text: impl AsRef<str>) {
    say(&format!("{}\n", voice::configured_text(text.as_ref())));
}

/// Prints text with the one thing in it that is shown now and never again.
pub(crate) fn out_showing(text: impl AsRef<str>, token: &str) {
    let _ = write(&voice::text_showing(text.as_ref(), token));
}

/// Prints an object with what someone just asked for, such as the token of a client, each by its key.
pub(crate) fn json_showing(value: &Value, shown: &[(&str, Option<&str>)]) {
    let _ = write(&format!("{}\n", voice::value_showing(value, shown)));
}

/// Prints one of many lines. Breaks when nobody reads any more.
pub(crate) fn row(text: &str) -> ControlFlow<()> {
    write(&format!("{}\n", voice::text(text)))
}

/// Prints one of many lines of JSON, as it came from a file. Breaks when nobody reads any more.
pub(crate) fn json_row(line: &str) -> ControlFlow<()> {
    write(&format!("{}\n", voice::json_line(line)))
}

fn write(text: &str) -> ControlFlow<()> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => ControlFlow::Continue(()),
        Err(_) => ControlFlow::Break(()),
    }
}

/// Says something to the person, not to the program that reads the output.
pub(crate) fn note(text: impl AsRef<str>) {
    say(&format!("{}\n", voice::text(text.as_ref())));
}

/// Says something with a token in it that was just made.
pub(crate) fn note_showing(text: impl AsRef<str>, token: &str) {
    say(&format!("{}\n", voice::text_showing(text.as_ref(), token)));
}

/// Says on one line, for programs, what went wrong.
pub(crate) fn note_json(value: &Value) {
    say(&format!("{}\n", voice::json_line(&value.to_string())));
}

fn say(text: &str) {
    let mut stderr = std::io::stderr().lock();
    let _ = stderr.write_all(text.as_bytes());
    let _ = stderr.flush();
}

/// Returns whether there is no person at the other end.
pub(crate) fn nobody_to_ask() -> bool {
    !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal()
}

/// Asks a yes-or-no question, if there is someone to ask. Fails where the process is told to end instead.
pub(crate) fn confirm(question: &str) -> Result<Option<bool>> {
    if nobody_to_ask() {
        return Ok(None);
    }
    say(&format!("{} [y/N] ", voice::text(question)));
    let read = || {
        let mut answer = String::new();
        std::io::stdin().read_line(&mut answer).map(|_| answer)
    };
    let answer = unless_told(read)?;
    Ok(answer.ok().map(|answer| matches!(answer.trim(), "y" | "Y" | "yes")))
}

/// Sets rows in columns, the first row as the heading.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}
