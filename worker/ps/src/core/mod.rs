//! Everything that decides, without I/O, clocks, threads or random numbers.

pub(crate) mod barrier;
pub(crate) mod elastic;
pub(crate) mod frame;
pub(crate) mod keys;
pub(crate) mod membership;
pub(crate) mod node;
pub(crate) mod opening;
pub(crate) mod optimizer;
pub(crate) mod queue;
pub(crate) mod ranges;
pub(crate) mod resend;
pub(crate) mod slicer;
pub(crate) mod slots;
pub(crate) mod staleness;
pub(crate) mod store;
pub(crate) mod tracker;
