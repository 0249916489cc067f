//! A real cluster of etcd on loopback, for tests: members can be killed, stopped and started again.
//!
//! Each process of tests has a loopback address of its own, and each cluster in it its own ports, so clusters never meet.
//! Members end with the [`Cluster`], and with the process group of the test.
//!
//! Not promised: that it works without the program `etcd`. [`Cluster::start`] gives the reason, and the test is skipped by name.

#![forbid(unsafe_code)]

mod cluster;
mod http;
mod member;

pub use cluster::{Cluster, Unavailable};
