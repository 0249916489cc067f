//! The same state in all members: that of the round's base.
//!
//! Rank 0 is brought to the base first, unless it is there: the driver gives rank 0 to a survivor, and names who keeps
//! the base if others have committed once more. Then the members compare what they hold. If it is the same everywhere,
//! nothing is sent. Else rank 0 broadcasts, and whoever holds something else, or nothing, commits what came
//! under the base's id. So from here on any member can bring the next round to this base. Before members give up what they
//! themselves committed as the base, the state says whether all of it is one state ([`State::compare`]).
//!
//! A round without a base begins with the state of rank 0 as it is, which becomes commit 0 of the round. So does
//! one whose survivors have changed their state since they were brought to the base (`fresh`): each of them makes it
//! commit 0, and rank 0, which is one of them, says which of the two it is. Only a state that was made of the base counts
//! as such ([`LiveState`]): a member that was interrupted in its first sync may hold the base and never have taken it over.

use elasticrun_collectives::Group;
use elasticrun_core::live_state::LiveState;
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

/// Brings this member's state and memory to the base of the round. Gives whether the state was written.
///
/// After an error the live state is as `live` says, or is whole nowhere but in commits.
pub(crate) fn sync<S: State + ?Sized>(
    link: &mut Link,
    started: &mut Started,
    group: &mut Group,
    state: &mut S,
    live: &mut LiveState,
    fresh: bool,
) -> Result<bool, Error> {
    let base = started.start.base;
    let first = CommitId {
        epoch: started.start.epoch,
        round: started.start.round,
        count: 0,
    };
    link.memory.discard_newer(base);
    // What was not made of the base must not take its place.
    let fresh = fresh && live.continues(base);
    let is_first = group.topology().rank == 0;
    let mut offer = base.unwrap_or(first);
    if fresh || is_first && base.is_none() {
        link.memory.save(first, state)?;
        live.became(first);
        offer = first;
    } else if is_first {
        reach_base(link, started)?;
    }
    let leveled = level(
        &mut link.memory,
        &link.inbox,
        group,
        state,
        offer,
        [base.unwrap_or(first), first],
    );
    let discarded = |id| !link.memory.holds(id);
    if live.origin().is_some_and(discarded) {
        live.lost();
    }
    let (target, changed) = leveled?;
    let stale = changed || !live.equals(target);
    if stale {
        live.lost();
        state::restore_all(state, link.memory.bytes(target)?)?;
        live.became(target);
    }
    Ok(stale)
}

/// Has this member, which is rank 0, hold the base of the round. No other member has a part in it.
pub(crate) fn reach_base(link: &mut Link, started: &mut Started) -> Result<(), Error> {
    let base = started.start.base;
    link.memory.discard_newer(base);
    match base {
        Some(base) if !link.memory.holds(base) => bring_base(link, started, base),
        _ => Ok(()),
    }
}

/// Has all members hold the same bytes, under the id that rank 0 offers: the base of the round or its first commit.
/// Gives the id, and whether the bytes of this member changed.
fn level<S: State + ?Sized>(
    memory: &mut Memory,
    inbox: &Inbox,
    group: &mut Group,
    state: &mut S,
    offer: CommitId,
    [base, first]: [CommitId; 2],
) -> Result<(CommitId, bool), Error> {
    let size = group.topology().size as usize;
    let mut all = vec![0; WORDS * size];
    // What survivors made of the base is compared as well as the base that they made it of.
    let committed = (base != first).then(|| memory.print(base)).flatten();
    let words = to_words(memory.print(offer), offer == first, committed);
    group
        .allgather(&words, &mut all)
        .map_err(|error| judge(error, inbox))?;
    let mut committed = all.chunks_exact(WORDS).filter_map(committed_of);
    let reference = committed.next();
    if committed.any(|other| Some(other) != reference) {
        compare(memory, inbox, group, state, base)?;
    }
    let mut prints = all.chunks_exact(WORDS).map(from_words);
    let Some((Some(print), is_first)) = prints.next() else {
        return Err(Error::BaseMissing { id: offer });
    };
    let target = if is_first { first } else { base };
    if prints.all(|other| other == (Some(print), is_first)) {
        return Ok((target, false));
    }
    if target < offer {
        // Changed here and not in rank 0, whose word counts.
        memory.discard(offer);
    }
    let own = memory.print(target);
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
        return Ok((target, false));
    }
    if own.is_some() {
        tracing::warn!(commit = %target, "this worker committed something else than rank 0, whose state is taken");
        memory.discard(target);
    }
    memory.write(target, |write| receive(write, print, target, broadcast))?;
    Ok((target, true))
}

/// Has the members' states say whether what they have committed as `base` is one state.
fn compare<S: State + ?Sized>(
    memory: &Memory,
    inbox: &Inbox,
    group: &mut Group,
    state: &mut S,
    base: CommitId,
) -> Result<(), Error> {
    let own = memory.holds(base).then(|| memory.bytes(base)).transpose()?;
    let mut heard: Option<Vec<Vec<u8>>> = None;
    while let Some(told) = state.compare(own, heard.as_deref())? {
        let all = group.allgatherv(&told);
        heard = Some(all.map_err(|error| judge(error, inbox))?);
    }
    Ok(())
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

const WORDS: usize = 7;

/// Prints as all members exchange them, each as whether there is one and its two numbers: that of what a member offers,
/// whether this is the first commit of the round, and that of the base.
fn to_words(print: Option<Print>, is_first: bool, base: Option<Print>) -> [u64; WORDS] {
    let words =
        |print: Option<Print>| print.map_or([0, 0, 0], |print| [1, print.len, print.digest]);
    let ([a, b, c], [x, y, z]) = (words(print), words(base));
    [a, b, c, u64::from(is_first), x, y, z]
}

fn print_of(words: &[u64]) -> Option<Print> {
    (words[0] == 1).then_some(Print {
        len: words[1],
        digest: words[2],
    })
}

fn from_words(words: &[u64]) -> (Option<Print>, bool) {
    (print_of(words), words[3] == 1)
}

fn committed_of(words: &[u64]) -> Option<Print> {
    print_of(&words[4..])
}
