//! Forwards requests of workers to the job's key-value store. It has its own thread and connection, so that requests of
//! any size never delay the report of a death by the loop.
//!
//! ```text
//! workers --Unix socket--> WorkerConn (a task each) --bounded--> Relay --its own connection--> driver
//! ```
//! The agent stores nothing. It adds the worker's name to each request, and reports which workers have left. The first
//! request opens the connection to the driver. When the connection ends, all waiting requests get an error.

mod driver_conn;
mod relay;
mod worker_conn;

use std::{net::SocketAddr, os::unix::net::UnixStream, sync::Arc, thread};

use elasticrun_protocol::{Process, store::StoreOf};
use tokio::{sync::mpsc, task::LocalSet};
use tracing::Span;

use crate::{Error, keys::Keys, scheduling};
use relay::Relay;

/// A connection that a worker has opened for its requests.
#[derive(Debug)]
pub(crate) struct WorkerOpening {
    pub(crate) process: Process,
    pub(crate) stream: UnixStream,
    /// The newest protocol version that the worker speaks.
    pub(crate) version: u16,
}

/// A command of the loop to the thread.
#[derive(Debug)]
enum StoreCommand {
    /// A worker has opened a connection for its requests.
    Open(WorkerOpening),
    /// A process is reaped. Other processes may hold its descriptors.
    Ended(Process),
    /// The driver is lost.
    DriverLost,
    /// The connection to the driver is broken, and the agent may return to it.
    DriverAway,
    /// The agent is back at its driver, at this address and with this number of the connection.
    DriverBack(SocketAddr, u64),
}

/// The handle of the store thread. Dropping it ends the thread.
#[derive(Debug)]
pub(crate) struct Store {
    commands: mpsc::UnboundedSender<StoreCommand>,
}

impl Store {
    /// Starts the thread.
    pub(crate) fn start(
        keys: Arc<Keys>,
        driver: SocketAddr,
        hello: StoreOf,
    ) -> Result<Self, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map_err(Error::system("start a runtime"))?;
        // A process opens few connections and ends once, which bounds the channel.
        let (commands, todo) = mpsc::unbounded_channel();
        let span = Span::current();
        thread::Builder::new()
            .name("store".into())
            .spawn(move || {
                let _in_host = span.entered();
                scheduling::use_default_time_slices();
                let relay = Relay::new(keys, driver, hello);
                LocalSet::new().block_on(&runtime, relay.run(todo));
            })
            .map_err(Error::system("start a thread"))?;
        Ok(Self { commands })
    }

    /// Serves requests of a worker. An earlier connection of the worker is closed.
    pub(crate) fn open(&self, opening: WorkerOpening) {
        self.send(StoreCommand::Open(opening));
    }

    /// Serves no more requests of an ended process.
    pub(crate) fn ended(&self, process: Process) {
        self.send(StoreCommand::Ended(process));
    }

    /// Refuses all requests from now on.
    pub(crate) fn driver_lost(&self) {
        self.send(StoreCommand::DriverLost);
    }

    /// Keeps requests until the agent is back at its driver.
    pub(crate) fn driver_away(&self) {
        self.send(StoreCommand::DriverAway);
    }

    /// Sends the requests that were kept to the driver at this address. `instance` is its number of the connection.
    pub(crate) fn driver_back(&self, driver: SocketAddr, instance: u64) {
        self.send(StoreCommand::DriverBack(driver, instance));
    }

    fn send(&self, command: StoreCommand) {
        if self.commands.send(command).is_err() {
            tracing::error!("the store's thread is gone");
        }
    }
}
