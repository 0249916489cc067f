//! The addresses at which an agent finds the driver, best first.
//!
//! 1. The address of `--listen`, if it is one: only there does the driver listen.
//! 2. This machine's addresses on the routes to the host, one for each address of its name. A name that only ssh knows is
//!    resolved as ssh does (`ssh -G`).
//! 3. For a host whose address is unknown here, as behind a jump host: all addresses of this machine.
//!
//! Loopback is for agents of this machine alone.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _, UdpSocket};

use elasticrun_plugin_sdk::Host;

use super::ssh;
use crate::config;

/// What this machine knows about the way to other hosts.
pub(super) trait Network {
    /// The addresses of a name.
    fn resolve(&self, name: &str) -> Vec<IpAddr>;

    /// The name or address to which ssh connects for the host of this launch, if it is another one.
    fn ssh_name(&self) -> Option<String>;

    /// The address of this machine on the route to another one.
    fn local_address_toward(&self, to: IpAddr) -> Option<IpAddr>;

    /// The addresses of this machine.
    fn interfaces(&self) -> Vec<IpAddr>;
}

/// The addresses (`host:port`) for an agent. `bound` is that of the driver's socket. `routes` are the host, or for an agent
/// of this machine the other hosts of the job.
pub(super) fn candidates(
    bound: SocketAddr,
    launcher: config::Launcher,
    routes: &[String],
    network: &impl Network,
) -> Vec<String> {
    let at = |ip| SocketAddr::new(ip, bound.port()).to_string();
    if !bound.ip().is_unspecified() {
        return vec![at(bound.ip())];
    }
    let is_local = launcher == config::Launcher::Local;
    let mut found = Vec::new();
    if is_local {
        // One way out of this machine is enough: others reach its workers by that address.
        let mut ways = routes.iter().map(|name| toward(name, network));
        found.extend(ways.find_map(|ways| ways.into_iter().next()));
        found.extend([IpAddr::V4(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()]);
    } else {
        found.extend(routes.iter().flat_map(|name| toward(name, network)));
        if found.is_empty() {
            let name = network.ssh_name();
            found.extend(name.iter().flat_map(|name| toward(name, network)));
        }
        if found.is_empty() {
            let interfaces = network.interfaces().into_iter();
            found.extend(interfaces.filter(|ip| !ip.is_loopback()));
        }
    }
    let mut candidates = Vec::new();
    for ip in found {
        // The socket may be one of IPv4 only, and a link-local address needs the name of an interface there.
        let is_usable = match ip {
            IpAddr::V4(_) => true,
            IpAddr::V6(ip) => bound.is_ipv6() && !ip.is_unicast_link_local(),
        };
        let candidate = at(ip);
        if is_usable && !candidates.contains(&candidate) {
            candidates.push(candidate);
        }
    }
    candidates
}

/// This machine's addresses on the routes to a host by name.
fn toward(name: &str, network: &impl Network) -> Vec<IpAddr> {
    let addresses = network.resolve(name).into_iter();
    addresses
        .filter_map(|to| network.local_address_toward(to))
        .collect()
}

/// The network of this machine, for the launch of a host by ssh.
pub(super) struct System<'a> {
    settings: &'a config::Launch,
    host: &'a Host,
}

impl<'a> System<'a> {
    /// The network, with the options of ssh that the launch has.
    pub(super) fn new(settings: &'a config::Launch, host: &'a Host) -> Self {
        Self { settings, host }
    }
}

/// All methods may block.
impl Network for System<'_> {
    fn resolve(&self, name: &str) -> Vec<IpAddr> {
        let addresses = (name, 9).to_socket_addrs().into_iter().flatten();
        addresses
            .map(|address| address.ip().to_canonical())
            .collect()
    }

    fn ssh_name(&self) -> Option<String> {
        ssh::name_of(self.settings, self.host)
    }

    fn local_address_toward(&self, to: IpAddr) -> Option<IpAddr> {
        local_address_toward(to)
    }

    fn interfaces(&self) -> Vec<IpAddr> {
        config::interface_addresses().collect()
    }
}

/// The address of this machine on the route to another one. Sends nothing: connecting a datagram socket only picks a route.
pub(crate) fn local_address_toward(to: IpAddr) -> Option<IpAddr> {
    let any = match to {
        IpAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        IpAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(SocketAddr::new(to, 9)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

#[cfg(test)]
mod tests;
