//! Connections between hosts, over a stream in memory.

use std::{
    future::ready,
    time::{Duration, SystemTime},
};

use elasticrun_protocol::{
    auth::Secret,
    frame::FrameBuffer,
    opening::{Error as Disagreement, MAX_VERSION, Purpose, Verdict},
};
use elasticrun_tls::{
    Authority, ClientConfig, Credentials, Error as TlsError, Identity, Role, ServerConfig, enrol,
    opening::{self, Accepted, Connection, Error},
    token::{Refusal, Token, Tokens},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    join,
};

use crate::pair::{RUN, authority, client, identity, server};

/// Enough for the slowest machine; reached only when something does not come.
const LONG: Duration = Duration::from_secs(60);

/// Smaller than any message, so that both sides write in many pieces.
const PIPE: usize = 100;

const SERVES: [Purpose; 2] = [Purpose::Control, Purpose::Output];

type Sides = (
    Result<Connection<DuplexStream>, Error>,
    Result<Accepted<DuplexStream>, Error>,
);

async fn connect(client: &ClientConfig, server: &ServerConfig, purpose: Purpose) -> Sides {
    let (near, far) = duplex(PIPE);
    join!(
        opening::dial(near, client, purpose, LONG),
        opening::accept(far, server, &SERVES, LONG)
    )
}

fn driver(authority: &Authority) -> (Identity, ServerConfig) {
    let driver = identity(authority, Role::Driver);
    let config = server(&driver, &[Role::Agent]);
    (driver, config)
}

fn agent(authority: &Authority) -> ClientConfig {
    client(&identity(authority, Role::Agent), Role::Driver)
}

#[tokio::test]
async fn an_agent_and_its_driver_exchange_megabytes() {
    let authority = authority();
    let (_, server) = driver(&authority);
    let (dialled, accepted) = connect(&agent(&authority), &server, Purpose::Control).await;
    let mut agent = dialled.unwrap();
    let Accepted::Opened(mut driver) = accepted.unwrap() else {
        panic!("it has an identity");
    };
    assert_eq!(agent.opened, driver.opened);
    assert_eq!(agent.opened.version, MAX_VERSION);
    let bytes: Vec<u8> = (0..3 << 20).map(|index| (index % 251) as u8).collect();
    let sent = async {
        agent.stream.write_all(&bytes).await.unwrap();
        agent.stream.shutdown().await.unwrap();
    };
    let mut got = Vec::new();
    let (read, ()) = join!(driver.stream.read_to_end(&mut got), sent);
    assert_eq!((read.unwrap(), got == bytes), (bytes.len(), true));
}

#[tokio::test]
async fn a_writer_waits_for_a_reader_that_stands_still() {
    let authority = authority();
    let (_, server) = driver(&authority);
    let (dialled, accepted) = connect(&agent(&authority), &server, Purpose::Control).await;
    let Accepted::Opened(mut driver) = accepted.unwrap() else {
        panic!("it has an identity");
    };
    let mut agent = dialled.unwrap();
    let bytes: Vec<u8> = (0..3 << 20).map(|index| (index % 251) as u8).collect();
    let mut taken = 0;
    loop {
        tokio::select! {
            biased;
            written = agent.stream.write(&bytes[taken..]) => taken += written.unwrap(),
            () = ready(()) => break,
        }
    }
    assert!((1..512 << 10).contains(&taken), "{taken} bytes wait");
    let sent = async {
        agent.stream.write_all(&bytes[taken..]).await.unwrap();
        agent.stream.shutdown().await.unwrap();
    };
    let mut got = Vec::new();
    let (read, ()) = join!(driver.stream.read_to_end(&mut got), sent);
    assert_eq!((read.unwrap(), got == bytes), (bytes.len(), true));
}

#[tokio::test]
async fn a_stream_that_is_cut_is_no_end() {
    let authority = authority();
    let (_, server) = driver(&authority);
    let (dialled, accepted) = connect(&agent(&authority), &server, Purpose::Output).await;
    drop(dialled.unwrap());
    let Accepted::Opened(mut driver) = accepted.unwrap() else {
        panic!("it has an identity");
    };
    let error = driver.stream.read_u8().await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
}

#[tokio::test]
async fn peers_of_another_job_or_role_and_wrong_purposes_are_refused_on_both_sides() {
    let (ours, others) = (authority(), authority());
    let (_, server) = driver(&ours);
    let (dialled, accepted) = connect(&agent(&others), &server, Purpose::Control).await;
    assert!(matches!(dialled, Err(Error::Tls(TlsError::OtherJob))));
    assert!(matches!(accepted, Err(Error::Tls(TlsError::Refused(_)))));

    let worker = client(&identity(&ours, Role::Worker), Role::Driver);
    let (dialled, accepted) = connect(&worker, &server, Purpose::Control).await;
    assert!(
        matches!(dialled, Err(Error::Tls(TlsError::Refused(_)))),
        "{dialled:?}"
    );
    assert!(matches!(accepted, Err(Error::Tls(TlsError::WrongRole))));

    let (dialled, accepted) = connect(&agent(&ours), &server, Purpose::Memory).await;
    assert!(matches!(
        dialled,
        Err(Error::Disagreement(Disagreement::Refused(_)))
    ));
    assert!(matches!(
        accepted,
        Err(Error::Disagreement(Disagreement::Purpose(Purpose::Memory)))
    ));
}

#[tokio::test]
async fn a_peer_of_a_release_without_tls_reads_why_it_is_refused() {
    let (_, server) = driver(&authority());
    let (mut near, far) = duplex(PIPE);
    let hello = r#"{"magic":"elasticrun","min":1,"max":1,"software":"0.0.9","purpose":"control","nonce":"00"}"#;
    let earlier = async {
        near.write_u32(hello.len() as u32).await.unwrap();
        near.write_all(hello.as_bytes()).await.unwrap();
        let mut frames = FrameBuffer::default();
        opening::read(&mut near, &mut frames).await.unwrap()
    };
    let (verdict, accepted): (Verdict, _) =
        join!(earlier, opening::accept(far, &server, &SERVES, LONG));
    let error = accepted.unwrap_err();
    let Error::Disagreement(Disagreement::Version { software, .. }) = &error else {
        panic!("{error}");
    };
    assert_eq!(software, "0.0.9");
    let why = error.to_string();
    assert_eq!(verdict, Verdict::Refused { why });
}

#[tokio::test]
async fn strangers_and_slow_peers_are_refused() {
    let (_, server) = driver(&authority());
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 9], &[0xff; 9]] {
        let (mut near, far) = duplex(PIPE);
        near.write_all(garbage).await.unwrap();
        let error = opening::accept(far, &server, &SERVES, LONG)
            .await
            .unwrap_err();
        assert!(
            matches!(error, Error::Disagreement(Disagreement::Stranger)),
            "{error}"
        );
    }
    for beginning in [&b""[..], b"\x16", b"\x00\x00\x00\x10{"] {
        let (mut near, far) = duplex(PIPE);
        near.write_all(beginning).await.unwrap();
        let limit = Duration::from_millis(1);
        let error = opening::accept(far, &server, &SERVES, limit)
            .await
            .unwrap_err();
        assert!(matches!(error, Error::TimedOut), "{error}");
    }
}

/// Enrols a host at a driver with other tokens or another time. Gives what both sides have got.
async fn enrols(
    authority: &Authority,
    token: &Token,
    tokens: &Tokens,
    now: SystemTime,
) -> (
    Result<Credentials, enrol::Error>,
    Result<String, enrol::Error>,
) {
    let (driver, server) = driver(authority);
    let server = server.with_enrolment(&driver).expect("sound");
    let (near, far) = duplex(PIPE);
    let granted = async {
        let accepted = opening::accept(far, &server, &SERVES, LONG)
            .await
            .expect("it begins");
        let Accepted::Enrolling(stream) = accepted else {
            panic!("it has no identity");
        };
        let secret = Secret::from_bytes(elasticrun_protocol::auth::Bytes32([7; 32]));
        let find = |id| ready(tokens.find(id, now).cloned());
        let issue = |host: String| ready(Credentials::issue(authority, &secret, &host));
        enrol::grant(stream, LONG, find, issue).await
    };
    join!(enrol::ask(near, token, "node-1", LONG), granted)
}

#[tokio::test]
async fn a_host_with_a_token_gets_credentials_that_open_connections() {
    let authority = authority();
    let (now, expiry) = (SystemTime::UNIX_EPOCH, SystemTime::now());
    let token = Token::random(expiry).unwrap();
    let tokens = Tokens::new(vec![token.clone()]);
    let (asked, granted) = enrols(&authority, &token, &tokens, now).await;
    let credentials = asked.unwrap();
    assert_eq!(granted.unwrap(), "node-1");
    assert_eq!(credentials.secret.expose(), &[7; 32]);
    let text = serde_json::to_string(&credentials).unwrap();
    assert_eq!(
        serde_json::from_str::<Credentials>(&text).unwrap(),
        credentials
    );
    let (_, server) = driver(&authority);
    let agent = client(&credentials.agent, Role::Driver);
    let (dialled, accepted) = connect(&agent, &server, Purpose::Control).await;
    let Accepted::Opened(driver) = accepted.unwrap() else {
        panic!("it has an identity");
    };
    assert!(driver.stream.session().peer_is_on(RUN, "node-1"));
    assert!(!driver.stream.session().peer_is_on(RUN, "node-2"));
    drop(dialled.unwrap());
}

#[tokio::test]
async fn an_expired_and_a_foreign_token_are_refused_and_the_host_learns_no_more() {
    let authority = authority();
    let expiry = SystemTime::now();
    let token = Token::random(expiry).unwrap();
    let ours = Tokens::new(vec![token.clone()]);
    let (asked, granted) = enrols(&authority, &token, &ours, expiry).await;
    assert!(matches!(asked, Err(enrol::Error::Refused(_))));
    let error = granted.unwrap_err();
    assert!(
        matches!(error, enrol::Error::Token(Refusal::Expired(_))),
        "{error}"
    );

    let none = Tokens::default();
    let now = SystemTime::UNIX_EPOCH;
    let (asked_of_none, granted) = enrols(&authority, &token, &none, now).await;
    assert_eq!(
        asked.unwrap_err().to_string(),
        asked_of_none.unwrap_err().to_string()
    );
    let error = granted.unwrap_err();
    assert!(
        matches!(error, enrol::Error::Token(Refusal::Unknown(_))),
        "{error}"
    );
}

#[tokio::test]
async fn a_driver_without_a_token_is_told_from_one_of_another_job() {
    let authority = authority();
    let (_, server) = driver(&authority);
    let token = Token::random(SystemTime::now()).unwrap();
    let (near, far) = duplex(PIPE);
    let (asked, accepted) = join!(
        enrol::ask(near, &token, "node-1", LONG),
        opening::accept(far, &server, &SERVES, LONG)
    );
    let error = asked.unwrap_err();
    let none = matches!(
        error,
        enrol::Error::Opening(Error::Tls(TlsError::NoEnrolment))
    );
    assert!(none, "{error}");
    assert!(!error.is_transient());
    let error = accepted.map(|_| ()).unwrap_err();
    assert!(
        matches!(error, Error::Tls(TlsError::NoCertificate) | Error::Closed),
        "{error}"
    );
}

/// As a driver of an earlier release does, which takes the first bytes for a frame that is too large.
#[tokio::test]
async fn a_peer_that_closes_without_an_answer_may_be_of_an_earlier_release() {
    let authority = authority();
    // Its socket takes the whole first message.
    let (near, mut far) = duplex(4 << 10);
    let closes = async move {
        far.read_exact(&mut [0; 4]).await.unwrap();
    };
    let agent = agent(&authority);
    let (dialled, ()) = join!(opening::dial(near, &agent, Purpose::Control, LONG), closes);
    let error = dialled.map(|_| ()).unwrap_err();
    assert!(matches!(error, Error::Unanswered), "{error}");
    assert!(error.is_transient(), "it may also be on its way to its end");
}
