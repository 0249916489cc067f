//! The operations of a group: how the parts within a host and between hosts are put together.

mod gather;
mod reduce;
mod share;
