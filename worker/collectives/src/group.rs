//! A member's handle on the collectives of a round.

use std::{
    collections::BTreeMap,
    fmt,
    net::{SocketAddr, TcpListener},
    os::fd::OwnedFd,
    sync::Arc,
    time::{Duration, Instant},
};

use nix::unistd::{Pid, getpid};

use crate::{
    abort::{Aborter, Target},
    best_effort_barrier::BestEffortBarrier,
    error::{Error, Record},
    local::{Failure, Local},
    net::{self, LateHosts, Net},
    region::RegionMap,
    round_id::RoundId,
    signature::CallSignature,
    topology::Topology,
};

/// The parameters of a group.
pub struct GroupConfig<'a> {
    /// This member's position.
    pub topology: Topology,
    /// The memfd that the agent created for this round and host. `None` if this member is alone on
    /// its host.
    pub region: Option<OwnedFd>,
    /// Accepts connections from other leaders. It outlives the round and is set to non-blocking
    /// mode.
    pub listener: &'a TcpListener,
    /// Addresses of the [`neighbours`](crate::neighbours) by host index. Only leaders use them.
    pub peers: BTreeMap<u32, SocketAddr>,
    /// Secret of the run, by which leaders authenticate each other.
    pub key: [u8; 32],
    /// Whether messages between hosts are encrypted. They are authenticated in any case. All members
    /// must agree.
    pub encrypt: bool,
    /// The round. Connections of older rounds are refused.
    pub round_id: RoundId,
    /// Timeout for connecting. Afterwards it is roughly how long the machine of a neighbour may be
    /// silent.
    pub timeout: Duration,
}

impl fmt::Debug for GroupConfig<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupConfig")
            .field("topology", &self.topology)
            .field("peers", &self.peers)
            .field("round_id", &self.round_id)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// One member's handle on the collectives of a round.
///
/// Operations block until they are complete on this member. Except for a barrier, they may still be
/// incomplete on others. Dropping a group leaves it: a member that still waits for this one gets
/// [`Error::PeerLeft`] or [`Error::PeerLost`]. A group cannot be used in a forked child.
#[derive(Debug)]
pub struct Group {
    pub(crate) topology: Topology,
    /// `None` if this member is alone on its host.
    pub(crate) local: Option<Local>,
    /// `None` if there is one host, or this member is no leader.
    pub(crate) net: Option<Net>,
    target: Arc<Target>,
    failed: Option<Error>,
    /// Number of the next operation. Connecting was number 0.
    sequence: u64,
    timeout: Option<Duration>,
    /// The shape digest of the next operation.
    shape: u32,
    owner: Pid,
}

impl Group {
    /// Joins the round: attaches to the region and, if this member is its host's leader, connects
    /// to the neighbours. Members of one host do not wait for each other here, nor for their
    /// leader.
    ///
    /// # Errors
    /// [`Error::Aborted`] also for an abort that came before; [`Error::Unreachable`] at the
    /// timeout; [`Error::Stale`] if a neighbour is in a newer round; [`Error::Config`] if the parts
    /// of `config`, or the members, contradict each other.
    pub fn connect(config: GroupConfig<'_>, aborter: &Aborter) -> Result<Self, Error> {
        let topology = config.topology;
        topology.check()?;
        let region = match (&config.region, topology.local_count) {
            (_, 1) => None,
            (None, count) => {
                return Err(Error::Config(format!(
                    "{count} members on the host and no region"
                )));
            }
            (Some(fd), count) => Some(Arc::new(RegionMap::map(fd, count)?)),
        };
        if let Some(region) = &region {
            region.attach(topology.local_index, config.round_id)?;
        }
        let target = aborter.register(config.round_id, region.clone())?;
        let mut group = Self {
            topology,
            local: region.map(|region| Local::new(region, &topology)),
            net: None,
            target: target.clone(),
            failed: None,
            sequence: 1,
            timeout: None,
            shape: 0,
            owner: getpid(),
        };
        if let Err(error) = target.check() {
            return Err(group.fail(error));
        }
        if topology.is_leader() && topology.host_count > 1 {
            let plan = net::Plan {
                topology: &topology,
                round_id: config.round_id,
                listener: config.listener,
                peers: &config.peers,
                key: &config.key,
                encrypt: config.encrypt,
                timeout: config.timeout,
            };
            match net::establish(&plan, target) {
                Ok(net) => group.net = Some(net),
                Err(error) => return Err(group.fail(error)),
            }
        }
        Ok(group)
    }

    /// This member's position in the round.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The round.
    pub fn round_id(&self) -> RoundId {
        self.target.round_id
    }

    /// Sets a digest that must be equal on all ranks in the next operation, such as that of an
    /// array's shape; 0 for none. The number of elements is compared in any case. Broadcasts do not
    /// compare the digest.
    pub fn expect_shape(&mut self, digest: u32) {
        self.shape = digest;
    }

    /// An observer of late ranks, usable from any thread.
    pub fn observer(&self) -> Observer {
        Observer {
            region: self.target.region.clone(),
            first_rank: self.topology.first_rank,
            count: self.topology.local_count,
            late: self.net.as_ref().map(Net::late_hosts),
        }
    }

    /// A barrier at which the members of this host can wait for each other once in this round. It
    /// outlives this handle.
    pub fn best_effort_barrier(&self) -> BestEffortBarrier {
        BestEffortBarrier::new(self.target.region.clone(), self.topology.local_count)
    }

    /// Sets how long one operation may wait for others. With `None`, the default, it waits until
    /// they arrive or the round is aborted.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.timeout = timeout;
    }

    /// Checks whether the round is over, without blocking.
    ///
    /// # Errors
    /// The reason, if it is over.
    pub fn check(&self) -> Result<(), Error> {
        if self.owner != getpid() {
            return Err(Error::Config(
                "a group cannot be used in a forked child: use it in the process that connected it"
                    .to_owned(),
            ));
        }
        match &self.failed {
            Some(error) => Err(error.clone()),
            None => self.target.check(),
        }
    }

    /// Runs one operation: numbers it, gives it a deadline, and fails the group if it fails.
    pub(crate) fn run<R>(
        &mut self,
        call: impl FnOnce(u64) -> CallSignature,
        body: impl FnOnce(&mut Self, Operation<'_>) -> Result<R, Stop>,
    ) -> Result<R, Error> {
        if let Err(error) = self.check() {
            // This is the first sight of the failure: report it to the neighbours as for a failed
            // operation (N3).
            let ours = self.failed.is_none() && self.owner == getpid();
            return Err(if ours { self.fail(error) } else { error });
        }
        let mut call = call(self.sequence);
        self.sequence += 1;
        let shape = std::mem::take(&mut self.shape);
        if !call.has_root() {
            call.root = shape;
        }
        let operation = Operation {
            call: &call,
            deadline: self.timeout.map(|timeout| Instant::now() + timeout),
            timeout: self.timeout.unwrap_or(Duration::MAX),
        };
        body(self, operation).map_err(|stop| {
            let error = match stop {
                Stop::Error(error) => error,
                Stop::Local(Failure::Closed) => self.target.reason(),
                Stop::Local(Failure::TimedOut(missing)) => Error::TimedOut {
                    waited: operation.timeout,
                    missing,
                    call,
                },
            };
            self.fail(error)
        })
    }

    /// Ends the group and reports the failure to the other members of this host and to the
    /// neighbours (C3).
    fn fail(&mut self, error: Error) -> Error {
        let error = self.with_silent_hosts(error);
        if let Some(region) = &self.target.region {
            region.fail(Record::from_error(&error));
        }
        if let Some(net) = &mut self.net {
            net.close(Some(&error));
        }
        self.failed = Some(error.clone());
        error
    }

    /// An abort or a lost connection is often the consequence of a neighbour that does not answer.
    /// If there is such a neighbour, reports it as the cause.
    fn with_silent_hosts(&self, error: Error) -> Error {
        let (Some(net), Error::Aborted { .. } | Error::PeerLost { .. }) = (&self.net, &error)
        else {
            return error;
        };
        match net.silent_hosts() {
            silent if silent.is_empty() => error,
            silent => net.unreachable(silent),
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // In a forked child, the region and the connections belong to the parent.
        if self.failed.is_some() || self.owner != getpid() {
            return;
        }
        if let Err(error) = self.target.check() {
            self.fail(error);
            return;
        }
        if let Some(region) = &self.target.region {
            let rank = self.topology.rank;
            region.leave(Record::from_error(&Error::PeerLeft { rank }));
        }
        if let Some(net) = &mut self.net {
            net.leave();
        }
    }
}

/// Observes the members of this host while an operation waits. It outlives the group and does not
/// affect it.
#[derive(Clone, Debug)]
pub struct Observer {
    region: Option<Arc<RegionMap>>,
    first_rank: u32,
    count: u32,
    /// Only set on a leader.
    late: Option<Arc<LateHosts>>,
}

impl Observer {
    /// Ranks of this host that are behind the others of this host. A waiting operation waits for
    /// these, unless it waits for another host. The result is a snapshot for messages to users.
    pub fn behind(&self) -> Vec<u32> {
        let Some(region) = &self.region else {
            return Vec::new();
        };
        let position = |member| region.waits_at(member);
        let first = position(0);
        // Barrier numbers wrap around. Members are never far apart.
        let ahead = |number: u32| number.wrapping_sub(first).cast_signed();
        let max = (0..self.count).map(|member| ahead(position(member))).max();
        (0..self.count)
            .filter(|member| Some(ahead(position(*member))) < max)
            .map(|member| self.first_rank + member)
            .collect()
    }

    /// Explains, for a message to users, which ranks or hosts a stalled operation waits for and
    /// what may be wrong.
    pub fn explain(&self) -> String {
        let behind = self.behind();
        if !behind.is_empty() {
            return format!("late are ranks {behind:?}: do all ranks make the same calls?");
        }
        let late = self.late.as_ref().map(|late| late.hosts());
        match late.as_deref() {
            Some([]) => "late is a rank that is in another call: do all ranks make the same calls?"
                .to_owned(),
            Some(hosts) => net::explain(hosts),
            None => format!(
                "late are ranks of other hosts, or one that is in another call: rank {} can tell which",
                self.first_rank
            ),
        }
    }
}

/// One operation in progress.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation<'a> {
    pub(crate) call: &'a CallSignature,
    pub(crate) deadline: Option<Instant>,
    pub(crate) timeout: Duration,
}

impl<'a> Operation<'a> {
    pub(crate) fn on_net(&self) -> net::NetOperation<'a> {
        net::NetOperation {
            call: self.call,
            deadline: self.deadline,
            timeout: self.timeout,
        }
    }
}

/// Why an operation stopped, before the consequence for the group is known.
#[derive(Debug)]
pub(crate) enum Stop {
    Error(Error),
    Local(Failure),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Local(failure)
    }
}
