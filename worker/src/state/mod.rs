//! What is committed, restored and brought to new workers.

mod values;

use std::io::{self, Write};

use crate::{Session, World};

/// Why bytes are not a state.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// They end too early.
    #[error(
        "{need} more bytes are needed where {have} are left: do all workers run the same program?"
    )]
    Short {
        /// Bytes that the next value needs.
        need: u64,
        /// Bytes there.
        have: usize,
    },
    /// They do not end where the state does.
    #[error("{left} bytes are left over: do all workers run the same program?")]
    Left {
        /// How many.
        left: usize,
    },
    /// A value cannot be what is there.
    #[error("{0}")]
    Invalid(String),
    /// The state's own reason.
    #[error(transparent)]
    Other(Box<dyn std::error::Error + Send + Sync>),
}

impl Error {
    /// Wraps the error of a library that reads a part of the state.
    pub fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Other(error.into())
    }
}

/// All that training needs to go on elsewhere: parameters, optimizer, position in the data.
///
/// State is replicated: after the same steps it is the same in all workers, and any copy is whole. Numbers,
/// strings, vectors and tuples of states are states; a type of one's own is the sum of its parts, read in
/// the order in which they were written:
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
    /// Writes all of it. `out` is memory: small writes are cheap.
    ///
    /// # Errors
    /// Those of `out`, which has no more memory then, or one's own; the commit did not happen then.
    fn save(&self, out: &mut dyn Write) -> io::Result<()>;

    /// Becomes what was saved, whatever it was before, and takes exactly those bytes from the front of `from`.
    ///
    /// # Errors
    /// If the bytes are not of such a state; the process ends then.
    fn restore(&mut self, from: &mut &[u8]) -> Result<(), Error>;

    /// The reset callback: at the start of each round, in all members, after the state is the same in all
    /// and before training goes on. Adapt here what depends on the size of the world.
    fn reset(&mut self, world: &World) {
        let _ = world;
    }

    /// At the start of each round, in all members, after [`State::reset`] and before training goes on: what parts of a
    /// state in different workers have to tell each other, by collectives of `session`. A data set hands out its rows.
    ///
    /// # Errors
    /// Those of the session, as they are; [`Error::Agree`](crate::Error::Agree) if the workers do not fit together.
    fn enter(&mut self, session: &mut Session<'_>) -> Result<(), crate::Error> {
        let _ = session;
        Ok(())
    }

    /// Before each commit, in all members, in the same order: what has to be known of the others, so that any copy
    /// of the state is whole. A data set collects which rows are processed. Most states need nothing.
    ///
    /// # Errors
    /// As [`State::enter`]; the commit is not made then.
    fn agree(&mut self, session: &mut Session<'_>) -> Result<(), crate::Error> {
        let _ = session;
        Ok(())
    }

    /// At the start of a round, when members have committed different bytes under the id of its base: whether these are one
    /// state all the same. Called in all members, again and again, until it gives `None`: what it gives is told to
    /// all, and the next call has what all gave, in order of rank. `own` is the commit of this member, if it holds it.
    ///
    /// States of different sizes are different by default. If all is well, all go on with what rank 0 committed.
    ///
    /// # Errors
    /// That members hold different states: the same in all of them.
    fn compare(
        &mut self,
        own: Option<&[u8]>,
        heard: Option<&[Vec<u8>]>,
    ) -> Result<Option<Vec<u8>>, Error> {
        let Some(heard) = heard else {
            let len = own.map(|own| (own.len() as u64).to_le_bytes().to_vec());
            return Ok(Some(len.unwrap_or_default()));
        };
        let mut lens = (heard.iter().enumerate())
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

    /// The commit is made by this process.
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
