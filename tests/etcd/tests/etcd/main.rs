//! The client on a real cluster.

mod auth;
mod calls;
mod deaths;
mod support;
mod tls;
