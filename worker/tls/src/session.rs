//! One end of a TLS connection, without I/O: the caller moves the bytes.

use std::{
    fmt,
    io::{self, Write},
    sync::Arc,
};

use bytes::{Buf, BytesMut};
use rustls::{
    ClientConnection, Connection,
    pki_types::CertificateDer,
    server::{Accepted, AcceptedAlert, Acceptor},
};

use crate::{
    ClientConfig, Error, Role, ServerConfig,
    config::{has_name, role_of},
    enrol,
    role::server_name,
};

/// The first byte of a TLS connection: a record of the handshake.
const HANDSHAKE: u8 = 0x16;
/// The first byte of a server that refuses at once: a record with an alert.
const ALERT: u8 = 0x15;

/// Whether the first byte of a client begins a TLS connection. If not, the client may speak an earlier version of the
/// protocol, and can be answered in clear.
pub fn begins_tls(first: u8) -> bool {
    first == HANDSHAKE
}

/// Who the other end is, once the handshake is complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Peer {
    /// A process of the same job with this role.
    Proven(Role),
    /// A host that wants an identity, or the driver that it asks. Nothing is proved: see [`enrol`](crate::enrol).
    Enrolling,
}

enum State {
    /// A server that has not read the whole first message of the client.
    Accepting(Acceptor, ServerConfig),
    Open(Connection),
    Failed(Error),
}

/// One end of a TLS connection.
///
/// A client is established before the server has checked its certificate: TLS 1.3 sends the client's certificate last. The
/// refusal is an [`Error::Refused`] of a later [`Session::feed`]. So a client that must know waits for the server's first
/// message.
pub struct Session {
    state: State,
    /// Alerts of a server that fails before it has a connection.
    alert: Vec<u8>,
    is_server: bool,
    /// It is the client of an enrolment, which has verified no certificate.
    enrols: bool,
    /// Whether the first byte of the peer was checked.
    speaks_tls: bool,
    is_closed: bool,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("is_server", &self.is_server)
            .field("peer", &self.peer())
            .finish_non_exhaustive()
    }
}

impl Session {
    /// The end that opens a connection. Its first message is outgoing at once.
    ///
    /// # Errors
    /// [`Error::Identity`] if the configuration cannot be used.
    pub fn client(config: &ClientConfig) -> Result<Self, Error> {
        let connection = ClientConnection::new(Arc::clone(&config.config), config.name.clone())
            .map_err(|error| Error::Identity(error.to_string()))?;
        let mut connection = Connection::Client(connection);
        connection.set_buffer_limit(None);
        let session = Self::new(State::Open(connection), false);
        Ok(Self {
            enrols: config.enrols,
            ..session
        })
    }

    /// The end that accepts a connection.
    pub fn server(config: &ServerConfig) -> Self {
        Self::new(State::Accepting(Acceptor::default(), config.clone()), true)
    }

    fn new(state: State, is_server: bool) -> Self {
        Self {
            state,
            alert: Vec::new(),
            is_server,
            enrols: false,
            speaks_tls: false,
            is_closed: false,
        }
    }

    /// Takes all bytes of the peer from `wire`, and appends what they say to `plain`.
    ///
    /// Call [`Session::take_outgoing`] or [`Session::write_outgoing`] afterwards, also after an error: the peer learns why from an alert.
    ///
    /// # Errors
    /// Why the peer is not trusted. The error is final, and what was appended to `plain` before is authentic. After
    /// [`Error::NotTls`], `wire` is untouched.
    pub fn feed(&mut self, wire: &mut BytesMut, plain: &mut BytesMut) -> Result<(), Error> {
        if let State::Failed(error) = &self.state {
            return Err(error.clone());
        }
        let result = self.check_first(wire).and_then(|()| {
            while !wire.is_empty() {
                self.read_some(wire, plain)?;
            }
            Ok(())
        });
        if let Err(error) = &result {
            self.take_alert();
            self.state = State::Failed(error.clone());
        }
        result
    }

    fn check_first(&mut self, wire: &BytesMut) -> Result<(), Error> {
        let Some(first) = wire.first().copied().filter(|_| !self.speaks_tls) else {
            return Ok(());
        };
        if !begins_tls(first) && (self.is_server || first != ALERT) {
            return Err(Error::NotTls(first));
        }
        self.speaks_tls = true;
        Ok(())
    }

    /// Reads as much as the library takes at once.
    fn read_some(&mut self, wire: &mut BytesMut, plain: &mut BytesMut) -> Result<(), Error> {
        let mut unread: &[u8] = wire;
        match &mut self.state {
            State::Accepting(acceptor, config) => {
                let count = acceptor.read_tls(&mut unread).map_err(unreadable)?;
                wire.advance(count);
                let config = config.clone();
                match acceptor.accept() {
                    Ok(None) => Ok(()),
                    Ok(Some(accepted)) => self.accept(accepted, &config),
                    Err((error, alert)) => Err(self.refuse(error, alert)),
                }
            }
            State::Open(connection) => {
                let count = connection.read_tls(&mut unread).map_err(unreadable)?;
                wire.advance(count);
                if count == 0 {
                    // The peer has closed its side. What follows is of no meaning.
                    wire.clear();
                }
                let result = connection.process_new_packets();
                read_plain(connection, plain);
                self.is_closed |= result?.peer_has_closed();
                let agreed = connection.alpn_protocol() == Some(enrol::PROTOCOL);
                match self.enrols && !connection.is_handshaking() && !agreed {
                    true => Err(Error::NoEnrolment),
                    false => Ok(()),
                }
            }
            State::Failed(error) => Err(error.clone()),
        }
    }

    /// Chooses the configuration for a client: by its certificate, or enrolment if it asks for that and it is served.
    fn accept(&mut self, accepted: Accepted, config: &ServerConfig) -> Result<(), Error> {
        let enrols = accepted
            .client_hello()
            .alpn()
            .is_some_and(|mut names| names.any(|name| name == enrol::PROTOCOL));
        let chosen = match &config.enrolment {
            Some(enrolment) if enrols => enrolment,
            _ => &config.mutual,
        };
        match accepted.into_connection(Arc::clone(chosen)) {
            Ok(connection) => {
                let mut connection = Connection::Server(connection);
                connection.set_buffer_limit(None);
                let result = connection.process_new_packets();
                self.state = State::Open(connection);
                result?;
                Ok(())
            }
            Err((error, alert)) => Err(self.refuse(error, alert)),
        }
    }

    fn refuse(&mut self, error: rustls::Error, mut alert: AcceptedAlert) -> Error {
        let _ = alert.write_all(&mut self.alert);
        error.into()
    }

    /// Keeps what a connection that has failed still sends.
    fn take_alert(&mut self) {
        if let State::Open(connection) = &mut self.state {
            while connection.wants_write() && connection.write_tls(&mut self.alert).is_ok() {}
        }
    }

    /// Queues bytes for the peer. Before the handshake is complete they wait. The queue has no limit: the caller sends pieces
    /// and takes them away.
    ///
    /// # Errors
    /// [`Error::NotEstablished`] for a server that has not heard from its client; the error of the session.
    pub fn send(&mut self, plain: &[u8]) -> Result<(), Error> {
        match &mut self.state {
            State::Open(connection) => connection.writer().write_all(plain).map_err(unreadable),
            State::Accepting(..) => Err(Error::NotEstablished),
            State::Failed(error) => Err(error.clone()),
        }
    }

    /// Queues the word that nothing more will be sent, so that the peer can tell an end from a cut.
    pub fn close(&mut self) {
        if let State::Open(connection) = &mut self.state {
            connection.send_close_notify();
        }
    }

    /// Whether there are bytes that the peer must get.
    pub fn has_outgoing(&self) -> bool {
        let waits =
            |state: &State| matches!(state, State::Open(connection) if connection.wants_write());
        !self.alert.is_empty() || waits(&self.state)
    }

    /// Appends the bytes that the peer must get to `wire`.
    pub fn take_outgoing(&mut self, wire: &mut Vec<u8>) {
        while self.has_outgoing() {
            self.write_outgoing(wire)
                .expect("a vector takes everything");
        }
    }

    /// Writes bytes that the peer must get, with one call of `wire`. Returns how many it took.
    ///
    /// # Errors
    /// Those of `wire`.
    pub fn write_outgoing(&mut self, wire: &mut dyn io::Write) -> io::Result<usize> {
        match &mut self.state {
            _ if !self.alert.is_empty() => {
                let count = wire.write(&self.alert)?;
                self.alert.drain(..count);
                Ok(count)
            }
            State::Open(connection) => connection.write_tls(wire),
            State::Accepting(..) | State::Failed(_) => Ok(0),
        }
    }

    /// The other end. `None` until the handshake is complete, and after an error.
    pub fn peer(&self) -> Option<Peer> {
        let connection = self.connection().ok()?;
        if connection.alpn_protocol() == Some(enrol::PROTOCOL) {
            return Some(Peer::Enrolling);
        }
        // Read from the certificates again, so that a resumed session cannot have another role than its first one.
        let role = role_of(connection.peer_certificates()?.first()?, &Role::ALL).ok()?;
        Some(Peer::Proven(role))
    }

    /// Whether the other end is a proven process on this host of this run.
    pub fn peer_is_on(&self, run_id: &str, host: &str) -> bool {
        let (Some(Peer::Proven(role)), Some(certificate)) = (self.peer(), self.certificate())
        else {
            return false;
        };
        has_name(certificate, &server_name(role.name_on(run_id, host)))
    }

    fn certificate(&self) -> Option<&CertificateDer<'_>> {
        self.connection().ok()?.peer_certificates()?.first()
    }

    /// 32 bytes that only the two ends of this connection can compute, different for each label.
    ///
    /// # Errors
    /// [`Error::NotEstablished`] before the handshake is complete.
    pub fn exporter(&self, label: &str) -> Result<[u8; 32], Error> {
        Ok(self
            .connection()?
            .export_keying_material([0; 32], label.as_bytes(), None)?)
    }

    /// Whether the handshake was shortened by a ticket of an earlier connection. `None` until it is complete.
    pub fn is_resumed(&self) -> Option<bool> {
        let kind = self.connection().ok()?.handshake_kind()?;
        Some(kind == rustls::HandshakeKind::Resumed)
    }

    /// Whether the peer has said that it sends nothing more. A stream that ends before was cut.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// The established connection.
    fn connection(&self) -> Result<&Connection, Error> {
        match &self.state {
            State::Open(connection) if !connection.is_handshaking() => Ok(connection),
            State::Open(_) | State::Accepting(..) => Err(Error::NotEstablished),
            State::Failed(error) => Err(error.clone()),
        }
    }
}

fn read_plain(connection: &mut Connection, plain: &mut BytesMut) {
    while let Ok(chunk) = connection.reader().into_first_chunk() {
        let count = chunk.len();
        if count == 0 {
            break;
        }
        plain.extend_from_slice(chunk);
        // The chunk was seen, not taken.
        take(&mut connection.reader(), count);
    }
}

fn take(reader: &mut impl io::BufRead, count: usize) {
    reader.consume(count);
}

/// An error of the library's buffers. In memory there is no other one.
#[expect(clippy::needless_pass_by_value, reason = "it is used by map_err")]
fn unreadable(error: io::Error) -> Error {
    Error::Protocol(rustls::Error::General(error.to_string()))
}
