//! Which node runs the driver, and how the others reach it: `--standalone`, `--rdzv`, `--rdzv-*`, `--master-*`, `--node-rank`.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use super::{given::Given, nodes::Nodes};
use crate::{
    cli::Endpoint,
    config::{Error, EtcdPlace, duration, is_local},
};

/// The ports that torchrun has without one in the command line.
const STATIC_PORT: u16 = 29500;
const C10D_PORT: u16 = 29400;

/// How long the end of a job in etcd is known to nodes that come late, as torchrun's `close_timeout`.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(30);

/// What this node is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// The only node.
    Alone,
    /// The node of several that runs the driver.
    First {
        /// The driver, as other nodes reach it.
        driver: Endpoint,
        /// The number of this node, if the user numbers the nodes.
        node_rank: Option<u32>,
        /// Another node of this machine may be the first one.
        unless_another: bool,
    },
    /// Another node.
    Other {
        /// The driver.
        driver: Endpoint,
        /// The number of this node, if the user numbers the nodes.
        node_rank: Option<u32>,
    },
    /// A node of several, which elect the one that runs the driver.
    Elected {
        /// Where they meet.
        etcd: EtcdPlace,
        /// The name of their job.
        id: String,
    },
}

/// How the nodes come together.
#[derive(Clone, Debug)]
pub(super) struct Rendezvous {
    pub(super) place: Place,
    /// The keys and values of `--rdzv-conf`.
    pub(super) conf: Vec<(String, String)>,
}

impl Rendezvous {
    /// # Errors
    /// The options contradict each other, or the node with the driver is not named.
    pub(super) fn new(given: &Given, nodes: Nodes) -> Result<Self, Error> {
        let conf = conf(given)?;
        let backend = backend(given)?;
        let node_rank = node_rank(given, nodes, backend)?;
        if given.is_set("standalone") && !nodes.are_one() {
            let other = given.refuse(
                "nnodes",
                "not together with --standalone, which is one node",
            );
            return Err(other);
        }
        if backend == Backend::Etcd && !given.is_set("standalone") {
            let place = elected(given)?;
            return Ok(Self { place, conf });
        }
        if given.is_set("standalone") || nodes.are_one() {
            let place = Place::Alone;
            return Ok(Self { place, conf });
        }
        if backend == Backend::Static && nodes.min != nodes.max {
            let why = "expected one number with the static back end; c10d takes a range";
            return Err(given.refuse("nnodes", why));
        }
        let driver = match backend {
            Backend::Static => static_endpoint(given)?,
            Backend::C10d | Backend::Etcd => c10d_endpoint(given)?,
        };
        let is_host = is_host(given, &conf)?;
        let is_first = match (backend, is_host) {
            (Backend::Static, _) => node_rank == Some(0),
            (_, Some(is_host)) => is_host,
            (_, None) => is_local(&driver.host),
        };
        let place = match is_first {
            true => Place::First {
                driver,
                node_rank,
                unless_another: backend == Backend::C10d && is_host.is_none(),
            },
            false => Place::Other { driver, node_rank },
        };
        Ok(Self { place, conf })
    }

    /// The driver of several nodes, if the user names its place.
    pub(super) fn driver(&self) -> Option<&Endpoint> {
        match &self.place {
            Place::Alone | Place::Elected { .. } => None,
            Place::First { driver, .. } | Place::Other { driver, .. } => Some(driver),
        }
    }

    /// How long the end of the job is known to nodes that come late.
    ///
    /// # Errors
    /// `close_timeout` is no duration.
    pub(super) fn close_timeout(&self, given: &Given) -> Result<Duration, Error> {
        let Some((_, value)) = self.conf.iter().find(|(key, _)| key == "close_timeout") else {
            return Ok(CLOSE_TIMEOUT);
        };
        let timeout = duration::parse(value).filter(|timeout| *timeout <= duration::LONGEST);
        timeout.ok_or_else(|| given.refuse("rdzv-conf", "expected seconds for close_timeout"))
    }
}

/// Where the driver of several nodes listens. Nodes of one machine need no other address than that of loopback.
pub(super) fn listen(driver: &Endpoint) -> SocketAddr {
    let address = match driver.host.parse::<IpAddr>() {
        Ok(address) if address.is_loopback() => address,
        Ok(IpAddr::V6(_)) => Ipv6Addr::UNSPECIFIED.into(),
        Err(_) if driver.host.eq_ignore_ascii_case("localhost") => Ipv4Addr::LOCALHOST.into(),
        _ => Ipv4Addr::UNSPECIFIED.into(),
    };
    (address, driver.port).into()
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Backend {
    Static,
    C10d,
    Etcd,
}

fn backend(given: &Given) -> Result<Backend, Error> {
    let backend = match given.value("rdzv-backend").map(String::as_str) {
        None | Some("static") => Backend::Static,
        Some("c10d" | "elasticrun") => Backend::C10d,
        Some("etcd" | "etcd-v2") => Backend::Etcd,
        Some(_) => {
            return Err(given.refuse("rdzv-backend", "expected static, c10d, elasticrun or etcd"));
        }
    };
    match (given.is_set("rdzv"), backend) {
        (false, backend) => Ok(backend),
        (true, Backend::Etcd) => Ok(Backend::Etcd),
        (true, _) if !given.is_set("rdzv-backend") => Ok(Backend::Etcd),
        (true, _) => Err(given.refuse("rdzv-backend", "not together with --rdzv, which is etcd")),
    }
}

/// Nodes that meet in etcd.
fn elected(given: &Given) -> Result<Place, Error> {
    let name = match (given.is_set("rdzv"), given.is_set("rdzv-endpoint")) {
        (true, true) => {
            return Err(given.refuse("rdzv-endpoint", "not together with --rdzv"));
        }
        (true, false) => "rdzv",
        (false, true) => "rdzv-endpoint",
        (false, false) => {
            let why = "needs --rdzv-endpoint HOST[:PORT],... of the members of etcd";
            return Err(given.refuse("rdzv-backend", why));
        }
    };
    let text = given.value(name).map_or("", |text| text.trim());
    let address = match text.contains("://") {
        true => text.to_owned(),
        false if name == "rdzv-endpoint" => format!("etcd://{text}"),
        false => String::new(),
    };
    let etcd = EtcdPlace::parse(&address)
        .map_err(|_| given.refuse(name, "expected etcd://HOST[:PORT],HOST[:PORT]/PREFIX"))?;
    if given.is_set("join-token-file") && !given.is_set("as-driver") {
        let why = "not together with etcd, where the nodes have their token";
        return Err(given.refuse("join-token-file", why));
    }
    let id = given.value("rdzv-id").map_or("", |id| id.trim());
    if id.is_empty() {
        let why = "needs --rdzv-id ID, by which the nodes of one job find each other";
        return Err(given.refuse(name, why));
    }
    let id = id.to_owned();
    Ok(Place::Elected { etcd, id })
}

/// The number of this node. Only the static back end numbers nodes.
fn node_rank(given: &Given, nodes: Nodes, backend: Backend) -> Result<Option<u32>, Error> {
    if backend != Backend::Static {
        return Ok(None);
    }
    let rank = match given.value("node-rank") {
        None => 0,
        Some(text) => {
            let rank = text.trim().parse().ok();
            let rank = rank.filter(|rank| *rank < nodes.max.get());
            rank.ok_or_else(|| {
                let last = nodes.max.get() - 1;
                given.refuse("node-rank", format!("expected a number from 0 to {last}"))
            })?
        }
    };
    Ok(Some(rank))
}

fn static_endpoint(given: &Given) -> Result<Endpoint, Error> {
    if given.value("rdzv-endpoint").is_some() {
        return endpoint(given, "rdzv-endpoint", STATIC_PORT);
    }
    let port = match given.value("master-port") {
        None => STATIC_PORT,
        Some(text) => text
            .trim()
            .parse()
            .ok()
            .filter(|port| *port > 0)
            .ok_or_else(|| given.refuse("master-port", "expected a port from 1 to 65535"))?,
    };
    let host = match given.value("master-addr") {
        None => "127.0.0.1",
        Some(host) => host,
    };
    Endpoint::of_host(host, port)
        .ok_or_else(|| given.refuse("master-addr", "expected a host name or an address"))
}

fn c10d_endpoint(given: &Given) -> Result<Endpoint, Error> {
    if given.value("rdzv-endpoint").is_none() {
        let why = "needs --rdzv-endpoint HOST[:PORT] with several nodes";
        return Err(given.refuse("rdzv-backend", why));
    }
    endpoint(given, "rdzv-endpoint", C10D_PORT)
}

fn endpoint(given: &Given, name: &str, port: u16) -> Result<Endpoint, Error> {
    let text = given.value(name).map_or("", |text| text.trim());
    let with_port = Endpoint::parse(text);
    with_port
        .or_else(|| Endpoint::of_host(text, port))
        .ok_or_else(|| given.refuse(name, "expected HOST or HOST:PORT"))
}

/// `--rdzv-conf is_host=...`
fn is_host(given: &Given, conf: &[(String, String)]) -> Result<Option<bool>, Error> {
    let Some((_, value)) = conf.iter().find(|(key, _)| key == "is_host") else {
        return Ok(None);
    };
    match value.to_ascii_lowercase().as_str() {
        "1" | "true" | "t" | "yes" | "y" => Ok(Some(true)),
        "0" | "false" | "f" | "no" | "n" => Ok(Some(false)),
        _ => Err(given.refuse("rdzv-conf", "expected true or false for is_host")),
    }
}

fn conf(given: &Given) -> Result<Vec<(String, String)>, Error> {
    let text = given.value("rdzv-conf").map_or("", String::as_str);
    let pairs = text
        .split(',')
        .map(str::trim)
        .filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| match pair.split_once('=') {
            Some((key, value)) if !key.trim().is_empty() && !value.trim().is_empty() => {
                Ok((key.trim().to_owned(), value.trim().to_owned()))
            }
            _ => Err(given.refuse("rdzv-conf", "expected KEY=VALUE,KEY=VALUE")),
        })
        .collect()
}
