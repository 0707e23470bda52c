//! Logs to stderr, as text or JSON.
//!
//! The text form is `2026-11-19T12:00:00.000Z DEBUG mcp: received request method=tools/list id=1`. Under systemd it has no
//! timestamp, because the journal adds one. Every event is one redacted line.

use crate::config::{Level, LogFormat, LoggingSettings};
use crate::home::environment;
use crate::output_redaction::OutputRedaction;
use jiff::Timestamp;
use portcullis_core::{Clock, SystemClock};
use std::fmt;
use std::io::{self, Write};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, reload};

/// Changes the log level at run time.
#[derive(Clone)]
pub struct LogLevelHandle(Option<reload::Handle<LevelFilter, Registry>>);

fn filter(level: Level) -> LevelFilter {
    match level {
        Level::Error => LevelFilter::ERROR,
        Level::Warn => LevelFilter::WARN,
        Level::Info => LevelFilter::INFO,
        Level::Debug => LevelFilter::DEBUG,
        Level::Trace => LevelFilter::TRACE,
    }
}

/// Installs the subscriber, unless one is installed.
pub fn start(logging: LoggingSettings, redaction: &OutputRedaction) -> LogLevelHandle {
    let (level, handle) = reload::Layer::new(filter(logging.level));
    let writer = LogWriterFactory { redaction: redaction.clone(), format: logging.format };
    let lines = tracing_subscriber::fmt::layer().with_writer(writer);
    let lines = match logging.format {
        LogFormat::Text if is_journal() => lines.without_time().with_ansi(false).boxed(),
        LogFormat::Text => lines.with_timer(LogTime).with_ansi(false).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    match tracing_subscriber::registry().with(level).with(lines).try_init() {
        Ok(()) => LogLevelHandle(Some(handle)),
        Err(_) => LogLevelHandle(None),
    }
}

/// Returns whether stderr is the journal's, as systemd says.
fn is_journal() -> bool {
    environment("JOURNAL_STREAM").is_some_and(|stream| !stream.is_empty())
}

/// UTC, to the millisecond, like the times of the audit log.
struct LogTime;

impl FormatTime for LogTime {
    fn format_time(&self, writer: &mut Writer<'_>) -> fmt::Result {
        let now = Timestamp::try_from(SystemClock.now()).unwrap_or_default();
        write!(writer, "{now:.3}")
    }
}

impl LogLevelHandle {
    pub fn set(&self, level: Level) {
        if let Some(handle) = &self.0 {
            // Fails only after logging has ended.
            let _ = handle.reload(filter(level));
        }
    }
}

/// Writes events as lines.
struct LogWriterFactory {
    redaction: OutputRedaction,
    format: LogFormat,
}

impl<'a> MakeWriter<'a> for LogWriterFactory {
    type Writer = LogLineWriter<'a>;

    fn make_writer(&'a self) -> LogLineWriter<'a> {
        LogLineWriter(self)
    }
}

/// Writes one event, which arrives in one write.
struct LogLineWriter<'a>(&'a LogWriterFactory);

impl Write for LogLineWriter<'_> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let line = self.0.redaction.log_line(&String::from_utf8_lossy(event), self.0.format);
        io::stderr().lock().write_all(line.as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}
