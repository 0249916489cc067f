//! A rendezvous without a driver, for programs that PyTorch's `torchrun` starts.

mod holder;
mod node;
mod server;

use std::{io, path::PathBuf, time::Duration};

use elasticrun_protocol::{opening::MAX_VERSION, rendezvous::Channel};
use elasticrun_rendezvous::{Cluster, Dialled, Endpoint, Error, Place, TlsFiles};
use elasticrun_worker::{Store, store::DialledStore};
use pyo3::{exceptions::PyValueError, prelude::*};

use crate::{error, keys::Keys};
pub(crate) use holder::RendezvousHolder;
pub(crate) use node::RendezvousNode;
pub(crate) use server::RendezvousServer;

/// Interval at which a wait checks for signals.
const SIGNAL_POLL: Duration = Duration::from_millis(100);

/// How long a request for keys may take to connect. The server is there if the node is.
const KEYS_TIMEOUT: Duration = Duration::from_secs(10);

/// Host and port of an endpoint. Raises ValueError if the text is none.
#[pyfunction]
pub(crate) fn rendezvous_endpoint(text: &str) -> PyResult<(String, u16)> {
    let endpoint = endpoint(text)?;
    Ok((endpoint.host().to_owned(), endpoint.port()))
}

/// Whether the host of an endpoint is this machine.
#[pyfunction]
pub(crate) fn rendezvous_is_local(py: Python<'_>, text: &str) -> PyResult<bool> {
    let endpoint = endpoint(text)?;
    Ok(py.detach(|| endpoint.is_local()))
}

/// Whether only this machine can reach an endpoint.
#[pyfunction]
pub(crate) fn rendezvous_is_loopback(text: &str) -> PyResult<bool> {
    Ok(endpoint(text)?.is_loopback())
}

/// The keys of a run. They are reached at the first request.
#[pyfunction]
pub(crate) fn rendezvous_keys(text: &str, run: String) -> PyResult<Keys> {
    let endpoint = endpoint(text)?;
    let store = Store::dialled_by(move || dial_keys(&endpoint, &run).map_err(io::Error::other));
    Ok(Keys(store))
}

fn dial_keys(endpoint: &Endpoint, run: &str) -> Result<DialledStore, Error> {
    let Dialled { stream, frames } = endpoint.dial(run, Channel::Keys, KEYS_TIMEOUT)?;
    let prepared = stream.set_nonblocking(true);
    prepared.map_err(|source| Error::Unreachable {
        endpoint: endpoint.clone(),
        source,
    })?;
    Ok(DialledStore {
        socket: stream.into(),
        frames,
        version: MAX_VERSION,
        peer: "server of the rendezvous",
    })
}

/// The members of a cluster of etcd, each with its host and port. Raises ValueError if the text is no address of one.
#[pyfunction]
pub(crate) fn rendezvous_etcd_members(text: &str) -> PyResult<Vec<(String, u16)>> {
    let cluster = Cluster::new(text, None);
    let cluster = cluster.map_err(|error| PyValueError::new_err(error.to_string()))?;
    let members = cluster.members().iter();
    members.map(|member| rendezvous_endpoint(member)).collect()
}

/// The certificates of etcd: the file of those that are trusted, and the files of an own one and of its key.
type Tls = (Option<PathBuf>, Option<(PathBuf, PathBuf)>);

/// A place from its text: `etcd://...`, or the endpoint of a server.
fn place(text: &str, tls: Option<&Tls>) -> PyResult<Place> {
    let files = tls.map(|(ca, client)| TlsFiles {
        ca: ca.as_deref(),
        client: client
            .as_ref()
            .map(|(chain, key)| (chain.as_path(), key.as_path())),
    });
    Place::parse(text, files).map_err(|error| PyValueError::new_err(error.to_string()))
}

fn endpoint(text: &str) -> PyResult<Endpoint> {
    Endpoint::parse(text).map_err(|error| PyValueError::new_err(error.to_string()))
}

fn duration(seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|error| PyValueError::new_err(format!("{seconds} s: {error}")))
}

/// The exception for an error of an endpoint.
fn raised(py: Python<'_>, error: &Error) -> PyErr {
    error::exception(py, "RendezvousUnreachable", error.to_string())
}
