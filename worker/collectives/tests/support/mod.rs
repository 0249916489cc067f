//! Rounds of threads on this machine, with any number of "hosts", each with a region of its own.

use std::{
    collections::BTreeMap,
    net::{SocketAddr, TcpListener},
    os::fd::OwnedFd,
    thread,
    time::Duration,
};

use elasticrun_collectives::{
    Aborter, Error, Group, GroupConfig, RoundId, Topology, create_region, neighbours,
};

pub(crate) const ROUND: RoundId = RoundId { epoch: 3, round: 5 };
pub(crate) const KEY: [u8; 32] = [7; 32];

/// The resources of one member of a round.
pub(crate) struct Member {
    pub(crate) topology: Topology,
    pub(crate) region: Option<OwnedFd>,
    pub(crate) listener: TcpListener,
    pub(crate) peers: BTreeMap<u32, SocketAddr>,
    pub(crate) aborter: Aborter,
}

impl Member {
    pub(crate) fn connect(self) -> Result<Group, Error> {
        self.connect_within(Duration::from_secs(20))
    }

    pub(crate) fn connect_with(self, encrypt: bool) -> Result<Group, Error> {
        self.connect_for(Duration::from_secs(20), encrypt)
    }

    pub(crate) fn connect_within(self, timeout: Duration) -> Result<Group, Error> {
        self.connect_for(timeout, false)
    }

    pub(crate) fn connect_for(self, timeout: Duration, encrypt: bool) -> Result<Group, Error> {
        let config = GroupConfig {
            topology: self.topology,
            region: self.region,
            listener: &self.listener,
            peers: self.peers,
            key: KEY,
            encrypt,
            round_id: ROUND,
            timeout,
        };
        Group::connect(config, &self.aborter)
    }
}

/// The topologies of a round whose hosts have these numbers of members.
pub(crate) fn topologies(layout: &[u32]) -> Vec<Topology> {
    let size = layout.iter().sum();
    let mut all = Vec::new();
    let mut first_rank = 0;
    for (host_index, &local_count) in layout.iter().enumerate() {
        for local_index in 0..local_count {
            all.push(Topology {
                rank: first_rank + local_index,
                size,
                local_index,
                local_count,
                host_index: host_index as u32,
                host_count: layout.len() as u32,
                first_rank,
            });
        }
        first_rank += local_count;
    }
    all
}

/// The members of a round, not yet connected.
pub(crate) fn members(layout: &[u32]) -> Vec<Member> {
    let listeners: Vec<TcpListener> = topologies(layout)
        .iter()
        .map(|_| TcpListener::bind("127.0.0.1:0").unwrap())
        .collect();
    let topologies = topologies(layout);
    let leaders: Vec<SocketAddr> = topologies
        .iter()
        .zip(&listeners)
        .filter(|(topology, _)| topology.is_leader())
        .map(|(_, listener)| listener.local_addr().unwrap())
        .collect();
    let regions: Vec<Option<OwnedFd>> = layout
        .iter()
        .map(|&count| (count > 1).then(|| create_region(count).unwrap()))
        .collect();
    topologies
        .into_iter()
        .zip(listeners)
        .map(|(topology, listener)| Member {
            topology,
            region: regions[topology.host_index as usize]
                .as_ref()
                .map(|region| region.try_clone().unwrap()),
            listener,
            peers: neighbours(topology.host_index, topology.host_count)
                .into_iter()
                .map(|host| (host, leaders[host as usize]))
                .collect(),
            aborter: Aborter::new(),
        })
        .collect()
}

/// Runs `body` on each member of a connected round. Results are in rank order.
pub(crate) fn round<R: Send>(layout: &[u32], body: impl Fn(&mut Group) -> R + Sync) -> Vec<R> {
    round_with(layout, false, body)
}

/// As [`round`], with or without encryption between hosts.
pub(crate) fn round_with<R: Send>(
    layout: &[u32],
    encrypt: bool,
    body: impl Fn(&mut Group) -> R + Sync,
) -> Vec<R> {
    thread::scope(|scope| {
        let handles: Vec<_> = members(layout)
            .into_iter()
            .map(|member| {
                let body = &body;
                scope.spawn(move || body(&mut member.connect_with(encrypt).unwrap()))
            })
            .collect();
        handles
            .into_iter()
            .map(|handle| handle.join().unwrap())
            .collect()
    })
}
