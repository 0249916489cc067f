//! What a plugin's process says for people, as lines of the driver's log: no longer and no more than a log can bear.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// Lines in a second; what is beyond is counted.
const MOST: u32 = 100;
/// Bytes in a line.
const LONGEST: usize = 2000;

/// See the module.
#[derive(Debug)]
pub(super) struct Lines {
    plugin: String,
    /// The beginning of a line on standard output and on standard error.
    begun: [Vec<u8>; 2],
    /// The last lines on standard error, for who asks why it died.
    last: VecDeque<String>,
    since: Instant,
    count: u32,
}

impl Lines {
    pub(super) fn new(plugin: &str) -> Self {
        Self {
            plugin: plugin.to_owned(),
            begun: [Vec::new(), Vec::new()],
            last: VecDeque::new(),
            since: Instant::now(),
            count: 0,
        }
    }

    /// Bytes from standard output (0) or standard error (1).
    pub(super) fn printed(&mut self, place: usize, bytes: &[u8]) {
        for byte in bytes {
            if *byte == b'\n' || self.begun[place].len() == LONGEST {
                self.end_line(place);
            }
            if *byte != b'\n' {
                self.begun[place].push(*byte);
            }
        }
    }

    fn end_line(&mut self, place: usize) {
        let line = clean(&String::from_utf8_lossy(&std::mem::take(
            &mut self.begun[place],
        )));
        if line.is_empty() {
            return;
        }
        let plugin = self.plugin.clone();
        if place == 0 {
            if self.may_say() {
                tracing::warn!(%plugin, "printed to standard output: {line}");
            }
            return;
        }
        if self.may_say() {
            tracing::info!(%plugin, "{line}");
        }
        if !of_trace(&line) {
            self.last.push_back(line);
        }
        if self.last.len() > 8 {
            self.last.pop_front();
        }
    }

    /// A line that the plugin logged.
    pub(super) fn logged(&mut self, level: &str, text: &str) {
        if !self.may_say() {
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

    /// What it said last on standard error, if it said anything that tells why it ended.
    pub(super) fn last_words(&mut self) -> Option<String> {
        self.end_line(1);
        Some(self.last.back()?.chars().take(300).collect())
    }

    fn may_say(&mut self) -> bool {
        if self.since.elapsed() >= Duration::from_secs(1) {
            if let Some(more) = self.count.checked_sub(MOST).filter(|more| *more > 0) {
                tracing::warn!(plugin = %self.plugin, "{more} more lines that are not shown");
            }
            (self.since, self.count) = (Instant::now(), 0);
        }
        self.count += 1;
        self.count <= MOST
    }
}

/// A line of a trace or of how to get one; what stands above it says more.
fn of_trace(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("note: ")
        || line.starts_with("at ")
        || line.starts_with("stack backtrace")
        || line.starts_with("thread ") && line.ends_with(':')
        || line.starts_with(|first: char| first.is_ascii_digit())
}

fn clean(text: &str) -> String {
    let short: String = text.trim_end().chars().take(LONGEST).collect();
    short.replace(char::is_control, " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_words_are_what_tells_most() {
        let mut lines = Lines::new("p");
        assert_eq!(lines.last_words(), None);
        lines.printed(
            1,
            b"fatal: no such thing\nnote: run with RUST_BACKTRACE=1\n  0: main\n",
        );
        assert_eq!(lines.last_words().as_deref(), Some("fatal: no such thing"));
        lines.printed(1, b"and no newline");
        lines.printed(0, b"on stdout\n");
        assert_eq!(lines.last_words().as_deref(), Some("and no newline"));
    }

    #[test]
    fn a_line_has_an_end_and_a_log_a_measure() {
        let mut lines = Lines::new("p");
        lines.printed(1, &[b'x'; 3 * LONGEST]);
        assert_eq!(lines.last.len(), 2);
        assert!(lines.last.iter().all(|line| line.len() == LONGEST));
        let said = (0..300).filter(|_| lines.may_say()).count();
        assert!(said < MOST as usize, "{said}");
    }
}
