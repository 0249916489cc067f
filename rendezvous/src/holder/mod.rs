//! The state of a run as bytes, for programs that have their own rules.

mod etcd;
mod server;

use std::time::Duration;

use elasticrun_protocol::rendezvous::{Channel, Snapshot};

use crate::{Error, Place};
use etcd::EtcdHolder;
use server::ServerHolder;

/// The state of a run, with blocking calls. A broken connection is opened again by the next call.
#[derive(Debug)]
pub struct Holder(Kept);

#[derive(Debug)]
enum Kept {
    Server(ServerHolder),
    Etcd(EtcdHolder),
}

/// The result of [`Holder::compare_and_set`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replaced {
    /// The state has this token now.
    Written(u64),
    /// Another write was first.
    Conflict(Snapshot),
}

impl Holder {
    /// Connects, again and again while nothing answers, at most for `patience`. Each later call takes at most `timeout`.
    ///
    /// # Errors
    /// Nothing answers in time, or the holder refuses.
    pub fn connect(
        place: impl Into<Place>,
        run: &str,
        timeout: Duration,
        patience: Duration,
    ) -> Result<Self, Error> {
        Ok(Self(match place.into() {
            Place::Server(endpoint) => {
                let channel = Channel::State { watch: false };
                let dialled = endpoint.dial_patiently(run, channel, patience)?;
                Kept::Server(ServerHolder::over(dialled, endpoint, run, timeout))
            }
            Place::Etcd(cluster) => {
                Kept::Etcd(EtcdHolder::connect(&cluster, run, timeout, patience)?)
            }
        }))
    }

    /// The state of now.
    ///
    /// # Errors
    /// The holder does not answer in time.
    pub fn read(&mut self) -> Result<Snapshot, Error> {
        match &mut self.0 {
            Kept::Server(holder) => holder.read(),
            Kept::Etcd(holder) => holder.read(),
        }
    }

    /// Replaces the state if its token is the expected one, or if there is none and none is expected.
    ///
    /// # Errors
    /// The state is too long, or the holder does not answer in time: the write may have taken effect.
    pub fn compare_and_set(
        &mut self,
        expected: Option<u64>,
        state: &[u8],
    ) -> Result<Replaced, Error> {
        match &mut self.0 {
            Kept::Server(holder) => holder.compare_and_set(expected, state),
            Kept::Etcd(holder) => holder.compare_and_set(expected, state),
        }
    }
}
