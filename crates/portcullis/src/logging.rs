//! Logs: on standard error, as text or as JSON.
//!
//! The text form is `DEBUG mcp: received request method=tools/list id=1`. It carries no time, because what
//! collects logs adds one; the JSON form does.

use crate::config::{Level, LogFormat, Logging};
use tracing_subscriber::filter::LevelFilter;
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
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
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
