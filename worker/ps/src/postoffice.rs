//! A node, as programs see it.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError, atomic::Ordering},
    time::Duration,
};

use crate::{
    core::{
        node::{ALL_NODES, Group, NodeId, Recipients, Role, SCHEDULER, WORKER_GROUP},
        ranges::RangeMap,
    },
    error::Error,
    node::Node,
    options::Options,
};

/// A node of a job. Clones are the same node.
#[derive(Clone)]
pub struct Postoffice {
    shared: Arc<Shared>,
}

struct Shared {
    node: Arc<Node>,
    exit_callback: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl fmt::Debug for Postoffice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Postoffice").field(&self.my_id()).finish()
    }
}

impl Postoffice {
    /// Starts a node, waits until all nodes are there, and meets them in a barrier.
    ///
    /// # Errors
    /// The options are wrong, or not all nodes come in time.
    pub fn start(options: Options) -> Result<Self, Error> {
        let postoffice = Self::start_async(options)?;
        // A node that comes later meets nobody.
        if !postoffice.node().is_late() {
            postoffice.barrier(ALL_NODES)?;
        }
        Ok(postoffice)
    }

    /// Starts a node and waits until all nodes have registered, without a barrier.
    ///
    /// # Errors
    /// The options are wrong, or not all nodes come in time.
    pub fn start_async(options: Options) -> Result<Self, Error> {
        let shared = Shared {
            node: Node::start(options)?,
            exit_callback: Mutex::default(),
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    pub(crate) fn node(&self) -> &Arc<Node> {
        &self.shared.node
    }

    /// The id of this node.
    pub fn my_id(&self) -> NodeId {
        self.node().id()
    }

    /// The rank among the nodes of its role. For a worker of an elastic job, that of its [options](Options::rank), if they have one:
    /// one that takes the place of another has its rank, and an id of its own.
    pub fn my_rank(&self) -> u32 {
        match self.options().rank {
            Some(rank) if self.is_elastic_worker() => rank,
            _ => self.my_id().rank(),
        }
    }

    fn is_elastic_worker(&self) -> bool {
        self.options().elastic && self.role() == Role::Worker
    }

    /// Whether this process has taken the place of a dead one, under its id ([`Options::replace_timeout`]).
    pub fn is_recovery(&self) -> bool {
        self.node().incarnation() > 0
    }

    /// The role.
    pub fn role(&self) -> Role {
        self.node().options.role
    }

    /// Number of servers.
    pub fn num_servers(&self) -> u32 {
        self.node().counts().0
    }

    /// Number of workers. In an elastic job, that with which this worker has started.
    pub fn num_workers(&self) -> u32 {
        if self.is_elastic_worker() {
            return self.options().workers;
        }
        self.node().counts().1
    }

    /// The nodes of a group.
    pub fn node_ids(&self, recipients: impl Into<Recipients>) -> Vec<NodeId> {
        let (servers, workers) = self.node().counts();
        recipients.into().node_ids(servers, workers)
    }

    /// Which server has which keys.
    pub fn range_map(&self) -> &RangeMap {
        self.node().map()
    }

    /// The nodes that this node knows to be dead: their connection broke without a goodbye, or they were silent for the
    /// heartbeat timeout.
    pub fn dead_nodes(&self) -> Vec<NodeId> {
        self.node().dead_nodes()
    }

    /// Waits until all nodes of a group are in it.
    ///
    /// # Errors
    /// A node is dead, or they do not come within the request timeout.
    pub fn barrier(&self, group: Group) -> Result<(), Error> {
        let limit = self.node().options.request_timeout;
        self.node().barrier(group, Some(limit))
    }

    /// Waits until a request to any node can be sent without waiting, for so long. Returns whether that is so.
    pub fn wait_for_space(&self, limit: Duration) -> bool {
        self.node().wait_for_space(limit)
    }

    /// The options of the node.
    pub fn options(&self) -> &Options {
        &self.node().options
    }

    /// Sets what is called at the end of [`finalize`](Self::finalize).
    pub fn register_exit_callback(&self, callback: impl FnOnce() + Send + 'static) {
        let mut slot = self
            .shared
            .exit_callback
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *slot = Some(Box::new(callback));
    }

    /// Ends the node, after a barrier of all nodes. Servers and the scheduler wait there for as long as the job takes, so this
    /// barrier has no limit in time: it ends when all nodes are there, or one is lost.
    ///
    /// In an elastic job workers wait for each other. Servers wait until the workers have finished, or the scheduler has ended: workers
    /// that die may be replaced, and find the values. With [snapshots](Options::snapshots), workers wait until the values are saved.
    ///
    /// # Errors
    /// A node is lost, or the values cannot be saved. The node ends all the same.
    pub fn finalize(&self) -> Result<(), Error> {
        let node = self.node();
        node.settle();
        node.ends();
        let elastic = node.options.elastic;
        let met = match self.role() {
            Role::Worker if elastic => {
                let met = node.barrier(WORKER_GROUP, None);
                let saved = self.save_last();
                met.and(saved)
            }
            Role::Server if elastic => match node.barrier(ALL_NODES, None) {
                Err(_) if node.has_left(SCHEDULER) => Ok(()),
                met => met,
            },
            _ => node.barrier(ALL_NODES, None),
        };
        node.finished.store(met.is_ok(), Ordering::SeqCst);
        self.finalize_async();
        met
    }

    /// Saves the values of all servers, and waits until they are saved. Workers may push and pull meanwhile. The snapshot has all pushes
    /// that were acknowledged before the call, none that begin after it, and of others some. Returns its number.
    ///
    /// # Errors
    /// This is no worker of an elastic job, the job takes no snapshots ([`Options::snapshots`]), they cannot be written, or the
    /// scheduler is lost.
    pub fn snapshot(&self) -> Result<u64, Error> {
        match &self.node().elastic {
            Some(elastic) if self.role() == Role::Worker => {
                self.node().take_snapshot(elastic, false)
            }
            _ => {
                let text = match self.options().elastic {
                    true => "only workers ask for them",
                    false => {
                        "only elastic servers save their values: set PS_ELASTIC=1 for all nodes"
                    }
                };
                Err(Error::Snapshot(text.to_owned()))
            }
        }
    }

    /// All workers have finished: what they have pushed is saved.
    fn save_last(&self) -> Result<(), Error> {
        let elastic = self.node().elastic.as_ref();
        match elastic.filter(|_| self.options().snapshots.is_some()) {
            Some(elastic) => {
                let node = self.node();
                node.wait_for_requests(node.options.request_timeout);
                node.take_snapshot(elastic, true).map(drop)
            }
            None => Ok(()),
        }
    }

    /// Whether another node of the job is there. Only the scheduler knows; others answer no.
    pub fn has_others(&self) -> bool {
        self.node().has_others()
    }

    /// Ends the node without a barrier. Requests of others to it fail from now on.
    pub fn finalize_async(&self) {
        self.node().stop();
        let callback = self
            .shared
            .exit_callback
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(callback) = callback {
            callback();
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.node.stop();
    }
}
