//! The summary at the end of a job.

use std::{collections::VecDeque, time::Duration};

use elasticrun_core::{
    Job,
    results::{Failure, Outcome, Reason},
};

use elasticrun_protocol::CommitId;

use super::decision::{count, exit_text, millis, signal_text};

/// Lines of the first failure's output that are repeated.
const TAIL: usize = 10;

/// Rounds at the beginning and at the end of a job that the table has.
const FIRST: usize = 3;
const LAST: usize = 27;

/// A started round.
#[derive(Clone, Debug)]
pub(super) struct RoundRow {
    pub(super) round: u64,
    pub(super) size: u32,
    pub(super) survivors: u32,
    pub(super) base: Option<CommitId>,
    pub(super) cause: String,
    pub(super) took: Duration,
    /// Time since the start of the driver.
    pub(super) started_at: Duration,
}

/// The rounds of a job. Of a job with many rounds, only the first and the last are kept.
#[derive(Clone, Debug, Default)]
pub(super) struct Rounds {
    first: Vec<RoundRow>,
    last: VecDeque<RoundRow>,
    /// Rounds between them.
    omitted: usize,
}

impl Rounds {
    /// Adds a round that has started.
    pub(super) fn push(&mut self, row: RoundRow) {
        if self.first.len() < FIRST {
            return self.first.push(row);
        }
        self.last.push_back(row);
        if self.last.len() > LAST {
            self.last.pop_front();
            self.omitted += 1;
        }
    }

    /// Forgets all rounds.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The number of rounds.
    pub(super) fn len(&self) -> usize {
        self.first.len() + self.omitted + self.last.len()
    }

    /// The number of the round that started last.
    pub(super) fn current(&self) -> Option<u64> {
        self.last.back().or(self.first.last()).map(|row| row.round)
    }
}

/// A table of the rounds.
pub(super) fn rounds(rounds: &Rounds, total: Duration) -> Vec<String> {
    if rounds.len() == 0 {
        return Vec::new();
    }
    let mut lines = vec![format!(
        "{} in {:.1} s:",
        count(rounds.len(), "round"),
        total.as_secs_f64()
    )];
    lines.push(format!(
        "{:>6} {:>8} {:>8} {:>10} {:>12} {:>10}  {}",
        "round", "at", "workers", "survivors", "from commit", "formed in", "why"
    ));
    lines.extend(rounds.first.iter().map(row));
    if rounds.omitted > 0 {
        lines.push(format!("   ... {}", count(rounds.omitted, "round")));
    }
    lines.extend(rounds.last.iter().map(row));
    lines
}

fn row(round: &RoundRow) -> String {
    let base = round.base.map_or("-".to_owned(), |base| base.to_string());
    format!(
        "{:>6} {:>8} {:>8} {:>10} {:>12} {:>10}  {}",
        round.round,
        format!("{:.2} s", round.started_at.as_secs_f64()),
        round.size,
        round.survivors,
        base,
        millis(round.took),
        round.cause
    )
}

/// The outcome. The last line states what the exit code means.
pub(crate) fn outcome(outcome: &Outcome, job: &Job) -> Vec<String> {
    let mut lines = Vec::new();
    let first = job.results().named_failure();
    if let Some(failure) = first.filter(|_| *outcome != Outcome::Succeeded) {
        let skipped = failure.tail.len().saturating_sub(TAIL);
        lines.extend(
            failure.tail[skipped..]
                .iter()
                .map(|line| format!("  | {line}")),
        );
    }
    let result = match outcome {
        Outcome::Succeeded => {
            let failures = match job.results().failures() {
                0 => String::new(),
                n => format!(" through {}", count(n as usize, "failure")),
            };
            format!("succeeded{failures}")
        }
        Outcome::WorkerFailed(reason) => match reason {
            Reason::Standard => "failed: a worker failed".into(),
            Reason::AllFailed => "failed: all workers failed by themselves".into(),
            Reason::FailsEverywhere => {
                "failed: workers failed by themselves on every host, and no round left a commit"
                    .into()
            }
            Reason::NoRestartLeft { allowed } => {
                format!("failed: a worker failed and no restart is left (--max-restarts {allowed})")
            }
            Reason::AllHostsOut => "failed: all hosts are out for good".into(),
            Reason::NotAllSucceeded => "failed: some workers succeeded and others did not".into(),
            Reason::ExitTimeout => {
                "failed: not all workers ended within --exit-timeout after the first".into()
            }
        },
        Outcome::TimedOut {
            workers,
            usable,
            needed,
            waited,
        } => {
            let timeout = format!("for {:.0} s (--elastic-timeout)", waited.as_secs_f64());
            if usable < needed {
                let slots = count(*usable as usize, "usable slot");
                format!("failed: {slots}, {needed} needed, {timeout}")
            } else if workers < needed {
                let workers = count(*workers as usize, "worker");
                format!("failed: {workers} at run(), {needed} needed, {timeout}")
            } else {
                format!("failed: no round left a commit {timeout}")
            }
        }
        Outcome::ResetLimit { limit } => {
            format!("failed: one more round would pass --reset-limit {limit}")
        }
        Outcome::DiscoveryFailed { why } => format!("failed: the first discovery failed: {why}"),
        Outcome::NoStateLeft => {
            "failed: no host in reach holds a complete commit".into()
        }
        Outcome::NothingToResume { run: Some(run) } => {
            format!("failed: no durable commit of run {run} can be used (--resume-from {run})")
        }
        Outcome::NothingToResume { run: None } => {
            "failed: no durable commit can be used (--resume-from latest); --resume-from none begins anew".into()
        }
        Outcome::ServersFailed { failures } => {
            match failures {
                1 => "failed: a parameter server failed".to_owned(),
                _ => format!("failed: {failures} parameter servers failed one after the other"),
            }
        }
        Outcome::Stopped { signal } => format!("stopped by {}", signal_text(*signal)),
    };
    let names_failure = !matches!(
        outcome,
        Outcome::Succeeded | Outcome::Stopped { .. } | Outcome::DiscoveryFailed { .. }
    );
    match first.filter(|_| names_failure) {
        Some(failure) => lines.push(format!("{result}; first failure: {}", describe(failure))),
        None => lines.push(result),
    }
    lines
}

fn describe(failure: &Failure) -> String {
    let mut text = format!("host {}", failure.host);
    if let Some(process) = failure.process {
        text += &match process.server_number() {
            Some(number) => format!(", parameter server {number}"),
            None => format!(", local rank {}", process.local_rank),
        };
    }
    if let Some((rank, round)) = failure.member {
        text += &format!(", rank {rank}, round {round}");
    }
    if let Some(exit) = &failure.exit {
        text += &format!(", {}", exit_text(exit));
    }
    if let Some(why) = &failure.why {
        text += &format!(", {why}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(rounds: u64) -> Vec<String> {
        let mut all = Rounds::default();
        for round in 1..=rounds {
            all.push(RoundRow {
                round,
                size: 4,
                survivors: 3,
                base: None,
                cause: "a host joins".into(),
                took: Duration::from_millis(5),
                started_at: Duration::from_secs(round),
            });
        }
        super::rounds(&all, Duration::from_secs(rounds))
    }

    #[test]
    fn a_thousand_rounds_are_thirty_rows() {
        let lines = after(1000);
        assert_eq!(lines.len(), 2 + FIRST + 1 + LAST);
        assert_eq!(lines[0], "1000 rounds in 1000.0 s:");
        assert_eq!(lines[2 + FIRST], "   ... 970 rounds");
        let numbers = |line: &String| line.split_whitespace().next().map(str::to_owned);
        assert_eq!(numbers(&lines[2 + FIRST + 1]), Some("974".into()));
        assert_eq!(lines.last().and_then(numbers), Some("1000".into()));
    }

    #[test]
    fn thirty_rounds_are_all_there() {
        assert_eq!(after(30).len(), 2 + 30);
        assert_eq!(after(0), Vec::<String>::new());
    }
}
