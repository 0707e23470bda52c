//! What is wrong in a script, for the one who wrote it.

use portcullis_script::Fault;
use std::any::Any;

/// How many lines are shown around the place, and how much of a line.
const LINES_AROUND: usize = 1;
const LINE_CHARS_MAX: usize = 160;
const MESSAGE_CHARS_MAX: usize = 2_000;

/// However it was noticed: by the language, by its allocator, or by a size that no memory has.
const NO_MEMORY: &str = "the script needs more memory than it may have";

/// Says what a panic of the evaluator means for the one who wrote the script.
pub(crate) fn of_panic(panic: &(dyn Any + Send)) -> Fault {
    let said = panic.downcast_ref::<&str>().copied();
    let said = said.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or_default();
    plain(match said.contains("out of memory") || said.contains("capacity overflow") {
        true => NO_MEMORY,
        false => "the script asks for more than the language can do",
    })
}

pub(crate) fn plain(message: impl Into<String>) -> Fault {
    Fault {
        message: cut(&message.into(), MESSAGE_CHARS_MAX),
        line: None,
        column: None,
        excerpt: None,
        code: None,
    }
}

pub(crate) fn of(error: &starlark::Error, source: &str, code: Option<String>) -> Fault {
    let message = match error.without_diagnostic().to_string() {
        // In its words, the place that it names may be another one.
        said if said.starts_with("Heap memory limit") => return plain(NO_MEMORY),
        said => cut(&said, MESSAGE_CHARS_MAX),
    };
    let place = error.span().map(|span| span.resolve_span().begin);
    let (line, column) = (place.map(|at| at.line + 1), place.map(|at| at.column + 1));
    let excerpt = place.map(|at| excerpt(source, at.line, at.column));
    Fault { message, line, column, excerpt, code }
}

/// Returns the lines around a place, with a mark under it.
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
