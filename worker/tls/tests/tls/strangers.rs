//! Peers that break the protocol: what they say is refused, and costs little.

use crate::pair::{Pair, authority, client, identity, server};
use bytes::BytesMut;
use elasticrun_protocol::frame::{decode, to_frame};
use elasticrun_protocol::opening::{Hello, Purpose, Verdict};
use elasticrun_tls::{Error, Peer, Role, ServerConfig, Session, begins_tls};

/// The server of most tests here: a driver that also serves enrolment.
fn driver() -> ServerConfig {
    let identity = identity(&authority(), Role::Driver);
    server(&identity, &[Role::Agent])
        .with_enrolment(&identity)
        .expect("a configuration")
}

fn feed(session: &mut Session, bytes: &[u8]) -> Result<(), Error> {
    let mut plain = BytesMut::new();
    let result = session.feed(&mut BytesMut::from(bytes), &mut plain);
    assert!(plain.is_empty());
    result
}

#[test]
fn a_peer_of_an_earlier_protocol_is_recognised_and_can_be_answered_in_clear() {
    let hello = to_frame(&Hello::new(Purpose::Control)).expect("a frame");
    assert!(!begins_tls(hello[0]));
    let mut server = Session::server(&driver());
    let mut wire = BytesMut::from(&hello[..]);
    let error = server.feed(&mut wire, &mut BytesMut::new());
    assert_eq!(error, Err(Error::NotTls(0)));
    // The hello is there to be read, and nothing of TLS is sent.
    assert_eq!(wire, hello[..]);
    let mut outgoing = Vec::new();
    server.take_outgoing(&mut outgoing);
    assert!(outgoing.is_empty());
}

#[test]
fn a_client_reads_a_refusal_in_clear() {
    let agent = identity(&authority(), Role::Agent);
    let mut session = Session::client(&client(&agent, Role::Driver)).expect("a client");
    let why = "install the same release on both";
    let frame = to_frame(&Verdict::Refused { why: why.into() }).expect("a frame");
    let mut wire = BytesMut::from(&frame[..]);
    let error = session.feed(&mut wire, &mut BytesMut::new());
    assert_eq!(error, Err(Error::NotTls(0)));
    let Ok(Verdict::Refused { why: read }) = decode(&wire[4..]) else {
        panic!("the frame is untouched");
    };
    assert_eq!(read, why);
}

#[test]
fn a_client_reads_an_alert_of_a_server_that_refuses_at_once() {
    let agent = identity(&authority(), Role::Agent);
    let mut session = Session::client(&client(&agent, Role::Driver)).expect("a client");
    // handshake_failure
    let error = feed(&mut session, &[0x15, 3, 3, 0, 2, 2, 40]);
    assert!(matches!(error, Err(Error::Refused(_))), "{error:?}");
}

#[test]
fn each_first_byte_but_that_of_tls_is_refused() {
    for first in (0..=255).filter(|byte| *byte != 0x16) {
        let mut server = Session::server(&driver());
        assert_eq!(feed(&mut server, &[first]), Err(Error::NotTls(first)));
    }
}

#[test]
fn garbage_is_refused() {
    let mut state = 1_u64;
    for _ in 0..500 {
        let mut bytes = vec![0x16, 3, 1, 0, 200, 1, 0, 0, 196];
        bytes.extend((0..400).map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 56) as u8
        }));
        let mut server = Session::server(&driver());
        let error = feed(&mut server, &bytes).expect_err("it is no hello");
        assert!(
            matches!(error, Error::Protocol(_) | Error::Refused(_)),
            "{error:?}"
        );
        assert_eq!(server.peer(), None);
        let mut alert = Vec::new();
        server.take_outgoing(&mut alert);
        assert!(alert.len() < 64, "{}", alert.len());
    }
}

#[test]
fn plain_http_is_refused() {
    let mut server = Session::server(&driver());
    let error = feed(&mut server, b"GET / HTTP/1.1\r\n\r\n");
    assert_eq!(error, Err(Error::NotTls(b'G')));
}

#[test]
fn a_hello_of_a_megabyte_is_refused_before_it_has_come() {
    let mut server = Session::server(&driver());
    let length = 1_u32 << 20;
    let mut hello = vec![1];
    hello.extend(&length.to_be_bytes()[1..]);
    hello.resize(4 + length as usize, 0);
    let mut sent = 0;
    let error = hello
        .chunks(16_384)
        .find_map(|part| {
            let mut record = vec![0x16, 3, 1];
            record.extend(u16::try_from(part.len()).expect("16 KiB").to_be_bytes());
            record.extend(part);
            sent += record.len();
            feed(&mut server, &record).err()
        })
        .expect("it is refused");
    assert!(matches!(error, Error::Protocol(_)), "{error:?}");
    assert!(sent < 100_000, "{sent}");
}

#[test]
fn a_handshake_that_ends_anywhere_has_given_nothing() {
    let authority = authority();
    let listener = server(&identity(&authority, Role::Driver), &[Role::Agent]);
    let dials = client(&identity(&authority, Role::Agent), Role::Driver);
    let mut pair = Pair::new(&dials, &listener);
    pair.client.send(b"secret").expect("it waits");
    let mut server = Session::server(&listener);
    let (mut read, mut wire) = (BytesMut::new(), BytesMut::new());
    let mut count = 0;
    // The client's bytes, one by one. The server answers as soon as it can.
    loop {
        let mut up = Vec::new();
        pair.client.take_outgoing(&mut up);
        if up.is_empty() {
            break;
        }
        for byte in up {
            assert!(read.is_empty(), "after {count} bytes");
            wire.extend_from_slice(&[byte]);
            server.feed(&mut wire, &mut read).expect("it is honest");
            count += 1;
        }
        let mut down = Vec::new();
        server.take_outgoing(&mut down);
        let mut down = BytesMut::from(&down[..]);
        pair.client
            .feed(&mut down, &mut pair.client_read)
            .expect("it is honest");
    }
    assert_eq!(&read[..], b"secret");
    assert_eq!(server.peer(), Some(Peer::Proven(Role::Agent)));
}

#[test]
fn a_handshake_that_is_changed_anywhere_never_succeeds() {
    let authority = authority();
    let listener = server(&identity(&authority, Role::Driver), &[Role::Agent]);
    let agent = identity(&authority, Role::Agent);
    let dials = || client(&agent, Role::Driver);
    let length = Pair::connected(&dials(), &listener).recorded.len();
    for changed in (0..length).step_by(7) {
        let mut pair = Pair::new(&dials(), &listener);
        let (mut position, mut is_changed) = (0, false);
        loop {
            let mut up = Vec::new();
            pair.client.take_outgoing(&mut up);
            let begin = position;
            position += up.len();
            if (begin..position).contains(&changed) {
                up[changed - begin] ^= 0x20;
                is_changed = true;
            }
            let mut wire = BytesMut::from(&up[..]);
            let failed = pair.server.feed(&mut wire, &mut pair.server_read).is_err();
            let mut down = Vec::new();
            pair.server.take_outgoing(&mut down);
            let mut wire = BytesMut::from(&down[..]);
            let refused = pair.client.feed(&mut wire, &mut pair.client_read).is_err();
            if failed || refused || (up.is_empty() && down.is_empty()) {
                break;
            }
        }
        // Signatures differ in length, so some handshakes end before the last bytes of the first one.
        let trusted = pair.server.peer().is_some();
        assert!(!(is_changed && trusted), "byte {changed}");
    }
}

#[test]
fn a_recorded_handshake_cannot_be_replayed() {
    let authority = authority();
    let listener = server(&identity(&authority, Role::Driver), &[Role::Agent]);
    let dials = client(&identity(&authority, Role::Agent), Role::Driver);
    let recorded = Pair::connected(&dials, &listener).recorded;
    let mut server = Session::server(&listener);
    let error = feed(&mut server, &recorded).expect_err("the keys are others");
    assert!(matches!(error, Error::Protocol(_)), "{error:?}");
    assert_eq!(server.peer(), None);
}
