//! Brings all members to the same state: executes the actions of [`elasticrun_core::worker`] until
//! the round begins.

use elasticrun_collectives::{Error as GroupError, Group};
use elasticrun_core::worker::{Action, Fingerprint, Machine, Offer, Outcome, SyncError};
use elasticrun_protocol::CommitId;
use elasticrun_shm::commit::CommitWrite;

use super::{fetch::copy_base, record_error};
use crate::{
    Error, State,
    agent::{AgentConnection, StartedRound},
    memory::fingerprint,
    state,
};

/// Bytes of a broadcast: few enough to be cheap to copy, enough to be fast.
const PART_BYTES: usize = 4 << 20;

/// Brings this member's state and memory to the base of the round. Returns whether the state was
/// written.
///
/// After an error, only commits are complete and not the live state, unless the machine decides
/// otherwise.
pub(crate) fn sync<S: State + ?Sized>(
    agent: &mut AgentConnection,
    started: &mut StartedRound,
    group: &mut Group,
    state: &mut S,
    fresh: bool,
) -> Result<bool, Error> {
    let synced = Sync {
        agent,
        started,
        group,
        state,
    }
    .run(fresh);
    synced.inspect_err(|error| record_sync_failure(agent, error))
}

/// Fetches the base of the round to this member, which is rank 0. Other members are not involved.
pub(crate) fn fetch_base(
    agent: &mut AgentConnection,
    started: &mut StartedRound,
) -> Result<(), Error> {
    let memory = &mut agent.memory;
    match agent
        .inbox
        .with_machine(|machine| machine.fetch_base(memory))?
    {
        Some(Action::Fetch { id, from }) => copy_base(agent, started, id, from)
            .inspect_err(|error| record_sync_failure(agent, error)),
        _ => Ok(()),
    }
}

/// Records a failed start of a round. Later calls find an interrupt too.
fn record_sync_failure(agent: &AgentConnection, error: &Error) {
    let memory = &agent.memory;
    agent.inbox.with_machine(|machine| {
        machine.sync_failed(memory);
        if error.interrupt().is_some() {
            machine.over();
        }
    });
}

struct Sync<'a, S: ?Sized> {
    agent: &'a mut AgentConnection,
    started: &'a mut StartedRound,
    group: &'a mut Group,
    state: &'a mut S,
}

impl<S: State + ?Sized> Sync<'_, S> {
    fn run(mut self, fresh: bool) -> Result<bool, Error> {
        let memory = &mut self.agent.memory;
        let mut action = (self.agent.inbox).with_machine(|machine| machine.sync(fresh, memory))?;
        loop {
            if let Action::Begin { restored } = action {
                return Ok(restored);
            }
            let outcome = self.perform(action)?;
            let memory = &mut self.agent.memory;
            let next = |machine: &mut Machine| machine.synced(outcome, memory);
            action = self.agent.inbox.with_machine(next)?;
        }
    }

    fn perform(&mut self, action: Action) -> Result<Outcome, Error> {
        match action {
            Action::Save(id) => self.agent.memory.save(id, self.state)?,
            Action::Fetch { id, from } => copy_base(self.agent, self.started, id, from)?,
            Action::Exchange {
                commit,
                is_first,
                base,
            } => return self.exchange(commit, is_first, base),
            Action::Compare(base) => self.compare(base)?,
            Action::Send(id) => self.send_state(id)?,
            Action::Receive {
                id,
                fingerprint,
                replaces,
            } => {
                if replaces {
                    tracing::warn!(commit = %id, "this worker committed something else than rank 0, whose state is taken");
                }
                self.receive_state(id, fingerprint)?;
            }
            Action::Restore(id) => {
                state::restore_all(self.state, self.agent.memory.bytes(id)?)?;
            }
            Action::Begin { .. } => {}
        }
        Ok(Outcome::Done)
    }

    fn exchange(
        &mut self,
        commit: CommitId,
        is_first: bool,
        base: Option<CommitId>,
    ) -> Result<Outcome, Error> {
        let memory = &mut self.agent.memory;
        let local = Offer {
            commit: memory.fingerprint(commit),
            is_first,
            base: base.and_then(|base| memory.fingerprint(base)),
        };
        let mut all = vec![0; Offer::WORDS * self.group.topology().size as usize];
        let exchanged = self.group.allgather(&local.to_words(), &mut all);
        exchanged.map_err(|error| not_alike(record_error(&self.agent.inbox, error)))?;
        let (words, _) = all.as_chunks();
        Ok(Outcome::Exchanged(
            words.iter().map(Offer::from_words).collect(),
        ))
    }

    /// Lets the members' states decide whether their commits of `base` are one state.
    fn compare(&mut self, base: CommitId) -> Result<(), Error> {
        let local = self.agent.memory.bytes(base).ok();
        let mut gathered: Option<Vec<Vec<u8>>> = None;
        while let Some(message) = self.state.compare(local, gathered.as_deref())? {
            let all = self.group.allgatherv(&message);
            gathered = Some(all.map_err(|error| record_error(&self.agent.inbox, error))?);
        }
        Ok(())
    }

    /// Sends the state of rank 0. The other members that hold it take part too, since a broadcast
    /// involves all.
    fn send_state(&mut self, id: CommitId) -> Result<(), Error> {
        let bytes = self.agent.memory.bytes(id)?;
        let mut part = vec![0; bytes.len().min(PART_BYTES)];
        for bytes in bytes.chunks(PART_BYTES) {
            let part = &mut part[..bytes.len()];
            part.copy_from_slice(bytes);
            let sent = self.group.broadcast(part, 0);
            sent.map_err(|error| record_error(&self.agent.inbox, error))?;
        }
        Ok(())
    }

    fn receive_state(&mut self, id: CommitId, announced: Fingerprint) -> Result<(), Error> {
        let (group, inbox) = (&mut *self.group, &self.agent.inbox);
        let broadcast = |part: &mut [u8]| {
            group
                .broadcast(part, 0)
                .map_err(|error| record_error(inbox, error))
        };
        self.agent
            .memory
            .write(id, |write| receive_parts(write, announced, id, broadcast))
    }
}

/// The script has made no call of its own in this round, so it is not to blame alone. Releases may differ in this exchange.
fn not_alike(error: Error) -> Error {
    match error {
        Error::Collective(error @ GroupError::Mismatch { .. }) => Error::StartMismatch(error),
        other => other,
    }
}

fn receive_parts(
    write: &mut CommitWrite<'_>,
    announced: Fingerprint,
    id: CommitId,
    mut broadcast: impl FnMut(&mut [u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut left = usize::try_from(announced.len).unwrap_or(usize::MAX);
    write.reserve(left)?;
    while left > 0 {
        let part = write.append(left.min(PART_BYTES))?;
        left -= part.len();
        broadcast(part)?;
    }
    match fingerprint(write.bytes()) == announced {
        true => Ok(()),
        false => Err(Error::Damaged { id, from: "rank 0" }),
    }
}

impl From<SyncError> for Error {
    fn from(error: SyncError) -> Self {
        match error {
            SyncError::Over(over) => over.into(),
            SyncError::BaseMissing(id) => Self::BaseMissing { id },
        }
    }
}
