//! A node: a thread that steps `elasticrun_core::rendezvous::Machine` over a link to the holder of the state.
//!
//! The holder pushes each change, so what a node knows is current without a poll.

mod link;
mod observed;
mod task;

use std::{
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use elasticrun_core::rendezvous::{Failure, Machine, Membership, NodeId, Settings};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::{Error, Place};
pub use observed::Observed;
use observed::Shared;

/// Why a join did not make this node a participant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// The rendezvous closed while this node was redundant: it was not needed, and this is no failure.
    #[error("the rendezvous closed without a need for this node")]
    Released,
    /// The join failed.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// The node has ended.
    #[error("the node has ended")]
    Ended,
}

/// How [`Node::exit`] ended.
pub type Exit = Result<(), JoinError>;

/// A request of the program to its node.
#[derive(Debug)]
enum Request {
    Join(Sender<Result<Membership, JoinError>>),
    Exit(Sender<Exit>),
    Close(Sender<Exit>),
}

/// A node of a run. Its thread ends when this is dropped.
#[derive(Debug)]
pub struct Node {
    id: NodeId,
    requests: Option<UnboundedSender<Request>>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// The process that has the thread. A forked child has only the memory.
    pid: u32,
}

/// A request whose result may not be there yet.
#[derive(Debug)]
pub struct Pending<T>(Receiver<Result<T, JoinError>>);

impl<T> Pending<T> {
    /// Waits for the result, at most for `timeout`. `None` if it has not come: call again.
    pub fn poll(&mut self, timeout: Duration) -> Option<Result<T, JoinError>> {
        match self.0.recv_timeout(timeout) {
            Ok(result) => Some(result),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Err(JoinError::Ended)),
        }
    }

    /// Waits for the result. The settings of the node limit the wait.
    ///
    /// # Errors
    /// Those of the request.
    pub fn wait(self) -> Result<T, JoinError> {
        self.0.recv().unwrap_or(Err(JoinError::Ended))
    }
}

impl Node {
    /// Starts the thread. It connects at the first request.
    ///
    /// # Errors
    /// The system gives no thread or no random number.
    pub fn start(
        place: impl Into<Place>,
        run: &str,
        id: NodeId,
        settings: Settings,
    ) -> Result<Self, Error> {
        let mut seed = [0; 8];
        getrandom::fill(&mut seed)
            .map_err(|error| Error::system("get a random number")(std::io::Error::other(error)))?;
        let seed = u64::from_ne_bytes(seed);
        let shared = Arc::new(Shared::default());
        let link = link::Link::new(place.into(), run, settings.close_timeout());
        let (requests, receiver) = unbounded_channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Error::system("start a node of the rendezvous"))?;
        let task = task::Task::new(
            Machine::new(id.clone(), settings, seed),
            link,
            Arc::clone(&shared),
        );
        let thread = thread::Builder::new()
            .name("elasticrun-node".into())
            .spawn(move || {
                runtime.block_on(task.run(receiver));
                // An attempt to connect may still run.
                runtime.shutdown_background();
            })
            .map_err(Error::system("start a thread"))?;
        Ok(Self {
            id,
            requests: Some(requests),
            shared,
            thread: Some(thread),
            pid: std::process::id(),
        })
    }

    /// The id of the node.
    pub fn id(&self) -> &NodeId {
        &self.id
    }

    /// Asks for a place in the next round. The workers of the last round, if any, are stopped.
    pub fn join(&self) -> Pending<Membership> {
        self.request(Request::Join)
    }

    /// Leaves the rendezvous, so that others go on without this node at once. The workers, if any, are stopped.
    pub fn exit(&self) -> Pending<()> {
        self.request(Request::Exit)
    }

    /// Closes the rendezvous for all nodes: no further round forms.
    pub fn close(&self) -> Pending<()> {
        self.request(Request::Close)
    }

    /// The node with rank 0 in the round that was joined last. `None` before, and if it had left when this node joined.
    pub fn first(&self) -> Option<NodeId> {
        self.shared.first()
    }

    /// What this node knows of the rendezvous now.
    pub fn observed(&self) -> Observed {
        self.shared.observed()
    }

    /// Waits until what this node knows differs from `known`, at most for `timeout`.
    pub fn wait_for_change(&self, known: &Observed, timeout: Duration) -> Observed {
        self.shared.wait_for_change(known, timeout)
    }

    fn request<T>(&self, request: fn(Sender<Result<T, JoinError>>) -> Request) -> Pending<T> {
        let (sender, result) = channel();
        if let Some(requests) = &self.requests {
            // Fails if the thread has ended: then the result is that.
            let _ = requests.send(request(sender));
        }
        Pending(result)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take()
            && std::process::id() == self.pid
            && thread.join().is_err()
        {
            tracing::error!("the thread of a rendezvous node failed");
        }
    }
}
