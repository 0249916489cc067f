//! Where a node accepts connections: TCP, a Unix socket, or both.
//!
//! A Unix socket has a name made of its address or, with `DMLC_LOCAL`, of the port. The port is reserved then, so that an address
//! means the same in both. The name is abstract: it leaves no file, and is seen in the network namespace only, as the address is.

use std::{
    io,
    net::{SocketAddr, TcpListener, TcpStream},
    os::{
        fd::OwnedFd,
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr as UnixAddr, UnixListener, UnixStream},
    },
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with,
        sockopt::socket_peercred,
    },
    process::geteuid,
};
use socket2::{Domain, Socket, Type};

use super::stream::Stream;

/// Which sockets a node accepts on, and dials others by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sockets {
    Tcp,
    /// With `DMLC_LOCAL`: all nodes are on this machine.
    Unix,
    /// TCP, and a Unix socket for nodes of the same user on this machine.
    Both,
}

/// A socket that accepts.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix {
        listener: UnixListener,
        /// Bound and never listening, so a node without `DMLC_LOCAL` is refused.
        reserved: Socket,
    },
    Both(TcpListener, UnixListener),
}

impl Listener {
    pub(crate) fn bind(address: SocketAddr, sockets: Sockets) -> io::Result<Self> {
        if sockets != Sockets::Unix {
            let tcp = TcpListener::bind(address)?;
            if sockets == Sockets::Tcp {
                return Ok(Self::Tcp(tcp));
            }
            let own = of_address(tcp.local_addr()?);
            // Somebody who has taken the name cannot be a node: the port is ours.
            let Ok(unix) =
                UnixAddr::from_abstract_name(own).and_then(|own| UnixListener::bind_addr(&own))
            else {
                return Ok(Self::Tcp(tcp));
            };
            tcp.set_nonblocking(true)?;
            unix.set_nonblocking(true)?;
            return Ok(Self::Both(tcp, unix));
        }
        let reserved = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        reserved.bind(&address.into())?;
        let port = tcp_address(&reserved)?.port();
        let listener = UnixListener::bind_addr(&UnixAddr::from_abstract_name(of_port(port))?)?;
        Ok(Self::Unix { listener, reserved })
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Tcp(listener) | Self::Both(listener, _) => listener.local_addr(),
            Self::Unix { reserved, .. } => tcp_address(reserved),
        }
    }

    pub(crate) fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Tcp(listener) => accept_tcp(listener),
            Self::Unix { listener, .. } => Ok(listener.accept()?.0.into()),
            Self::Both(tcp, unix) => loop {
                let mut fds = [
                    PollFd::new(tcp, PollFlags::IN),
                    PollFd::new(unix, PollFlags::IN),
                ];
                match poll(&mut fds, None) {
                    Ok(_) | Err(rustix::io::Errno::INTR) => {}
                    Err(errno) => return Err(errno.into()),
                }
                if fds.iter().any(|fd| fd.revents().contains(PollFlags::HUP)) {
                    return Err(io::ErrorKind::NotConnected.into());
                }
                let accepted = match fds[1].revents().is_empty() {
                    true => accept_tcp(tcp),
                    false => unix.accept().map(|(stream, _)| stream.into()),
                };
                match accepted {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    accepted => return accepted,
                }
            },
        }
    }

    /// Wakes the thread that accepts.
    pub(crate) fn shutdown(&self) {
        let both = rustix::net::Shutdown::Both;
        let _ = match self {
            Self::Tcp(listener) => rustix::net::shutdown(listener, both),
            Self::Unix { listener, .. } => rustix::net::shutdown(listener, both),
            Self::Both(tcp, unix) => {
                rustix::net::shutdown(tcp, both).and(rustix::net::shutdown(unix, both))
            }
        };
    }
}

fn accept_tcp(listener: &TcpListener) -> io::Result<Stream> {
    let (stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    Ok(stream.into())
}

/// Connects once, within a limit.
pub(crate) fn connect_once(
    address: SocketAddr,
    sockets: Sockets,
    limit: Duration,
) -> io::Result<Stream> {
    match sockets {
        Sockets::Unix => {
            let name = UnixAddr::from_abstract_name(of_port(address.port()))?;
            return Ok(UnixStream::connect_addr(&name)?.into());
        }
        Sockets::Both => {
            // An address belongs to one machine: whoever has this name is the node, or nobody has it here.
            if let Ok(Some(stream)) = connect_on_this_machine(address) {
                return Ok(stream.into());
            }
        }
        Sockets::Tcp => {}
    }
    let stream = TcpStream::connect_timeout(&address, limit)?;
    // A port of this machine that nobody listens on may connect to itself.
    if stream.local_addr().ok() == stream.peer_addr().ok() {
        return Err(io::Error::other("nothing listens there"));
    }
    stream.set_nodelay(true)?;
    Ok(stream.into())
}

/// Connects to a node of the same user on this machine, without waiting. `None` if another user has the name.
fn connect_on_this_machine(address: SocketAddr) -> io::Result<Option<UnixStream>> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket: OwnedFd = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(
        &socket,
        &SocketAddrUnix::new_abstract_name(of_address(address).as_bytes())?,
    )?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    let same_user = socket_peercred(&stream)?.uid == geteuid();
    Ok(same_user.then_some(stream))
}

fn of_port(port: u16) -> String {
    format!("elasticrun-ps/{port}")
}

fn of_address(address: SocketAddr) -> String {
    format!("elasticrun-ps/{address}")
}

fn tcp_address(socket: &Socket) -> io::Result<SocketAddr> {
    let address = socket.local_addr()?;
    (address.as_socket()).ok_or_else(|| io::Error::other("no address of the internet"))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn any() -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, 0))
    }

    #[test]
    fn a_unix_socket_has_a_port_that_is_taken() {
        let listener = Listener::bind(any(), Sockets::Unix).unwrap();
        let address = listener.local_addr().unwrap();
        let stream = connect_once(address, Sockets::Unix, SECOND).unwrap();
        assert!(matches!(stream, Stream::Unix(_)));
        assert!(matches!(listener.accept().unwrap(), Stream::Unix(_)));
        for sockets in [Sockets::Unix, Sockets::Tcp, Sockets::Both] {
            assert_eq!(
                Listener::bind(address, sockets).unwrap_err().kind(),
                io::ErrorKind::AddrInUse
            );
        }
        let error = connect_once(address, Sockets::Tcp, SECOND).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        drop(listener);
        assert!(connect_once(address, Sockets::Unix, SECOND).is_err());
    }

    #[test]
    fn both_ways_lead_to_one_node_and_one_is_enough() {
        let listener = Listener::bind(any(), Sockets::Both).unwrap();
        let address = listener.local_addr().unwrap();
        for (sockets, unix) in [
            (Sockets::Both, true),
            (Sockets::Tcp, false),
            (Sockets::Both, true),
        ] {
            let stream = connect_once(address, sockets, SECOND).unwrap();
            assert_eq!(matches!(stream, Stream::Unix(_)), unix);
            let accepted = listener.accept().unwrap();
            assert_eq!(matches!(accepted, Stream::Unix(_)), unix);
        }
        let tcp = Listener::bind(any(), Sockets::Tcp).unwrap();
        let stream = connect_once(tcp.local_addr().unwrap(), Sockets::Both, SECOND).unwrap();
        assert!(matches!(stream, Stream::Tcp(_)));
    }

    #[test]
    fn an_accepting_thread_is_woken() {
        for sockets in [Sockets::Tcp, Sockets::Unix, Sockets::Both] {
            let listener = Listener::bind(any(), sockets).unwrap();
            std::thread::scope(|scope| {
                let accepting = scope.spawn(|| listener.accept().is_err());
                listener.shutdown();
                assert!(accepting.join().unwrap(), "{sockets:?}");
            });
        }
    }
}
