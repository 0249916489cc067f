//! Which hosts hold shards of a divided base, as all members of a round know it alike.
//!
//! Each host tells the others what it holds, in one exchange of the round's group. Shards that only hosts without a member
//! hold are part of the start. So all members can make the same plan of who fetches what from whom.

use std::{collections::BTreeMap, net::SocketAddr};

use elasticrun_collectives::Group;
use elasticrun_protocol::{
    Process,
    control::Start,
    frame::{self, FrameBuffer},
};
use serde::{Deserialize, Serialize};

use super::record_error;
use crate::{
    Error,
    agent::{AgentConnection, StartedRound},
};

/// A copy of a shard of the base.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShardCopy {
    /// The shard.
    pub shard: u32,
    /// The number of the host: its index in the round, or a higher one if it has no member.
    pub host: u32,
    /// The process whose memory has the copy.
    pub(super) process: Process,
    /// Where the agent of the host serves it.
    pub(super) agent: SocketAddr,
}

/// Who holds what.
#[derive(Debug, Default)]
pub(super) struct Holders {
    /// All copies, by host.
    pub(super) copies: Vec<ShardCopy>,
    /// The agents of hosts with members, by host.
    pub(super) agents: BTreeMap<u32, SocketAddr>,
    /// The host of each rank. None if a member has not told it, as one of an older release.
    pub(super) host_of_rank: Option<Vec<u32>>,
}

/// What a member tells the others.
#[derive(Default, Serialize, Deserialize)]
struct Told {
    /// The address of the agent of its host. One member speaks for its host.
    address: Option<SocketAddr>,
    /// The shards that its host holds. As for the address.
    held: Vec<(u32, Process)>,
    /// The index of its host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    host: Option<u32>,
}

impl Holders {
    /// Tells all members which shards this host holds, and hears what others hold.
    pub(super) fn exchange(
        agent: &AgentConnection,
        started: &StartedRound,
        group: &mut Group,
        held: Vec<(u32, Process)>,
    ) -> Result<Self, Error> {
        let start = &started.start;
        let host = Some(start.host_index);
        let own = match started.local_index {
            0 => Told {
                address: start.memory,
                held,
                host,
            },
            _ => Told {
                host,
                ..Told::default()
            },
        };
        let unreadable = |error: frame::Error| Error::Protocol {
            why: error.to_string(),
        };
        let bytes = frame::to_frame(&own).map_err(unreadable)?;
        let all = group.allgatherv(&bytes);
        let all = all.map_err(|error| record_error(&agent.inbox, error))?;
        let read = |bytes: Vec<u8>| {
            let mut frames = FrameBuffer::default();
            frames.extend(&bytes);
            frames.next_message::<Told>().map_err(unreadable)
        };
        let all: Vec<_> = all.into_iter().map(read).collect::<Result<_, _>>()?;
        Ok(Self::new(
            start,
            all.into_iter().map(Option::unwrap_or_default).collect(),
        ))
    }

    fn new(start: &Start, all: Vec<Told>) -> Self {
        let mut holders = Self {
            host_of_rank: all.iter().map(|told| told.host).collect(),
            ..Self::default()
        };
        // Members of an older release do not name their host. Each address is another one.
        for (nth, told) in (0..).zip(all) {
            let Some(agent) = told.address else {
                continue;
            };
            let host = told.host.unwrap_or(nth);
            holders.agents.insert(host, agent);
            let copies = told.held.into_iter().map(|(shard, process)| ShardCopy {
                shard,
                host,
                process,
                agent,
            });
            holders.copies.extend(copies);
        }
        let mut others: Vec<_> = start
            .holders
            .iter()
            .map(|held| held.keeper.address)
            .collect();
        others.sort_unstable();
        others.dedup();
        for held in &start.holders {
            let agent = held.keeper.address;
            let nth = others.binary_search(&agent).unwrap_or_default() as u32;
            holders.copies.push(ShardCopy {
                shard: held.shard,
                // No host of a member has as high a number.
                host: start.size + nth,
                process: held.keeper.process,
                agent,
            });
        }
        holders.copies.sort_by_key(|copy| copy.host);
        holders
    }
}
