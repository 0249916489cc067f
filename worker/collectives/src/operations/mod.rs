//! The operations of a group, composed of the parts within a host and between hosts.

mod broadcast;
mod gather;
mod reduce;
