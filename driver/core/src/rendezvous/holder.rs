//! The port to the holder of the state, and the holder in memory.

use super::{Command, Event, State};

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
}

impl From<Snapshot> for MemoryHolder {
    /// Goes on with what another holder had.
    fn from(snapshot: Snapshot) -> Self {
        Self { snapshot }
    }
}

impl MemoryHolder {
    /// What the holder has.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Replaces the state if the token is the current one, and gives the new token.
    ///
    /// # Errors
    /// Another write was first: the snapshot of it.
    pub fn compare_and_set(&mut self, expected: Token, state: State) -> Result<Token, Snapshot> {
        if expected != self.snapshot.token {
            return Err(self.snapshot.clone());
        }
        let token = Token(expected.0 + 1);
        self.snapshot = Snapshot {
            token,
            state: Some(state),
        };
        Ok(token)
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
            } => Some(match self.compare_and_set(expected, state) {
                Ok(token) => Event::Written { request, token },
                Err(snapshot) => Event::Conflict { request, snapshot },
            }),
            _ => None,
        }
    }
}
