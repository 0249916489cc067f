//! The worker's side of commands: the numbers of the optimizer, and the clock.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use elasticrun_collectives::Element;

use crate::{
    command::{Command, Reply},
    core::{
        node::{NodeId, SERVER_GROUP},
        optimizer::{Change, Optimizer},
    },
    error::{Error, Refusal},
    postoffice::Postoffice,
    simple::SimpleApp,
    worker::KvWorker,
};

/// The answers to each command that waits for some.
type Replies = BTreeMap<u64, Vec<(NodeId, Reply)>>;

/// Sends commands to the servers of an app, which must be made by [`KvServer::with_commands`](crate::KvServer::with_commands).
/// Clones are the same.
#[derive(Clone)]
pub struct ServerControl {
    simple: SimpleApp,
    replies: Arc<Mutex<Replies>>,
}

impl fmt::Debug for ServerControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ServerControl").field(&self.simple).finish()
    }
}

impl ServerControl {
    /// For the app with this number. A process has one of each number.
    ///
    /// # Errors
    /// The process has this control, or a simple app of this number, already.
    pub fn new(postoffice: &Postoffice, app: u32) -> Result<Self, Error> {
        let replies = Arc::new(Mutex::new(Replies::new()));
        let notes = Arc::clone(&replies);
        let simple = SimpleApp::new(
            postoffice,
            app,
            SimpleApp::echo_nothing(),
            Box::new(move |answer| {
                let mut replies = notes.lock().unwrap_or_else(PoisonError::into_inner);
                let reply = (answer.sender, Reply::decode(&answer.body));
                replies.entry(answer.timestamp).or_default().push(reply);
            }),
        )?;
        Ok(Self { simple, replies })
    }

    /// Sets the learning rate on all servers. `step` is that of the caller: a rate for an earlier step than that of the last
    /// change is ignored. So each worker may send the rate of its schedule in each of its steps.
    ///
    /// # Errors
    /// A server is lost or does not answer in time, has no optimizer, or refuses the rate.
    pub fn set_learning_rate(&self, step: u64, learning_rate: f64) -> Result<Optimizer, Error> {
        let change = Change {
            learning_rate: Some(learning_rate),
            ..Change::default()
        };
        self.change_optimizer(step, change)
    }

    /// Changes several numbers of the optimizer, as [`set_learning_rate`](Self::set_learning_rate) does. Returns the optimizer
    /// of one of the servers.
    ///
    /// # Errors
    /// As there.
    pub fn change_optimizer(&self, step: u64, change: Change) -> Result<Optimizer, Error> {
        self.ask_optimizer(&Command::Change { step, change })
    }

    /// The optimizer of one of the servers.
    ///
    /// # Errors
    /// A server is lost or does not answer in time, or has no optimizer.
    pub fn optimizer(&self) -> Result<Optimizer, Error> {
        self.ask_optimizer(&Command::Optimizer)
    }

    fn ask_optimizer(&self, command: &Command) -> Result<Optimizer, Error> {
        let mut optimizers = self.call(command, "optimizer", |reply| match reply {
            Reply::Optimizer(optimizer) => Some(optimizer),
            _ => None,
        })?;
        Ok(optimizers.pop().expect("a job has a server"))
    }

    fn ask_clock(&self, command: &Command) -> Result<u64, Error> {
        let clocks = self.call(command, "clock", |reply| match reply {
            Reply::Clock(clock) => Some(clock),
            _ => None,
        })?;
        Ok(clocks.into_iter().max().unwrap_or(0))
    }

    /// Sends a command to all servers, and waits for their answers.
    fn call<R>(
        &self,
        command: &Command,
        what: &str,
        read: impl Fn(Reply) -> Option<R>,
    ) -> Result<Vec<R>, Error> {
        let timestamp = self.simple.request(0, command.encode(), SERVER_GROUP)?;
        let waited = self.simple.wait(timestamp);
        let mut replies = self.replies.lock().unwrap_or_else(PoisonError::into_inner);
        let replies = replies.remove(&timestamp.0).unwrap_or_default();
        waited?;
        let read = replies.into_iter().map(|(node, reply)| {
            let reason = match &reply {
                Reply::Refused(reason) => reason.clone(),
                _ => format!("its handler has no {what}"),
            };
            let refusal = Refusal::Handler(reason);
            read(reply).ok_or(Error::Refused { node, refusal })
        });
        read.collect()
    }
}

/// The clock of a worker: how many steps it has made. All customers of a process share it.
#[derive(Debug)]
pub struct WorkerClock {
    control: ServerControl,
    clock: AtomicU64,
}

impl WorkerClock {
    /// Joins the workers whose clocks the servers keep. A worker that was there at the start is at 0, a later one at the clock
    /// of the slowest.
    ///
    /// # Errors
    /// A server is lost or does not answer in time, or has no clocks.
    pub fn join(control: &ServerControl) -> Result<Self, Error> {
        let clock = control.ask_clock(&Command::Join)?;
        if clock > 0 {
            // A server may have been asked before the slowest worker told it its last step.
            control.ask_clock(&Command::Tick { clock })?;
        }
        Ok(Self {
            control: control.clone(),
            clock: AtomicU64::new(clock),
        })
    }

    /// The clock.
    pub fn clock(&self) -> u64 {
        self.clock.load(Ordering::SeqCst)
    }

    /// Ends a step: waits until all requests of the worker that have begun are completed, so that its pushes are applied, and
    /// tells the servers. Returns the new clock.
    ///
    /// # Errors
    /// A request of the worker failed meanwhile, or a server is lost or does not answer in time.
    pub fn tick<T: Element>(&self, worker: &KvWorker<T>) -> Result<u64, Error> {
        worker.customer().wait_all()?;
        let clock = self.clock.fetch_add(1, Ordering::SeqCst) + 1;
        self.control.ask_clock(&Command::Tick { clock })?;
        Ok(clock)
    }
}
