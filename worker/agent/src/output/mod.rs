//! Forwards the output of workers to the driver, on a thread of its own so that it never delays a recovery.
//!
//! ```text
//! pipe --pump--> whole lines --queue (bounded)--> sender --> driver
//!                     \--> the last lines of each process
//! ```
//! - O1 A worker blocks while the queue is full, until the driver has read nothing for the timeout of the queue.
//!   Then lines are dropped, and one line reports how many.
//! - O2 The last lines are not lost: the pipes of an ended process are read to the end before its exit is
//!   reported. If a descendant holds a pipe open, the report waits for `DRAIN_TIMEOUT` only, and the pump goes on.
//! - O3 Memory is bounded by `queue::CAPACITY`, and an extra for the last lines of ended processes.

mod lines;
mod pump;
mod queue;
mod sender;

use std::{
    net::SocketAddr,
    os::fd::OwnedFd,
    rc::Rc,
    thread::{self, JoinHandle},
    time::Duration,
};

use elasticrun_protocol::{HostId, Process};
use tokio::{
    sync::{mpsc, oneshot},
    task::LocalSet,
};

use crate::{AgentOptions, Error, inbox::InboxMessage, process::SharedRank, scheduling};
use pump::Pumps;
use queue::Queue;

/// How long to read the pipes of an ended process that a descendant holds open, before its exit is reported.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(200);

/// How long the driver may take to read the remaining lines at the agent's end.
const FINAL_SEND_TIMEOUT: Duration = Duration::from_secs(3);

enum OutputCommand {
    Read {
        process: Process,
        rank: SharedRank,
        stdout: OwnedFd,
        stderr: OwnedFd,
    },
    Ended(Process),
    Finish(oneshot::Sender<()>),
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
        options: AgentOptions,
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
        let thread = thread::Builder::new()
            .name("output".into())
            .spawn(move || {
                scheduling::use_default_time_slices();
                let local = LocalSet::new();
                local.block_on(&runtime, serve(options, driver, host, inbox, todo));
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

    /// Sends the remaining lines for at most [`FINAL_SEND_TIMEOUT`], closes the connection and ends the thread.
    pub(crate) async fn finish(mut self) {
        let (done, finished) = oneshot::channel();
        self.send(OutputCommand::Finish(done));
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
    options: AgentOptions,
    driver: SocketAddr,
    host: HostId,
    inbox: mpsc::Sender<InboxMessage>,
    mut todo: mpsc::UnboundedReceiver<OutputCommand>,
) {
    let queue = Rc::new(Queue::new(options.output_timeout));
    let sender = tokio::task::spawn_local(sender::run(options, driver, host, Rc::clone(&queue)));
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
            OutputCommand::Finish(done) => {
                finish = Some(done);
                break;
            }
        }
    }
    pumps.end();
    queue.close();
    if tokio::time::timeout(FINAL_SEND_TIMEOUT, sender)
        .await
        .is_err()
    {
        tracing::warn!("the driver does not take the last lines of output");
    }
    if let Some(done) = finish {
        // Fails only if the receiver is gone.
        let _ = done.send(());
    }
}
