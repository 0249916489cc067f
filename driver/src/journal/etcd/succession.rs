//! Whether another driver has taken the place of this one.
//!
//! Only its entry `epoch` says so, or its outcome. The key of the leader does not: a standby driver holds it while it asks whether the
//! former driver lives. Entries that are gone do not either: etcd has lost them, and no driver has begun.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use elasticrun_etcd::{Client, Error, Keys, Op, Revision, leader::Status};
use tokio::{
    sync::{mpsc, watch},
    time::timeout,
};

use super::{
    super::{Epoch, Notice, epoch, outcome, seal::Key},
    names::Names,
};

/// How often the entries are read while another candidate holds the key of the leader. It may begin at any time.
const CHECK: Duration = Duration::from_millis(500);

/// What this driver has written about itself, or tries to write.
#[derive(Debug, Default)]
pub(super) struct Own {
    /// Its epoch.
    pub(super) epoch: u64,
    /// The entry `epoch`, once it begins.
    pub(super) driver: Option<Vec<u8>>,
    /// The outcome, once the run ends.
    pub(super) outcome: Option<Vec<u8>>,
}

/// What etcd has. A value of `None` is not sealed by the key of the journal.
#[derive(Debug, Default)]
struct Found {
    /// The entry `epoch`, with its revision.
    driver: Option<(Revision, Option<Vec<u8>>)>,
    /// The outcome.
    outcome: Option<Option<Vec<u8>>>,
}

/// What the entries in etcd say.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// This driver is the one that has begun last. Its entry has this revision.
    Current(Revision),
    /// etcd has lost the entries of this driver: it has none, or those of a driver before this one. The revision of the entry
    /// `epoch`, 0 for none.
    Lost(Revision),
    /// The run has the outcome that this driver has written.
    Ended,
    /// Another driver has begun since, or has ended the run. Its address, if it is known.
    Replaced(Option<String>),
    /// A value was changed without the key.
    Forged,
}

impl Own {
    fn judge(&self, found: Found) -> Verdict {
        match found {
            Found {
                driver: Some((_, None)),
                ..
            }
            | Found {
                driver: None,
                outcome: Some(None),
            } => Verdict::Forged,
            Found {
                driver: Some((revision, Some(driver))),
                ..
            } => self.judge_driver(revision, &driver),
            Found {
                outcome: Some(outcome),
                ..
            } if outcome == self.outcome => Verdict::Ended,
            Found {
                outcome: Some(_), ..
            } => Verdict::Replaced(None),
            Found { outcome: None, .. } => Verdict::Lost(Revision(0)),
        }
    }

    fn judge_driver(&self, revision: Revision, driver: &[u8]) -> Verdict {
        if self.driver.as_deref() == Some(driver) {
            return Verdict::Current(revision);
        }
        match serde_json::from_slice::<Epoch>(driver) {
            // An older copy of etcd was restored.
            Ok(other) if other.epoch.0 < self.epoch => Verdict::Lost(revision),
            Ok(other) => Verdict::Replaced(other.endpoints.into_iter().next()),
            // It has the key, and is of a newer release.
            Err(_) => Verdict::Replaced(None),
        }
    }
}

/// Reads who has begun last.
#[derive(Clone, Debug)]
pub(super) struct Succession {
    client: Client,
    names: Names,
    run: String,
    key: Arc<Key>,
    own: Arc<Mutex<Own>>,
}

impl Succession {
    pub(super) fn new(
        client: Client,
        (names, run): (Names, String),
        key: Arc<Key>,
        epoch: u64,
    ) -> Self {
        let own = Own {
            epoch,
            ..Own::default()
        };
        Self {
            client,
            names,
            run,
            key,
            own: Arc::new(Mutex::new(own)),
        }
    }

    /// What this driver says about itself. It is set before it is written.
    pub(super) fn own(&self) -> MutexGuard<'_, Own> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the entries.
    ///
    /// # Errors
    /// etcd does not answer, or refuses.
    pub(super) async fn read(&self) -> Result<Verdict, Error> {
        let range = |key| Op::Range(Keys::One(key));
        let steps = [
            range(self.names.driver()),
            range(self.names.entry(outcome::KEY)),
        ];
        // It changes nothing.
        let read = self.client.txn(&[], &steps, &[]).await?;
        let mut keys = read.found.into_iter();
        let mut next = || keys.next().unwrap_or_default().into_iter().next();
        let (driver, outcome) = (next(), next());
        let unseal = |entry, value: &[u8]| self.key.unseal(&self.run, entry, value);
        let found = Found {
            driver: driver.map(|found| (found.mod_revision, unseal(epoch::KEY, &found.value))),
            outcome: outcome.map(|found| unseal(outcome::KEY, &found.value)),
        };
        Ok(self.own().judge(found))
    }

    /// Reports it when another driver has taken the place of this one. It looks after each new leadership, and while another
    /// candidate holds the key of the leader: a driver that has nothing to write would not notice.
    pub(super) async fn follow(
        self,
        mut statuses: watch::Receiver<Status>,
        notices: mpsc::Sender<Notice>,
    ) {
        // No driver can have begun between the first leadership and the first entry.
        let mut checked = leadership(&statuses.borrow_and_update());
        while !notices.is_closed() {
            let status = statuses.borrow_and_update().clone();
            let leads = leadership(&status);
            let is_led = matches!(status, Status::Standby(Some(_)));
            let is_unclear = is_led || leads.is_some() && leads != checked;
            if is_unclear {
                match self.read().await {
                    Ok(Verdict::Replaced(by)) => {
                        let _ = notices.send(Notice::Replaced(by)).await;
                        return;
                    }
                    Ok(_) if !is_led => checked = leads,
                    Ok(_) | Err(_) => {}
                }
            }
            let changed = statuses.changed();
            let changed = match is_unclear {
                true => timeout(CHECK, changed).await.unwrap_or(Ok(())),
                false => changed.await,
            };
            if changed.is_err() {
                return;
            }
        }
    }
}

/// The leadership of this candidate, if it has one.
fn leadership(status: &Status) -> Option<Revision> {
    match status {
        Status::Leading { fence, .. } => Some(*fence),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use elasticrun_protocol::DriverEpoch;

    use super::*;

    fn driver(epoch: u64, nonce: u64) -> Option<Vec<u8>> {
        let driver = Epoch {
            epoch: DriverEpoch(epoch),
            nonce,
            endpoints: vec![format!("driver-{nonce}:1")],
        };
        driver.entry().value
    }

    fn ours() -> Own {
        Own {
            epoch: 5,
            driver: driver(5, 1),
            outcome: Some(b"ours".to_vec()),
        }
    }

    fn replaced(by: &str) -> Verdict {
        Verdict::Replaced(Some(by.to_owned()))
    }

    #[test]
    fn a_driver_is_replaced_if_and_only_if_another_one_has_begun_or_ended_the_run() {
        let at = Revision(7);
        let outcome = |value: &[u8]| Some(Some(value.to_vec()));
        let newer_release = Some(br#"{"era":9}"#.to_vec());
        for (entry, outcome, expected) in [
            (Some(driver(5, 1)), None, Verdict::Current(at)),
            (Some(driver(5, 1)), outcome(b"ours"), Verdict::Current(at)),
            // All is gone, or an older copy was restored.
            (None, None, Verdict::Lost(Revision(0))),
            (Some(driver(4, 9)), None, Verdict::Lost(at)),
            (Some(driver(6, 2)), None, replaced("driver-2:1")),
            // The counter of epochs was deleted.
            (Some(driver(5, 2)), None, replaced("driver-2:1")),
            (Some(newer_release), None, Verdict::Replaced(None)),
            (None, outcome(b"ours"), Verdict::Ended),
            (None, outcome(b"other"), Verdict::Replaced(None)),
            // A stranger has no key.
            (Some(None), None, Verdict::Forged),
            (Some(None), outcome(b"other"), Verdict::Forged),
            (None, Some(None), Verdict::Forged),
        ] {
            let text = format!("{entry:?} {outcome:?}");
            let found = Found {
                driver: entry.map(|value| (at, value)),
                outcome,
            };
            assert_eq!(ours().judge(found), expected, "{text}");
        }
    }

    #[test]
    fn an_outcome_is_not_that_of_a_driver_that_has_written_none() {
        let own = Own {
            outcome: None,
            ..ours()
        };
        let found = Found {
            driver: None,
            outcome: Some(Some(b"other".to_vec())),
        };
        assert_eq!(own.judge(found), Verdict::Replaced(None));
    }
}
