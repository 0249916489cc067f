//! Peers that do not speak the protocol, or do not keep to it.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use elasticrun_protocol::{
    frame::{self, FrameBuffer},
    opening::{Hello, Purpose, Verdict},
    rendezvous::{Channel, FromNode, HeartbeatChanges, Open, Opened},
};
use elasticrun_rendezvous::{Endpoint, Error};

use crate::support::{LONG, RUN, holder, node, server, settings};

fn connect(endpoint: &Endpoint) -> TcpStream {
    let stream = TcpStream::connect((endpoint.host(), endpoint.port())).expect("a connection");
    stream.set_read_timeout(Some(LONG)).expect("a timeout");
    stream
}

fn send(stream: &mut TcpStream, message: &impl serde::Serialize) {
    let frame = frame::to_frame(message).expect("a frame");
    stream.write_all(&frame).expect("it is sent");
}

fn receive<T: serde::de::DeserializeOwned>(stream: &mut TcpStream) -> T {
    let mut frames = FrameBuffer::default();
    let mut byte = [0];
    loop {
        stream.read_exact(&mut byte).expect("a byte");
        frames.extend(&byte);
        if let Some(message) = frames.next_message().expect("a message") {
            return message;
        }
    }
}

/// Waits until the server has closed the connection.
fn is_closed(stream: &mut TcpStream) {
    // A reset is an end too.
    let mut rest = Vec::new();
    if let Err(error) = stream.read_to_end(&mut rest) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }
}

/// Opens a channel of a run by hand.
fn opened(endpoint: &Endpoint, channel: Channel) -> TcpStream {
    let mut stream = connect(endpoint);
    send(&mut stream, &Hello::new(Purpose::Rendezvous));
    let verdict: Verdict = receive(&mut stream);
    assert!(matches!(verdict, Verdict::Welcome { .. }), "{verdict:?}");
    let run = RUN.to_owned();
    send(&mut stream, &Open { run, channel });
    assert_eq!(receive::<Opened>(&mut stream), Opened::Ready);
    stream
}

#[test]
fn garbage_closes_its_connection_alone() {
    let (_server, endpoint) = server();
    let mut nodes = holder(&endpoint);
    let long = u32::MAX.to_be_bytes();
    let no_json = [&4_u32.to_be_bytes()[..], b"{{{{"].concat();
    for bytes in [b"GET / HTTP/1.1\r\n\r\n".as_slice(), &long, &no_json] {
        let mut stream = connect(&endpoint);
        stream.write_all(bytes).expect("it is sent");
        is_closed(&mut stream);
    }
    assert!(nodes.read().is_ok());
}

#[test]
fn garbage_after_the_opening_closes_its_connection_alone() {
    let (_server, endpoint) = server();
    let mut nodes = holder(&endpoint);
    for channel in [Channel::State { watch: false }, Channel::Keys] {
        let mut stream = opened(&endpoint, channel);
        stream
            .write_all(&u32::MAX.to_be_bytes())
            .expect("it is sent");
        is_closed(&mut stream);
        let mut stream = opened(&endpoint, channel);
        send(&mut stream, &"a message of another protocol");
        is_closed(&mut stream);
    }
    assert!(nodes.read().is_ok());
}

#[test]
fn a_peer_of_another_release_is_told() {
    let (_server, endpoint) = server();
    // The second one has the heartbeats in the state.
    for (min, max) in [(99, 99), (3, 4)] {
        let mut stream = connect(&endpoint);
        let hello = Hello {
            min,
            max,
            software: "9.9.9".into(),
            ..Hello::new(Purpose::Rendezvous)
        };
        send(&mut stream, &hello);
        let Verdict::Refused { why } = receive(&mut stream) else {
            panic!("it is refused")
        };
        assert!(why.contains("9.9.9"), "{why}");
        is_closed(&mut stream);
    }
}

#[test]
fn a_peer_that_wants_a_job_is_told() {
    let (_server, endpoint) = server();
    let mut stream = connect(&endpoint);
    send(&mut stream, &Hello::new(Purpose::Control));
    let verdict: Verdict = receive(&mut stream);
    assert!(matches!(verdict, Verdict::Refused { .. }), "{verdict:?}");
}

#[test]
fn peers_that_send_nothing_or_read_nothing_delay_nobody() {
    let (_server, endpoint) = server();
    let silent: Vec<_> = (0..200).map(|_| connect(&endpoint)).collect();
    let mut half = connect(&endpoint);
    half.write_all(&100_u32.to_be_bytes()).expect("it is sent");
    let deaf = opened(&endpoint, Channel::State { watch: true });
    let settings = settings(2, 2, &[]);
    let nodes = [
        node(&endpoint, "a", &settings),
        node(&endpoint, "b", &settings),
    ];
    for _ in 0..20 {
        let joins = [nodes[0].join(), nodes[1].join()];
        for join in joins {
            assert_eq!(join.wait().expect("it joins").world_size, 2);
        }
    }
    drop((silent, half, deaf));
}

#[test]
fn a_run_without_a_name_is_refused() {
    let (_server, endpoint) = server();
    let dialled = endpoint.dial("", Channel::Keys, LONG);
    assert!(matches!(dialled, Err(Error::Refused { .. })), "{dialled:?}");
}

#[test]
fn a_server_of_another_protocol_is_named() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let other = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        stream
            .write_all(b"SSH-2.0-OpenSSH\r\n")
            .expect("it is sent");
        stream.read_to_end(&mut Vec::new())
    });
    let endpoint = Endpoint::parse("127.0.0.1:0").expect("an endpoint");
    let dialled = endpoint.with_port(port).dial(RUN, Channel::Keys, LONG);
    assert!(matches!(dialled, Err(Error::Opening { .. })), "{dialled:?}");
    drop(other);
}

#[test]
fn a_write_beyond_the_limit_closes_its_connection() {
    let (_server, endpoint) = server();
    let mut stream = opened(&endpoint, Channel::State { watch: false });
    let state = elasticrun_protocol::Blob(vec![0; elasticrun_protocol::rendezvous::MAX_STATE + 1]);
    let write = FromNode::CompareAndSet {
        heartbeats: HeartbeatChanges::default(),
        request: 1,
        expected: None,
        state,
    };
    send(&mut stream, &write);
    is_closed(&mut stream);
}
