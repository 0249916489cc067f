//! Runs a candidate on a real cluster.

use std::sync::Arc;

use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::sleep,
};

use super::{Clock, Command, Event, Holder, Machine, Settings, Status, Time};
use crate::{
    Client, Compare, Error, KeyValue, Keys, LeaseId, Op, Outcome, Revision, Watch, error::Attempt,
};

/// The keys of a run.
#[derive(Debug)]
struct Names {
    leader: Vec<u8>,
    epoch: Vec<u8>,
}

/// Why a leader has not written.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WriteError {
    /// Its leadership has ended. Nothing was written.
    #[error("this process does not lead the run")]
    NotLeader,
    /// Another process has taken its place, or its key is gone. Nothing was written.
    #[error("this process has been replaced as the leader of the run")]
    Fenced,
    /// This process leads, and a condition of the caller does not hold. Nothing was written.
    #[error("a condition of the write does not hold")]
    Refused,
    /// etcd has not answered as it should. [`Error::may_have_happened`] says whether the steps may have been taken.
    #[error(transparent)]
    Etcd(#[from] Error),
}

/// The handle of a candidate. It runs until it is dropped, and then leaves its lease to end by itself; [`Leader::resign`]
/// gives it back.
#[derive(Debug)]
pub struct Leader {
    client: Client,
    names: Arc<Names>,
    clock: Clock,
    status: watch::Receiver<Status>,
    events: mpsc::UnboundedSender<Event>,
    task: JoinSet<()>,
}

impl Leader {
    /// Begins to run for leader under `prefix`, which all candidates of a run share. Needs a tokio runtime.
    pub fn start(client: Client, prefix: &str, settings: Settings) -> Self {
        Self::start_with(client, prefix, settings, Clock::boottime())
    }

    /// As [`Leader::start`], with another clock.
    pub fn start_with(client: Client, prefix: &str, settings: Settings, clock: Clock) -> Self {
        let names = Arc::new(Names {
            leader: format!("{prefix}/leader").into(),
            epoch: format!("{prefix}/epoch").into(),
        });
        let machine = Machine::new(settings, clock.now());
        let (sender, status) = watch::channel(machine.status().clone());
        let (events, received) = mpsc::unbounded_channel();
        let candidate = Candidate {
            client: client.clone(),
            names: Arc::clone(&names),
            clock: clock.clone(),
            machine,
            status: sender,
            calls: JoinSet::new(),
            watch: None,
        };
        let mut task = JoinSet::new();
        task.spawn(candidate.run(received));
        Self {
            client,
            names,
            clock,
            status,
            events,
            task,
        }
    }

    /// What the candidate is now.
    pub fn status(&self) -> Status {
        self.status.borrow().clone()
    }

    /// Waits for another status. The end of a leadership by the clock is no change: see [`Status::Leading`]. Cancel-safe.
    pub async fn changed(&mut self) -> Status {
        if self.status.changed().await.is_err() {
            // The candidate has retired, and its status is final.
            std::future::pending::<()>().await;
        }
        self.status.borrow_and_update().clone()
    }

    /// Follows what the candidate is.
    pub fn statuses(&self) -> watch::Receiver<Status> {
        self.status.clone()
    }

    /// Takes steps as the leader, if the leadership has not ended, nothing has taken its place in etcd, and all conditions hold.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub async fn write(&self, conditions: &[Compare], steps: &[Op]) -> Result<Outcome, WriteError> {
        let fence = match self.status() {
            Status::Leading { fence, until, .. } if self.clock.now() < until => fence,
            _ => return Err(WriteError::NotLeader),
        };
        let own = Compare::Created(self.names.leader.clone(), fence);
        let compares = [&[own], conditions].concat();
        let read = Op::Range(Keys::One(self.names.leader.clone()));
        let outcome = self.client.txn(&compares, steps, &[read]).await?;
        if outcome.succeeded {
            return Ok(outcome);
        }
        let leader = outcome.found.first().and_then(|found| found.first());
        if leader.is_some_and(|leader| leader.create_revision == fence) {
            return Err(WriteError::Refused);
        }
        // Without a receiver the candidate has retired.
        let _ = self.events.send(Event::Fenced(fence));
        Err(WriteError::Fenced)
    }

    /// Gives the leadership back, so that another candidate need not wait for the end of the lease.
    pub async fn resign(mut self) {
        let _ = self.events.send(Event::Resign);
        while self.task.join_next().await.is_some() {}
    }
}

/// The task of a candidate.
struct Candidate {
    client: Client,
    names: Arc<Names>,
    clock: Clock,
    machine: Machine,
    status: watch::Sender<Status>,
    calls: JoinSet<Option<Event>>,
    watch: Option<JoinSet<()>>,
}

impl Candidate {
    async fn run(mut self, mut received: mpsc::UnboundedReceiver<Event>) {
        let mut out = Vec::new();
        self.machine.tick(self.clock.now(), &mut out);
        loop {
            self.execute(&mut out);
            let deadline = self.machine.next_deadline();
            // After a suspend it ends late: it counts the time that the machine was awake.
            let left = deadline.map(|deadline| deadline.since(self.clock.now()));
            let timer = async {
                match left {
                    Some(left) => sleep(left).await,
                    None => std::future::pending().await,
                }
            };
            let watch = async {
                match &mut self.watch {
                    Some(watch) => watch.join_next().await,
                    None => std::future::pending().await,
                }
            };
            let event = tokio::select! {
                event = received.recv() => Some(event.unwrap_or(Event::Resign)),
                Some(answer) = self.calls.join_next() => match answer {
                    Ok(event) => event,
                    Err(error) => std::panic::resume_unwind(error.into_panic()),
                },
                _ = watch => {
                    self.watch = None;
                    Some(Event::Changed)
                }
                () = timer => None,
                else => return,
            };
            let now = self.clock.now();
            match event {
                Some(event) => self.machine.receive(now, event, &mut out),
                None => self.machine.tick(now, &mut out),
            }
            if self.is_retired() && out.is_empty() && self.calls.is_empty() {
                self.publish();
                return;
            }
        }
    }

    fn is_retired(&self) -> bool {
        !matches!(
            self.machine.status(),
            Status::Standby(_) | Status::Leading { .. }
        )
    }

    fn publish(&mut self) {
        let status = self.machine.status();
        self.status.send_if_modified(|known| {
            let is_new = known != status;
            if is_new {
                known.clone_from(status);
            }
            is_new
        });
        if !matches!(self.machine.status(), Status::Standby(_)) {
            self.watch = None;
        }
    }

    /// The status is shown before anything is sent, so that no write follows the end of a leadership.
    fn execute(&mut self, out: &mut Vec<Command>) {
        self.publish();
        for command in out.drain(..) {
            let (client, names) = (self.client.clone(), Arc::clone(&self.names));
            if let Command::Watch(from) = command {
                let mut watch = JoinSet::new();
                watch.spawn(wait_for_change(client, names, from));
                self.watch = Some(watch);
                continue;
            }
            let sent = self.clock.now();
            self.calls.spawn(async move {
                match call(&client, &names, command, sent).await {
                    Ok(event) => event,
                    Err(error) => Some(Event::Failed {
                        is_temporary: error.is_temporary(),
                        why: error.to_string(),
                    }),
                }
            });
        }
    }
}

async fn call(
    client: &Client,
    names: &Names,
    command: Command,
    sent: Time,
) -> Result<Option<Event>, Error> {
    Ok(match command {
        Command::Observe => Some(observe(client, names).await?),
        Command::Grant(ttl) => {
            let granted = client.grant(ttl).await?;
            Some(Event::Granted {
                sent,
                lease: granted.lease,
                ttl: granted.ttl,
            })
        }
        Command::KeepAlive(lease) => {
            let ttl = client.keep_alive(lease).await?;
            Some(Event::KeptAlive { sent, lease, ttl })
        }
        Command::Campaign {
            holder,
            lease,
            seen,
        } => {
            let won = campaign(client, names, &holder, lease, seen).await?;
            Some(Event::Campaigned(won))
        }
        Command::Revoke(lease) => {
            // A lease that is left ends by itself.
            let _ = client.revoke(lease).await;
            None
        }
        Command::Watch(_) => None,
    })
}

async fn observe(client: &Client, names: &Names) -> Result<Event, Error> {
    let range = |key: &Vec<u8>| Op::Range(Keys::One(key.clone()));
    let steps = [range(&names.leader), range(&names.epoch)];
    // A transaction reads both in one revision. It changes nothing, so each failure may be repeated.
    let outcome = client.txn(&[], &steps, &[]).await?;
    let mut found = outcome.found.into_iter();
    let mut next = || found.next().unwrap_or_default().into_iter().next();
    let (leader, epoch) = (next(), next());
    Ok(Event::Observed {
        leader: leader.map(read_leader).transpose()?,
        epoch: epoch.map(read_epoch).transpose()?.unwrap_or_default(),
        revision: outcome.revision,
    })
}

fn read_leader(found: KeyValue) -> Result<(Holder, Revision, LeaseId), Error> {
    let holder = serde_json::from_slice(&found.value).map_err(|_| unreadable(&found))?;
    Ok((holder, found.create_revision, found.lease))
}

fn read_epoch(found: KeyValue) -> Result<(u64, Revision), Error> {
    let text = std::str::from_utf8(&found.value).map_err(|_| unreadable(&found))?;
    let epoch = text.parse().map_err(|_| unreadable(&found))?;
    Ok((epoch, found.mod_revision))
}

fn unreadable(found: &KeyValue) -> Error {
    Error::Unreadable(Attempt {
        endpoint: String::from_utf8_lossy(&found.key).into_owned(),
        why: "the value of this key cannot be read".into(),
    })
}

async fn campaign(
    client: &Client,
    names: &Names,
    holder: &Holder,
    lease: LeaseId,
    seen: Revision,
) -> Result<Option<Revision>, Error> {
    let compares = [
        Compare::Created(names.leader.clone(), Revision(0)),
        Compare::Modified(names.epoch.clone(), seen),
    ];
    let steps = [
        Op::Put {
            key: names.leader.clone(),
            value: serde_json::to_vec(holder).expect("numbers and texts are JSON"),
            lease,
        },
        Op::Put {
            key: names.epoch.clone(),
            value: holder.epoch.to_string().into(),
            lease: LeaseId(0),
        },
    ];
    let outcome = client.txn(&compares, &steps, &[]).await?;
    Ok(outcome.succeeded.then_some(outcome.revision))
}

/// Returns at the first change, and when the watch has ended.
async fn wait_for_change(client: Client, names: Arc<Names>, from: Revision) {
    let keys = Keys::One(names.leader.clone());
    if let Ok(mut watch) = client.watch(&keys, from).await {
        let _: Result<_, _> = Watch::next(&mut watch).await;
    }
}
