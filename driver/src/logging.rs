//! The log of the driver, on standard error: `--log-level`, `--log-format`.
//!
//! What an operator acts on is told by the reporter in plain lines; the log is for who looks closer.

use std::io::{self, IsTerminal, Write};

use tracing_subscriber::filter::LevelFilter;

use crate::{
    config::{LogFormat, LogLevel, Output},
    report::Terminal,
};

/// Begins to log. A second call changes nothing.
pub(crate) fn start(output: &Output, terminal: Terminal) {
    let level = match output.log_level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let log = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(terminal)
        .with_ansi(io::stderr().is_terminal())
        .with_target(false);
    let begun = match output.log_format {
        LogFormat::Text => log.try_init(),
        LogFormat::Json => log.json().flatten_event(true).try_init(),
    };
    drop(begun);
}

/// Standard error for the log of a process whose reader may be gone: a log that cannot be written is lost,
/// where [`io::Stderr`] would have its writer panic.
pub(crate) struct Careless;

impl Write for Careless {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = io::stderr().lock().write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
