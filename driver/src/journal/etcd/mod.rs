//! The journal of a run in etcd, which drivers on several machines can reach.
//!
//! ```text
//! PREFIX/RUN/leader        the driver that leads; ends with its lease        driver/etcd/src/leader
//! PREFIX/RUN/epoch         the newest epoch
//! PREFIX/RUN/meta          versions, release and id of the key, in the clear
//! PREFIX/RUN/state/ENTRY   the sealed value of an entry
//! PREFIX/RUN/final         the sealed outcome
//! PREFIX/RUN/standby/ID    addresses of a driver that waits; ends with its lease
//! PREFIX/nodes/ID          sealed: the run of a job whose nodes elect their driver               [`meeting`]
//! ```
//!
//! # Invariants
//! - E1 Each write holds only while this driver leads the run, and no other driver has begun since ([`store`]).
//! - E2 The epoch of a driver is that of its first leadership. No two leaderships have the same one.
//! - E3 Values are sealed as in a file, by a key that is never in etcd ([`super::seal`]).
//! - E4 A driver that cannot reach etcd goes on. It is replaced once etcd has the entry `epoch` or the outcome of another driver, and
//!   then writes nothing more ([`succession`]). The key `leader` alone replaces no driver.
//! - E5 A driver whose entries are gone from etcd writes them anew.

mod meeting;
mod meta;
mod names;
mod opening;
mod runtime;
mod standbys;
mod store;
mod succession;
mod transactions;

pub(crate) use meeting::{Meeting, NodeJob, Seen};
pub(crate) use opening::{Run, Wait};
pub(super) use store::{END_TIMEOUT, Etcd};
