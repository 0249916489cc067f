//! The endpoint of a rendezvous: the host and the port of its server.

use std::{
    fmt, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs, UdpSocket},
};

use socket2::{Domain, Protocol, Socket, Type};

use crate::Error;

/// The port of an endpoint without one: that of PyTorch.
pub const DEFAULT_PORT: u16 = 29400;

/// How many connections may wait until the server accepts them.
const BACKLOG: i32 = 4096;

/// The host and the port of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    host: String,
    port: u16,
}

impl Endpoint {
    /// The endpoint `HOST`, `HOST:PORT`, `[IPV6]:PORT`. Without a host it is this machine.
    ///
    /// # Errors
    /// The text is no such endpoint.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let refused = || Error::Endpoint {
            text: text.to_owned(),
        };
        let text = text.trim();
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, rest) = rest.split_once(']').ok_or_else(refused)?;
                match rest {
                    "" => (host, None),
                    rest => (host, Some(rest.strip_prefix(':').ok_or_else(refused)?)),
                }
            }
            None if text.parse::<Ipv6Addr>().is_ok() => (text, None),
            None => match text.rsplit_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            },
        };
        let port = match port {
            None => DEFAULT_PORT,
            Some(port) => port.parse().map_err(|_| refused())?,
        };
        if host.contains([' ', '/', '[', ']'])
            || host.contains(':') && host.parse::<Ipv6Addr>().is_err()
        {
            return Err(refused());
        }
        let host = match host {
            "" => "localhost",
            host => host,
        };
        Ok(Self {
            host: host.to_owned(),
            port,
        })
    }

    /// The host, as given.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The same host with another port.
    #[must_use]
    pub fn with_port(&self, port: u16) -> Self {
        Self {
            host: self.host.clone(),
            port,
        }
    }

    /// Whether only this machine can reach the endpoint.
    pub fn is_loopback(&self) -> bool {
        match self.host.parse::<IpAddr>() {
            Ok(address) => address.is_loopback(),
            Err(_) => self.host == "localhost",
        }
    }

    /// Whether the host is this machine: its name, or one of its addresses.
    pub fn is_local(&self) -> bool {
        let own = nix::unistd::gethostname().ok();
        if own.is_some_and(|own| own.to_str() == Some(self.host.as_str())) {
            return true;
        }
        let addresses = (self.host.as_str(), 0).to_socket_addrs();
        // The system gives a socket only for an address of this machine.
        addresses.is_ok_and(|mut addresses| {
            addresses
                .any(|address| !address.ip().is_multicast() && UdpSocket::bind(address).is_ok())
        })
    }

    /// The addresses of the endpoint, at least one.
    pub(crate) fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        let addresses: Vec<_> = (self.host.as_str(), self.port).to_socket_addrs()?.collect();
        match addresses.is_empty() {
            true => Err(io::Error::other("the host has no address")),
            false => Ok(addresses),
        }
    }

    /// Listens at the endpoint: at all addresses of this machine, or at loopback alone if that is the endpoint. The name of a
    /// machine may be a loopback address on the machine itself.
    pub(crate) fn listen(&self) -> Result<TcpListener, Error> {
        let bind = |source| Error::Bind {
            endpoint: self.clone(),
            source,
        };
        if self.is_loopback() {
            let addresses = self.addresses().map_err(bind)?;
            let v4_first = addresses.iter().find(|address| address.is_ipv4());
            let address = v4_first.unwrap_or(&addresses[0]);
            return listen(*address).map_err(bind);
        }
        let all = SocketAddr::from((Ipv6Addr::UNSPECIFIED, self.port));
        match listen(all) {
            Err(error) if is_unsupported(&error) => {
                listen((Ipv4Addr::UNSPECIFIED, self.port).into()).map_err(bind)
            }
            listener => listener.map_err(bind),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    if address.is_ipv6() && address.ip().is_unspecified() {
        socket.set_only_v6(false)?;
    }
    // A server that ended a moment ago leaves connections that still use the port.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Whether this machine has no IPv6.
fn is_unsupported(error: &io::Error) -> bool {
    let codes = [nix::libc::EAFNOSUPPORT, nix::libc::EADDRNOTAVAIL];
    error
        .raw_os_error()
        .is_some_and(|code| codes.contains(&code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_written_as_torch_writes_them() {
        let parsed = |text: &str| {
            let endpoint = Endpoint::parse(text).expect(text);
            (endpoint.host, endpoint.port)
        };
        assert_eq!(parsed("node-1:29500"), ("node-1".into(), 29500));
        assert_eq!(parsed("node-1"), ("node-1".into(), DEFAULT_PORT));
        assert_eq!(parsed(""), ("localhost".into(), DEFAULT_PORT));
        assert_eq!(parsed(":5"), ("localhost".into(), 5));
        assert_eq!(parsed("[::1]:7"), ("::1".into(), 7));
        assert_eq!(parsed("::1"), ("::1".into(), DEFAULT_PORT));
        for text in [
            "node:x",
            "node:70000",
            "[::1",
            "[::1]7",
            "http://node:1",
            "a:b:1",
        ] {
            assert!(Endpoint::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn loopback_is_local_and_a_foreign_address_is_not() {
        for text in ["localhost", "127.0.0.1", ""] {
            assert!(Endpoint::parse(text).expect(text).is_local(), "{text}");
        }
        // An address for documentation (RFC 5737).
        assert!(!Endpoint::parse("192.0.2.1").expect("an address").is_local());
    }

    #[test]
    fn one_program_has_the_endpoint() {
        let endpoint = Endpoint::parse("127.0.0.1:0").expect("an endpoint");
        let first = endpoint.listen().expect("a free port");
        let port = first.local_addr().expect("an address").port();
        assert!(endpoint.with_port(port).listen().is_err());
    }
}
