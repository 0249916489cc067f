//! The same state in all members: that of the round's base.
//!
//! Rank 0 is brought to the base first, unless it is there: the driver gives rank 0 to a member that holds
//! the base if there is one. Then the members compare what they hold. If it is the same everywhere,
//! nothing is sent. Else rank 0 broadcasts, and whoever holds something else, or nothing, commits what came
//! under the base's id. So from here on any member can bring the next round to this base.
//!
//! A round without a base begins with the state of rank 0 as it is, which becomes commit 0 of the round.

use elasticrun_collectives::Group;
use elasticrun_protocol::CommitId;
use elasticrun_shared::commit::CommitWrite;

use super::{fetch::bring_base, judge};
use crate::{
    Error, State,
    agent::{Inbox, Link, Started},
    memory::{Memory, Print},
    state,
};

/// Bytes of a broadcast: few enough to be cheap to copy, enough to be fast.
const PART: usize = 4 << 20;

/// Which commit the live state of this process is equal to, if it is known to be.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Live(pub(crate) Option<CommitId>);

/// Brings this member's state and memory to the base of the round. Gives whether the state was written.
///
/// After an error the live state is as `live` says, or is whole nowhere but in commits.
pub(crate) fn sync<S: State + ?Sized>(
    link: &mut Link,
    started: &mut Started,
    group: &mut Group,
    state: &mut S,
    live: &mut Live,
) -> Result<bool, Error> {
    let base = started.start.base;
    let target = base.unwrap_or(CommitId {
        epoch: started.start.epoch,
        round: started.start.round,
        count: 0,
    });
    link.memory.discard_newer(base);
    if group.topology().rank == 0 && !link.memory.holds(target) {
        if base.is_some() {
            bring_base(link, started, target)?;
        } else {
            link.memory.save(target, state)?;
            *live = Live(Some(target));
        }
    }
    if level(&mut link.memory, &link.inbox, group, target)? {
        *live = Live(None);
    }
    let stale = live.0 != Some(target);
    if stale {
        *live = Live(None);
        state::restore_all(state, link.memory.bytes(target)?)?;
        *live = Live(Some(target));
    }
    Ok(stale)
}

/// Has all members hold the same bytes under the target's id. Gives whether those of this one changed.
fn level(
    memory: &mut Memory,
    inbox: &Inbox,
    group: &mut Group,
    target: CommitId,
) -> Result<bool, Error> {
    let own = memory.print(target);
    let size = group.topology().size as usize;
    let mut all = vec![0; 3 * size];
    group
        .allgather(&to_words(own), &mut all)
        .map_err(|error| judge(error, inbox))?;
    let mut prints = all.chunks_exact(3).map(from_words);
    let Some(print) = prints.next().flatten() else {
        return Err(Error::BaseMissing { id: target });
    };
    if prints.all(|other| other == Some(print)) {
        return Ok(false);
    }
    let mut broadcast = |part: &mut [u8]| {
        group
            .broadcast(part, 0)
            .map_err(|error| judge(error, inbox))
    };
    if own == Some(print) {
        // Rank 0 sends; who has the same listens along, since a broadcast is for all.
        let bytes = memory.bytes(target)?;
        let mut part = vec![0; bytes.len().min(PART)];
        for bytes in bytes.chunks(PART) {
            let part = &mut part[..bytes.len()];
            part.copy_from_slice(bytes);
            broadcast(part)?;
        }
        return Ok(false);
    }
    if own.is_some() {
        tracing::warn!(commit = %target, "this worker committed something else than rank 0, whose state is taken");
        memory.discard(target);
    }
    memory.write(target, |write| receive(write, print, target, broadcast))?;
    Ok(true)
}

fn receive(
    write: &mut CommitWrite<'_>,
    print: Print,
    id: CommitId,
    mut broadcast: impl FnMut(&mut [u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut left = usize::try_from(print.len).unwrap_or(usize::MAX);
    write.reserve(left)?;
    while left > 0 {
        let part = write.append(left.min(PART))?;
        left -= part.len();
        broadcast(part)?;
    }
    match Print::of(write.bytes()) == print {
        true => Ok(()),
        false => Err(Error::Damaged { id, from: "rank 0" }),
    }
}

/// A print as all members exchange it: whether there is one, and its two numbers.
fn to_words(print: Option<Print>) -> [u64; 3] {
    print.map_or([0; 3], |print| [1, print.len, print.digest])
}

fn from_words(words: &[u64]) -> Option<Print> {
    (words[0] == 1).then_some(Print {
        len: words[1],
        digest: words[2],
    })
}
