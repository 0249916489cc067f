//! Parts of a divided commit that an agent gets from another host once and passes on to several: to members of its own host,
//! and to the next host of a chain.
//!
//! A request ([`MemoryRequest::via`]) names the agents through which it goes. The last one has the commit. The agent that is
//! asked gets the parts from the first of the others, keeps them, and answers from there.
//!
//! ```text
//! member of host 3 -> agent 2, via [1, H] -> agent 1, via [H] -> agent H, which has the commit
//! member of host 2 -> agent 2, via [1, H]    waits for the same transfer
//! ```
//!
//! This machine decides who is asked, what is kept, and until when. The shell moves the bytes. It sends them on while they
//! arrive, so a chain adds the time of a chunk for each link. The last reader compares the digest of the agent that has the
//! commit with all bytes, so an agent in between can damage nothing unnoticed.
//!
//! # Invariants
//! - **V1** Nothing is kept when the round is over, or once the members of this host have sealed its first commit.
//! - **V2** No request waits for itself, whatever the lists say. A request waits only for a transfer whose list is not longer
//!   than its own, and that transfer waits for a request with a shorter list.
//! - **V3** An agent that failed is not asked again in the round, but for the one that has the commit. The next of the list
//!   is asked instead.
//! - **V4** Parts are freed when as many requests are answered as the plan has. What arrives takes at most half of the memory
//!   that is left.
//!
//! Not promised: that a request is answered. One that is refused costs its sender a way around: it asks the next agent.

pub mod mutant;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::SocketAddr,
};

use elasticrun_protocol::{
    CommitId, CommitKey, Process, Round,
    control::{MemoryRequest, Start, Via},
};

use self::mutant::{Mutant, planted};

/// Most bytes of one request that is passed on.
pub const MAX_PASSED: u64 = 64 << 20;

/// The parts that an agent passes on in a round.
#[derive(Clone, Debug, Default)]
pub struct Passing {
    open: Option<Open>,
    /// The number of the newest transfer.
    newest: u64,
}

/// A round whose base is divided.
#[derive(Clone, Debug)]
struct Open {
    round: Round,
    base: CommitId,
    /// The address at which other hosts reach this agent.
    own: SocketAddr,
    transfers: BTreeMap<u64, Transfer>,
    by_parts: BTreeMap<Parts, u64>,
    /// Agents that could not be used.
    failed: BTreeSet<SocketAddr>,
}

/// Which bytes a request asks for. A process is one of the host of the agent that has the commit.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Parts {
    holder: SocketAddr,
    process: Process,
    key: CommitKey,
    ranges: Vec<(u64, u64)>,
}

/// Parts that arrive, or have arrived.
#[derive(Clone, Debug)]
struct Transfer {
    parts: Parts,
    /// The agent that is asked, and those after it.
    via: VecDeque<Via>,
    bytes: u64,
    is_whole: bool,
    /// Requests that are to be answered.
    left: u32,
}

/// What a request leads to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Asked {
    /// It waits for a transfer, which may have ended.
    Waits(u64),
    /// It waits for a new transfer, which begins with this request to another agent.
    Begins(u64, Forwarded),
    /// It is not answered from here.
    Refused(Refusal),
}

/// Why a request is not answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// No round begins with that commit, or its bytes are not needed any more.
    NoRound,
    /// It is none that can be passed on.
    Unusable,
    /// It could wait for itself.
    Circle,
    /// This host has no memory for the bytes.
    NoRoom,
}

/// A request to another agent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Forwarded {
    /// Its address.
    pub agent: SocketAddr,
    /// The request.
    pub request: MemoryRequest,
}

/// How an agent that was asked has failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// It has answered that it does not have the parts.
    Refused,
    /// It cannot be reached, or has broken off.
    Broken,
    /// What it has sent is not what its digest says. Some of it may be on its way to others, so the transfer ends.
    Damaged,
}

impl Passing {
    /// A round begins. Returns the transfers of earlier rounds, which end.
    pub fn begin(&mut self, start: &Start) -> Vec<u64> {
        let ended = self.open.take().map(Open::into_transfers);
        self.open = match (start.base, start.base_shards, start.memory) {
            (Some(base), Some(_), Some(own)) => Some(Open {
                round: start.round,
                base,
                own,
                transfers: BTreeMap::new(),
                by_parts: BTreeMap::new(),
                failed: BTreeSet::new(),
            }),
            _ => None,
        };
        ended.unwrap_or_default()
    }

    /// A round is over, or its first commit is complete. Returns its transfers, which end.
    pub fn end(&mut self, round: Round) -> Vec<u64> {
        if planted(Mutant::KeptBeyondRound) {
            return Vec::new();
        }
        let ended = self.open.take_if(|open| open.round <= round);
        ended.map(Open::into_transfers).unwrap_or_default()
    }

    /// A request with a list of agents has arrived. The system has so much memory left, if it says so.
    pub fn ask(&mut self, request: &MemoryRequest, available: Option<u64>) -> Asked {
        let is_base = |open: &&mut Open| open.base == request.key.commit;
        let Some(open) = self.open.as_mut().filter(is_base) else {
            return Asked::Refused(Refusal::NoRound);
        };
        let Some((parts, bytes)) = parts_of(request) else {
            return Asked::Refused(Refusal::Unusable);
        };
        if let Some(number) = open.by_parts.get(&parts) {
            let transfer = &open.transfers[number];
            let may_wait = transfer.is_whole || transfer.via.len() <= request.via.len();
            return match may_wait || planted(Mutant::ForwardedInACircle) {
                true => Asked::Waits(*number),
                false => Asked::Refused(Refusal::Circle),
            };
        }
        let mut via: VecDeque<_> = request.via.iter().copied().collect();
        via.retain(|via| via.agent != open.own || planted(Mutant::ForwardedInACircle));
        open.skip_failed(&mut via);
        if via.is_empty() {
            return Asked::Refused(Refusal::Circle);
        }
        let arriving = open.transfers.values().filter(|other| !other.is_whole);
        let arriving: u64 = arriving.map(|other| other.bytes).sum();
        if available.is_some_and(|available| arriving + bytes > available / 2) {
            return Asked::Refused(Refusal::NoRoom);
        }
        self.newest += 1;
        let transfer = Transfer {
            parts: parts.clone(),
            via,
            bytes,
            is_whole: false,
            left: request.requests.max(1),
        };
        let forwarded = transfer.forwarded();
        open.by_parts.insert(parts, self.newest);
        open.transfers.insert(self.newest, transfer);
        match forwarded {
            Some(forwarded) => Asked::Begins(self.newest, forwarded),
            None => Asked::Refused(Refusal::Circle),
        }
    }

    /// The agent that was asked for a transfer has failed. Returns the request to the next one. `None` if there is none, and
    /// the transfer has ended.
    pub fn failed(&mut self, number: u64, how: Failure) -> Option<Forwarded> {
        let open = self.open.as_mut()?;
        let mut transfer = open.transfers.remove(&number)?;
        if let Some(failed) = transfer.via.front()
            && !planted(Mutant::FailedAskedAgain)
        {
            if how != Failure::Refused {
                open.failed.insert(failed.agent);
            }
            transfer.via.pop_front();
        }
        open.skip_failed(&mut transfer.via);
        let next = transfer.forwarded().filter(|_| how != Failure::Damaged);
        match next.is_some() {
            true => drop(open.transfers.insert(number, transfer)),
            false => drop(open.by_parts.remove(&transfer.parts)),
        }
        next
    }

    /// All bytes of a transfer are here, and their digest is right. Returns whether the transfer has ended, so that they are
    /// not needed any more.
    pub fn arrived(&mut self, number: u64) -> bool {
        self.change(number, |transfer| transfer.is_whole = true)
    }

    /// A request that waited for a transfer is answered, or its sender is gone. Returns whether the transfer has ended, so
    /// that its bytes are not needed any more.
    pub fn answered(&mut self, number: u64) -> bool {
        self.change(number, |transfer| {
            transfer.left = transfer.left.saturating_sub(1);
        })
    }

    /// Changes a transfer. Returns whether it has ended.
    fn change(&mut self, number: u64, change: impl FnOnce(&mut Transfer)) -> bool {
        let Some(open) = &mut self.open else {
            return true;
        };
        open.transfers.get_mut(&number).map(change);
        open.free(number);
        !open.transfers.contains_key(&number)
    }

    /// Whether a transfer has not ended.
    pub fn has(&self, number: u64) -> bool {
        let open = self.open.as_ref();
        open.is_some_and(|open| open.transfers.contains_key(&number))
    }

    /// Bytes that are kept or arrive.
    pub fn bytes(&self) -> u64 {
        let transfers = self.open.iter().flat_map(|open| open.transfers.values());
        transfers.map(|transfer| transfer.bytes).sum()
    }
}

impl Open {
    fn into_transfers(self) -> Vec<u64> {
        self.transfers.into_keys().collect()
    }

    /// Removes agents that have failed from the front of a list. The last one has the commit and stays.
    fn skip_failed(&self, via: &mut VecDeque<Via>) {
        while via.len() > 1
            && via
                .front()
                .is_some_and(|via| self.failed.contains(&via.agent))
        {
            via.pop_front();
        }
    }

    /// Ends a transfer that is whole, and that nobody will ask for.
    fn free(&mut self, number: u64) {
        let is_done = |transfer: &Transfer| transfer.is_whole && transfer.left == 0;
        if self.transfers.get(&number).is_some_and(is_done)
            && !planted(Mutant::AnsweredKept)
            && let Some(transfer) = self.transfers.remove(&number)
        {
            self.by_parts.remove(&transfer.parts);
        }
    }
}

impl Transfer {
    /// The request to the first agent of the list.
    fn forwarded(&self) -> Option<Forwarded> {
        let (first, rest) = {
            let mut via = self.via.iter().copied();
            (via.next()?, via.collect())
        };
        Some(Forwarded {
            agent: first.agent,
            request: MemoryRequest {
                process: self.parts.process,
                key: self.parts.key,
                newer: false,
                ranges: self.parts.ranges.clone(),
                background: false,
                via: rest,
                requests: first.requests,
            },
        })
    }
}

/// What a request asks for, and the number of bytes. `None` if it cannot be passed on: whole and newer commits are not.
fn parts_of(request: &MemoryRequest) -> Option<(Parts, u64)> {
    if request.newer || request.ranges.is_empty() {
        return None;
    }
    let add = |sum: u64, (_, len): &(u64, u64)| sum.checked_add(*len);
    let bytes = request.ranges.iter().try_fold(0, add)?;
    let parts = Parts {
        holder: request.via.last()?.agent,
        process: request.process,
        key: request.key,
        ranges: request.ranges.clone(),
    };
    (bytes <= MAX_PASSED).then_some((parts, bytes))
}
