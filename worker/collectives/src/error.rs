//! Errors, and how a failure travels from one rank to the others.

use std::time::Duration;

use nix::errno::Errno;

use crate::{round_id::RoundId, signature::CallSignature};

/// Why an operation or a connection failed. After any error but [`Error::Argument`], the group is
/// unusable: each further call returns the same error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The round was aborted by this process or through the region of the host.
    #[error("round {round_id} was aborted: wait for the next round")]
    Aborted {
        /// The round.
        round_id: RoundId,
    },
    /// The connection to the leader of another host broke. It is the first loss that this rank saw.
    /// Other ranks may have seen another one first.
    #[error("lost host {host_index} of the round ({reason}): wait for the next round")]
    PeerLost {
        /// The host's index in the round.
        host_index: u32,
        /// The error of the connection.
        reason: String,
    },
    /// A member left the group while others still used it.
    #[error(
        "rank {rank} left the group while others were still in it: make the same calls on all ranks"
    )]
    PeerLeft {
        /// The rank that left.
        rank: u32,
    },
    /// Two ranks called different operations.
    #[error(
        "rank {rank} called {call} but rank {other_rank} called {other_call}: make the same calls in the same order on all ranks"
    )]
    Mismatch {
        /// One rank.
        rank: u32,
        /// What it called.
        call: CallSignature,
        /// The other rank.
        other_rank: u32,
        /// What the other rank called.
        other_call: CallSignature,
    },
    /// Not all ranks arrived within the timeout of the group.
    #[error(
        "waited {waited:?} for rank(s) {missing:?} in {call}: see what they do, or raise the timeout"
    )]
    TimedOut {
        /// How long this rank waited.
        waited: Duration,
        /// Ranks of this host that did not arrive. Empty if the missing rank is on another host.
        missing: Vec<u32>,
        /// The operation.
        call: CallSignature,
    },
    /// These hosts accepted no connection within the timeout, or stopped answering over an
    /// established one.
    #[error(
        "no answer from host(s) {host_indices:?} of the round within {waited:?} ({reason}): check that they reach each other on the data plane's network"
    )]
    Unreachable {
        /// The hosts' indices in the round.
        host_indices: Vec<u32>,
        /// How long this rank tried or waited.
        waited: Duration,
        /// The last error of a connection.
        reason: String,
    },
    /// A neighbour is in a newer round already.
    #[error("host {host_index} is in a newer round than {round_id}: wait for the next round")]
    Stale {
        /// The neighbour's index in the round.
        host_index: u32,
        /// The older round of this group.
        round_id: RoundId,
    },
    /// The configuration contradicts itself or that of another member.
    #[error("bad configuration of the group: {0}")]
    Config(String),
    /// An argument of a call is wrong. The group was not touched.
    #[error("bad argument: {0}")]
    Argument(String),
    /// A system call failed.
    #[error("{call} failed: {errno}")]
    System {
        /// The system call.
        call: &'static str,
        /// Its error number.
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

/// Maximum number of hosts that a record names.
const MAX_NAMED_HOSTS: usize = 10;

/// A failure in the form in which it is passed to other ranks, in the region or in a frame.
///
/// Six words: kind; two numbers (ranks, or a host); two call codes; two lengths; two roots. For
/// unreachable hosts: kind, number and seconds; then the hosts, two in a word. Sequence numbers are
/// equal for both ranks, since an operation is compared before the next one begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record(pub(crate) [u64; 6]);

fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

impl Record {
    /// Whether it is that of [`Error::PeerLeft`].
    pub(crate) fn is_peer_left(&self) -> bool {
        self.0[0] == PEER_LEFT
    }

    pub(crate) fn from_error(error: &Error) -> Self {
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
                let named = &host_indices[..host_indices.len().min(MAX_NAMED_HOSTS)];
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

    pub(crate) fn to_error(self, round_id: RoundId) -> Error {
        let [kind, members, codes, len, other_len, roots] = self.0;
        match kind & 0xff {
            PEER_LOST => Error::PeerLost {
                host_index: members as u32,
                reason: "another member of the round saw it".to_owned(),
            },
            PEER_LEFT => Error::PeerLeft {
                rank: members as u32,
            },
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
                    CallSignature {
                        code: half(codes),
                        root: half(roots),
                        len,
                        seq: kind >> 8,
                    }
                };
                Error::Mismatch {
                    rank: members as u32,
                    call: call(false, len),
                    other_rank: (members >> 32) as u32,
                    other_call: call(true, other_len),
                }
            }
            _ => Error::Aborted { round_id },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreachable_hosts_are_named_to_other_members() {
        let round_id = RoundId { epoch: 1, round: 2 };
        for count in 0..=12u32 {
            let error = Error::Unreachable {
                host_indices: (0..count).map(|host| host * 1_000_003).collect(),
                waited: Duration::from_millis(5_900),
                reason: "no route".to_owned(),
            };
            let decoded = Record::from_error(&error).to_error(round_id);
            let Error::Unreachable {
                host_indices,
                waited,
                ..
            } = decoded
            else {
                panic!("{decoded}");
            };
            assert_eq!(waited, Duration::from_secs(5));
            let all = (0..count.min(10)).map(|host| host * 1_000_003);
            assert!(host_indices.into_iter().eq(all), "{count}");
        }
    }
}
