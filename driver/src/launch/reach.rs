//! The addresses at which agents reach the driver.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _, UdpSocket};

/// The address of this machine on the route to a host by name. Blocks.
pub(super) fn local_address_on_route(host: &str) -> Option<IpAddr> {
    let target = (host, 9).to_socket_addrs().ok()?.next()?;
    local_address_toward(target.ip())
}

/// The address of this machine on the route to another one. Sends nothing: connecting a datagram socket only picks a route.
pub(crate) fn local_address_toward(to: IpAddr) -> Option<IpAddr> {
    let target = SocketAddr::new(to, 9);
    let any: SocketAddr = if target.is_ipv4() {
        "0.0.0.0:0".parse().ok()?
    } else {
        "[::]:0".parse().ok()?
    };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(target).ok()?;
    Some(socket.local_addr().ok()?.ip())
}
