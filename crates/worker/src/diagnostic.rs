//! Script errors, with position and source excerpt, for the author of the script.

use portcullis_script::ScriptDiagnostic;
use std::any::Any;

/// Lines around the position, and the length of a line.
const LINES_AROUND: usize = 1;
const LINE_CHARS_MAX: usize = 160;
const MESSAGE_CHARS_MAX: usize = 2_000;

/// Whether the interpreter, its allocator or an impossible size reported it.
const NO_MEMORY: &str = "the script exceeds its memory limit";

/// Returns the script error for a panic of the interpreter.
pub(crate) fn of_panic(panic: &(dyn Any + Send)) -> ScriptDiagnostic {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or_default();
    plain(match text.contains("out of memory") || text.contains("capacity overflow") {
        true => NO_MEMORY,
        false => "the script exceeds a limit of the interpreter",
    })
}

pub(crate) fn plain(message: impl Into<String>) -> ScriptDiagnostic {
    ScriptDiagnostic {
        message: cut(&message.into(), MESSAGE_CHARS_MAX),
        line: None,
        column: None,
        excerpt: None,
        code: None,
    }
}

pub(crate) fn of(error: &starlark::Error, source: &str, code: Option<String>) -> ScriptDiagnostic {
    let message = match error.without_diagnostic().to_string() {
        // The position in this error may be wrong, so it is left out.
        text if text.starts_with("Heap memory limit") => return plain(NO_MEMORY),
        text => cut(&text, MESSAGE_CHARS_MAX),
    };
    let place = error.span().map(|span| span.resolve_span().begin);
    let (line, column) = (place.map(|at| at.line + 1), place.map(|at| at.column + 1));
    let excerpt = place.map(|at| excerpt(source, at.line, at.column));
    ScriptDiagnostic { message, line, column, excerpt, code }
}

/// Returns the lines around a position, with a marker under it.
fn excerpt(source: &str, line: usize, column: usize) -> String {
    let first = line.saturating_sub(LINES_AROUND);
    let mut text = String::new();
    for (at, shown) in source.lines().enumerate().skip(first).take(line - first + 1 + LINES_AROUND) {
        let number = format!("{:>4} | ", at + 1);
        text.push_str(&format!("{number}{}\n", cut(shown, LINE_CHARS_MAX)));
        if at == line && column < LINE_CHARS_MAX {
            text.push_str(&format!("{}^\n", " ".repeat(number.len() + column)));
        }
    }
    text.truncate(text.trim_end().len());
    text
}

fn cut(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
