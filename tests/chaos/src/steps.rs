//! What the workers of a job have committed, by their event log.

use std::collections::{BTreeMap, BTreeSet};

use elasticrun_process_tests::{Event, Kind};

use crate::turn::Window;

/// The length of a part of a run in which the throughput is counted, in nanoseconds.
const PART: u64 = 5_000_000_000;

/// The progress of a job.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Progress {
    /// Committed steps.
    pub(crate) steps: u64,
    /// Steps that were committed in one more round, since that round began with an older commit.
    pub(crate) lost: u64,
    /// Rounds in which steps were committed.
    pub(crate) rounds: u64,
    /// Milliseconds from the first commit of a step to that of the next one.
    pub(crate) gaps: Vec<f64>,
    /// Steps per second in each part.
    pub(crate) throughput: Vec<f64>,
}

impl Progress {
    /// The progress within a window.
    pub(crate) fn between(events: &[Event], window: Window) -> Self {
        let Window { from, to } = window;
        let steps = (events.iter()).filter(|event| event.kind == Kind::Step);
        let mut rounds: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
        let mut first: BTreeMap<u64, u64> = BTreeMap::new();
        for step in steps.filter(|event| (from..to).contains(&event.at)) {
            rounds.entry(step.step).or_default().insert(step.round);
            let earliest = first.entry(step.step).or_insert(step.at);
            *earliest = step.at.min(*earliest);
        }
        let times: Vec<u64> = first.into_values().collect();
        let gap = |pair: &[u64]| pair[1].saturating_sub(pair[0]) as f64 / 1e6;
        let mut parts = vec![0_u64; (to.saturating_sub(from) / PART) as usize];
        for at in &times {
            if let Some(count) = parts.get_mut(((at - from) / PART) as usize) {
                *count += 1;
            }
        }
        let seconds = PART as f64 / 1e9;
        Self {
            steps: rounds.len() as u64,
            lost: rounds.values().map(|rounds| rounds.len() as u64 - 1).sum(),
            rounds: rounds.values().flatten().collect::<BTreeSet<_>>().len() as u64,
            gaps: times.windows(2).map(gap).collect(),
            throughput: parts.iter().map(|count| *count as f64 / seconds).collect(),
        }
    }

    /// Adds the progress of another job of the same kind.
    pub(crate) fn add(&mut self, other: Self) {
        self.steps += other.steps;
        self.lost += other.lost;
        self.rounds += other.rounds;
        self.gaps.extend(other.gaps);
        self.throughput.extend(other.throughput);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(pid: u32, round: u64, step: u64, at: u64) -> Event {
        Event {
            at: at * 1_000_000,
            kind: Kind::Step,
            pid,
            host: "a".into(),
            local_rank: pid,
            generation: 1,
            round,
            rank: pid,
            size: 2,
            step,
            text: String::new(),
        }
    }

    fn between(events: &[Event], from: u64, to: u64) -> Progress {
        let (from, to) = (from * 1_000_000, to * 1_000_000);
        Progress::between(events, Window { from, to })
    }

    #[test]
    fn a_step_that_is_committed_in_two_rounds_was_lost_once() {
        let events = [
            step(1, 1, 1, 10),
            step(2, 1, 1, 11),
            step(1, 1, 2, 20),
            // A worker without that commit joins, and all begin with the older one.
            step(2, 2, 2, 45),
            step(1, 2, 2, 46),
            step(1, 2, 3, 60),
        ];
        let progress = between(&events, 0, 10_000);
        assert_eq!((progress.steps, progress.lost, progress.rounds), (3, 1, 2));
        assert_eq!(progress.gaps, [10.0, 40.0]);
        assert_eq!(progress.throughput, [0.6, 0.0]);
    }

    #[test]
    fn events_outside_of_the_time_do_not_count() {
        let events = [step(1, 1, 1, 10), step(1, 1, 2, 20), step(1, 1, 3, 7_000)];
        let progress = between(&events, 15, 6_000);
        assert_eq!((progress.steps, progress.lost), (1, 0));
        assert_eq!(progress.gaps, [] as [f64; 0]);
    }
}
