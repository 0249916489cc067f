//! The summary at the end of a job.

use std::time::Duration;

use elasticrun_core::{
    Job,
    results::{Failure, Outcome, Reason},
};

use super::{
    RoundRow,
    decision::{count, millis},
};

/// Lines of the first failure's output that are repeated.
const TAIL: usize = 10;

/// A table of the rounds.
pub(super) fn rounds(rounds: &[RoundRow], total: Duration) -> Vec<String> {
    if rounds.is_empty() {
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
    for round in rounds {
        let base = round.base.map_or("-".to_owned(), |base| base.to_string());
        lines.push(format!(
            "{:>6} {:>8} {:>8} {:>10} {:>12} {:>10}  {}",
            round.round,
            format!("{:.2} s", round.started_at.as_secs_f64()),
            round.size,
            round.survivors,
            base,
            millis(round.took),
            round.cause
        ));
    }
    lines
}

/// The outcome. The last line states what the exit code means.
pub(super) fn outcome(outcome: &Outcome, job: &Job) -> Vec<String> {
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
            "failed: no worker survived and nobody holds a committed state".into()
        }
        Outcome::Stopped { signal } => format!("stopped by signal {signal}"),
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
        text += &format!(", local rank {}", process.local_rank);
    }
    if let Some((rank, round)) = failure.member {
        text += &format!(", rank {rank}, round {round}");
    }
    if let Some(exit) = &failure.exit {
        text += &format!(", {exit}");
    }
    if let Some(why) = &failure.why {
        text += &format!(", {why}");
    }
    text
}
