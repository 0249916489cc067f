//! From a start to a group that is connected.

use std::os::fd::OwnedFd;

use elasticrun_collectives::{Group, GroupConfig, Topology};

use super::failed;
use crate::{
    Error,
    agent::{Link, Started},
};

/// Joins the collectives of a round, with the region that came for it.
pub(crate) fn connect(
    link: &Link,
    started: &Started,
    region: Option<OwnedFd>,
) -> Result<Group, Error> {
    let config = GroupConfig {
        topology: topology(started),
        region,
        listener: &link.listener,
        peers: started.start.peers.clone(),
        key: link.key.0,
        round_id: started.collective_round(),
        timeout: link.connect_timeout,
    };
    Group::connect(config, link.inbox.aborter()).map_err(|error| failed(&link.inbox, error))
}

fn topology(started: &Started) -> Topology {
    let start = &started.start;
    let rank = started.member.place.rank.0;
    Topology {
        rank,
        size: start.size,
        local_index: started.local_index,
        local_count: start.members.len() as u32,
        host_index: start.host_index,
        host_count: start.host_count,
        first_rank: start
            .members
            .first()
            .map_or(rank, |first| first.place.rank.0),
    }
}
