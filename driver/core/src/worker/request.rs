//! What the training thread asks with, and what it is answered.

use elasticrun_protocol::{CommitId, Round};

use super::RoundStart;

/// The commits in the memory that a worker shares with its agent. Calls must be cheap: none reads what a commit holds.
pub trait Commits {
    /// Whether a commit is there, complete.
    fn holds(&self, id: CommitId) -> bool;
    /// Gives up all commits that are newer than `base`; all of them if there is none.
    fn discard_newer(&mut self, base: Option<CommitId>);
    /// Gives up a commit and all newer ones.
    fn discard(&mut self, id: CommitId);
}

/// How a worker left its last round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Departure {
    /// Which one.
    pub round: Round,
    /// At the common boundary or after an abort, and not because it lost a peer by itself.
    pub ordered: bool,
    /// At the common boundary: the live state is that of its last commit.
    pub committed: bool,
}

/// What the agent is told when a worker waits for a round.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Announcement {
    /// The round that it was in, and how it left that.
    pub left: Option<Departure>,
    /// Hosts of that round that it could not reach, by their index in it.
    pub unreachable: Vec<u32>,
}

/// What a worker that wants to join a round does next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Join {
    /// Tell the agent, then ask again.
    Announce(Announcement),
    /// Ask again after the next event.
    Wait,
    /// Enter the round: connect to its members.
    Connect(RoundStart),
}

/// Why an operation of a round failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure {
    /// A member is not there, or the round is over. The hosts that do not answer, by their index in the round.
    Lost {
        /// Empty if none is known.
        hosts: Vec<u32>,
    },
    /// Members do not call the same. A round that is over explains that.
    Mismatch,
    /// Something that a new round would not change.
    Fatal,
}
