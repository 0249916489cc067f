//! The port to the holder of the state, and the holder in memory.

use super::{
    BeatNumber, Command, Event, HeartbeatChanges, NodeId, Recorded, State, heartbeats::Heartbeats,
};

/// The fencing token of a state: a write succeeds only if the holder's token is the one that the writer has read.
///
/// Each write gives a larger token, also across a restart of the holder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Token(pub u64);

impl Token {
    /// The token of a holder that nobody has written to.
    pub const UNWRITTEN: Self = Self(0);
}

/// What a holder has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The token of the last write.
    pub token: Token,
    /// The state; `None` if there is none.
    pub state: Option<State>,
}

/// The number of a request to the holder, unique in a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// A holder in the memory of one process: for a rendezvous of one program, and for tests.
///
/// The shell hands [`Self::snapshot`] to the machines that share the holder after each write, as
/// [`Event::StateChanged`].
#[derive(Clone, Debug, Default)]
pub struct MemoryHolder {
    snapshot: Snapshot,
    heartbeats: Heartbeats,
    /// The number of the last write or heartbeat.
    last: u64,
}

/// Why a holder does not replace the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Another write was first: the snapshot of it.
    Conflict(Snapshot),
    /// These nodes, which the write removes as dead, are not silent.
    Beaten(Vec<NodeId>),
}

impl MemoryHolder {
    /// What the holder has.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Replaces the state if the token is the current one, and gives the new token.
    ///
    /// # Errors
    /// Another write was first, or a node that is removed as dead is not silent.
    pub fn compare_and_set(
        &mut self,
        expected: Token,
        state: State,
        changes: &HeartbeatChanges,
    ) -> Result<Token, Refused> {
        if expected != self.snapshot.token {
            return Err(Refused::Conflict(self.snapshot.clone()));
        }
        let alive = changes.unless_beaten.as_ref();
        let alive = alive.map(|silence| self.heartbeats.alive(silence));
        if let Some(alive) = alive.filter(|alive| !alive.is_empty()) {
            return Err(Refused::Beaten(alive));
        }
        let token = Token(self.next());
        self.heartbeats.apply(BeatNumber(token.0), changes);
        self.snapshot = Snapshot {
            token,
            state: Some(state),
        };
        Ok(token)
    }

    /// Records a heartbeat of a member, and tells which nodes have had none after `since`.
    pub fn heartbeat(&mut self, node: &NodeId, since: BeatNumber) -> Recorded {
        let number = BeatNumber(self.next());
        self.heartbeats.beat(node, number, since)
    }

    /// The number of nodes whose heartbeats the holder keeps.
    pub fn heartbeats(&self) -> usize {
        self.heartbeats.len()
    }

    /// Loses all heartbeats, as a holder whose memory has the state alone.
    pub fn lose_heartbeats(&mut self) {
        self.heartbeats = Heartbeats::default();
    }

    /// Loses the state too. Tokens and numbers go on.
    pub fn lose_state(&mut self) {
        self.lose_heartbeats();
        self.snapshot = Snapshot {
            token: Token(self.next()),
            state: None,
        };
    }

    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Carries out a command of a machine, and gives the answer; `None` for a command that is not for the holder.
    pub fn perform(&mut self, command: Command) -> Option<Event> {
        match command {
            Command::Read { request } => {
                let snapshot = self.snapshot.clone();
                Some(Event::StateRead { request, snapshot })
            }
            Command::CompareAndSet {
                request,
                expected,
                state,
                heartbeats,
            } => Some(match self.compare_and_set(expected, state, &heartbeats) {
                Ok(token) => Event::Written { request, token },
                Err(Refused::Conflict(snapshot)) => Event::Conflict { request, snapshot },
                Err(Refused::Beaten(nodes)) => Event::NotSilent { request, nodes },
            }),
            Command::Heartbeat {
                request,
                node,
                since,
            } => Some(Event::HeartbeatRecorded {
                request,
                recorded: self.heartbeat(&node, since),
                token: self.snapshot.token,
            }),
            _ => None,
        }
    }
}
