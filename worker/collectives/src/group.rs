//! A member's handle on the round.

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
    call::Call,
    error::{Error, Record},
    local::{Failure, Local},
    net::{self, Late, Net},
    region::RegionMap,
    soft::SoftBarrier,
    topology::{Session, Topology},
};

/// What a group is made from.
pub struct GroupConfig<'a> {
    /// This member's place.
    pub topology: Topology,
    /// The memfd that the agent made for this round and host; `None` if this member is alone there.
    pub region: Option<OwnedFd>,
    /// Where other leaders reach this one. It outlives the round and is put into non-blocking mode.
    pub listener: &'a TcpListener,
    /// Addresses of the [`neighbours`](crate::neighbours), by host index; only leaders use them.
    pub peers: BTreeMap<u32, SocketAddr>,
    /// Secret of the run, by which leaders know each other.
    pub key: [u8; 32],
    /// The round. A connection of an older one is refused.
    pub session: Session,
    /// Longest time to connect, and how long the machine of a neighbour may be silent after that, in about.
    pub timeout: Duration,
}

impl fmt::Debug for GroupConfig<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupConfig")
            .field("topology", &self.topology)
            .field("peers", &self.peers)
            .field("session", &self.session)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// One member's end of the collectives of a round.
///
/// Operations block until they are complete here, which does not say that they are complete elsewhere
/// (but for a barrier). Dropping a group leaves it: whoever still waits for this member gets
/// [`Error::PeerLeft`] or [`Error::PeerLost`]. A group is of no use in a forked child.
#[derive(Debug)]
pub struct Group {
    pub(crate) topology: Topology,
    /// `None` if this member is alone on its host.
    pub(crate) local: Option<Local>,
    /// `None` if there is one host, or this member is no leader.
    pub(crate) net: Option<Net>,
    target: Arc<Target>,
    failed: Option<Error>,
    /// Number of the next operation; connecting was number 0.
    sequence: u64,
    timeout: Option<Duration>,
    /// Of the next operation.
    shape: u32,
    owner: Pid,
}

impl Group {
    /// Joins the round: attaches to the region and, if this member is its host's leader, connects to
    /// the neighbours. Members of one host do not wait for each other here, nor for their leader.
    ///
    /// # Errors
    /// [`Error::Aborted`] also for an abort that came before; [`Error::Unreachable`] at the timeout;
    /// [`Error::Stale`] if a neighbour is in a newer round; [`Error::Config`] if the parts of `config`,
    /// or the members, contradict each other.
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
            region.attach(topology.local_index, config.session)?;
        }
        let target = aborter.register(config.session, region.clone())?;
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
                session: config.session,
                listener: config.listener,
                peers: &config.peers,
                key: &config.key,
                timeout: config.timeout,
            };
            match net::establish(&plan, target) {
                Ok(net) => group.net = Some(net),
                Err(error) => return Err(group.fail(error)),
            }
        }
        Ok(group)
    }

    /// This member's place.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The round.
    pub fn session(&self) -> Session {
        self.target.session
    }

    /// A digest of more than the number of elements that must be equal on all ranks in the next operation, such as
    /// the shape of an array; 0 for nothing. Broadcasts do not compare it.
    pub fn expect_shape(&mut self, digest: u32) {
        self.shape = digest;
    }

    /// Tells who is late, from any thread.
    pub fn observer(&self) -> Observer {
        Observer {
            region: self.target.region.clone(),
            first_rank: self.topology.first_rank,
            count: self.topology.local_count,
            late: self.net.as_ref().map(Net::lateness),
        }
    }

    /// Where the members of this host may wait for each other once in this round. It outlives this handle.
    pub fn soft_barrier(&self) -> SoftBarrier {
        SoftBarrier::new(self.target.region.clone(), self.topology.local_count)
    }

    /// Longest time that one operation may wait for others; `None`, which is the default, waits until
    /// they come or the round is aborted.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.timeout = timeout;
    }

    /// Whether the round is over, without blocking.
    ///
    /// # Errors
    /// The reason, if it is.
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
        call: impl FnOnce(u64) -> Call,
        operation: impl FnOnce(&mut Self, Run<'_>) -> Result<R, Stop>,
    ) -> Result<R, Error> {
        if let Err(error) = self.check() {
            // Seen for the first time here: the neighbours learn of it as from a failed operation (N3).
            let ours = self.failed.is_none() && self.owner == getpid();
            return Err(if ours { self.fail(error) } else { error });
        }
        let mut call = call(self.sequence);
        self.sequence += 1;
        let shape = std::mem::take(&mut self.shape);
        if !call.has_root() {
            call.root = shape;
        }
        let run = Run {
            call: &call,
            deadline: self.timeout.map(|timeout| Instant::now() + timeout),
            timeout: self.timeout.unwrap_or(Duration::MAX),
        };
        operation(self, run).map_err(|stop| {
            let error = match stop {
                Stop::Error(error) => error,
                Stop::Local(Failure::Over) => self.target.reason(),
                Stop::Local(Failure::TimedOut(missing)) => Error::TimedOut {
                    waited: run.timeout,
                    missing,
                    call,
                },
            };
            self.fail(error)
        })
    }

    /// Ends the group: the others of this host and the neighbours learn of it (C3).
    fn fail(&mut self, error: Error) -> Error {
        let error = self.with_silent(error);
        if let Some(region) = &self.target.region {
            region.fail(Record::of(&error));
        }
        if let Some(net) = &mut self.net {
            net.close(Some(&error));
        }
        self.failed = Some(error.clone());
        error
    }

    /// What ended the round is often the consequence of what this member was about to find: a neighbour that does not
    /// answer. Then that is what it has to say.
    fn with_silent(&self, error: Error) -> Error {
        let (Some(net), Error::Aborted { .. } | Error::PeerLost { .. }) = (&self.net, &error)
        else {
            return error;
        };
        match net.silent() {
            silent if silent.is_empty() => error,
            silent => net.silence(silent),
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // In a forked child the region and the connections are the parent's.
        if self.failed.is_some() || self.owner != getpid() {
            return;
        }
        if let Err(error) = self.target.check() {
            self.fail(error);
            return;
        }
        if let Some(region) = &self.target.region {
            let rank = self.topology.rank;
            region.leave(Record::of(&Error::PeerLeft { rank }));
        }
        if let Some(net) = &mut self.net {
            net.leave();
        }
    }
}

/// A look at the members of this host while an operation waits. It outlives the group and does nothing to it.
#[derive(Clone, Debug)]
pub struct Observer {
    region: Option<Arc<RegionMap>>,
    first_rank: u32,
    count: u32,
    /// Of a leader.
    late: Option<Arc<Late>>,
}

impl Observer {
    /// Ranks of this host that are behind the others of this host: what a waiting operation waits for, unless it
    /// is another host. A snapshot, for a message to a person.
    pub fn behind(&self) -> Vec<u32> {
        let Some(region) = &self.region else {
            return Vec::new();
        };
        let at = |member| region.waits_at(member);
        let first = at(0);
        // Numbers of barriers wrap around; members are never far apart.
        let ahead = |number: u32| number.wrapping_sub(first).cast_signed();
        let most = (0..self.count).map(|member| ahead(at(member))).max();
        (0..self.count)
            .filter(|member| Some(ahead(at(*member))) < most)
            .map(|member| self.first_rank + member)
            .collect()
    }

    /// For whom an operation waits that has waited for long, and what may be wrong: for a message to a person.
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

/// One operation as it runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run<'a> {
    pub(crate) call: &'a Call,
    pub(crate) deadline: Option<Instant>,
    pub(crate) timeout: Duration,
}

impl<'a> Run<'a> {
    pub(crate) fn order(&self) -> net::Order<'a> {
        net::Order {
            call: self.call,
            deadline: self.deadline,
            timeout: self.timeout,
        }
    }
}

/// Why an operation stopped, before it is known what that means for the group.
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
