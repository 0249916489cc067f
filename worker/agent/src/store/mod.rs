//! Requests of workers to the job's key-value store, on a thread of its own: whatever workers ask and however
//! large it is, the loop and its connection to the driver are as quick to tell of a death.
//!
//! ```text
//! workers --Unix socket--> guest (a task each) --bounded--> relay --its own connection--> driver
//! ```
//! The agent keeps nothing: it says for whom a request is, and who of its workers has gone. The connection to
//! the driver is made when a worker asks first. When it ends, whoever waits for an answer over it is told so.

mod duplex;
mod guest;
mod relay;

use std::{net::SocketAddr, os::unix::net::UnixStream, thread};

use elasticrun_protocol::{Process, store::StoreOf};
use tokio::{sync::mpsc, task::LocalSet};

use crate::{AgentOptions, Error, scheduling};
use relay::Relay;

/// What the loop tells the thread.
#[derive(Debug)]
enum Order {
    /// A worker has opened a connection for its requests.
    Open(Process, UnixStream),
    /// A process is reaped; others may hold what it had open.
    Ended(Process),
    /// The driver is lost.
    DriverLost,
}

/// The handle of the thread, which ends with it.
#[derive(Debug)]
pub(crate) struct Store {
    orders: mpsc::UnboundedSender<Order>,
}

impl Store {
    /// Starts the thread.
    pub(crate) fn start(
        options: AgentOptions,
        driver: SocketAddr,
        of: StoreOf,
    ) -> Result<Self, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map_err(Error::system("start a runtime"))?;
        // A process opens few connections and ends once, so the channel is bounded by them.
        let (orders, todo) = mpsc::unbounded_channel();
        thread::Builder::new()
            .name("store".into())
            .spawn(move || {
                scheduling::take_turns_as_usual();
                let relay = Relay::new(options, driver, of);
                LocalSet::new().block_on(&runtime, relay.run(todo));
            })
            .map_err(Error::system("start a thread"))?;
        Ok(Self { orders })
    }

    /// Takes requests of this worker; its connection before is closed.
    pub(crate) fn open(&self, process: Process, stream: UnixStream) {
        self.order(Order::Open(process, stream));
    }

    /// Takes none of it any more.
    pub(crate) fn ended(&self, process: Process) {
        self.order(Order::Ended(process));
    }

    /// From now on requests are refused.
    pub(crate) fn driver_lost(&self) {
        self.order(Order::DriverLost);
    }

    fn order(&self, order: Order) {
        if self.orders.send(order).is_err() {
            tracing::error!("the store's thread is gone");
        }
    }
}
