//! Output to stdout; notes and prompts go to stderr. Nothing else writes to either. All output is redacted
//! (`portcullis_ops::output_redaction`), except configured values, which `secret_detection` has masked already.

use crate::colour::{self, TextStyle};
use crate::commands::{environment, unless_interrupted};
use anyhow::Result;
use portcullis_ops::output_redaction::{OutputRedaction, configured_text, panic_message};
use serde_json::Value;
use std::io::{IsTerminal, Write};
use std::ops::ControlFlow;
use std::sync::LazyLock;

/// What stdout and stderr of this process may not show. One value, as the process has one stdout and one stderr.
static REDACTION: LazyLock<OutputRedaction> = LazyLock::new(OutputRedaction::default);

pub(crate) fn redaction() -> &'static OutputRedaction {
    &REDACTION
}

/// Installs a panic hook that redacts.
pub(crate) fn install_panic_hook() {
    std::panic::set_hook(Box::new(|panic| {
        let said = panic_message(panic);
        let backtrace = std::backtrace::Backtrace::capture();
        let captured = backtrace.status() == std::backtrace::BacktraceStatus::Captured;
        match (tracing::dispatcher::has_been_set(), captured) {
            (true, false) => tracing::error!(target: "panic", "{said}"),
            (true, true) => tracing::error!(target: "panic", %backtrace, "{said}"),
            (false, false) => note(said),
            (false, true) => note(format!("{said}\n{backtrace}")),
        }
    }));
}

/// Prints text. A closed pipe is no error.
pub(crate) fn out(text: impl AsRef<str>) {
    let _ = write(&redaction().text(text.as_ref()));
}

pub(crate) fn line(text: impl AsRef<str>) {
    let _ = write(&format!("{}\n", redaction().text(text.as_ref())));
}

pub(crate) fn json(value: &Value) {
    let _ = write(&format!("{}\n", redaction().value(value)));
}

/// Prints what a command returns: as JSON, or as a line of text.
pub(crate) fn either(as_json: bool, view: &Value, text: impl AsRef<str>) {
    if as_json { json(view) } else { line(text) }
}

/// Prints server configuration, without redaction.
pub(crate) fn configured(text: impl AsRef<str>) {
    let _ = write(&configured_text(text.as_ref()));
}

/// The same, as JSON.
pub(crate) fn configured_json(value: &Value) {
    let _ = write(&format!("{}\n", redaction().configured_value(value)));
}

/// Prints server configuration to stderr, without redaction.
pub(crate) fn configured_note(text: impl AsRef<str>) {
    say(&format!("{}\n", configured_text(text.as_ref())));
}

/// Prints text with a value that is shown once.
pub(crate) fn out_showing(text: impl AsRef<str>, token: &str) {
    let _ = write(&redaction().text_showing(text.as_ref(), token));
}

/// Prints a JSON object with values that are shown once, such as a new token, by key.
pub(crate) fn json_showing(value: &Value, shown: &[(&str, Option<&str>)]) {
    let _ = write(&format!("{}\n", redaction().value_showing(value, shown)));
}

/// Prints a table with its heading.
pub(crate) fn table_out(rows: &[Vec<String>]) {
    let text = redaction().text(&table(rows));
    let (heading, rest) = text.split_once('\n').unwrap_or((&text, ""));
    let _ = write(&format!("{}\n{rest}", TextStyle::Bold.paint(heading, colours_stdout())));
}

/// Prints a line whose first word is painted.
pub(crate) fn line_with(style: TextStyle, first: &str, text: impl AsRef<str>) {
    let text = redaction().text(text.as_ref());
    let _ = write(&format!("{}\n", style.paint_start(&text, first, colours_stdout())));
}

/// Prints an error to stderr.
pub(crate) fn error(text: &str) {
    let text = redaction().text(&format!("error: {text}"));
    let colours = colour::is_wanted(&environment, std::io::stderr().is_terminal());
    say(&format!("{}\n", TextStyle::Red.paint_start(&text, "error:", colours)));
}

fn colours_stdout() -> bool {
    colour::is_wanted(&environment, std::io::stdout().is_terminal())
}

/// Prints one of many lines. Breaks when the output is closed.
pub(crate) fn row(text: &str) -> ControlFlow<()> {
    write(&format!("{}\n", redaction().text(text)))
}

/// Prints one of many lines of JSON from a file. Breaks when the output is closed.
pub(crate) fn json_row(line: &str) -> ControlFlow<()> {
    write(&format!("{}\n", redaction().json_line(line)))
}

fn write(text: &str) -> ControlFlow<()> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => ControlFlow::Continue(()),
        Err(_) => ControlFlow::Break(()),
    }
}

/// Prints a note to stderr.
pub(crate) fn note(text: impl AsRef<str>) {
    say(&format!("{}\n", redaction().text(text.as_ref())));
}

/// Prints a note with a new token.
pub(crate) fn note_showing(text: impl AsRef<str>, token: &str) {
    say(&format!("{}\n", redaction().text_showing(text.as_ref(), token)));
}

/// Prints an error as one line of JSON.
pub(crate) fn note_json(value: &Value) {
    say(&format!("{}\n", redaction().json_line(&value.to_string())));
}

/// Writes text to stderr that its caller has redacted, with control characters of this program.
pub(crate) fn control(text: &str) {
    say(text);
}

fn say(text: &str) {
    let mut stderr = std::io::stderr().lock();
    let _ = stderr.write_all(text.as_bytes());
    let _ = stderr.flush();
}

/// Returns whether there is a terminal for a prompt.
pub(crate) fn is_interactive() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Asks for confirmation at the terminal, if there is one. Fails on a signal.
pub(crate) fn confirm(question: &str) -> Result<Option<bool>> {
    let answer = ask(&format!("{question} [y/N]"))?;
    Ok(answer.map(|answer| matches!(answer.trim(), "y" | "Y" | "yes")))
}

/// Asks for a line at the terminal, if there is one. Fails on a signal.
pub(crate) fn ask(question: &str) -> Result<Option<String>> {
    if !is_interactive() {
        return Ok(None);
    }
    say(&format!("{} ", redaction().text(question)));
    let read = || {
        let mut answer = String::new();
        std::io::stdin().read_line(&mut answer).map(|_| answer)
    };
    let answer = unless_interrupted(read)?;
    Ok(answer.ok())
}

/// Formats rows as a table, the first row as the heading.
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

/// Formats an age in its largest unit.
pub(crate) fn age(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..86_400 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}
