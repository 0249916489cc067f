//! What a member needs to connect to its neighbours.

use std::{
    collections::BTreeMap,
    net::{SocketAddr, TcpListener},
    time::Duration,
};

use crate::{round_id::RoundId, topology::Topology};

/// The parameters of connecting.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    pub(crate) topology: &'a Topology,
    pub(crate) round_id: RoundId,
    pub(crate) listener: &'a TcpListener,
    pub(crate) peers: &'a BTreeMap<u32, SocketAddr>,
    pub(crate) key: &'a [u8; 32],
    /// Whether frames are encrypted. They are authenticated in any case.
    pub(crate) encrypt: bool,
    pub(crate) timeout: Duration,
}
