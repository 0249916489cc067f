//! A TLS connection over real blocking sockets.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    thread,
};

use crate::pair::{Pair, authority, client, identity, server};
use elasticrun_tls::{Blocking, Error, Peer, Role, Session};

fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let dialled = TcpStream::connect(listener.local_addr().expect("its address")).expect("open");
    (dialled, listener.accept().expect("a connection").0)
}

/// A driver and an agent that have completed the handshake.
fn connected() -> (Blocking<TcpStream>, Blocking<TcpStream>) {
    let authority = authority();
    let accepts = server(&identity(&authority, Role::Driver), &[Role::Agent]);
    let dials = client(&identity(&authority, Role::Agent), Role::Driver);
    let (dialled, accepted) = sockets();
    let session = Session::client(&dials).expect("a client");
    let dialler = thread::spawn(|| Blocking::handshake(session, dialled).expect("trusted"));
    let listener = Blocking::handshake(Session::server(&accepts), accepted).expect("trusted");
    (dialler.join().expect("no panic"), listener)
}

#[test]
fn megabytes_go_both_ways() {
    let (mut dialler, mut listener) = connected();
    assert_eq!(listener.session().peer(), Some(Peer::Proven(Role::Agent)));
    let bytes: Vec<u8> = (0..3_000_001_u32).map(|n| n as u8).collect();
    let copy = bytes.clone();
    let writer = thread::spawn(move || {
        dialler.write_all(&copy).expect("written");
        let mut back = Vec::new();
        dialler.read_to_end(&mut back).expect("read");
        back
    });
    let mut read = vec![0; bytes.len()];
    listener.read_exact(&mut read).expect("read");
    assert!(read == bytes);
    listener.write_all(&bytes[..1_000_000]).expect("written");
    listener.close().expect("written");
    assert!(writer.join().expect("no panic") == bytes[..1_000_000]);
}

#[test]
fn a_stream_that_is_cut_is_no_end() {
    let (mut dialler, listener) = connected();
    listener.get_ref().shutdown(Shutdown::Both).expect("cut");
    let error = dialler.read(&mut [0]).expect_err("it was cut");
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
}

#[test]
fn a_session_continues_on_a_blocking_stream_with_what_was_unread() {
    let authority = authority();
    let accepts = server(&identity(&authority, Role::Driver), &[Role::Agent]);
    let dials = client(&identity(&authority, Role::Agent), Role::Driver);
    let mut pair = Pair::connected(&dials, &accepts);
    pair.client.send(b"first ").expect("established");
    pair.run();
    let (dialled, accepted) = sockets();
    let mut dialler = Blocking::new(pair.client, dialled, pair.client_read);
    let mut listener = Blocking::new(pair.server, accepted, pair.server_read);
    dialler.write_all(b"second").expect("written");
    let mut read = [0; 12];
    listener.read_exact(&mut read).expect("read");
    assert_eq!(&read, b"first second");
}

#[test]
fn a_peer_that_is_refused_learns_why() {
    let ours = authority();
    let accepts = server(&identity(&ours, Role::Driver), &[Role::Worker]);
    let dials = client(&identity(&ours, Role::Agent), Role::Driver);
    let (dialled, accepted) = sockets();
    let session = Session::client(&dials).expect("a client");
    let dialler = thread::spawn(|| {
        let mut stream = Blocking::handshake(session, dialled)?;
        stream.read(&mut [0])
    });
    let refused = Blocking::handshake(Session::server(&accepts), accepted)
        .expect_err("agents are not served");
    assert_eq!(why(&refused), Some(&Error::WrongRole));
    let error = dialler.join().expect("no panic").expect_err("refused");
    assert!(matches!(why(&error), Some(Error::Refused(_))), "{error:?}");
}

fn why(error: &io::Error) -> Option<&Error> {
    error.get_ref()?.downcast_ref()
}
