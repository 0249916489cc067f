//! The state that is committed, restored and sent to new workers.

mod values;

use std::io::{self, Write};

use crate::{Session, World};

/// Why bytes are not a valid state.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The bytes end too early.
    #[error(
        "{need} more bytes are needed where {have} are left: do all workers run the same program?"
    )]
    Short {
        /// Bytes that the next value needs.
        need: u64,
        /// Bytes that are left.
        have: usize,
    },
    /// Bytes are left over after the state.
    #[error("{left} bytes are left over: do all workers run the same program?")]
    Left {
        /// Number of bytes left over.
        left: usize,
    },
    /// A value is invalid.
    #[error("{0}")]
    Invalid(String),
    /// An error of the state itself.
    #[error(transparent)]
    Other(Box<dyn std::error::Error + Send + Sync>),
}

impl Error {
    /// Wraps the error of a library that reads a part of the state.
    pub fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Other(error.into())
    }
}

/// Everything that training needs to continue elsewhere: parameters, optimizer, position in the data.
///
/// The state is replicated: after the same steps it is the same in all workers, and any copy is
/// complete. Numbers, strings, vectors and tuples of states are states. A custom type is the sum of
/// its parts, read in the order in which they were written:
///
/// ```
/// use std::io::{self, Write};
/// use elasticrun_worker::{ElasticSampler, State, state};
///
/// struct Training { weights: Vec<f32>, step: u64, data: ElasticSampler }
///
/// impl State for Training {
///     fn save(&self, out: &mut dyn Write) -> io::Result<()> {
///         self.weights.save(out)?;
///         self.step.save(out)?;
///         self.data.save(out)
///     }
///
///     fn restore(&mut self, from: &mut &[u8]) -> Result<(), state::Error> {
///         self.weights.restore(from)?;
///         self.step.restore(from)?;
///         self.data.restore(from)
///     }
/// }
/// ```
pub trait State {
    /// Writes the whole state. `out` is memory: small writes are cheap.
    ///
    /// # Errors
    /// Errors of `out`, which is then out of memory, or of the state itself. No commit is made
    /// then.
    fn save(&self, out: &mut dyn Write) -> io::Result<()>;

    /// Replaces the state by the one that was saved. Takes exactly the saved bytes from the front
    /// of `from`.
    ///
    /// # Errors
    /// If the bytes are no such state. The process ends then.
    fn restore(&mut self, from: &mut &[u8]) -> Result<(), Error>;

    /// The reset callback. It runs in all members at the start of each round, after the sync and
    /// before training continues. Adapt here what depends on the size of the world.
    fn reset(&mut self, world: &World) {
        let _ = world;
    }

    /// Runs in all members at the start of each round, after [`State::reset`] and before training
    /// continues. Parts of a state in different workers exchange data here, by collectives of
    /// `session`. A data set assigns its rows.
    ///
    /// # Errors
    /// Errors of the session, as they are; [`Error::Agree`](crate::Error::Agree) if the workers do
    /// not fit together.
    fn enter(&mut self, session: &mut Session<'_>) -> Result<(), crate::Error> {
        let _ = session;
        Ok(())
    }

    /// Runs in all members before each commit, in the same order. Collects from the others what
    /// makes any copy of the state complete. A data set collects which rows are processed. Most
    /// states need nothing.
    ///
    /// # Errors
    /// As [`State::enter`]; the commit is not made then.
    fn agree(&mut self, session: &mut Session<'_>) -> Result<(), crate::Error> {
        let _ = session;
        Ok(())
    }

    /// Decides at the start of a round whether different bytes that members committed under the id
    /// of its base are one state all the same. It runs repeatedly in all members until it returns
    /// `None`. The values that the members return are sent to all. The next call receives all of
    /// them, in rank order. `local` is the commit of this member, if it holds it.
    ///
    /// By default, states of different sizes are different. On success, all continue with the
    /// commit of rank 0.
    ///
    /// # Errors
    /// That members hold different states. All members must return the same error.
    fn compare(
        &mut self,
        local: Option<&[u8]>,
        gathered: Option<&[Vec<u8>]>,
    ) -> Result<Option<Vec<u8>>, Error> {
        let Some(gathered) = gathered else {
            let len = local.map(|local| (local.len() as u64).to_le_bytes().to_vec());
            return Ok(Some(len.unwrap_or_default()));
        };
        let mut lens = (gathered.iter().enumerate())
            .filter_map(|(rank, len)| Some((rank, u64::from_le_bytes(len[..].try_into().ok()?))));
        let Some((rank, len)) = lens.next() else {
            return Ok(None);
        };
        match lens.find(|(_, other)| *other != len) {
            None => Ok(None),
            Some((other_rank, other)) => Err(Error::Invalid(format!(
                "rank {rank} has committed a state of {len} bytes, and rank {other_rank} one of {other}: a state is \
                 replicated, the same in all workers"
            ))),
        }
    }

    /// Runs after this process has made the commit.
    ///
    /// # Errors
    /// As [`State::enter`]. The commit stays all the same.
    fn committed(&mut self) -> Result<(), crate::Error> {
        Ok(())
    }
}

/// Restores from all of `bytes`.
pub(crate) fn restore_all(state: &mut (impl State + ?Sized), bytes: &[u8]) -> Result<(), Error> {
    let mut from = bytes;
    state.restore(&mut from)?;
    match from.len() {
        0 => Ok(()),
        left => Err(Error::Left { left }),
    }
}

/// Takes `need` bytes from the front.
///
/// # Errors
/// [`Error::Short`] if there are fewer; nothing is taken then.
pub fn take<'a>(from: &mut &'a [u8], need: u64) -> Result<&'a [u8], Error> {
    let have = from.len();
    let short = Error::Short { need, have };
    let Ok(len) = usize::try_from(need) else {
        return Err(short);
    };
    let Some((taken, rest)) = from.split_at_checked(len) else {
        return Err(short);
    };
    *from = rest;
    Ok(taken)
}
