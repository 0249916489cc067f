//! Which hosts talk to which.
