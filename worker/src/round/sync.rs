//! The same state in all members: does what [`elasticrun_core::worker`] says, until the round begins.

use elasticrun_collectives::Group;
use elasticrun_core::worker::{Action, Fingerprint, Machine, Offer, Outcome, SyncError};
use elasticrun_protocol::CommitId;
use elasticrun_shm::commit::CommitWrite;

use super::{failed, fetch::bring_base};
use crate::{
    Error, State,
    agent::{Link, Started},
    memory::fingerprint,
    state,
};

/// Bytes of a broadcast: few enough to be cheap to copy, enough to be fast.
const PART: usize = 4 << 20;

/// Brings this member's state and memory to the base of the round. Gives whether the state was written.
///
/// After an error the live state is whole nowhere but in commits, unless the machine says otherwise.
pub(crate) fn sync<S: State + ?Sized>(
    link: &mut Link,
    started: &mut Started,
    group: &mut Group,
    state: &mut S,
    fresh: bool,
) -> Result<bool, Error> {
    let synced = Sync {
        link,
        started,
        group,
        state,
    }
    .run(fresh);
    synced.inspect_err(|error| note_failure(link, error))
}

/// Has this member, which is rank 0, hold the base of the round. No other member has a part in it.
pub(crate) fn fetch_base(link: &mut Link, started: &mut Started) -> Result<(), Error> {
    let memory = &mut link.memory;
    match link.inbox.ask(|machine| machine.fetch_base(memory))? {
        Some(Action::Fetch { id, from }) => {
            bring_base(link, started, id, from).inspect_err(|error| note_failure(link, error))
        }
        _ => Ok(()),
    }
}

/// What a failed start of a round leaves: an interrupt is found by later calls too.
fn note_failure(link: &Link, error: &Error) {
    let memory = &link.memory;
    link.inbox.ask(|machine| {
        machine.sync_failed(memory);
        if error.interrupt().is_some() {
            machine.over();
        }
    });
}

struct Sync<'a, S: ?Sized> {
    link: &'a mut Link,
    started: &'a mut Started,
    group: &'a mut Group,
    state: &'a mut S,
}

impl<S: State + ?Sized> Sync<'_, S> {
    fn run(mut self, fresh: bool) -> Result<bool, Error> {
        let memory = &mut self.link.memory;
        let mut action = (self.link.inbox).ask(|machine| machine.sync(fresh, memory))?;
        loop {
            if let Action::Begin { restored } = action {
                return Ok(restored);
            }
            let outcome = self.perform(action)?;
            let memory = &mut self.link.memory;
            let next = |machine: &mut Machine| machine.synced(outcome, memory);
            action = self.link.inbox.ask(next)?;
        }
    }

    fn perform(&mut self, action: Action) -> Result<Outcome, Error> {
        match action {
            Action::Save(id) => self.link.memory.save(id, self.state)?,
            Action::Fetch { id, from } => bring_base(self.link, self.started, id, from)?,
            Action::Exchange {
                commit,
                is_first,
                base,
            } => return self.exchange(commit, is_first, base),
            Action::Compare(base) => self.compare(base)?,
            Action::Send(id) => self.send(id)?,
            Action::Receive {
                id,
                fingerprint,
                replaces,
            } => {
                if replaces {
                    tracing::warn!(commit = %id, "this worker committed something else than rank 0, whose state is taken");
                }
                self.receive(id, fingerprint)?;
            }
            Action::Restore(id) => {
                state::restore_all(self.state, self.link.memory.bytes(id)?)?;
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
        let memory = &mut self.link.memory;
        let own = Offer {
            commit: memory.print(commit),
            is_first,
            base: base.and_then(|base| memory.print(base)),
        };
        let mut all = vec![0; Offer::WORDS * self.group.topology().size as usize];
        let exchanged = self.group.allgather(&own.to_words(), &mut all);
        exchanged.map_err(|error| failed(&self.link.inbox, error))?;
        let (words, _) = all.as_chunks();
        Ok(Outcome::Exchanged(
            words.iter().map(Offer::from_words).collect(),
        ))
    }

    /// Has the members' states say whether what they have committed as `base` is one state.
    fn compare(&mut self, base: CommitId) -> Result<(), Error> {
        let own = self.link.memory.bytes(base).ok();
        let mut heard: Option<Vec<Vec<u8>>> = None;
        while let Some(told) = self.state.compare(own, heard.as_deref())? {
            let all = self.group.allgatherv(&told);
            heard = Some(all.map_err(|error| failed(&self.link.inbox, error))?);
        }
        Ok(())
    }

    /// Rank 0 sends; the other members that have the same listen along, since a broadcast is for all.
    fn send(&mut self, id: CommitId) -> Result<(), Error> {
        let bytes = self.link.memory.bytes(id)?;
        let mut part = vec![0; bytes.len().min(PART)];
        for bytes in bytes.chunks(PART) {
            let part = &mut part[..bytes.len()];
            part.copy_from_slice(bytes);
            let sent = self.group.broadcast(part, 0);
            sent.map_err(|error| failed(&self.link.inbox, error))?;
        }
        Ok(())
    }

    fn receive(&mut self, id: CommitId, announced: Fingerprint) -> Result<(), Error> {
        let (group, inbox) = (&mut *self.group, &self.link.inbox);
        let broadcast = |part: &mut [u8]| {
            group
                .broadcast(part, 0)
                .map_err(|error| failed(inbox, error))
        };
        self.link
            .memory
            .write(id, |write| receive_parts(write, announced, id, broadcast))
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
        let part = write.append(left.min(PART))?;
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
