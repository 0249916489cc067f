//! Output and log lines of a plugin's process, as lines of the driver's log. Length and rate are limited. The limit of the
//! rate falls while a plugin exceeds it, so that a plugin that never stops cannot fill the disk.

use std::{collections::VecDeque, time::Instant};

use elasticrun_plugin_sdk::text::is_invisible;

use super::log_rate::LogRate;

/// Length limit of a line, in bytes.
const MAX_LENGTH: usize = 2000;

/// The log lines of one plugin.
#[derive(Debug)]
pub(super) struct Lines {
    plugin: String,
    /// Incomplete lines on standard output and on standard error.
    partial: [Vec<u8>; 2],
    /// The last lines on standard error, for the cause of its end.
    last: VecDeque<String>,
    rate: LogRate,
}

impl Lines {
    pub(super) fn new(plugin: &str) -> Self {
        Self {
            plugin: plugin.to_owned(),
            partial: [Vec::new(), Vec::new()],
            last: VecDeque::new(),
            rate: LogRate::new(Instant::now()),
        }
    }

    /// Bytes from standard output (0) or standard error (1).
    pub(super) fn printed(&mut self, stream: usize, bytes: &[u8]) {
        for byte in bytes {
            if *byte == b'\n' || self.partial[stream].len() == MAX_LENGTH {
                self.end_line(stream);
            }
            if *byte != b'\n' {
                self.partial[stream].push(*byte);
            }
        }
    }

    fn end_line(&mut self, stream: usize) {
        let line = clean(&String::from_utf8_lossy(&std::mem::take(
            &mut self.partial[stream],
        )));
        if line.is_empty() {
            return;
        }
        let plugin = self.plugin.clone();
        if stream == 0 {
            if self.may_log() {
                tracing::warn!(%plugin, "printed to standard output: {line}");
            }
            return;
        }
        if self.may_log() {
            tracing::info!(%plugin, "{line}");
        }
        if !is_backtrace(&line) {
            self.last.push_back(line);
        }
        if self.last.len() > 8 {
            self.last.pop_front();
        }
    }

    /// Logs a line of the plugin's log.
    pub(super) fn logged(&mut self, level: &str, text: &str) {
        if !self.may_log() {
            return;
        }
        let plugin = &self.plugin;
        let line = clean(text);
        match level {
            "error" => tracing::error!(%plugin, "{line}"),
            "warn" => tracing::warn!(%plugin, "{line}"),
            "debug" => tracing::debug!(%plugin, "{line}"),
            "trace" => tracing::trace!(%plugin, "{line}"),
            _ => tracing::info!(%plugin, "{line}"),
        }
    }

    /// The last informative line on standard error.
    pub(super) fn last_line(&mut self) -> Option<String> {
        self.end_line(1);
        Some(self.last.back()?.chars().take(300).collect())
    }

    fn may_log(&mut self) -> bool {
        let now = Instant::now();
        if let Some(hidden) = self.rate.next_window(now) {
            tracing::warn!(plugin = %self.plugin, "{hidden} more lines that are not shown");
        }
        self.rate.take()
    }
}

/// Whether a line belongs to a backtrace or a hint about one. The line above it says more.
fn is_backtrace(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("note: ")
        || line.starts_with("at ")
        || line.starts_with("stack backtrace")
        || line.starts_with("thread ") && line.ends_with(':')
        || line.starts_with(|first: char| first.is_ascii_digit())
}

fn clean(text: &str) -> String {
    let short: String = text.trim_end().chars().take(MAX_LENGTH).collect();
    short.replace(is_invisible, " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_is_informative() {
        let mut lines = Lines::new("p");
        assert_eq!(lines.last_line(), None);
        lines.printed(
            1,
            b"fatal: no such thing\nnote: run with RUST_BACKTRACE=1\n  0: main\n",
        );
        assert_eq!(lines.last_line().as_deref(), Some("fatal: no such thing"));
        lines.printed(1, b"and no newline");
        lines.printed(0, b"on stdout\n");
        assert_eq!(lines.last_line().as_deref(), Some("and no newline"));
    }

    #[test]
    fn length_is_limited() {
        let mut lines = Lines::new("p");
        lines.printed(1, &[b'x'; 3 * MAX_LENGTH]);
        assert_eq!(lines.last.len(), 2);
        assert!(lines.last.iter().all(|line| line.len() == MAX_LENGTH));
    }
}
