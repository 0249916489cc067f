//! A single process: a script run by hand, without a driver and an agent.
//!
//! It behaves like a job of one worker that is never interrupted. Commits live in the memory of
//! this process and end with it.

use std::{
    net::{Ipv4Addr, TcpListener},
    sync::Arc,
    time::Duration,
};

use elasticrun_protocol::{
    DriverEpoch, Generation, LocalRank, Process, Rank, Round,
    auth::Bytes32,
    control::{Member, Place, Seat, Start},
};
use elasticrun_shm::{
    commit::CommitMemory,
    page::{AgentPage, WorkerPage},
};

use crate::{
    Error,
    agent::{AgentConnection, StartedRound, Transport},
    memory::Memory,
};

const PROCESS: Process = Process {
    local_rank: LocalRank(0),
    generation: Generation(1),
};

/// A connection without an agent behind it.
pub(crate) fn connection() -> Result<AgentConnection, Error> {
    let system = Error::system("listen at the loopback address");
    let page = AgentPage::create().and_then(|page| WorkerPage::open(&page));
    let commits = CommitMemory::create()?;
    let fds = commits.fds(2).into_iter().map(|fd| fd.try_clone_to_owned());
    let copy_error = Error::system("make memory for commits");
    let fds = fds.collect::<Result<_, _>>().map_err(copy_error)?;
    Ok(AgentConnection {
        transport: Transport::Standalone,
        inbox: Arc::default(),
        page: page.map_err(|error| Error::Protocol {
            why: error.to_string(),
        })?,
        memory: Memory::open(fds, None)?,
        listener: TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(system)?,
        key: Bytes32([0; 32]),
        connect_timeout: Duration::from_secs(1),
        encrypt: false,
        identity: None,
    })
}

/// The round after `left`, with this process as its only member.
pub(crate) fn start(left: Option<Round>) -> StartedRound {
    let round = left.unwrap_or_default().next();
    let member = Member {
        process: PROCESS,
        place: Place {
            rank: Rank(0),
            size: 1,
            local_size: 1,
            cross_rank: 0,
            cross_size: 1,
            local_rank: None,
        },
        seat: Some(Seat {
            group: 0,
            shard: 0,
            of: 1,
        }),
    };
    let start = Start {
        epoch: DriverEpoch(0),
        round,
        base: None,
        base_shards: None,
        memory: None,
        holders: Vec::new(),
        replica_group_size: None,
        order: Vec::new(),
        keeper: None,
        size: 1,
        members: vec![member],
        host_index: 0,
        host_count: 1,
        peers: Default::default(),
        coordinator: (Ipv4Addr::LOCALHOST, 0).into(),
        prefix: format!("alone/0/{round}"),
    };
    StartedRound {
        start: Box::new(start),
        member,
        local_index: 0,
        region: None,
        keeper: None,
    }
}
