//! The log of the driver, on standard error: `--log-level`, `--log-format`.
//!
//! What an operator acts on is told by the reporter in plain lines; the log is for who looks closer.

use std::io;

use tracing_subscriber::filter::LevelFilter;

use crate::config::{LogFormat, LogLevel, Output};

/// Begins to log. A second call changes nothing.
pub fn start(output: &Output) {
    let level = match output.log_level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let log = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(io::stderr)
        .with_target(false);
    let begun = match output.log_format {
        LogFormat::Text => log.try_init(),
        LogFormat::Json => log.json().try_init(),
    };
    drop(begun);
}
