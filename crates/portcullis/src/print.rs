//! What goes to standard output. Logs and questions go to standard error.

use serde_json::Value;
use std::io::{IsTerminal, Write};

/// Prints text. A reader that has gone away is no fault.
pub(crate) fn out(text: impl AsRef<str>) {
    let mut stdout = std::io::stdout().lock();
    let _ = stdout.write_all(text.as_ref().as_bytes());
    let _ = stdout.flush();
}

pub(crate) fn line(text: impl AsRef<str>) {
    out(format!("{}\n", text.as_ref()));
}

pub(crate) fn json(value: &Value) {
    out(format!("{value:#}\n"));
}

/// Says something to the person, not to the program that reads the output.
pub(crate) fn note(text: impl AsRef<str>) {
    let mut stderr = std::io::stderr().lock();
    let _ = writeln!(stderr, "{}", text.as_ref());
}

/// Asks a yes-or-no question, if there is someone to ask.
pub(crate) fn confirm(question: &str) -> Option<bool> {
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return None;
    }
    let mut stderr = std::io::stderr().lock();
    let _ = write!(stderr, "{question} [y/N] ");
    let _ = stderr.flush();
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).ok()?;
    Some(matches!(answer.trim(), "y" | "Y" | "yes"))
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
