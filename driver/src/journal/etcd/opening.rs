//! Opens the journal of a run in etcd: as its first driver, or as the next one, which waits for the end of the last one.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use elasticrun_etcd::{
    Client, KeyValue, Keys, Op, Options, Revision,
    leader::{Holder, Leader, Settings, Status},
};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep, timeout, timeout_at},
};

use super::{
    super::{Configuration, Entries, Error, Final, place, seal::Key},
    meta::Meta,
    names::Names,
    runtime::Runtime,
    standbys,
    store::Etcd,
};
use crate::{config::EtcdPlace, seed::seed};

/// How long etcd may take to answer for the first time.
const START_TIMEOUT: Duration = Duration::from_secs(5);

/// How long the end of a registration may take. Agents wait for the driver meanwhile.
const UNREGISTER_TIMEOUT: Duration = Duration::from_millis(500);

/// How long after a failed read the next one begins.
const RETRY: Duration = Duration::from_millis(200);

/// How long a candidate waits for the end of the driver that leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wait {
    /// As long as the lease of a driver that was killed may last.
    ForLease,
    /// As long as it takes.
    ForEver,
}

/// What etcd has of a run.
#[derive(Debug)]
pub(crate) struct Lookup {
    /// All entries.
    pub(crate) entries: Entries,
    /// The driver that leads, if one does.
    pub(crate) leader: Option<Holder>,
    /// The revision of the entry that names the driver which writes.
    driver: Revision,
}

impl Lookup {
    /// Whether nothing of the run can change any more.
    pub(crate) fn is_over(&self) -> bool {
        match Final::read(&self.entries) {
            Some(outcome) => outcome.finished || self.leader.is_none(),
            None => false,
        }
    }
}

/// A driver that waits, as others see it. Its key ends with its lease after this is dropped.
#[derive(Debug)]
pub(crate) struct Registration {
    task: JoinSet<()>,
    key: Vec<u8>,
}

/// The place of one run in etcd, before this driver leads it.
#[derive(Debug)]
pub(crate) struct Run {
    runtime: Arc<Runtime>,
    client: Client,
    names: Names,
    key: Arc<Key>,
    key_file: PathBuf,
    run: String,
    /// How messages name the journal.
    shown: PathBuf,
}

impl Run {
    /// That of a new run. Makes the key of the user's journals in etcd if there is none.
    ///
    /// # Errors
    /// The key cannot be read or written, or the system starts no thread.
    pub(crate) fn new(place: &EtcdPlace, run: &str) -> Result<Self, Error> {
        Self::with(place, run, Key::read_or_create)
    }

    /// That of a run that may have a journal.
    ///
    /// # Errors
    /// The key cannot be read, or the system starts no thread.
    pub(crate) fn existing(place: &EtcdPlace, run: &str) -> Result<Self, Error> {
        Self::with(place, run, Key::read)
    }

    fn with(
        place: &EtcdPlace,
        run: &str,
        key: impl FnOnce(&Path, &Path) -> Result<Key, Error>,
    ) -> Result<Self, Error> {
        let shown = PathBuf::from(place.to_string());
        let key_file = place::key_of_etcd(&shown)?;
        let key = key(&shown, &key_file)?;
        let client = Client::new(&Options::new(place.address.endpoints.clone()));
        let client = client.map_err(|error| Error::Etcd {
            path: shown.clone(),
            why: error.to_string(),
        })?;
        Ok(Self {
            runtime: Arc::new(Runtime::start().map_err(Error::io("a thread of the journal"))?),
            client,
            names: Names::new(&place.address, run),
            key: Arc::new(key),
            key_file,
            run: run.to_owned(),
            shown,
        })
    }

    /// Reads what etcd has of the run.
    ///
    /// # Errors
    /// The run is unknown, etcd does not answer, or this release or key cannot read the journal.
    pub(crate) fn look(&self) -> Result<Lookup, Error> {
        let lookup = self.runtime.wait(self.read())?;
        if Configuration::is_in(&lookup.entries) || Final::is_in(&lookup.entries) {
            return Ok(lookup);
        }
        Err(Error::Unknown {
            run: self.run.clone(),
            path: self.shown.clone(),
        })
    }

    /// Begins the journal of a new run as its leader.
    ///
    /// # Errors
    /// etcd cannot be used, or the run is there already.
    pub(in super::super) fn create(
        self,
        lease: Duration,
        endpoints: Vec<String>,
    ) -> Result<Etcd, Error> {
        let leader = self.candidate(lease, endpoints)?;
        let epoch = self.wait_for_leadership(&leader, Some(START_TIMEOUT * 2))?;
        if epoch != 1 {
            self.runtime.wait(leader.resign());
            return Err(self.unusable(format!("run {} is there already", self.run)));
        }
        Ok(self.store(leader, epoch, Revision(0)))
    }

    /// Waits until no other driver leads the run, and takes its place.
    ///
    /// # Errors
    /// Another driver leads it for too long, or the journal cannot be read.
    pub(in super::super) fn take(
        &self,
        lease: Duration,
        wait: Wait,
        endpoints: Vec<String>,
    ) -> Result<(Etcd, Entries), Error> {
        let leader = self.candidate(lease, endpoints)?;
        let limit = match wait {
            // etcd may grant a longer lease than was asked for, and ends it late.
            Wait::ForLease => Some(lease * 2 + START_TIMEOUT),
            Wait::ForEver => None,
        };
        let epoch = self.wait_for_leadership(&leader, limit)?;
        let lookup = self.runtime.wait(self.read())?;
        let mut store = self.store(leader, epoch, lookup.driver);
        store.remember(&lookup.entries);
        Ok((store, lookup.entries))
    }

    fn store(&self, leader: Leader, epoch: u64, fence: Revision) -> Etcd {
        Etcd::new(
            self.runtime.clone(),
            self.client.clone(),
            leader,
            (self.names.clone(), self.run.clone()),
            self.key.clone(),
            (epoch, fence),
        )
    }

    fn candidate(&self, lease: Duration, endpoints: Vec<String>) -> Result<Leader, Error> {
        let settings = Settings {
            ttl: lease,
            nonce: seed().map_err(|error| self.unusable(error.to_string()))?,
            endpoints,
            give_up: START_TIMEOUT,
            leader_gives_up: None,
        };
        let _in_runtime = self.runtime.handle().enter();
        Ok(Leader::start(
            self.client.clone(),
            self.names.run(),
            settings,
        ))
    }

    /// Registers this driver as one that waits, at these addresses.
    ///
    /// # Errors
    /// The system has no randomness.
    pub(crate) fn register(
        &self,
        endpoints: Vec<String>,
        lease: Duration,
    ) -> Result<Registration, Error> {
        let nonce = seed().map_err(|error| self.unusable(error.to_string()))?;
        let (client, key) = (self.client.clone(), self.names.standby(nonce));
        let mut task = JoinSet::new();
        let register = standbys::register(client, key.clone(), endpoints, lease);
        task.spawn_on(register, self.runtime.handle());
        Ok(Registration { task, key })
    }

    /// Ends a registration, since the driver waits no more.
    pub(crate) fn unregister(&self, registration: Registration) {
        let Registration { task, key } = registration;
        drop(task);
        let delete = [Op::Delete(Keys::One(key))];
        let deleted = self.client.txn(&[], &delete, &[]);
        // A key that stays ends with its lease.
        let _ = self.wait(async { timeout(UNREGISTER_TIMEOUT, deleted).await });
    }

    /// Waits for a result on the thread of etcd.
    pub(crate) fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.wait(work)
    }

    /// Waits until a candidate leads. Gives its epoch.
    fn wait_for_leadership(&self, leader: &Leader, limit: Option<Duration>) -> Result<u64, Error> {
        let mut statuses = leader.statuses();
        self.runtime.wait(async {
            let leads = leads(&mut statuses);
            let ended = match limit {
                Some(limit) => timeout(limit, leads).await,
                None => Ok(leads.await),
            };
            match ended {
                Ok(Ok(epoch)) => Ok(epoch),
                Ok(Err(why)) => Err(self.unusable(why)),
                Err(_) => Err(match leader.status() {
                    Status::Standby(Some(holder)) => Error::Led {
                        run: self.run.clone(),
                        by: holder.endpoints.into_iter().next(),
                    },
                    _ => self.unusable(format!("it has not answered for {START_TIMEOUT:?}")),
                }),
            }
        })
    }

    async fn read(&self) -> Result<Lookup, Error> {
        let until = Instant::now() + START_TIMEOUT;
        let keys = self.names.all();
        loop {
            let read = self.client.range(&keys, 0, Revision(0));
            let why = match timeout_at(until, read).await {
                Ok(Ok(found)) => return self.unseal(found.keys),
                Ok(Err(error)) if !error.is_temporary() => {
                    return Err(self.unusable(error.to_string()));
                }
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("it has not answered for {START_TIMEOUT:?}"),
            };
            if Instant::now() + RETRY >= until {
                return Err(self.unusable(why));
            }
            sleep(RETRY).await;
        }
    }

    fn unseal(&self, keys: Vec<KeyValue>) -> Result<Lookup, Error> {
        let damaged = |why: String| Error::Damaged {
            path: self.shown.clone(),
            why,
        };
        let mut lookup = Lookup {
            entries: Entries::new(),
            leader: None,
            driver: Revision(0),
        };
        // Before the values, which an unknown format or another key makes unreadable.
        if let Some(meta) = keys.iter().find(|found| found.key == self.names.meta()) {
            Meta::check(&meta.value, &self.shown, &self.key, &self.key_file)?;
        }
        for found in keys {
            if found.key == self.names.leader() {
                lookup.leader = serde_json::from_slice(&found.value).ok();
            }
            if found.key == self.names.driver() {
                lookup.driver = found.mod_revision;
            }
            if let Some(entry) = self.names.entry_of(&found.key) {
                let value = (self.key.unseal(&self.run, entry, &found.value))
                    .ok_or_else(|| damaged(format!("the value of {entry:?} has changed")))?;
                lookup.entries.insert(entry.to_owned(), value);
            }
        }
        Ok(lookup)
    }

    fn unusable(&self, why: String) -> Error {
        Error::Etcd {
            path: self.shown.clone(),
            why,
        }
    }
}

/// Waits until a candidate leads, and gives its epoch.
///
/// # Errors
/// It never will: the reason.
async fn leads(statuses: &mut watch::Receiver<Status>) -> Result<u64, String> {
    loop {
        match &*statuses.borrow_and_update() {
            Status::Leading { epoch, .. } => return Ok(*epoch),
            Status::Unreachable(why) => return Err(why.clone()),
            Status::Resigned => return Err("it was given up".to_owned()),
            Status::Standby(_) => {}
        }
        if statuses.changed().await.is_err() {
            return Err("it was given up".to_owned());
        }
    }
}
