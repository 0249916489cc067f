//! Fetching the base from the agent of another host.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, LazyLock, Mutex},
    thread,
};

use common::{Agent, BaseLocation, authority, id, start_from};
use elasticrun_protocol::{
    Round,
    control::{MemoryAnswer, MemoryRequest},
    frame::{self, FrameBuffer},
    opening::{Hello, Purpose, Verdict},
};
use elasticrun_tls::{Authority, Blocking, Role, ServerConfig, Session};
use serde::{Serialize, de::DeserializeOwned};
use xxhash_rust::xxh3::xxh3_64;

/// Not a test: the worker process of the other tests.
#[test]
#[ignore = "run by the other tests"]
fn a_worker() {
    std::process::exit(common::scripted_worker());
}

struct Peer {
    stream: Blocking<TcpStream>,
    frames: FrameBuffer,
}

impl Peer {
    /// The acceptor's side of TLS. `None` if the connector gives up.
    fn accept(stream: TcpStream, authority: &Authority) -> Option<Self> {
        let agent = authority.issue(Role::Agent, "another").unwrap();
        let config = ServerConfig::new(&agent, &[Role::Worker]).unwrap();
        Some(Self {
            stream: Blocking::handshake(Session::server(&config), stream).ok()?,
            frames: FrameBuffer::default(),
        })
    }

    fn send(&mut self, message: &impl Serialize) {
        let bytes = frame::to_frame(message).unwrap();
        self.stream.write_all(&bytes).unwrap();
    }

    fn receive<T: DeserializeOwned>(&mut self) -> Option<T> {
        loop {
            if let Some(message) = self.frames.next_message().unwrap() {
                return Some(message);
            }
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes) {
                Ok(0) | Err(_) => return None,
                Ok(count) => self.frames.extend(&bytes[..count]),
            }
        }
    }

    /// The acceptor's side of the opening, and the request of the connector.
    fn open(&mut self) -> Option<MemoryRequest> {
        let hello: Hello = self.receive()?;
        let version = hello.check(&[Purpose::Memory]).unwrap().version;
        self.send(&Verdict::Welcome { version });
        self.receive()
    }
}

/// An agent that keeps a commit and answers `times` connections by `answer`.
fn keeper(
    times: usize,
    authority: &'static Authority,
    answer: impl Fn(&mut Peer) + Send + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for _ in 0..times {
            let (stream, _) = listener.accept().unwrap();
            let Some(mut peer) = Peer::accept(stream, authority) else {
                continue;
            };
            if let Some(request) = peer.open() {
                assert_eq!(request.key, id(1, 4).into());
                answer(&mut peer);
            }
        }
    });
    address
}

fn found(digest_of: u64) -> MemoryAnswer {
    MemoryAnswer::Found {
        length: 8,
        digest: xxh3_64(&digest_of.to_le_bytes()),
        key: None,
        state_version: 0,
    }
}

fn there(address: SocketAddr) -> BaseLocation<'static> {
    BaseLocation {
        same_host: None,
        other_host: Some(address),
    }
}

#[test]
fn rank_0_fetches_the_base_and_the_others_get_it_from_there() {
    let agent = Agent::new();
    let (mut a, mut b) = (agent.worker(0), agent.worker(1));
    let address = keeper(1, authority(), |peer| {
        // Bytes of the commit may arrive with the answer, or later.
        let mut bytes = frame::to_frame(&found(77)).unwrap();
        bytes.extend_from_slice(&77_u64.to_le_bytes()[..3]);
        peer.stream.write_all(&bytes).unwrap();
        peer.stream.write_all(&77_u64.to_le_bytes()[3..]).unwrap();
    });
    start_from(&mut [&mut a, &mut b], 2, Some(id(1, 4)), there(address));
    for worker in [&mut a, &mut b] {
        let said = worker.next_line();
        assert!(said.contains(" value 77 "), "{said}");
        assert_eq!(worker.committed(id(1, 4)), 77);
    }
}

/// A proxy before an agent. It records what passes one connection in both directions.
fn recorded(agent: SocketAddr) -> (SocketAddr, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let passed = Arc::new(Mutex::new(Vec::new()));
    let record = passed.clone();
    thread::spawn(move || {
        let (near, _) = listener.accept().unwrap();
        let far = TcpStream::connect(agent).unwrap();
        for (from, to) in [(&near, &far), (&far, &near)] {
            let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
            let record = record.clone();
            thread::spawn(move || {
                let mut bytes = [0; 4096];
                while let Ok(count @ 1..) = from.read(&mut bytes) {
                    record.lock().unwrap().extend_from_slice(&bytes[..count]);
                    to.write_all(&bytes[..count]).unwrap();
                }
                // Either end may be closed already.
                let _ = to.shutdown(Shutdown::Write);
            });
        }
    });
    (address, passed)
}

#[test]
fn a_fetched_state_is_not_sent_in_clear() {
    let value = u64::from_be_bytes(*b"private!");
    let agent = Agent::new();
    let mut worker = agent.worker(0);
    let address = keeper(1, authority(), move |peer| {
        peer.send(&found(value));
        peer.stream.write_all(&value.to_le_bytes()).unwrap();
    });
    let (address, passed) = recorded(address);
    start_from(&mut [&mut worker], 2, Some(id(1, 4)), there(address));
    let said = worker.next_line();
    assert!(said.contains(&format!(" value {value} ")), "{said}");
    let passed = passed.lock().unwrap();
    for private in [&value.to_le_bytes()[..], b"elasticrun", b"found", b"digest"] {
        let is_seen = passed.windows(private.len()).any(|part| part == private);
        assert!(!is_seen, "{} was sent in clear", private.escape_ascii());
    }
    assert!(passed.len() > 1000, "nothing was recorded");
}

#[test]
fn a_base_that_is_gone_or_damaged_ends_the_worker() {
    let agent = Agent::new();
    let gone = keeper(1, authority(), |peer| peer.send(&MemoryAnswer::Missing));
    let damaged = keeper(1, authority(), |peer| {
        peer.send(&found(77));
        peer.stream.write_all(&78_u64.to_le_bytes()).unwrap();
    });
    for (address, why) in [
        (gone, "is not where the driver saw it"),
        (damaged, "came damaged from"),
    ] {
        let mut worker = agent.worker(0);
        start_from(&mut [&mut worker], 2, Some(id(1, 4)), there(address));
        let said = worker.next_line();
        assert!(said.contains(why), "{said}");
        assert_eq!(worker.end().code(), Some(1));
        assert_eq!(worker.newest(), None);
    }
}

#[test]
fn a_keeper_that_cannot_be_used_is_tried_in_three_rounds() {
    let agent = Agent::new();
    let mut worker = agent.worker(0);
    // The keepers: one closes the connection, one is of another job, and one address has no listener.
    let silent = keeper(1, authority(), |_| ());
    static OTHER: LazyLock<Authority> = LazyLock::new(|| Authority::new("run").unwrap());
    let stranger = keeper(1, &OTHER, |_| ());
    // A port that no other test uses.
    let nobody = SocketAddr::from(([127, 0, 0, 1], 1));
    for (round, address) in [(2, silent), (3, stranger)] {
        start_from(&mut [&mut worker], round, Some(id(1, 4)), there(address));
        assert_eq!(worker.join(), (Some(Round(round)), false, None));
    }
    start_from(&mut [&mut worker], 4, Some(id(1, 4)), there(nobody));
    let said = worker.next_line();
    assert!(
        said.starts_with("ended: cannot fetch the state of commit 1.1.4 from"),
        "{said}"
    );
    assert_eq!(worker.end().code(), Some(1));
}

#[test]
fn an_abort_ends_a_fetch_at_once() {
    let agent = Agent::new();
    let mut worker = agent.worker(0);
    let (asked, was_asked) = std::sync::mpsc::channel();
    let slow = keeper(1, authority(), move |peer| {
        asked.send(()).unwrap();
        // Ends when the worker cuts the connection.
        assert_eq!(peer.receive::<MemoryRequest>(), None);
    });
    start_from(&mut [&mut worker], 2, Some(id(1, 4)), there(slow));
    was_asked.recv().unwrap();
    worker.abort(2);
    assert_eq!(worker.join(), (Some(Round(2)), true, None));
}
