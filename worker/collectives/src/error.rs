//! What can go wrong, and how a failure travels from one rank to the others.

use std::time::Duration;

use nix::errno::Errno;

use crate::{call::Call, topology::Session};

/// Why an operation or a connection failed. After any of these but [`Error::Argument`] the group is of
/// no more use: each further call returns the same error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The round was aborted, by this process or through the region of the host.
    #[error("round {session} was aborted: wait for the next round")]
    Aborted {
        /// The round.
        session: Session,
    },
    /// The connection to another host's leader broke. It is the first loss that this rank saw; others
    /// may have seen another one first.
    #[error("lost host {host_index} of the round ({reason}): wait for the next round")]
    PeerLost {
        /// The host's place in the round.
        host_index: u32,
        /// What the connection said.
        reason: String,
    },
    /// A member of this host left the group while others still used it.
    #[error(
        "rank {rank} left the group while others were still in it: make the same calls on all ranks"
    )]
    PeerLeft {
        /// The rank that left.
        rank: u32,
    },
    /// Two ranks did not call the same thing.
    #[error(
        "rank {rank} called {call} but rank {other_rank} called {other_call}: make the same calls in the same order on all ranks"
    )]
    Mismatch {
        /// One rank.
        rank: u32,
        /// What it called.
        call: Call,
        /// Another rank.
        other_rank: u32,
        /// What that one called.
        other_call: Call,
    },
    /// Not all ranks came within the timeout of the group.
    #[error(
        "waited {waited:?} for rank(s) {missing:?} in {call}: see what they do, or raise the timeout"
    )]
    TimedOut {
        /// How long.
        waited: Duration,
        /// Ranks of this host that did not come; empty if it was another host.
        missing: Vec<u32>,
        /// The operation.
        call: Call,
    },
    /// No connection to these hosts within the timeout, or no answer over one that stood.
    #[error(
        "no answer from host(s) {host_indices:?} of the round within {waited:?} ({reason}): check that they reach each other on the data plane's network"
    )]
    Unreachable {
        /// Places of the hosts in the round.
        host_indices: Vec<u32>,
        /// How long it was tried or waited for.
        waited: Duration,
        /// The last thing that a connection said.
        reason: String,
    },
    /// A neighbour is in a newer round already.
    #[error("host {host_index} is in a newer round than {session}: wait for the next round")]
    Stale {
        /// The neighbour's place in the round.
        host_index: u32,
        /// The round that was left behind.
        session: Session,
    },
    /// What the group was told contradicts itself or another member.
    #[error("bad configuration of the group: {0}")]
    Config(String),
    /// An argument of a call is wrong; the group was not touched.
    #[error("bad argument: {0}")]
    Argument(String),
    /// The system refused something.
    #[error("{call} failed: {errno}")]
    System {
        /// The system call.
        call: &'static str,
        /// What the system said.
        errno: Errno,
    },
}

impl Error {
    pub(crate) fn system(call: &'static str) -> impl Fn(Errno) -> Self {
        move |errno| Self::System { call, errno }
    }

    pub(crate) fn io(call: &'static str) -> impl Fn(std::io::Error) -> Self {
        move |error| Self::System {
            call,
            errno: error.raw_os_error().map_or(Errno::EIO, Errno::from_raw),
        }
    }
}

const ABORTED: u64 = 1;
const PEER_LOST: u64 = 2;
const PEER_LEFT: u64 = 3;
const MISMATCH: u64 = 4;
const UNREACHABLE: u64 = 5;

/// Hosts that a record names: the rest of many is left out.
const NAMED: usize = 10;

/// A failure as it is handed to other ranks, in the region or in a frame.
///
/// Six words: kind; two numbers (ranks or a host); two call codes; two lengths; two roots. Of hosts that were not
/// reached: kind, number and seconds; the hosts, two in a word. Sequence
/// numbers are equal for both ranks, since an operation is compared before the next one begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record(pub(crate) [u64; 6]);

fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

impl Record {
    pub(crate) fn of(error: &Error) -> Self {
        match error {
            Error::PeerLost { host_index, .. } => {
                Self([PEER_LOST, u64::from(*host_index), 0, 0, 0, 0])
            }
            Error::PeerLeft { rank } => Self([PEER_LEFT, u64::from(*rank), 0, 0, 0, 0]),
            Error::Mismatch {
                rank,
                call,
                other_rank,
                other_call,
            } => Self([
                MISMATCH | (call.seq << 8),
                pair(*rank, *other_rank),
                pair(call.code, other_call.code),
                call.len,
                other_call.len,
                pair(call.root, other_call.root),
            ]),
            Error::Unreachable {
                host_indices,
                waited,
                ..
            } => {
                let named = &host_indices[..host_indices.len().min(NAMED)];
                let mut words = [0; 6];
                words[0] = UNREACHABLE | (named.len() as u64) << 8 | waited.as_secs() << 16;
                for (word, two) in words[1..].iter_mut().zip(named.chunks(2)) {
                    *word = pair(two[0], two.get(1).copied().unwrap_or(0));
                }
                Self(words)
            }
            _ => Self([ABORTED, 0, 0, 0, 0, 0]),
        }
    }

    pub(crate) fn error(self, session: Session) -> Error {
        let [kind, who, codes, len, other_len, roots] = self.0;
        match kind & 0xff {
            PEER_LOST => Error::PeerLost {
                host_index: who as u32,
                reason: "another member of the round saw it".to_owned(),
            },
            PEER_LEFT => Error::PeerLeft { rank: who as u32 },
            UNREACHABLE => {
                let count = (kind >> 8 & 0xff) as usize;
                let hosts = self.0[1..]
                    .iter()
                    .flat_map(|word| [*word as u32, (word >> 32) as u32]);
                Error::Unreachable {
                    host_indices: hosts.take(count).collect(),
                    waited: Duration::from_secs(kind >> 16),
                    reason: "another member of this host saw it".to_owned(),
                }
            }
            MISMATCH => {
                let call = |high: bool, len| {
                    let half = |word: u64| {
                        if high {
                            (word >> 32) as u32
                        } else {
                            word as u32
                        }
                    };
                    Call {
                        code: half(codes),
                        root: half(roots),
                        len,
                        seq: kind >> 8,
                    }
                };
                Error::Mismatch {
                    rank: who as u32,
                    call: call(false, len),
                    other_rank: (who >> 32) as u32,
                    other_call: call(true, other_len),
                }
            }
            _ => Error::Aborted { session },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_that_were_not_reached_are_named_to_the_others() {
        let session = Session { epoch: 1, round: 2 };
        for count in 0..=12u32 {
            let error = Error::Unreachable {
                host_indices: (0..count).map(|host| host * 1_000_003).collect(),
                waited: Duration::from_millis(5_900),
                reason: "no route".to_owned(),
            };
            let told = Record::of(&error).error(session);
            let Error::Unreachable {
                host_indices,
                waited,
                ..
            } = told
            else {
                panic!("{told}");
            };
            assert_eq!(waited, Duration::from_secs(5));
            let all = (0..count.min(10)).map(|host| host * 1_000_003);
            assert!(host_indices.into_iter().eq(all), "{count}");
        }
    }
}
