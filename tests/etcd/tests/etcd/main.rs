//! The client and its candidates on a real cluster.

mod auth;
mod calls;
mod deaths;
mod leader;
mod rendezvous;
mod support;
mod tls;
