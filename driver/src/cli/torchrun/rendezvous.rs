//! Which node runs the driver, and how the others reach it: `--standalone`, `--rdzv-*`, `--master-*`, `--node-rank`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{given::Given, nodes::Nodes};
use crate::{
    cli::Endpoint,
    config::{Error, is_local},
};

/// The ports that torchrun has without one in the command line.
const STATIC_PORT: u16 = 29500;
const C10D_PORT: u16 = 29400;

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
            Backend::C10d => c10d_endpoint(given)?,
        };
        let is_host = is_host(given, &conf)?;
        let is_first = match (backend, is_host) {
            (Backend::Static, _) => node_rank == Some(0),
            (Backend::C10d, Some(is_host)) => is_host,
            (Backend::C10d, None) => is_local(&driver.host),
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

    /// The driver of several nodes.
    pub(super) fn driver(&self) -> Option<&Endpoint> {
        match &self.place {
            Place::Alone => None,
            Place::First { driver, .. } | Place::Other { driver, .. } => Some(driver),
        }
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
}

fn backend(given: &Given) -> Result<Backend, Error> {
    match given.value("rdzv-backend").map(String::as_str) {
        None | Some("static") => Ok(Backend::Static),
        Some("c10d" | "elasticrun") => Ok(Backend::C10d),
        Some(_) => Err(given.refuse("rdzv-backend", "expected static, c10d or elasticrun")),
    }
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
