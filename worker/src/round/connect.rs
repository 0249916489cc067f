//! Connects the group of a started round.

use std::os::fd::OwnedFd;

use elasticrun_collectives::{Group, GroupConfig, Topology};

use super::record_error;
use crate::{
    Error,
    agent::{AgentConnection, StartedRound},
};

/// Joins the collectives of a round, with the region that came with its start.
pub(crate) fn connect(
    agent: &AgentConnection,
    started: &StartedRound,
    region: Option<OwnedFd>,
) -> Result<Group, Error> {
    let config = GroupConfig {
        topology: topology(started),
        region,
        listener: &agent.listener,
        peers: started.start.peers.clone(),
        key: agent.key.0,
        encrypt: agent.encrypt,
        round_id: started.collective_round(),
        timeout: agent.connect_timeout,
    };
    Group::connect(config, agent.inbox.aborter()).map_err(|error| record_error(&agent.inbox, error))
}

fn topology(started: &StartedRound) -> Topology {
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
