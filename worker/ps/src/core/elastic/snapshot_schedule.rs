//! When the scheduler of an elastic job takes a snapshot, and which workers are told of its end.
//!
//! One is taken at a time: at an interval, when a worker asks, and when all living workers have finished. The last one is tried again if it
//! fails. Times are those since the start of the node.

use std::{collections::BTreeSet, time::Duration};

use crate::core::node::NodeId;

/// How often the last snapshot is tried, and the pause between two attempts: there may be room on a disk, or a network again.
const LAST_ATTEMPTS: u32 = 4;
const AGAIN: Duration = Duration::from_secs(5);

/// The longest time that a snapshot may take: a store that hangs fails it then.
pub(crate) const LIMIT: Duration = Duration::from_secs(30 * 60);

/// The snapshots of a job.
#[derive(Debug)]
pub(crate) struct Schedule {
    /// The number of the next one.
    next: u64,
    newest: u64,
    interval: Option<Duration>,
    /// When the next one is due. `None`: only when one is asked for.
    due: Option<Duration>,
    /// The one that is being taken, and since when.
    taking: Option<(u64, Duration)>,
    /// Workers that get its result.
    asked: BTreeSet<NodeId>,
    /// Workers that have asked since it began.
    asked_later: BTreeSet<NodeId>,
    /// Workers that have finished. The last snapshot begins when all have.
    finished: BTreeSet<NodeId>,
    /// Those of them that get the result of the one that is being taken.
    last: BTreeSet<NodeId>,
    /// How often the last snapshot has failed in a row, and when it is tried again.
    failures: u32,
    again: Duration,
    /// All that workers have pushed is saved.
    is_saved: bool,
}

impl Schedule {
    /// A job that begins with the snapshot `newest`, 0 for none, and whose first one gets the number `next`.
    pub(crate) fn new(interval: Option<Duration>, newest: u64, next: u64) -> Self {
        Self {
            next,
            newest,
            interval,
            due: interval,
            taking: None,
            asked: BTreeSet::new(),
            asked_later: BTreeSet::new(),
            finished: BTreeSet::new(),
            last: BTreeSet::new(),
            failures: 0,
            again: Duration::ZERO,
            is_saved: true,
        }
    }

    /// The newest complete snapshot, 0 if there is none.
    pub(crate) fn newest(&self) -> u64 {
        self.newest
    }

    /// A worker has come, and may push.
    pub(crate) fn worker_came(&mut self) {
        self.is_saved = false;
    }

    /// A worker asks for a snapshot, or has finished.
    pub(crate) fn ask(&mut self, worker: NodeId, has_finished: bool) {
        let asking = match has_finished {
            true => &mut self.finished,
            false => &mut self.asked_later,
        };
        asking.insert(worker);
    }

    /// The number of the next snapshot, if it begins now. `workers` are those that live.
    pub(crate) fn begin(
        &mut self,
        now: Duration,
        serves: bool,
        workers: &BTreeSet<NodeId>,
    ) -> Option<u64> {
        if self.taking.is_some() || !serves {
            return None;
        }
        self.finished.retain(|node| workers.contains(node));
        let have_finished = !workers.is_empty() && self.finished.len() == workers.len();
        let is_last = have_finished && now >= self.again;
        let is_due = self.due.is_some_and(|due| now >= due);
        if self.asked_later.is_empty() && !is_due && !is_last {
            return None;
        }
        if is_last {
            self.last = std::mem::take(&mut self.finished);
        }
        let number = self.next;
        self.next += 1;
        self.taking = Some((number, now));
        self.asked = std::mem::take(&mut self.asked_later);
        self.due = self.interval.map(|interval| now + interval);
        Some(number)
    }

    /// The snapshot that is being taken, if it takes too long.
    pub(crate) fn late(&self, now: Duration) -> Option<u64> {
        let late = self.taking.filter(|(_, since)| now > *since + LIMIT);
        late.map(|(number, _)| number)
    }

    /// How long the snapshot of this number has taken. `None` if it is not being taken: it was given up.
    pub(crate) fn took(&self, now: Duration, number: u64) -> Option<Duration> {
        let taking = self.taking.filter(|(taking, _)| *taking == number);
        taking.map(|(_, since)| now.saturating_sub(since))
    }

    /// The one that was taken has succeeded or failed. Returns the workers that are told.
    pub(crate) fn ended(&mut self, now: Duration, number: u64, succeeded: bool) -> Vec<NodeId> {
        self.taking = None;
        let mut told = std::mem::take(&mut self.asked);
        let mut last = std::mem::take(&mut self.last);
        if succeeded {
            self.newest = number;
            self.is_saved |= !last.is_empty();
            self.failures = 0;
        } else if !last.is_empty() {
            self.failures += 1;
            if self.failures < LAST_ATTEMPTS {
                self.finished.append(&mut last);
                self.again = now + AGAIN;
            }
        }
        told.append(&mut last);
        told.into_iter().collect()
    }

    /// What is lost if the job ends now.
    pub(crate) fn unsaved(&self) -> Option<String> {
        let newest = match self.newest {
            0 => "there is no snapshot".to_owned(),
            newest => format!("the newest snapshot is {newest}"),
        };
        (!self.is_saved).then(|| {
            format!(
                "workers have ended without finalize: what they pushed last is not saved; {newest}"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule() -> Schedule {
        let mut schedule = Schedule::new(Some(at(10)), 4, 5);
        schedule.worker_came();
        schedule
    }

    fn workers(ranks: &[u32]) -> BTreeSet<NodeId> {
        ranks.iter().map(|rank| NodeId::worker(*rank)).collect()
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn one_is_taken_at_a_time_and_when_it_is_due() {
        let mut schedule = schedule();
        assert_eq!(schedule.begin(at(9), true, &workers(&[0])), None);
        assert_eq!(schedule.begin(at(10), false, &workers(&[0])), None);
        assert_eq!(schedule.begin(at(10), true, &workers(&[0])), Some(5));
        assert_eq!(schedule.begin(at(20), true, &workers(&[0])), None);
        schedule.ask(NodeId::worker(0), false);
        assert_eq!(schedule.begin(at(21), true, &workers(&[0])), None);
        schedule.taking = None;
        assert_eq!(schedule.begin(at(21), true, &workers(&[0])), Some(6));
        assert_eq!(schedule.asked, workers(&[0]));
    }

    #[test]
    fn the_last_one_begins_when_all_living_workers_have_finished() {
        let mut schedule = schedule();
        schedule.ask(NodeId::worker(0), true);
        assert_eq!(schedule.begin(at(1), true, &workers(&[0, 1])), None);
        // The other one has died.
        assert_eq!(schedule.begin(at(1), true, &workers(&[0])), Some(5));
        assert_eq!(schedule.ended(at(2), 5, true), [NodeId::worker(0)]);
        assert_eq!(schedule.unsaved(), None);
        // A worker that takes its place finishes later.
        schedule.worker_came();
        assert!(schedule.unsaved().unwrap().contains("newest snapshot is 5"));
        schedule.ask(NodeId::worker(1), true);
        assert_eq!(schedule.begin(at(2), true, &workers(&[0, 1])), None);
        assert_eq!(schedule.begin(at(2), true, &workers(&[1])), Some(6));
    }

    #[test]
    fn the_last_one_is_tried_again() {
        let mut schedule = schedule();
        schedule.due = None;
        schedule.ask(NodeId::worker(0), true);
        let mut now = at(1);
        for attempt in 1..LAST_ATTEMPTS {
            let number = schedule.begin(now, true, &workers(&[0]));
            let number = number.unwrap_or_else(|| panic!("attempt {attempt}"));
            assert_eq!(schedule.ended(now, number, false), []);
            assert_eq!(schedule.begin(now + AGAIN / 2, true, &workers(&[0])), None);
            now += AGAIN;
        }
        let number = schedule.begin(now, true, &workers(&[0])).unwrap();
        assert_eq!(schedule.ended(now, number, false), [NodeId::worker(0)]);
    }

    #[test]
    fn one_that_does_not_end_is_late() {
        let mut schedule = schedule();
        schedule.ask(NodeId::worker(0), false);
        assert_eq!(schedule.begin(at(1), true, &workers(&[0])), Some(5));
        assert_eq!(schedule.late(at(1) + LIMIT), None);
        assert_eq!(schedule.late(at(2) + LIMIT), Some(5));
        assert_eq!(schedule.took(at(3), 4), None);
        assert_eq!(schedule.took(at(3), 5), Some(at(2)));
        assert_eq!(schedule.ended(at(3), 5, false), [NodeId::worker(0)]);
        // What comes of it later counts no more.
        assert_eq!(schedule.took(at(4), 5), None);
        assert_eq!(schedule.late(at(9) + LIMIT), None);
    }
}
