//! The log of the driver and of an agent, on standard error: `--log-level`, `--log-format`.
//!
//! The reporter prints in plain lines what an operator acts on. The log holds the details. A record shows the spans that it
//! belongs to, at every level: `job`, then `round` in the main loop, or `host` in the tasks of a connection and a launch. Records
//! of agents add `round`, `host` and `worker` (`launch/agent_log.rs`).

use std::io::{self, IsTerminal, Write};

use tracing_subscriber::filter::LevelFilter;

use crate::{
    config::{LogFormat, LogLevel, Output},
    report::Terminal,
};

/// Starts the log. A second call changes nothing.
pub(crate) fn start(output: &Output, terminal: Terminal) {
    let log = tracing_subscriber::fmt()
        .with_max_level(filter(output.log_level))
        .with_writer(terminal)
        .with_ansi(io::stderr().is_terminal())
        .with_target(false);
    let started = match output.log_format {
        LogFormat::Text => log.try_init(),
        LogFormat::Json => (log.json().flatten_event(true))
            .with_current_span(false)
            .try_init(),
    };
    drop(started);
}

/// Starts the log of an agent.
pub(crate) fn start_agent(level: LogLevel, format: LogFormat) {
    let log = tracing_subscriber::fmt()
        .with_max_level(filter(level))
        .with_writer(|| BestEffortStderr)
        .with_target(false);
    let started = match format {
        LogFormat::Text => (log.with_ansi(io::stderr().is_terminal()))
            .without_time()
            .try_init(),
        LogFormat::Json => (log.json().flatten_event(true))
            .with_current_span(false)
            .try_init(),
    };
    drop(started);
}

fn filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}

/// Standard error that drops what cannot be written. With [`io::Stderr`] the log would panic if its reader is gone.
pub(crate) struct BestEffortStderr;

impl Write for BestEffortStderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = io::stderr().lock().write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
