//! The connection of the relay to the driver, and the time without one.

use std::future::pending;

use elasticrun_protocol::{
    Process,
    store::{FromClient, FromHost, Refused, Request, ToHost},
};
use elasticrun_tls::TlsStream;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::Instant,
};

use crate::{duplex::Duplex, error::PeerError};

/// The connection to the driver.
#[derive(Debug)]
pub(super) enum DriverConn {
    Up(Box<OpenConn>),
    Down {
        why: String,
        /// When to dial again; none if the driver is lost.
        dial_again: Option<Instant>,
    },
    /// The agent may return to its driver. Requests wait until then.
    Away,
}

/// An open connection to the driver.
#[derive(Debug)]
pub(super) struct OpenConn<S = TlsStream<TcpStream>> {
    pub(super) duplex: Duplex<S>,
    /// The protocol version that both sides speak.
    pub(super) version: u16,
}

impl<S: AsyncRead + AsyncWrite> OpenConn<S> {
    /// Queues a request, if the driver knows its operation.
    pub(super) fn ask(&mut self, process: Process, request: &Request) -> Result<(), Refused> {
        if request.op.version() > self.version {
            let peer = "driver".to_owned();
            return Err(Refused::Unsupported { peer });
        }
        let message = FromClient::Ask(request.clone());
        let sent = self.duplex.queue(&FromHost { process, message });
        sent.map_err(|error| Refused::Unreachable {
            why: error.to_string(),
        })
    }
}

impl DriverConn {
    /// The next answer. Waits for ever while there is no connection. Cancel-safe.
    pub(super) async fn next(&mut self) -> Result<ToHost, PeerError> {
        match self {
            Self::Up(conn) => conn.duplex.next().await,
            Self::Down { .. } | Self::Away => pending().await,
        }
    }

    /// When the driver may be dialled again, if there is no connection.
    pub(super) fn dial_due(&self) -> Option<Instant> {
        match self {
            Self::Down { dial_again, .. } => *dial_again,
            Self::Up(_) | Self::Away => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use elasticrun_protocol::{
        Generation, LocalRank,
        frame::FrameBuffer,
        opening::MAX_VERSION,
        store::{Namespace, Op},
    };

    use super::*;

    #[test]
    fn a_driver_of_an_earlier_release_gets_only_operations_that_it_knows() {
        let process = Process {
            local_rank: LocalRank(0),
            generation: Generation(1),
        };
        let request = |op| Request {
            number: 1,
            namespace: Namespace::Job,
            timeout: Duration::ZERO,
            op,
            reads_staged: true,
        };
        let (key, value) = (String::from("a"), b"1"[..].into());
        let push = request(Op::QueuePush { key, value });
        let get = request(Op::Get { key: "a".into() });
        let conn = |version| OpenConn {
            duplex: Duplex::new(tokio::io::duplex(64).0, FrameBuffer::default()),
            version,
        };
        let peer = String::from("driver");
        let refused = Err(Refused::Unsupported { peer });
        assert_eq!(conn(3).ask(process, &push), refused);
        assert_eq!(conn(3).ask(process, &get), Ok(()));
        assert_eq!(conn(MAX_VERSION).ask(process, &push), Ok(()));
    }
}
