//! Lines that repeat: many hosts that fail for the same reason are a few lines and a number, not a line each.
//!
//! - Lines are of one kind if they differ only in the name of their host, and in the ranks of a worker. The first [`SHOWN`] lines of a kind are shown, and
//!   further ones are counted.
//! - A count is shown when the window of its kind ends: [`FIRST_WINDOW`] after the first line, later every [`WINDOW`].
//! - A kind without a further line in its window is forgotten, so its next line is shown.
//! - Of lines that tell a state, such as the number of usable hosts, the last one is shown in place of a count.
//!
//! Pure: the caller passes the time since the start of the driver, and calls [`Repeats::due`] from time to time.

use std::{collections::BTreeMap, time::Duration};

/// Lines of a kind that are shown before further ones are counted.
const SHOWN: usize = 5;

/// Hosts that the line of a count names.
const NAMED: usize = 3;

/// From the first line of a kind to the first count.
const FIRST_WINDOW: Duration = Duration::from_secs(1);

/// From one count of a kind to the next.
const WINDOW: Duration = Duration::from_secs(10);

/// What lines of a kind have in common.
#[derive(Clone, Copy, Debug)]
pub(super) enum Repeat<'a> {
    /// All but the name of a host.
    Host(&'a str),
    /// All but the name of a host, and what is in brackets: the ranks of a worker.
    Worker(&'a str),
    /// They tell the state of this, which the last line replaces.
    State(&'static str),
}

/// The kinds of recent lines.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    kinds: BTreeMap<String, Kind>,
}

#[derive(Debug)]
struct Kind {
    /// End of the window.
    until: Duration,
    shown: usize,
    /// Lines of this window that were not shown.
    more: usize,
    /// The first hosts of these lines.
    hosts: Vec<String>,
    /// The last of these lines, if they tell a state.
    last: Option<String>,
}

impl Repeats {
    /// Whether to show a line. Otherwise it is counted.
    pub(super) fn shows(&mut self, now: Duration, repeat: Repeat<'_>, line: &str) -> bool {
        let key = match repeat {
            Repeat::Host(host) => without_host(line, host),
            Repeat::Worker(host) => without_ranks(&without_host(line, host)),
            Repeat::State(state) => state.to_owned(),
        };
        let kind = self.kinds.entry(key).or_insert_with(|| Kind {
            until: now + FIRST_WINDOW,
            shown: 0,
            more: 0,
            hosts: Vec::new(),
            last: None,
        });
        if kind.shown < SHOWN {
            kind.shown += 1;
            return true;
        }
        kind.more += 1;
        match repeat {
            Repeat::Host(host) | Repeat::Worker(host) if kind.hosts.len() < NAMED => {
                kind.hosts.push(host.to_owned());
            }
            Repeat::Host(_) | Repeat::Worker(_) => {}
            Repeat::State(_) => kind.last = Some(line.to_owned()),
        }
        false
    }

    /// The lines of all counts that are due.
    pub(super) fn due(&mut self, now: Duration) -> Vec<String> {
        let mut lines = Vec::new();
        self.kinds.retain(|key, kind| {
            if now < kind.until {
                return true;
            }
            lines.extend(kind.take(key));
            let goes_on = kind.more > 0;
            (kind.more, kind.until) = (0, now + WINDOW);
            goes_on
        });
        lines
    }

    /// The lines of all counts, whether they are due or not.
    pub(super) fn finish(&mut self) -> Vec<String> {
        let kinds = std::mem::take(&mut self.kinds);
        let lines = kinds.into_iter();
        lines
            .filter_map(|(key, mut kind)| kind.take(&key))
            .collect()
    }
}

impl Kind {
    /// The line of what was counted, if any was.
    fn take(&mut self, key: &str) -> Option<String> {
        if self.more == 0 {
            return None;
        }
        let hosts = std::mem::take(&mut self.hosts);
        let unnamed = if self.more > hosts.len() { ", ..." } else { "" };
        let count = || format!("{key} ({} more: {}{unnamed})", self.more, hosts.join(", "));
        Some(self.last.take().unwrap_or_else(count))
    }
}

/// The line without the first brackets and what they hold.
fn without_ranks(line: &str) -> String {
    match line.split_once(" (") {
        Some((before, rest)) => {
            let after = rest.split_once(')').map_or("", |(_, after)| after);
            format!("{before}{after}")
        }
        None => line.to_owned(),
    }
}

/// The line with `*` in place of the name, wherever that is a word of its own.
fn without_host(line: &str, host: &str) -> String {
    let is_of_name = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    let mut masked = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find(host).filter(|_| !host.is_empty()) {
        let (before, after) = (&rest[..at], &rest[at + host.len()..]);
        masked.push_str(before);
        let begins = masked.chars().next_back().is_none_or(|c| !is_of_name(c));
        let ends = after.chars().next().is_none_or(|c| !is_of_name(c));
        masked.push_str(if begins && ends { "*" } else { host });
        rest = after;
    }
    masked + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Reports that hosts of these numbers failed. Returns how many lines are shown.
    fn fail(repeats: &mut Repeats, now: Duration, hosts: std::ops::Range<u32>, why: &str) -> usize {
        let mut shown = 0;
        for number in hosts {
            let host = format!("h{number}");
            let line = format!("host {host} failed: {why}");
            shown += usize::from(repeats.shows(now, Repeat::Host(&host), &line));
        }
        shown
    }

    #[test]
    fn many_workers_are_a_few_lines_and_a_number() {
        let mut repeats = Repeats::default();
        let shown = (0..1000).filter(|rank| {
            let host = format!("h{}", rank / 8);
            let place = format!("local rank {}, rank {rank} of round 5", rank % 8);
            let line = format!("worker failed on {host} ({place}): exit code 1");
            repeats.shows(at(0), Repeat::Worker(&host), &line)
        });
        assert_eq!(shown.count(), 5);
        let due = repeats.due(at(1));
        let counted = "worker failed on *: exit code 1 (995 more: h0, h0, h0, ...)";
        assert_eq!(due, [counted]);
    }

    #[test]
    fn many_hosts_are_a_few_lines_and_a_number() {
        let mut repeats = Repeats::default();
        assert_eq!(fail(&mut repeats, at(0), 0..1500, "gone"), 5);
        assert_eq!(fail(&mut repeats, at(0), 0..4, "silent"), 4);
        let due = repeats.due(at(1));
        assert_eq!(due, ["host * failed: gone (1495 more: h5, h6, h7, ...)"]);
        assert!(repeats.finish().is_empty());
    }

    #[test]
    fn while_they_go_on_there_is_a_number_every_ten_seconds() {
        let mut repeats = Repeats::default();
        fail(&mut repeats, at(0), 0..6, "gone");
        assert!(repeats.due(Duration::from_millis(999)).is_empty());
        assert_eq!(repeats.due(at(1)), ["host * failed: gone (1 more: h5)"]);
        assert_eq!(fail(&mut repeats, at(2), 6..9, "gone"), 0);
        assert!(repeats.due(at(10)).is_empty());
        let due = repeats.due(at(11));
        assert_eq!(due, ["host * failed: gone (3 more: h6, h7, h8)"]);
        assert!(repeats.due(at(21)).is_empty());
        assert_eq!(fail(&mut repeats, at(22), 9..10, "gone"), 1, "forgotten");
    }

    #[test]
    fn of_a_state_the_last_line_is_shown() {
        let mut repeats = Repeats::default();
        let state = Repeat::State("hosts");
        let shown = (1..=9).filter(|n| repeats.shows(at(0), state, &format!("{n} hosts")));
        assert_eq!(shown.count(), 5);
        assert_eq!(repeats.due(at(1)), ["9 hosts"]);
        assert!(!repeats.shows(at(2), state, "8 hosts"));
        assert_eq!(repeats.finish(), ["8 hosts"]);
    }

    #[test]
    fn a_name_is_masked_as_a_word_only() {
        let line = "host a failed: ssh to a: a-b has a.c, a";
        let masked = "host * failed: ssh to *: a-b has a.c, *";
        assert_eq!(without_host(line, "a"), masked);
        assert_eq!(without_host("::1 failed", "::1"), "* failed");
        assert_eq!(without_host("x", ""), "x");
    }
}
