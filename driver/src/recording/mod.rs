//! What a run loop writes to the journal of its run: changed records behind, and the outcome before any agent is told of it.
//!
//! A driver that is killed after some agents were told to end leaves a run that cannot continue. So the commands of the end
//! wait for the journal, and so do all commands after them. A journal that does not answer delays the end by
//! [`Journal::end_timeout`] at most, and until a signal of the user.
//!
//! Reports of agents are acknowledged when the records with their effects are durable ([`durable`]).

mod durable;

use std::time::Duration;

use elasticrun_core::{Command, journal::Change, results::Outcome};
use elasticrun_protocol::HostId;
use tokio::{
    sync::oneshot,
    time::{Instant, timeout_at},
};

use self::durable::DurableReports;
use crate::journal::{self, Final, Journal, Persisted};

/// The journal of a run loop, with the commands that wait for it.
#[derive(Debug)]
pub(crate) struct Recording {
    journal: Option<Journal>,
    held: Option<Held>,
    reports: DurableReports,
}

#[derive(Debug)]
struct Held {
    commands: Vec<Command>,
    answered: oneshot::Receiver<Persisted>,
    until: Instant,
    /// When the user is told that the end waits. `None` once that is done.
    told_at: Option<Instant>,
}

/// How long the end of a job waits without a word.
const SLOW: Duration = Duration::from_secs(2);

impl Recording {
    /// The recording of a run, which may have no journal. It keeps the journal.
    pub(crate) fn new(mut journal: Option<Journal>) -> Self {
        if let Some(journal) = &mut journal {
            journal.keep();
        }
        Self {
            journal,
            held: None,
            reports: DurableReports::default(),
        }
    }

    /// Whether the run has a journal.
    pub(crate) fn is_on(&self) -> bool {
        self.journal.is_some()
    }

    /// Whether drivers of other machines reach the journal.
    pub(crate) fn is_shared(&self) -> bool {
        let journal = self.journal.as_ref();
        journal.is_some_and(|journal| journal.epoch().is_some())
    }

    /// Writes changed records behind.
    pub(crate) fn write(&mut self, changes: Vec<Change>) {
        if let Some(journal) = self.journal.as_ref().filter(|_| !changes.is_empty()) {
            self.reports.written(journal.next_write(), &changes);
            journal.write(changes.into_iter().map(journal::entry));
        }
    }

    /// The number of the newest report of a host that may be acknowledged, of those up to `applied`.
    pub(crate) fn acknowledged(&mut self, host: &HostId, applied: u64) -> u64 {
        match &self.journal {
            Some(journal) => self.reports.newest(host, journal.durable()).min(applied),
            None => applied,
        }
    }

    /// The commands to execute now. If they end the job, its outcome is written first, and they come by
    /// [`Recording::recorded`].
    pub(crate) fn admit(
        &mut self,
        commands: Vec<Command>,
        record: impl FnOnce(&Outcome) -> Final,
    ) -> Vec<Command> {
        if let Some(held) = &mut self.held {
            held.commands.extend(commands);
            return Vec::new();
        }
        let outcome = commands.iter().find_map(|command| match command {
            Command::End(outcome) => Some(outcome),
            _ => None,
        });
        let (Some(journal), Some(outcome)) = (&self.journal, outcome) else {
            return commands;
        };
        let now = Instant::now();
        self.held = Some(Held {
            answered: journal.persist([record(outcome).entry()]),
            commands,
            until: now + journal.end_timeout(),
            told_at: Some(now + SLOW),
        });
        Vec::new()
    }

    /// Whether commands wait.
    pub(crate) fn holds(&self) -> bool {
        self.held.is_some()
    }

    /// Ends the wait, and makes the end of the journal brief. The user has asked a second time.
    pub(crate) fn wait_no_longer(&mut self) {
        if let Some(held) = &mut self.held {
            held.until = Instant::now();
        }
        if let Some(journal) = &mut self.journal {
            journal.end_soon();
        }
    }

    /// How long the end may still wait, for the user: once, when it has waited for a while.
    pub(crate) fn tell_wait(&mut self) -> Option<Duration> {
        let held = self.held.as_mut()?;
        let now = Instant::now();
        held.told_at.take_if(|told_at| *told_at <= now)?;
        Some(held.until.duration_since(now))
    }

    /// Waits until the outcome is durable, or the journal cannot be written, and returns the commands that have waited.
    /// Cancel-safe.
    pub(crate) async fn recorded(&mut self) -> Vec<Command> {
        if let Some(held) = &mut self.held {
            // The journal reports its failure itself.
            let _ = timeout_at(held.until, &mut held.answered).await;
        }
        self.held
            .take()
            .map(|held| held.commands)
            .unwrap_or_default()
    }

    /// The journal, for the last record.
    pub(crate) fn take_journal(&mut self) -> Option<Journal> {
        self.journal.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(_: &Outcome) -> Final {
        Final {
            code: 0,
            lines: vec!["succeeded".to_owned()],
            finished: false,
        }
    }

    fn end() -> Vec<Command> {
        vec![Command::End(Outcome::Succeeded)]
    }

    #[tokio::test]
    async fn agents_are_told_of_the_end_when_it_is_durable() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("journal");
        let (journal, _notices) = Journal::create(&path, "run").expect("created");
        let mut recording = Recording::new(Some(journal));
        assert_eq!(
            recording.admit(vec![Command::Exit], record),
            [Command::Exit]
        );
        assert!(recording.admit(end(), record).is_empty());
        assert!(
            recording.admit(vec![Command::Exit], record).is_empty(),
            "in order"
        );
        let mut commands = end();
        commands.push(Command::Exit);
        assert_eq!(recording.recorded().await, commands);
        assert!(!recording.holds());
        // What a killed driver leaves.
        drop(recording);
        let entries = loop {
            match Journal::read(&path, "run") {
                Ok(stored) => break stored.entries,
                Err(crate::journal::Error::Locked { .. }) => tokio::task::yield_now().await,
                Err(error) => panic!("{error}"),
            }
        };
        assert_eq!(Final::read(&entries), Some(record(&Outcome::Succeeded)));
    }

    #[tokio::test]
    async fn a_second_signal_ends_the_wait_for_a_journal_that_does_not_answer() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("journal");
        let (journal, _notices) = Journal::create(&path, "run").expect("created");
        let mut recording = Recording::new(Some(journal));
        assert!(recording.admit(end(), record).is_empty());
        // As one that never comes.
        let (_never, answered) = oneshot::channel();
        let held = recording.held.as_mut().expect("it waits");
        held.answered = answered;
        assert_eq!(recording.tell_wait(), None);
        recording.held.as_mut().expect("it waits").told_at = Some(Instant::now());
        let left = recording.tell_wait().expect("it is told");
        assert!(left > Duration::from_secs(1), "{left:?}");
        assert_eq!(recording.tell_wait(), None, "once");
        recording.held.as_mut().expect("it waits").until += Duration::from_hours(1);
        recording.wait_no_longer();
        assert_eq!(recording.recorded().await, end());
    }

    #[tokio::test]
    async fn a_job_without_a_journal_waits_for_nothing() {
        let mut recording = Recording::new(None);
        assert_eq!(recording.admit(end(), record), end());
        assert!(!recording.holds());
    }

    #[tokio::test]
    async fn a_journal_that_is_gone_does_not_hold_up_the_end() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("journal");
        let (journal, _notices) = Journal::create(&path, "run").expect("created");
        std::fs::remove_file(&path).expect("it is there");
        let mut recording = Recording::new(Some(journal));
        assert!(recording.admit(end(), record).is_empty());
        assert_eq!(recording.recorded().await, end());
    }
}
