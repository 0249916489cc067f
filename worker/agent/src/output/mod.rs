//! Forwards the output of workers to the driver, on a thread of its own so that it never delays a recovery.
//!
//! ```text
//! pipe --pump--> pieces --queue (bounded)--> sender --> driver
//!                   \--> the last lines of each process
//! ```
//! - O1 A worker blocks while the queue is full, until the driver has read nothing for the timeout of the queue.
//!   Then bytes are dropped, and the next piece has their number.
//! - O2 The last bytes are not lost: the pipes of an ended process are read to the end before its exit is
//!   reported. If a descendant holds a pipe open, the report waits for `DRAIN_TIMEOUT` only, and the pump goes on. At
//!   its end the agent sends what is left as long as the driver reads. If the driver is gone, it tries once.
//! - O3 Memory is bounded by `queue::CAPACITY`, and an extra for the last bytes of ended processes.
//! - O4 The pieces of a stream are its bytes. Nothing is added.

mod pieces;
mod pump;
mod queue;
mod sender;
mod tail;

use std::{
    cell::Cell,
    net::SocketAddr,
    os::fd::OwnedFd,
    rc::Rc,
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use elasticrun_protocol::{HostId, Process};
use tokio::{
    sync::{mpsc, oneshot},
    task::LocalSet,
};
use tracing::Span;

use crate::{Error, inbox::InboxMessage, keys::Keys, process::SharedRank, scheduling};
use pump::Pumps;
use queue::Queue;

/// How long to read the pipes of an ended process that a descendant holds open, before its exit is reported.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(200);

enum OutputCommand {
    Read {
        process: Process,
        rank: SharedRank,
        stdout: OwnedFd,
        stderr: OwnedFd,
    },
    Ended(Process),
    DriverBack(SocketAddr),
    Finish {
        has_driver: bool,
        done: oneshot::Sender<()>,
    },
}

/// The handle of the output thread.
#[derive(Debug)]
pub(crate) struct Output {
    commands: mpsc::UnboundedSender<OutputCommand>,
    thread: Option<JoinHandle<()>>,
}

impl Output {
    /// Starts the thread, which opens its own connection to the driver.
    pub(crate) fn start(
        keys: Arc<Keys>,
        output_timeout: Duration,
        driver: SocketAddr,
        host: HostId,
        inbox: mpsc::Sender<InboxMessage>,
    ) -> Result<Self, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Error::system("start a runtime"))?;
        // Each process causes two commands, which bounds the channel.
        let (commands, todo) = mpsc::unbounded_channel();
        let span = Span::current();
        let thread = thread::Builder::new()
            .name("output".into())
            .spawn(move || {
                let _in_host = span.entered();
                scheduling::use_default_time_slices();
                let local = LocalSet::new();
                local.block_on(
                    &runtime,
                    serve(keys, output_timeout, driver, host, inbox, todo),
                );
            })
            .map_err(Error::system("start a thread"))?;
        Ok(Self {
            commands,
            thread: Some(thread),
        })
    }

    /// Reads the pipes of a new process.
    pub(crate) fn read(
        &self,
        process: Process,
        rank: SharedRank,
        stdout: OwnedFd,
        stderr: OwnedFd,
    ) {
        self.send(OutputCommand::Read {
            process,
            rank,
            stdout,
            stderr,
        });
    }

    /// Reads the remaining output of an ended process, then sends [`InboxMessage::OutputEnded`].
    pub(crate) fn ended(&self, process: Process) {
        self.send(OutputCommand::Ended(process));
    }

    /// Sends the output to the driver at this address from now on.
    pub(crate) fn driver_back(&self, driver: SocketAddr) {
        self.send(OutputCommand::DriverBack(driver));
    }

    /// Sends the remaining pieces, closes the connection and ends the thread. Gives up once the driver has read nothing
    /// for [`AgentOptions::output_timeout`](crate::AgentOptions::output_timeout). If the driver is gone,
    /// it gives up at the first failure.
    pub(crate) async fn finish(mut self, has_driver: bool) {
        let (done, finished) = oneshot::channel();
        self.send(OutputCommand::Finish { has_driver, done });
        // An error means that the thread has ended already.
        let _ = finished.await;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the output thread panicked");
        }
    }

    fn send(&self, command: OutputCommand) {
        if self.commands.send(command).is_err() {
            tracing::error!("the output thread is gone");
        }
    }
}

async fn serve(
    keys: Arc<Keys>,
    output_timeout: Duration,
    driver: SocketAddr,
    host: HostId,
    inbox: mpsc::Sender<InboxMessage>,
    mut todo: mpsc::UnboundedReceiver<OutputCommand>,
) {
    let queue = Rc::new(Queue::new(output_timeout));
    let address = Rc::new(Cell::new(driver));
    let mut sender =
        tokio::task::spawn_local(sender::run(keys, address.clone(), host, Rc::clone(&queue)));
    let mut pumps = Pumps::new(Rc::clone(&queue), inbox);
    let mut finish = None;
    while let Some(command) = todo.recv().await {
        match command {
            OutputCommand::Read {
                process,
                rank,
                stdout,
                stderr,
            } => pumps.read(process, rank, stdout, stderr),
            OutputCommand::Ended(process) => pumps.ended(process),
            OutputCommand::DriverBack(driver) => address.set(driver),
            OutputCommand::Finish { has_driver, done } => {
                if !has_driver {
                    queue.give_up_driver();
                }
                finish = Some(done);
                break;
            }
        }
    }
    pumps.end();
    queue.close();
    tokio::select! {
        _ = &mut sender => {}
        () = queue.wait_stalled() => {}
    }
    if queue.len() > 0 {
        tracing::warn!(
            bytes = queue.len(),
            "the driver does not take the last output, which is dropped"
        );
    }
    if let Some(done) = finish {
        // Fails only if the receiver is gone.
        let _ = done.send(());
    }
}
