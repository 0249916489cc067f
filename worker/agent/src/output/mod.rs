//! What workers print, on a thread of its own: the way of a recovery never waits for it.
//!
//! ```text
//! pipe --pump--> whole lines --queue (bounded)--> sender --> driver
//!                     \--> the last lines of each process
//! ```
//! - O1 A worker is blocked while the queue is full, at most as long as the driver takes nothing for the
//!   time of its patience; then lines are dropped, counted, and a note says how many.
//! - O2 The last lines are not lost: when a process has ended, what is in its pipes is read to the end before
//!   its exit is reported, but no longer than `LAST_LINES` while a grandchild holds a pipe. The pump goes
//!   on for that one in the background.
//! - O3 Memory is bounded: `queue::ROOM`, and for the last lines of dead processes some more.

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

use crate::{AgentOptions, Error, inbox::Note, process::SharedRank, scheduling};
use pump::Pumps;
use queue::Queue;

/// How long a dead process's pipe that somebody holds is waited for.
const LAST_LINES: Duration = Duration::from_millis(200);

/// How long the driver may take for the rest at the end of the agent.
const LAST_SEND: Duration = Duration::from_secs(3);

enum ToOutput {
    Read {
        process: Process,
        rank: SharedRank,
        stdout: OwnedFd,
        stderr: OwnedFd,
    },
    Ended(Process),
    Finish(oneshot::Sender<()>),
}

/// The handle of the thread.
#[derive(Debug)]
pub(crate) struct Output {
    orders: mpsc::UnboundedSender<ToOutput>,
    thread: Option<JoinHandle<()>>,
}

impl Output {
    /// Starts the thread, which connects to the driver by itself.
    pub(crate) fn start(
        options: AgentOptions,
        driver: SocketAddr,
        host: HostId,
        inbox: mpsc::Sender<Note>,
    ) -> Result<Self, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Error::system("start a runtime"))?;
        // Each process gives three orders at most, so the channel is bounded by them.
        let (orders, todo) = mpsc::unbounded_channel();
        let thread = thread::Builder::new()
            .name("output".into())
            .spawn(move || {
                scheduling::take_turns_as_usual();
                let local = LocalSet::new();
                local.block_on(&runtime, serve(options, driver, host, inbox, todo));
            })
            .map_err(Error::system("start a thread"))?;
        Ok(Self {
            orders,
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
        self.order(ToOutput::Read {
            process,
            rank,
            stdout,
            stderr,
        });
    }

    /// A process has ended: read the rest, then say so by [`Note::OutputEnded`].
    pub(crate) fn ended(&self, process: Process) {
        self.order(ToOutput::Ended(process));
    }

    /// Sends what is left, at most for [`LAST_SEND`], closes the connection and ends the thread.
    pub(crate) async fn finish(mut self) {
        let (done, finished) = oneshot::channel();
        self.order(ToOutput::Finish(done));
        // An error means that the thread has ended already.
        let _ = finished.await;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the output thread panicked");
        }
    }

    fn order(&self, order: ToOutput) {
        if self.orders.send(order).is_err() {
            tracing::error!("the output thread is gone");
        }
    }
}

async fn serve(
    options: AgentOptions,
    driver: SocketAddr,
    host: HostId,
    inbox: mpsc::Sender<Note>,
    mut todo: mpsc::UnboundedReceiver<ToOutput>,
) {
    let queue = Rc::new(Queue::new(options.output_patience));
    let sender = tokio::task::spawn_local(sender::run(options, driver, host, Rc::clone(&queue)));
    let mut pumps = Pumps::new(Rc::clone(&queue), inbox);
    let mut finish = None;
    while let Some(order) = todo.recv().await {
        match order {
            ToOutput::Read {
                process,
                rank,
                stdout,
                stderr,
            } => pumps.read(process, rank, stdout, stderr),
            ToOutput::Ended(process) => pumps.ended(process),
            ToOutput::Finish(done) => {
                finish = Some(done);
                break;
            }
        }
    }
    pumps.end();
    queue.close();
    if tokio::time::timeout(LAST_SEND, sender).await.is_err() {
        tracing::warn!("the driver does not take the last lines of output");
    }
    if let Some(done) = finish {
        // Fails only if nobody waits for it.
        let _ = done.send(());
    }
}
