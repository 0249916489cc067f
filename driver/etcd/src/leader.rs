//! One leader among several drivers of a run.
//!
//! ```text
//! PREFIX/leader   value { epoch, nonce, endpoints }, attached to the lease of the leader
//! PREFIX/epoch    the newest epoch, as a decimal number; it outlives leaders
//! ```
//!
//! Invariants:
//! - A candidate becomes leader by one transaction: there is no `leader`, and `epoch` is as it was read. It writes `leader` and
//!   the next epoch. So two leaders never have the same epoch.
//! - A leader acts only before the end of its leadership: when the request of its last successful keep-alive was *sent*, plus
//!   the granted time, minus a margin. CLOCK_BOOTTIME decides, which also counts while the machine is suspended. etcd ends
//!   the lease later than that, so the next leader begins after the end of this one.
//! - Each write of a leader holds only while `leader` still is the key that it created ([`Leader::write`]). So a leader that was
//!   stopped, or whose machine was suspended, writes nothing after it was replaced, whatever its clock says.
//!
//! A leader whose place is taken waits as any other candidate, and may lead again in a later epoch. Whether the one between has done
//! anything, the keys of the leader do not say.
//!
//! Not promised: that a leader knows at once that its leadership has ended. It knows before it writes.

mod clock;
mod machine;
mod model;
mod shell;

pub use clock::{Clock, Time};
pub use machine::Machine;
pub use model::{Command, Event, Holder, Settings, Status};
pub use shell::{Leader, WriteError};
