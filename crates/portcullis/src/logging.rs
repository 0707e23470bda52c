//! Logs: on standard error, as text or as JSON.
//!
//! The text form is `DEBUG mcp: received request method=tools/list id=1`. It carries no time, because what
//! collects logs adds one; the JSON form does. Every event is one line, without secrets, whatever is in it.

use crate::config::{Level, LogFormat, Logging};
use crate::voice;
use std::io::{self, Write};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, reload};

/// Changes the level of a running hub's logs.
#[derive(Clone)]
pub(crate) struct LogLevel(Option<reload::Handle<LevelFilter, Registry>>);

fn filter(level: Level) -> LevelFilter {
    match level {
        Level::Error => LevelFilter::ERROR,
        Level::Warn => LevelFilter::WARN,
        Level::Info => LevelFilter::INFO,
        Level::Debug => LevelFilter::DEBUG,
        Level::Trace => LevelFilter::TRACE,
    }
}

/// Starts logging. Where someone else logs already, nothing changes.
pub(crate) fn start(logging: Logging) -> LogLevel {
    let (level, handle) = reload::Layer::new(filter(logging.level));
    let lines = tracing_subscriber::fmt::layer().with_writer(Lines(logging.format));
    let lines = match logging.format {
        LogFormat::Text => lines.without_time().with_ansi(false).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    match tracing_subscriber::registry().with(level).with(lines).try_init() {
        Ok(()) => LogLevel(Some(handle)),
        Err(_) => LogLevel(None),
    }
}

impl LogLevel {
    pub(crate) fn set(&self, level: Level) {
        if let Some(handle) = &self.0 {
            // Fails only where logging has ended.
            let _ = handle.reload(filter(level));
        }
    }
}

/// Writes events as lines.
struct Lines(LogFormat);

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line(self.0)
    }
}

/// Writes one event, which comes in one piece.
struct Line(LogFormat);

impl Write for Line {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let line = voice::log_line(&String::from_utf8_lossy(event), self.0);
        io::stderr().lock().write_all(line.as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}
