//! Two sessions in memory, and the bytes between them.

use bytes::BytesMut;
use elasticrun_tls::{Authority, ClientConfig, Error, Identity, Role, ServerConfig, Session};

pub(crate) const RUN: &str = "run-7";

pub(crate) fn authority() -> Authority {
    Authority::new(RUN).expect("an authority")
}

pub(crate) fn identity(authority: &Authority, role: Role) -> Identity {
    authority.issue(role, "node-1").expect("an identity")
}

pub(crate) fn server(identity: &Identity, accepts: &[Role]) -> ServerConfig {
    ServerConfig::new(identity, accepts).expect("a configuration")
}

pub(crate) fn client(identity: &Identity, expects: Role) -> ClientConfig {
    ClientConfig::new(identity, expects).expect("a configuration")
}

/// Both ends of a connection, and what each has said to the other.
pub(crate) struct Pair {
    pub(crate) client: Session,
    pub(crate) server: Session,
    pub(crate) client_read: BytesMut,
    pub(crate) server_read: BytesMut,
    /// The first errors of each end.
    pub(crate) client_error: Option<Error>,
    pub(crate) server_error: Option<Error>,
    /// All bytes that the client has sent.
    pub(crate) recorded: Vec<u8>,
    /// How many bytes are moved at once.
    pub(crate) step: usize,
}

impl Pair {
    pub(crate) fn new(client: &ClientConfig, server: &ServerConfig) -> Self {
        Self {
            client: Session::client(client).expect("a client"),
            server: Session::server(server),
            client_read: BytesMut::new(),
            server_read: BytesMut::new(),
            client_error: None,
            server_error: None,
            recorded: Vec::new(),
            step: usize::MAX,
        }
    }

    /// Moves bytes until neither end has any to send.
    pub(crate) fn run(&mut self) {
        loop {
            let mut up = Vec::new();
            self.client.take_outgoing(&mut up);
            self.recorded.extend(&up);
            feed(
                &mut self.server,
                &up,
                self.step,
                &mut self.server_read,
                &mut self.server_error,
            );
            let mut down = Vec::new();
            self.server.take_outgoing(&mut down);
            feed(
                &mut self.client,
                &down,
                self.step,
                &mut self.client_read,
                &mut self.client_error,
            );
            if up.is_empty() && down.is_empty() {
                return;
            }
        }
    }

    /// Runs a handshake that must succeed.
    pub(crate) fn connected(client: &ClientConfig, server: &ServerConfig) -> Self {
        let mut pair = Self::new(client, server);
        pair.run();
        assert_eq!((&pair.client_error, &pair.server_error), (&None, &None));
        assert!(pair.client.peer().is_some() && pair.server.peer().is_some());
        pair
    }
}

fn feed(
    session: &mut Session,
    bytes: &[u8],
    step: usize,
    plain: &mut BytesMut,
    error: &mut Option<Error>,
) {
    let mut wire = BytesMut::new();
    for part in bytes.chunks(step.min(bytes.len()).max(1)) {
        wire.extend_from_slice(part);
        if let Err(why) = session.feed(&mut wire, plain) {
            error.get_or_insert(why);
            return;
        }
        assert!(wire.is_empty(), "a session takes all bytes");
    }
}
