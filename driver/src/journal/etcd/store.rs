//! The durable write of entries in etcd.
//!
//! Each transaction has two conditions: this driver leads the run, and the entry `epoch` is the one that it has written itself
//! (at its begin: that it has read). The second one fails after another driver has begun, however the leadership has changed
//! meanwhile. A leadership that etcd has ended, and that no other driver has taken, is taken again.
//!
//! A driver whose entries etcd has lost writes all of them anew, since no other driver has begun.

use std::{slice, sync::Arc, time::Duration};

use elasticrun_etcd::{
    Client, Compare, Error, Keys, LeaseId, Op, Revision,
    leader::{Leader, Status, WriteError},
};
use tokio::{
    sync::mpsc,
    time::{Instant, error::Elapsed, sleep, timeout, timeout_at},
};

use super::{
    super::{Entries, Notice, epoch, outcome, seal::Key, store::Failure, thread::Dirty},
    meta::Meta,
    names::Names,
    runtime::Runtime,
    standbys,
    succession::{Succession, Verdict},
    transactions::split,
};

/// How long a write tries to get an answer. Later ones try again.
const WRITE_TIMEOUT: Duration = Duration::from_secs(4);

/// How long the first write of the outcome tries, since a standby driver repeats a run without one. It is longer than an election
/// in etcd, or the restart of a member.
const OUTCOME_TIMEOUT: Duration = Duration::from_secs(15);

/// How long the end of a run may wait: the outcome may come behind a write.
pub(in super::super) const END_TIMEOUT: Duration = Duration::from_secs(20);

/// How long after a failed write the next one begins.
const RETRY: Duration = Duration::from_millis(100);

/// How long a run that has ended stays in etcd.
const KEEP: Duration = Duration::from_secs(7 * 24 * 3600);

/// How long the end of a leadership may take. Its lease ends by itself.
const RESIGN_TIMEOUT: Duration = Duration::from_secs(1);

/// The journal of a run that this driver leads.
#[derive(Debug)]
pub(in super::super) struct Etcd {
    client: Client,
    leader: Leader,
    names: Names,
    run: String,
    key: Arc<Key>,
    /// That of the first leadership of this driver.
    epoch: u64,
    /// The revision of the entry `epoch`.
    fence: Revision,
    succession: Succession,
    /// All entries, as they are in etcd or will be.
    entries: Entries,
    /// Set until they are written anew.
    is_lost: bool,
    /// The first write of the outcome has failed.
    is_outcome_late: bool,
    /// Set for good: another driver has begun.
    replaced: Option<Failure>,
    // Dropped last: all others run on it.
    runtime: Arc<Runtime>,
}

impl Etcd {
    pub(super) fn new(
        runtime: Arc<Runtime>,
        client: Client,
        leader: Leader,
        (names, run): (Names, String),
        key: Arc<Key>,
        (epoch, fence): (u64, Revision),
    ) -> Self {
        let place = (names.clone(), run.clone());
        Self {
            succession: Succession::new(client.clone(), place, key.clone(), epoch),
            client,
            leader,
            names,
            run,
            key,
            epoch,
            fence,
            entries: Entries::new(),
            is_lost: false,
            is_outcome_late: false,
            replaced: None,
            runtime,
        }
    }

    /// Takes over the entries of the drivers before this one.
    pub(super) fn remember(&mut self, entries: &Entries) {
        self.entries.clone_from(entries);
    }

    /// The epoch of this driver.
    pub(in super::super) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Tells which drivers wait, and when another one has begun.
    pub(in super::super) fn watch(&self, notices: mpsc::Sender<Notice>) {
        let (client, standbys) = (self.client.clone(), self.names.standbys());
        let follow = standbys::follow(client, standbys, notices.clone());
        self.runtime.handle().spawn(follow);
        let follow = (self.succession.clone()).follow(self.leader.statuses(), notices);
        self.runtime.handle().spawn(follow);
    }

    /// Writes entries. With `ended`, only the outcome stays, for a week.
    ///
    /// # Errors
    /// See [`Failure`]. What is written of a large batch stays, and a later call may write all of it again.
    pub(in super::super) fn commit(&mut self, entries: &Dirty, ended: bool) -> Result<(), Failure> {
        if let Some(replaced) = &self.replaced {
            return Err(replaced.clone());
        }
        self.fold(entries);
        let has_outcome = entries.contains_key(outcome::KEY);
        let is_first_outcome = has_outcome && !self.is_outcome_late;
        // A driver that has not begun only shows the outcome of an earlier one.
        let limit = match is_first_outcome && self.succession.own().driver.is_some() {
            true => OUTCOME_TIMEOUT,
            false => WRITE_TIMEOUT,
        };
        let handle = self.runtime.handle().clone();
        let written = handle.block_on(self.write_batch(entries, ended, Instant::now() + limit));
        self.is_outcome_late |= has_outcome && written.is_err();
        if let Err(replaced @ Failure::Replaced(_)) = &written {
            self.replaced = Some(replaced.clone());
        }
        written
    }

    /// Takes changes into the entries.
    fn fold(&mut self, changes: &Dirty) {
        for (entry, value) in changes {
            match value {
                Some(value) => self.entries.insert(entry.clone(), value.clone()),
                None => self.entries.remove(entry),
            };
        }
        let mut own = self.succession.own();
        if let Some(driver) = changes.get(epoch::KEY) {
            own.driver.clone_from(driver);
        }
        if let Some(outcome) = changes.get(outcome::KEY) {
            own.outcome.clone_from(outcome);
        }
    }

    async fn write_batch(
        &mut self,
        entries: &Dirty,
        ended: bool,
        until: Instant,
    ) -> Result<(), Failure> {
        if ended {
            for steps in split(self.last_steps(entries, until).await?) {
                self.write(&steps, true, until).await?;
            }
            return Ok(());
        }
        if !self.is_lost {
            let written = self.write_changes(entries, until).await;
            if !self.is_lost {
                return written;
            }
        }
        self.write_anew(until).await
    }

    /// Writes entries, that of the driver first.
    async fn write_changes(&mut self, entries: &Dirty, until: Instant) -> Result<(), Failure> {
        for steps in split(self.steps(entries)?) {
            let begins = self.writes_driver(&steps);
            // Without the others, the entry of the driver is no journal.
            let is_whole = begins && self.is_lost;
            let revision = self.write(&steps, is_whole, until).await?;
            if begins {
                self.fence = revision;
            }
        }
        Ok(())
    }

    /// Writes all entries, and removes those of an older copy.
    async fn write_anew(&mut self, until: Instant) -> Result<(), Failure> {
        let state = self.names.state();
        let found = self.client.range(&state, 0, Revision(0));
        let found = answered(timeout_at(until, found).await)?;
        let entries = self.entries.iter();
        let mut all: Dirty = entries
            .map(|(entry, value)| (entry.clone(), Some(value.clone())))
            .collect();
        for old in &found.keys {
            if let Some(entry) = self.names.entry_of(&old.key) {
                all.entry(entry.to_owned()).or_insert(None);
            }
        }
        self.write_changes(&all, until).await?;
        self.is_lost = false;
        tracing::warn!(
            run = self.run,
            "etcd had lost the journal; all of it is written anew"
        );
        Ok(())
    }

    /// The steps for these entries, each with its size in bytes. That of the driver itself is the first one.
    fn steps(&self, entries: &Dirty) -> Result<Vec<(usize, Op)>, Failure> {
        let mut steps = Vec::with_capacity(entries.len() + 1);
        if let Some(value) = entries.get(epoch::KEY) {
            steps.push(self.step(epoch::KEY, value.as_deref())?);
            steps.push(put(
                self.names.meta(),
                Meta::new(&self.key, false).value(),
                LeaseId(0),
            ));
            if self.is_lost {
                steps.push(self.newest_epoch());
            }
        }
        for (entry, value) in entries.iter().filter(|(entry, _)| *entry != epoch::KEY) {
            steps.push(self.step(entry, value.as_deref())?);
        }
        Ok(steps)
    }

    /// The step that restores the newest epoch. A later driver must have a higher one than this driver.
    fn newest_epoch(&self) -> (usize, Op) {
        let led = match self.leader.status() {
            Status::Leading { epoch, .. } => epoch,
            _ => 0,
        };
        let newest = self.epoch.max(led).to_string();
        put(self.names.epoch(), newest.into(), LeaseId(0))
    }

    fn step(&self, entry: &str, value: Option<&[u8]>) -> Result<(usize, Op), Failure> {
        let key = self.names.entry(entry);
        Ok(match value {
            Some(value) => put(key, self.seal(entry, value)?, LeaseId(0)),
            None => (key.len(), Op::Delete(Keys::One(key))),
        })
    }

    fn seal(&self, entry: &str, value: &[u8]) -> Result<Vec<u8>, Failure> {
        let sealed = self.key.seal(&self.run, entry, value);
        sealed.map_err(|error| Failure::Now(error.to_string()))
    }

    /// The steps that leave only the outcome, with a lease that ends it.
    async fn last_steps(
        &self,
        entries: &Dirty,
        until: Instant,
    ) -> Result<Vec<(usize, Op)>, Failure> {
        let granted = timeout_at(until, self.client.grant(KEEP)).await;
        let lease = answered(granted)?.lease;
        let mut steps = vec![
            put(self.names.meta(), Meta::new(&self.key, true).value(), lease),
            (0, Op::Delete(self.names.state())),
        ];
        if let Some(Some(value)) = entries.get(outcome::KEY) {
            let sealed = self.seal(outcome::KEY, value)?;
            steps.push(put(self.names.entry(outcome::KEY), sealed, lease));
        }
        if let Status::Leading { epoch, .. } = self.leader.status() {
            steps.push(put(self.names.epoch(), epoch.to_string().into(), lease));
        }
        Ok(steps)
    }

    fn writes_driver(&self, steps: &[Op]) -> bool {
        let driver = self.names.driver();
        let is_driver = |step: &Op| matches!(step, Op::Put { key, .. } if *key == driver);
        steps.iter().any(|step| match step {
            Op::All(steps) => steps.iter().any(is_driver),
            step => is_driver(step),
        })
    }

    /// Takes steps as the leader. Repeats them until `until` for a reason that may be over soon. Gives the revision. `is_whole`:
    /// they need no earlier entries.
    ///
    /// # Errors
    /// See [`Failure`]. If etcd has lost entries that the steps need, that is noted.
    async fn write(
        &mut self,
        steps: &[Op],
        is_whole: bool,
        until: Instant,
    ) -> Result<Revision, Failure> {
        loop {
            let held = Compare::Modified(self.names.driver(), self.fence);
            let written = self.leader.write(slice::from_ref(&held), steps);
            let why = match timeout_at(until, written).await {
                Err(_) => return Err(unanswered()),
                Ok(Ok(outcome)) => return Ok(outcome.revision),
                Ok(Err(WriteError::Refused)) => match self.judge(until).await? {
                    Verdict::Ended => return Ok(self.fence),
                    // The answer to its write was lost.
                    Verdict::Current(revision) if is_whole || revision >= self.fence => {
                        self.fence = revision;
                        continue;
                    }
                    Verdict::Lost(revision) if is_whole => {
                        self.fence = revision;
                        continue;
                    }
                    // Its entry is there in an older copy.
                    Verdict::Current(revision) | Verdict::Lost(revision) => {
                        self.fence = revision;
                        self.is_lost = true;
                        return Err(Failure::Now("etcd has lost the journal".to_owned()));
                    }
                    Verdict::Replaced(by) => return Err(Failure::Replaced(by)),
                    Verdict::Forged => {
                        return Err(Failure::Now(
                            "the entry of this driver in etcd was changed without the key"
                                .to_owned(),
                        ));
                    }
                },
                Ok(Err(WriteError::NotLeader | WriteError::Fenced)) => {
                    self.lead_again(until).await?;
                    continue;
                }
                Ok(Err(WriteError::Etcd(error))) if error.is_temporary() => error.to_string(),
                Ok(Err(WriteError::Etcd(error))) => return Err(Failure::Now(error.to_string())),
            };
            if Instant::now() + RETRY >= until {
                return Err(Failure::Now(why));
            }
            sleep(RETRY).await;
        }
    }

    /// Looks whether another driver has begun.
    async fn judge(&self, until: Instant) -> Result<Verdict, Failure> {
        answered(timeout_at(until, self.succession.read()).await)
    }

    /// Waits until this driver leads, if no other one has begun.
    async fn lead_again(&self, until: Instant) -> Result<(), Failure> {
        let mut statuses = self.leader.statuses();
        // What it is now was not enough for the write.
        let known = statuses.borrow_and_update().clone();
        loop {
            let status = statuses.borrow_and_update().clone();
            match status {
                status @ Status::Leading { .. } if status != known => return Ok(()),
                // It may only ask whether this driver lives.
                Status::Standby(Some(_)) => {
                    if let Ok(Verdict::Replaced(by)) = self.judge(until).await {
                        return Err(Failure::Replaced(by));
                    }
                }
                Status::Leading { .. } | Status::Standby(None) => {}
                Status::Unreachable(_) | Status::Resigned => {
                    return Err(Failure::Now("it was given up".to_owned()));
                }
            }
            match timeout_at(until, statuses.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return Err(Failure::Now("it was given up".to_owned())),
                Err(_) => {
                    return Err(Failure::Now(
                        "etcd does not renew the lease of this driver".to_owned(),
                    ));
                }
            }
        }
    }

    /// Gives the leadership back, so that another driver need not wait for the end of the lease.
    pub(in super::super) fn close(self) {
        let Self {
            leader, runtime, ..
        } = self;
        // A lease that stays ends by itself.
        let _ = runtime.wait(async { timeout(RESIGN_TIMEOUT, leader.resign()).await });
    }

    /// Removes all keys of the run.
    pub(in super::super) fn discard(mut self) {
        let handle = self.runtime.handle().clone();
        handle.block_on(async {
            let until = Instant::now() + RESIGN_TIMEOUT;
            let steps = [Op::Delete(self.names.all())];
            if self.write(&steps, false, until).await.is_err() {
                tracing::debug!("the journal of a run that has not begun stays in etcd");
            }
        });
        self.close();
    }
}

/// A step that puts a value, with its size in bytes.
fn put(key: Vec<u8>, value: Vec<u8>, lease: LeaseId) -> (usize, Op) {
    (key.len() + value.len(), Op::Put { key, value, lease })
}

fn unanswered() -> Failure {
    Failure::Now("etcd does not answer in time".to_owned())
}

/// The result of a call with a time limit.
fn answered<T>(result: Result<Result<T, Error>, Elapsed>) -> Result<T, Failure> {
    let result = result.map_err(|_| unanswered())?;
    result.map_err(|error| Failure::Now(error.to_string()))
}
