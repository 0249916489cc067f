//! Reads the headers of all buffers at one instant.

use std::{
    os::fd::AsFd,
    sync::atomic::{Ordering, fence},
};

use elasticrun_protocol::CommitId;

use super::{
    Error,
    layout::{Header, Info, MAX_BUFFERS, info},
};
use crate::memfd;

/// How often a read is repeated that collides with a live writer. A read takes about 50 ns, a commit more.
const MAX_READS: usize = 10_000;

/// The state of one buffer at one instant: its seal, and its commit if it is complete.
#[derive(Clone, Copy, Debug)]
pub(super) struct BufferState {
    pub(super) seal: u64,
    pub(super) info: Option<Info>,
}

/// The states of all buffers at one instant. A buffer that does not exist has no commit.
pub(super) type States = [BufferState; MAX_BUFFERS];

const NO_COMMIT: BufferState = BufferState {
    seal: 0,
    info: None,
};

/// Reads the state of all buffers at one instant, also while a live process writes.
pub(super) fn read_states<'a, F: AsFd + 'a>(
    buffers: impl Iterator<Item = (&'a Header, &'a F)> + Clone,
) -> Result<States, Error> {
    for _ in 0..MAX_READS {
        let mut seals = [0; MAX_BUFFERS];
        let mut words = [([0; 8], [0; 3]); MAX_BUFFERS];
        for (seal, (header, _)) in seals.iter_mut().zip(buffers.clone()) {
            *seal = header.seal();
        }
        for ((words, seal), (header, _)) in words.iter_mut().zip(seals).zip(buffers.clone()) {
            *words = header.words(seal);
        }
        fence(Ordering::Acquire);
        if buffers
            .clone()
            .zip(seals)
            .any(|((header, _), seal)| header.seal() != seal)
        {
            std::hint::spin_loop();
            continue;
        }
        let mut seen = [NO_COMMIT; MAX_BUFFERS];
        let mut damage = None;
        for (buffer, (_, fd)) in buffers.clone().enumerate() {
            seen[buffer].seal = seals[buffer];
            if seals[buffer] == 0 {
                continue;
            }
            match info(&words[buffer], memfd::len(fd).unwrap_or(0)) {
                Ok(info) => seen[buffer].info = Some(info),
                Err(why) => {
                    tracing::warn!(
                        buffer,
                        why,
                        "a commit header is damaged, its commit is left out"
                    );
                    damage = Some(Error::Corrupt { buffer, why });
                }
            }
        }
        return match damage {
            Some(error) if seen.iter().all(|seen| seen.info.is_none()) => Err(error),
            _ => Ok(seen),
        };
    }
    Err(Error::Busy)
}

/// The buffer with the newest commit, and that commit.
pub(super) fn newest(seen: &States) -> Option<(usize, Info)> {
    let infos = seen.iter().enumerate();
    infos
        .filter_map(|(buffer, seen)| Some((buffer, seen.info?)))
        .max_by_key(|(_, info)| info.id)
}

/// The buffer with the commit of this id, its seal, and that commit.
pub(super) fn find(seen: &States, id: CommitId) -> Option<(usize, u64, Info)> {
    seen.iter().enumerate().find_map(|(buffer, seen)| {
        let info = seen.info.filter(|info| info.id == id)?;
        Some((buffer, seen.seal, info))
    })
}
