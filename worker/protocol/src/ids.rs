//! The identifiers on the wire. Each is a newtype, so that a rank is never mistaken for a slot.

use std::{
    borrow::Borrow,
    cmp::Ordering,
    fmt,
    hash::{Hash, Hasher},
    sync::Arc,
};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Identity of a host, as its discovery source gave it.
///
/// Two ids are two hosts, even if they name one machine: `localhost` and `127.0.0.1` are two hosts. An id is cheap to
/// clone and is ordered as its name. Names that differ in their first [`START`] bytes are compared by these bytes
/// alone, since a driver of ten thousand hosts compares ids all the time.
#[derive(Clone)]
pub struct HostId {
    start: u128,
    name: Arc<str>,
}

/// The number of leading bytes of a name that are compared as one number.
const START: usize = size_of::<u128>();

impl HostId {
    /// Wraps a name. Discovery has validated it; this function does not.
    pub fn new(name: impl AsRef<str>) -> Self {
        let name: Arc<str> = Arc::from(name.as_ref());
        let mut start = [0; START];
        let length = name.len().min(START);
        start[..length].copy_from_slice(&name.as_bytes()[..length]);
        // The first byte is the most significant, as in the order of names.
        let start = u128::from_be_bytes(start);
        Self { start, name }
    }

    /// The name as the source gave it.
    pub fn as_str(&self) -> &str {
        &self.name
    }
}

impl Ord for HostId {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        self.start.cmp(&other.start).then_with(|| {
            if self.name.len() <= START && other.name.len() <= START {
                // One of them may end with zero bytes.
                self.name.len().cmp(&other.name.len())
            } else {
                self.name.cmp(&other.name)
            }
        })
    }
}

impl PartialOrd for HostId {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for HostId {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for HostId {}

impl Hash for HostId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // The hash of the name, so that maps can be searched by name.
        self.name.hash(state);
    }
}

impl From<&str> for HostId {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}

impl Borrow<str> for HostId {
    fn borrow(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl fmt::Debug for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.name)
    }
}

impl Serialize for HostId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.name)
    }
}

impl<'de> Deserialize<'de> for HostId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::new(String::deserialize(deserializer)?))
    }
}

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty), $letter:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl $name {
            /// The next number.
            #[must_use]
            pub fn next(self) -> Self {
                Self(self.0 + 1)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($letter, "{}"), self.0)
            }
        }
    };
}

number!(
    /// The number of a driver within a run. It grows by one each time a driver takes over the run.
    DriverEpoch(u64), "e"
);
number!(
    /// A planned membership. Numbers only grow; a round that never started keeps its number.
    Round(u64), "r"
);
number!(
    /// The ordinal number of a process on its slot, from 1.
    Generation(u32), "g"
);
number!(
    /// The place of a worker in a started round, 0 to size - 1.
    Rank(u32), "#"
);
number!(
    /// The place of a worker on its host. A worker keeps it for life, since it has chosen its device by it.
    LocalRank(u32), "l"
);
number!(
    /// The number of boundaries (commit or check_host_updates) since the start of a round; the start is 0.
    Boundary(u64), "b"
);

/// One worker process of a host: its slot, and the number of its start on that slot.
///
/// A message about a process that carries an older generation is refused (invariant R3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Process {
    /// The slot, which is the worker's `local_rank`.
    pub local_rank: LocalRank,
    /// The number of the start on that slot.
    pub generation: Generation,
}

/// The local ranks from here up to twice as many belong to parameter servers, which are no workers and have no slot.
const FIRST_SERVER: u32 = 1 << 30;

impl Process {
    /// A parameter server of the job. Each start has a number of its own among those of the driver that starts it.
    pub fn server(driver: DriverEpoch, number: u32) -> Self {
        Self {
            local_rank: LocalRank(FIRST_SERVER | number),
            generation: Generation(driver.0 as u32),
        }
    }

    /// Whether the process is a parameter server.
    pub fn is_server(self) -> bool {
        (FIRST_SERVER..2 * FIRST_SERVER).contains(&self.local_rank.0)
    }

    /// The number of the start of a parameter server. `None` for a worker.
    pub fn server_number(self) -> Option<u32> {
        self.is_server()
            .then_some(self.local_rank.0 & !FIRST_SERVER)
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}{:?}", self.local_rank, self.generation)
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(number) = self.server_number() {
            return write!(f, "parameter server {number}");
        }
        write!(
            f,
            "local rank {} (start {})",
            self.local_rank, self.generation
        )
    }
}

/// Identity of a commit: ordered by driver epoch, then round, then count within the round.
///
/// The start of a round is its commit number 0. The base of the next round is the largest valid commit that any
/// reachable agent holds (invariant R12); larger ones of earlier rounds are void.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CommitId {
    /// The driver that started the round.
    pub epoch: DriverEpoch,
    /// The round of the commit.
    pub round: Round,
    /// The number of commits of that round up to this one, from 0.
    pub count: u64,
}

impl fmt::Debug for CommitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for CommitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.epoch.0, self.round.0, self.count)
    }
}

/// A part of a state. A state that all workers hold alike is one shard.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Shard {
    /// A hash of how the state is divided and laid out; 0 for a state of one shard.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub layout: u64,
    /// The index of the shard, below `of`.
    #[serde(default, rename = "shard", skip_serializing_if = "is_zero")]
    pub index: u32,
    /// The number of shards of the state, at least 1.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub of: u32,
}

impl Shard {
    /// Whether this is a whole state, which is not divided.
    pub fn is_whole(&self) -> bool {
        *self == Self::default()
    }
}

impl Default for Shard {
    fn default() -> Self {
        Self {
            layout: 0,
            index: 0,
            of: 1,
        }
    }
}

/// What distinguishes the bytes of a commit from all others of a run: the commit, and which part of the state they are.
///
/// Its fields are those of a plain [`CommitId`] in messages of older releases, which know one shard only.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct CommitKey {
    /// The commit.
    pub commit: CommitId,
    /// The part of the state.
    #[serde(flatten)]
    pub shard: Shard,
}

impl From<CommitId> for CommitKey {
    fn from(commit: CommitId) -> Self {
        Self {
            commit,
            shard: Shard::default(),
        }
    }
}

fn is_zero<T: Default + PartialEq>(number: &T) -> bool {
    *number == T::default()
}

fn one() -> u32 {
    1
}

fn is_one(number: &u32) -> bool {
    *number == 1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn hosts_are_ordered_as_their_names(
            one in "[ab\\x00]{0,4}(host-0000000000)?[01\\x00]{0,20}",
            other in "[ab\\x00]{0,4}(host-0000000000)?[01\\x00]{0,20}",
        ) {
            let hosts = (HostId::new(&one), HostId::new(&other));
            prop_assert_eq!(hosts.0.cmp(&hosts.1), one.cmp(&other));
            prop_assert_eq!(hosts.0 == hosts.1, one == other);
        }
    }
}
