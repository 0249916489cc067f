//! The durable write of entries in etcd.
//!
//! Each transaction has two conditions: this driver leads the run, and the entry `epoch` is the one that it has written itself
//! (at its begin: that it has read). The second one fails after another driver has begun, however the leadership has changed
//! meanwhile. A leadership that etcd has ended, and that no other driver has taken, is taken again.

use std::{slice, sync::Arc, time::Duration};

use elasticrun_etcd::{
    Client, Compare, Keys, LeaseId, Op, Revision,
    leader::{Holder, Leader, Status, WriteError},
};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep, timeout, timeout_at},
};

use super::{
    super::{Notice, epoch, outcome, seal::Key, store::Failure, thread::Dirty},
    meta::Meta,
    names::Names,
    runtime::Runtime,
    standbys,
    transactions::split,
};

/// How long a write tries to get an answer. Later ones try again.
const WRITE_TIMEOUT: Duration = Duration::from_secs(4);

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
    /// The value that this driver has written there.
    own: Option<Vec<u8>>,
    // Dropped last: all others run on it.
    runtime: Arc<Runtime>,
}

/// What a refused write has found.
enum Found {
    /// The entry of this driver, in this revision: the answer to its write was lost.
    Own(Revision),
    /// The outcome, and no state.
    Outcome,
    /// The entry of another driver.
    Other,
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
        Self {
            client,
            leader,
            names,
            run,
            key,
            epoch,
            fence,
            own: None,
            runtime,
        }
    }

    /// The epoch of this driver.
    pub(in super::super) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Tells which drivers wait, and when another one leads the run.
    pub(in super::super) fn watch(&self, notices: mpsc::Sender<Notice>) {
        let (client, standbys) = (self.client.clone(), self.names.standbys());
        let follow = standbys::follow(client, standbys, notices.clone());
        self.runtime.handle().spawn(follow);
        let mut statuses = self.leader.statuses();
        self.runtime.handle().spawn(async move {
            loop {
                let replaced = match &*statuses.borrow_and_update() {
                    Status::Deposed(by) => Some(address(by.as_ref())),
                    _ => None,
                };
                if let Some(by) = replaced {
                    let _ = notices.send(Notice::Replaced(by)).await;
                    return;
                }
                if statuses.changed().await.is_err() {
                    return;
                }
            }
        });
    }

    /// Writes entries. With `ended`, only the outcome stays, for a week.
    ///
    /// # Errors
    /// See [`Failure`]. What is written of a large batch stays, and a later call may write all of it again.
    pub(in super::super) fn commit(&mut self, entries: &Dirty, ended: bool) -> Result<(), Failure> {
        let handle = self.runtime.handle().clone();
        handle.block_on(async {
            let until = Instant::now() + WRITE_TIMEOUT;
            let steps = match ended {
                true => self.last_steps(entries, until).await?,
                false => self.steps(entries)?,
            };
            let begins = entries.get(epoch::KEY).cloned().flatten();
            for steps in split(steps) {
                if let Some(own) = &begins {
                    self.own = Some(own.clone());
                }
                let revision = self.write(&steps, ended, until).await?;
                if begins.is_some() && self.writes_driver(&steps) {
                    self.fence = revision;
                }
            }
            Ok(())
        })
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
        }
        for (entry, value) in entries.iter().filter(|(entry, _)| *entry != epoch::KEY) {
            steps.push(self.step(entry, value.as_deref())?);
        }
        Ok(steps)
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
        let granted = granted.map_err(|_| unanswered())?;
        let lease = granted
            .map_err(|error| Failure::Now(error.to_string()))?
            .lease;
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

    /// Takes steps as the leader. Repeats them until `until` for a reason that may be over soon. Gives the revision.
    async fn write(
        &mut self,
        steps: &[Op],
        ended: bool,
        until: Instant,
    ) -> Result<Revision, Failure> {
        loop {
            let held = Compare::Modified(self.names.driver(), self.fence);
            let written = self.leader.write(slice::from_ref(&held), steps);
            let why = match timeout_at(until, written).await {
                Err(_) => return Err(unanswered()),
                Ok(Ok(outcome)) => return Ok(outcome.revision),
                Ok(Err(WriteError::Refused)) => match self.find(until).await? {
                    Found::Own(revision) => {
                        self.fence = revision;
                        continue;
                    }
                    Found::Outcome if ended => return Ok(self.fence),
                    Found::Outcome | Found::Other => return Err(Failure::Replaced(None)),
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

    /// Looks why a write was refused although this driver leads.
    async fn find(&self, until: Instant) -> Result<Found, Failure> {
        let range = |key| Op::Range(Keys::One(key));
        let steps = [
            range(self.names.driver()),
            range(self.names.entry(outcome::KEY)),
        ];
        // It changes nothing.
        let read = timeout_at(until, self.client.txn(&[], &steps, &[])).await;
        let read = read.map_err(|_| unanswered())?;
        let outcome = read.map_err(|error| Failure::Now(error.to_string()))?;
        let mut found = outcome.found.into_iter();
        let mut next = || found.next().unwrap_or_default().into_iter().next();
        let (driver, outcome) = (next(), next());
        Ok(match (driver, outcome) {
            (Some(driver), _) => {
                let value = self.key.unseal(&self.run, epoch::KEY, &driver.value);
                match value.is_some() && value == self.own {
                    true => Found::Own(driver.mod_revision),
                    false => Found::Other,
                }
            }
            (None, Some(_)) => Found::Outcome,
            (None, None) => Found::Other,
        })
    }

    /// Waits until this driver leads, if no other one does.
    async fn lead_again(&self, until: Instant) -> Result<(), Failure> {
        let mut statuses = self.leader.statuses();
        // What it is now was not enough for the write.
        let known = statuses.borrow_and_update().clone();
        loop {
            let status = statuses.borrow_and_update().clone();
            match status {
                Status::Deposed(by) => return Err(Failure::Replaced(address(by.as_ref()))),
                status @ Status::Leading { .. } if status != known => return Ok(()),
                Status::Leading { .. } | Status::Standby(_) => {}
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
    Failure::Now(format!("etcd has not answered for {WRITE_TIMEOUT:?}"))
}

/// Where a driver is reached.
fn address(holder: Option<&Holder>) -> Option<String> {
    holder?.endpoints.first().cloned()
}
