//! Requests of the training thread, and their results.

use elasticrun_protocol::{CommitId, Round};

use super::RoundStart;

/// The commits in the memory that a worker shares with its agent. Calls must be cheap: none reads the contents of a commit.
pub trait Commits {
    /// Whether a complete commit with this id exists.
    fn holds(&self, id: CommitId) -> bool;
    /// Gives up all commits that are newer than `base`; all commits if there is no base.
    fn discard_newer(&mut self, base: Option<CommitId>);
    /// Gives up a commit and all newer ones.
    fn discard(&mut self, id: CommitId);
}

/// How a worker left its last round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Departure {
    /// The number of the round that it left.
    pub round: Round,
    /// It left at the common boundary or after an abort, and not because it lost a peer by itself.
    pub ordered: bool,
    /// It left at the common boundary: the live state is that of its last commit.
    pub committed: bool,
}

/// The message to the agent when a worker waits for a round.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Announcement {
    /// How it left its last round, if it was in one.
    pub left: Option<Departure>,
    /// Hosts of that round that it could not reach, by their index.
    pub unreachable: Vec<u32>,
}

/// The next action of a worker that wants to join a round.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Join {
    /// Send this to the agent, then repeat the request.
    Announce(Announcement),
    /// Repeat the request after the next event.
    Wait,
    /// Enter the round: connect to its members.
    Connect(RoundStart),
}

/// Why an operation of a round failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure {
    /// A member is missing, or the round is over.
    Lost {
        /// Hosts that do not answer, by their index in the round; empty if none is known.
        hosts: Vec<u32>,
    },
    /// Members do not make the same call. A round that is over explains that.
    Mismatch,
    /// A failure that a new round would not change.
    Fatal,
}
