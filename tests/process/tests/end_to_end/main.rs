//! End-to-end tests, one module for each part of the contract.

// Tests and their helpers may panic.
#![allow(clippy::unwrap_used)]

mod discovery;
mod draining;
mod durable;
mod durable_in_bucket;
mod elected;
mod ending;
mod etcd;
mod failures;
mod flags;
mod journal;
mod launches;
mod logs;
mod membership;
mod output;
mod parameter_servers;
mod plain;
mod preload;
mod registration;
mod replicas;
mod returns;
mod scripts;
mod secrets;
mod signals;
mod stalls;
mod store;
mod strangers;
mod streams;
mod supervise;
mod support;
mod take_over;
mod timeouts;
mod torchrun;
