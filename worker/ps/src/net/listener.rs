//! Where a node accepts connections: TCP, or with `DMLC_LOCAL` a Unix socket.
//!
//! A Unix socket has a name made of the port of its address. The port is reserved, so that an address means the same in both. The
//! name is abstract: it leaves no file, and is seen in the network namespace only.

use std::{
    io,
    net::{SocketAddr, TcpListener, TcpStream},
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr as UnixAddr, UnixListener, UnixStream},
    },
    time::Duration,
};

use socket2::{Domain, Socket, Type};

use super::stream::Stream;

/// A socket that accepts.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix {
        listener: UnixListener,
        /// Bound and never listening, so a node without `DMLC_LOCAL` is refused.
        reserved: Socket,
    },
}

impl Listener {
    pub(crate) fn bind(address: SocketAddr, local: bool) -> io::Result<Self> {
        if !local {
            return Ok(Self::Tcp(TcpListener::bind(address)?));
        }
        let reserved = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        reserved.bind(&address.into())?;
        let port = tcp_address(&reserved)?.port();
        let listener = UnixListener::bind_addr(&name(port)?)?;
        Ok(Self::Unix { listener, reserved })
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Tcp(listener) => listener.local_addr(),
            Self::Unix { reserved, .. } => tcp_address(reserved),
        }
    }

    pub(crate) fn accept(&self) -> io::Result<Stream> {
        Ok(match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                stream.into()
            }
            Self::Unix { listener, .. } => listener.accept()?.0.into(),
        })
    }

    /// Wakes the thread that accepts.
    pub(crate) fn shutdown(&self) {
        let both = rustix::net::Shutdown::Both;
        let _ = match self {
            Self::Tcp(listener) => rustix::net::shutdown(listener, both),
            Self::Unix { listener, .. } => rustix::net::shutdown(listener, both),
        };
    }
}

/// Connects once, within a limit.
pub(crate) fn connect_once(
    address: SocketAddr,
    local: bool,
    limit: Duration,
) -> io::Result<Stream> {
    if local {
        return Ok(UnixStream::connect_addr(&name(address.port())?)?.into());
    }
    let stream = TcpStream::connect_timeout(&address, limit)?;
    // A port of this machine that nobody listens on may connect to itself.
    if stream.local_addr().ok() == stream.peer_addr().ok() {
        return Err(io::Error::other("nothing listens there"));
    }
    stream.set_nodelay(true)?;
    Ok(stream.into())
}

fn name(port: u16) -> io::Result<UnixAddr> {
    UnixAddr::from_abstract_name(format!("elasticrun-ps/{port}"))
}

fn tcp_address(socket: &Socket) -> io::Result<SocketAddr> {
    let address = socket.local_addr()?;
    (address.as_socket()).ok_or_else(|| io::Error::other("no address of the internet"))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn a_unix_socket_has_a_port_that_is_taken() {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listener = Listener::bind(any, true).unwrap();
        let address = listener.local_addr().unwrap();
        let second = Duration::from_secs(1);
        let stream = connect_once(address, true, second).unwrap();
        assert!(matches!(stream, Stream::Unix(_)));
        assert!(matches!(listener.accept().unwrap(), Stream::Unix(_)));
        for local in [true, false] {
            assert_eq!(
                Listener::bind(address, local).unwrap_err().kind(),
                io::ErrorKind::AddrInUse
            );
        }
        let error = connect_once(address, false, second).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        drop(listener);
        assert!(connect_once(address, true, second).is_err());
    }
}
