//! Handshakes between peers that follow the protocol: which are trusted, and what both ends learn.

use crate::pair::{Pair, RUN, authority, client, identity, server};
use bytes::BytesMut;
use elasticrun_tls::{Authority, ClientConfig, Error, Peer, Role, ServerConfig, Session};

#[test]
fn each_role_is_accepted_where_it_is_served_and_refused_elsewhere() {
    let authority = authority();
    for own in Role::ALL {
        for peer in Role::ALL {
            let (listener, dialler) = (identity(&authority, own), identity(&authority, peer));
            let pair = Pair::connected(&client(&dialler, own), &server(&listener, &[peer]));
            assert_eq!(pair.server.peer(), Some(Peer::Proven(peer)));
            assert_eq!(pair.client.peer(), Some(Peer::Proven(own)));

            let others: Vec<_> = Role::ALL.into_iter().filter(|role| *role != peer).collect();
            let mut pair = Pair::new(&client(&dialler, own), &server(&listener, &others));
            pair.run();
            assert_eq!(pair.server_error, Some(Error::WrongRole), "{peer} at {own}");
            assert_eq!(pair.server.peer(), None);
            let refused = Error::Refused("it does not serve processes of this role".into());
            assert_eq!(pair.client_error, Some(refused));

            for expected in others.into_iter().filter(|role| *role != own) {
                let mut pair = Pair::new(&client(&dialler, expected), &server(&listener, &[peer]));
                pair.run();
                assert_eq!(
                    pair.client_error,
                    Some(Error::WrongRole),
                    "{expected} is {own}"
                );
                assert_eq!((pair.client.peer(), pair.server.peer()), (None, None));
            }
        }
    }
}

#[test]
fn a_certificate_of_another_job_is_refused_by_both_ends() {
    let ours = authority();
    // The same run id: only the key of the authority differs.
    for theirs in [authority(), Authority::new("run-8").unwrap()] {
        let listener = identity(&ours, Role::Driver);
        let stranger = identity(&theirs, Role::Agent);
        let mut pair = Pair::new(
            &client(&stranger, Role::Driver),
            &server(&listener, &[Role::Agent]),
        );
        pair.run();
        assert_eq!(pair.client_error, Some(Error::OtherJob));
        assert_eq!(pair.server.peer(), None);

        // A stranger that takes any server.
        let mut lax = stranger.clone();
        lax.authority = listener.authority.clone();
        let mut pair = Pair::new(
            &client(&lax, Role::Driver),
            &server(&listener, &[Role::Agent]),
        );
        pair.run();
        assert_eq!(pair.server_error, Some(Error::OtherJob));
        assert_eq!(pair.server.peer(), None);
        assert!(matches!(pair.client_error, Some(Error::Refused(_))));
    }
}

#[test]
fn a_certificate_needs_the_key_of_it() {
    let authority = authority();
    let listener = identity(&authority, Role::Driver);
    let mut thief = identity(&authority, Role::Agent);
    thief.key = identity(&authority, Role::Worker).key;
    assert!(matches!(
        ClientConfig::new(&thief, Role::Driver),
        Err(Error::Identity(_))
    ));
    assert!(matches!(
        ServerConfig::new(&thief, &[Role::Agent]),
        Err(Error::Identity(_))
    ));
    let mut damaged = listener.clone();
    damaged.authority = elasticrun_tls::Certificate::from_der(vec![1, 2, 3]);
    assert!(matches!(
        ServerConfig::new(&damaged, &[Role::Agent]),
        Err(Error::Identity(_))
    ));
}

#[test]
fn a_peer_without_a_certificate_is_refused() {
    let authority = authority();
    let listener = identity(&authority, Role::Driver);
    let mut pair = Pair::new(
        &ClientConfig::enrolling().unwrap(),
        &server(&listener, &[Role::Agent]),
    );
    pair.run();
    assert_eq!(pair.server_error, Some(Error::NoCertificate));
    // The client has verified nothing, so the server is nothing to it.
    assert_eq!((pair.client.peer(), pair.server.peer()), (None, None));
    assert_eq!(pair.client_error, Some(Error::NoEnrolment));
}

#[test]
fn a_restored_authority_continues_the_trust_of_the_first_one() {
    let first = authority();
    let old = identity(&first, Role::Agent);
    let text = serde_json::to_string(&first.stored()).unwrap();
    drop(first);
    let stored = serde_json::from_str(&text).unwrap();
    let second = Authority::restore(&stored).unwrap();
    let new = identity(&second, Role::Driver);
    assert_eq!(new.authority, old.authority);
    let pair = Pair::connected(&client(&old, Role::Driver), &server(&new, &[Role::Agent]));
    assert_eq!(pair.server.peer(), Some(Peer::Proven(Role::Agent)));
    // The other way round, and a new process with an old one.
    Pair::connected(&client(&new, Role::Agent), &server(&old, &[Role::Driver]));
    let newer = identity(&second, Role::Worker);
    Pair::connected(&client(&newer, Role::Agent), &server(&old, &[Role::Worker]));
}

#[test]
fn debug_output_of_an_authority_has_no_key() {
    let authority = authority();
    let key = authority.stored().key;
    let text = format!("{authority:?} {:?}", authority.stored());
    let bytes = format!("{:?}", &key.expose()[40..48]);
    assert!(!text.contains(bytes.trim_matches(['[', ']'])), "{text}");
}

#[test]
fn certificates_are_valid_whatever_the_clock_of_a_host_shows() {
    let authority = authority();
    let agent = identity(&authority, Role::Agent);
    // The two times of a validity in DER: UTCTime, and GeneralizedTime for years from 2050.
    let validity = [
        b"\x17\x0d700101000000Z".as_slice(),
        b"\x18\x0f99991231000000Z",
    ];
    let validity = validity.concat();
    for certificate in [authority.certificate(), &agent.certificate] {
        let bytes = certificate.der();
        let is_there = bytes.windows(validity.len()).any(|part| part == validity);
        assert!(is_there, "{bytes:02x?}");
    }
}

#[test]
fn a_certificate_names_its_host() {
    let authority = authority();
    let listener = identity(&authority, Role::Driver);
    let dialler = authority.issue(Role::Agent, "node-2").unwrap();
    let pair = Pair::connected(
        &client(&dialler, Role::Driver),
        &server(&listener, &[Role::Agent]),
    );
    assert!(pair.server.peer_is_on(RUN, "node-2"));
    assert!(!pair.server.peer_is_on(RUN, "node-1"));
    assert!(!pair.server.peer_is_on("run-8", "node-2"));
    assert!(pair.client.peer_is_on(RUN, "node-1"));
}

#[test]
fn bytes_may_come_one_at_a_time() {
    let authority = authority();
    let (listener, dialler) = (
        identity(&authority, Role::Driver),
        identity(&authority, Role::Agent),
    );
    let mut pair = Pair::new(
        &client(&dialler, Role::Driver),
        &server(&listener, &[Role::Agent]),
    );
    pair.step = 1;
    pair.client.send(b"early").unwrap();
    assert_eq!(pair.server.send(b"x"), Err(Error::NotEstablished));
    pair.run();
    pair.server.send(b"answer").unwrap();
    pair.client.send(&[7; 40_000]).unwrap();
    pair.run();
    assert_eq!(&pair.client_read[..], b"answer");
    assert_eq!(&pair.server_read[..5], b"early");
    assert_eq!(&pair.server_read[5..], &[7; 40_000]);
    assert!(!pair.server.is_closed());
    pair.client.close();
    pair.run();
    assert!(pair.server.is_closed() && !pair.client.is_closed());
}

#[test]
fn a_resumed_session_has_the_role_of_the_first_one() {
    let authority = authority();
    let listener = identity(&authority, Role::Agent);
    let accepts = server(&listener, &[Role::Agent, Role::Worker]);
    for role in [Role::Agent, Role::Worker] {
        let dials = client(&identity(&authority, role), Role::Agent);
        for resumed in [false, true, true] {
            let pair = Pair::connected(&dials, &accepts);
            assert_eq!(pair.server.is_resumed(), Some(resumed));
            assert_eq!(pair.client.is_resumed(), Some(resumed));
            assert_eq!(pair.server.peer(), Some(Peer::Proven(role)));
            assert_eq!(pair.client.peer(), Some(Peer::Proven(Role::Agent)));
            assert!(pair.server.peer_is_on(RUN, "node-1"));
        }
    }
}

#[test]
fn a_ticket_of_another_server_is_worth_nothing() {
    let authority = authority();
    let dials = client(&identity(&authority, Role::Agent), Role::Driver);
    let listener = identity(&authority, Role::Driver);
    for _ in 0..2 {
        // A driver that takes over has other keys of tickets.
        let pair = Pair::connected(&dials, &server(&listener, &[Role::Agent]));
        assert_eq!(pair.server.is_resumed(), Some(false));
    }
    // Nor does a ticket open a port that does not serve its role.
    let both = server(&listener, &[Role::Agent]);
    Pair::connected(&dials, &both);
    let mut pair = Pair::new(&dials, &server(&listener, &[Role::Worker]));
    pair.run();
    assert_eq!(pair.server_error, Some(Error::WrongRole));
}

#[test]
fn both_ends_export_the_same_secret_of_each_connection() {
    let authority = authority();
    let (dials, accepts) = (
        client(&identity(&authority, Role::Agent), Role::Driver),
        server(&identity(&authority, Role::Driver), &[Role::Agent]),
    );
    let early = Session::client(&dials).unwrap();
    assert_eq!(early.exporter("a"), Err(Error::NotEstablished));
    let (first, second) = (
        Pair::connected(&dials, &accepts),
        Pair::connected(&dials, &accepts),
    );
    let secret = first.client.exporter("a").unwrap();
    assert_eq!(first.server.exporter("a").unwrap(), secret);
    assert_ne!(first.server.exporter("b").unwrap(), secret);
    assert_ne!(second.server.exporter("a").unwrap(), secret);
}

#[test]
fn a_host_without_an_identity_enrols_where_that_is_served() {
    let authority = authority();
    let listener = identity(&authority, Role::Driver);
    let accepts = server(&listener, &[Role::Agent])
        .with_enrolment(&listener)
        .unwrap();
    let enrols = ClientConfig::enrolling().unwrap();
    for _ in 0..2 {
        let pair = Pair::connected(&enrols, &accepts);
        assert_eq!(pair.server.peer(), Some(Peer::Enrolling));
        assert_eq!(pair.client.peer(), Some(Peer::Enrolling));
        assert!(!pair.server.peer_is_on(RUN, "node-1"));
        assert_eq!(pair.server.is_resumed(), Some(false));
    }
    // A host with an identity still proves it at the same port.
    let dials = client(&identity(&authority, Role::Agent), Role::Driver);
    let pair = Pair::connected(&dials, &accepts);
    assert_eq!(pair.server.peer(), Some(Peer::Proven(Role::Agent)));
    let mut wrong = Pair::new(
        &client(&identity(&authority, Role::Worker), Role::Driver),
        &accepts,
    );
    wrong.run();
    assert_eq!(wrong.server_error, Some(Error::WrongRole));
}

#[test]
fn what_a_failed_session_gave_is_kept_and_nothing_more() {
    let authority = authority();
    let mut pair = Pair::connected(
        &client(&identity(&authority, Role::Agent), Role::Driver),
        &server(&identity(&authority, Role::Driver), &[Role::Agent]),
    );
    pair.client.send(b"good").unwrap();
    let mut wire = Vec::new();
    pair.client.take_outgoing(&mut wire);
    pair.client.send(b"changed").unwrap();
    let end = wire.len();
    pair.client.take_outgoing(&mut wire);
    wire[end + 8] ^= 1;
    let mut plain = BytesMut::new();
    let error = pair
        .server
        .feed(&mut BytesMut::from(&wire[..]), &mut plain)
        .unwrap_err();
    assert!(matches!(error, Error::Protocol(_)), "{error}");
    assert_eq!(&plain[..], b"good");
    assert_eq!(
        pair.server.feed(&mut BytesMut::new(), &mut plain),
        Err(error)
    );
    assert_eq!(pair.server.peer(), None);
    assert!(pair.server.send(b"x").is_err() && pair.server.exporter("a").is_err());
}
