//! Servers and nodes over loopback. No test waits for less than a condition.

mod holders;
mod nodes;
mod strangers;
mod support;
