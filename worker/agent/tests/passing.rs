//! Agents pass parts of a commit on to each other: real agents, whose connections go through proxies that count and cut.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use common::{Agent, Control, Driver, EPOCH, Lines, Peer, process, worker};
use elasticrun_protocol::{
    AgentCommand, CommitId, HostId, Round,
    control::{BaseShards, MemoryAnswer, MemoryRequest, Via},
    opening::Purpose,
};

/// Bytes of the commit, and of one request.
const COMMIT: u64 = 12 << 20;
const PART: u64 = 4 << 20;

/// The base of the round in which parts are passed on.
const BASE: CommitId = CommitId {
    epoch: EPOCH,
    round: Round(1),
    count: 1,
};

/// A port before that of an agent. It counts the bytes that the agent sends, and may cut connections after some.
struct Proxy {
    address: SocketAddr,
    sent: Arc<AtomicU64>,
    connections: Arc<AtomicU64>,
}

impl Proxy {
    fn new(agent: u16, cut_after: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (sent, connections) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let counters = (sent.clone(), connections.clone());
        thread::spawn(move || {
            while let Ok((near, _)) = listener.accept() {
                let far = TcpStream::connect(("127.0.0.1", agent)).unwrap();
                counters.1.fetch_add(1, Ordering::SeqCst);
                copy(&near, &far, None);
                copy(&far, &near, Some((counters.0.clone(), cut_after)));
            }
        });
        Self {
            address,
            sent,
            connections,
        }
    }

    fn sent(&self) -> u64 {
        self.sent.load(Ordering::SeqCst)
    }
}

fn copy(from: &TcpStream, to: &TcpStream, counted: Option<(Arc<AtomicU64>, u64)>) {
    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
    thread::spawn(move || {
        let mut bytes = [0; 64 << 10];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            if let Some((sent, cut_after)) = &counted
                && sent.fetch_add(count as u64, Ordering::SeqCst) >= *cut_after
            {
                break;
            }
            if to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        // Either end may be closed already.
        let _ = to.shutdown(Shutdown::Both);
        let _ = from.shutdown(Shutdown::Both);
    });
}

/// An agent, and what belongs to it. They live as long as the test.
struct Host {
    _agent: Agent,
    control: Control,
    lines: Lines,
    proxy: Proxy,
}

/// A host that holds the commit, and others that begin round 2 from it.
struct Hosts {
    driver: Driver,
    holder: Host,
    readers: Vec<Host>,
}

impl Hosts {
    /// The last number is after how many bytes of its agent the connections of each reader are cut.
    async fn new(readers: &[u64]) -> Self {
        let mut driver = Driver::new(Vec::new()).await;
        let commit = format!("commit={COMMIT}");
        driver.setup.command = worker(&["attach", "join", "start", &commit, "print=done", "hang"]);
        let mut holder = Self::host(&driver, "holder", u64::MAX).await;
        holder.control.start(1, &[process(0, 1)], None, None).await;
        holder.lines.until("done").await;
        driver.setup.command = worker(&["attach", "join", "start", "print=begun", "hang"]);
        let mut hosts = Self {
            driver,
            holder,
            readers: Vec::new(),
        };
        for (index, cut_after) in readers.iter().enumerate() {
            let name = format!("reader-{index}");
            let mut host = Self::host(&hosts.driver, &name, *cut_after).await;
            let memory = host.proxy.address;
            let members = [process(0, 1)];
            let begins = host
                .control
                .start_with(2, &members, (Some(BASE), None), |start| {
                    start.base_shards = Some(BaseShards { layout: 0, of: 1 });
                    start.memory = Some(memory);
                });
            begins.await;
            host.lines.until("begun").await;
            hosts.readers.push(host);
        }
        hosts
    }

    async fn host(driver: &Driver, name: &str, cut_after: u64) -> Host {
        let mut launch = driver.launch();
        launch.host = HostId::new(name);
        let agent = Agent::start(&launch, &[]);
        let (mut control, lines) = driver.welcome().await;
        control.spawn(0, 1).await;
        control.all_wait(1).await;
        let proxy = Proxy::new(control.register.memory_port, cut_after);
        Host {
            _agent: agent,
            control,
            lines,
            proxy,
        }
    }

    fn address(&self, host: usize) -> SocketAddr {
        let host = self.readers.get(host).unwrap_or(&self.holder);
        host.proxy.address
    }

    /// A member asks the first of these hosts for all parts, one after the other. Each host gets so many requests. Returns the
    /// bytes that it has received.
    async fn read(&self, hosts: &[(usize, u32)]) -> u64 {
        let mut received = 0;
        let (&(first, requests), rest) = hosts.split_first().unwrap();
        let holder = (self.readers.len(), 0);
        let via: Vec<_> = rest
            .iter()
            .copied()
            .chain([holder])
            .map(|(host, requests)| Via {
                agent: self.address(host),
                requests,
            })
            .collect();
        let port = self.address(first).port();
        let mut peer = Peer::dial(port, &self.driver.worker(), Purpose::Memory)
            .await
            .unwrap();
        for offset in (0..COMMIT).step_by(PART as usize) {
            let request = request(offset, via.clone(), requests);
            peer.write(&request).await;
            let Some(MemoryAnswer::Found { length, digest, .. }) = peer.read().await else {
                panic!("it is not passed on");
            };
            let bytes = peer.raw(length as usize).await;
            assert_eq!(digest, xxhash_rust::xxh3::xxh3_64(&bytes));
            assert!(bytes.iter().all(|byte| *byte == b'c'));
            received += length;
        }
        received
    }
}

fn request(offset: u64, via: Vec<Via>, requests: u32) -> MemoryRequest {
    MemoryRequest {
        process: process(0, 1),
        key: BASE.into(),
        newer: false,
        ranges: vec![(offset, PART / 2), (offset + PART / 2, PART / 2)],
        background: false,
        via,
        requests,
    }
}

/// What connections add to the bytes that are read: handshakes, messages and encryption.
const OVERHEAD: u64 = COMMIT / 50;

#[tokio::test(flavor = "multi_thread")]
async fn three_hosts_read_one_copy_from_the_holder() {
    let hosts = Hosts::new(&[u64::MAX; 3]).await;
    // The members of host 2 need no agent of their own. Two members of host 1 need the bytes.
    let ways: [&[_]; 4] = [
        &[(0, 2)],
        &[(1, 3), (0, 2)],
        &[(1, 3), (0, 2)],
        &[(1, 3), (0, 2)],
    ];
    let reads = ways.map(|way| hosts.read(way));
    let [first, second, third, fourth] = reads;
    let received = tokio::join!(first, second, third, fourth);
    assert_eq!(received, (COMMIT, COMMIT, COMMIT, COMMIT));
    let sent = hosts.holder.proxy.sent();
    assert!((COMMIT..COMMIT + OVERHEAD).contains(&sent), "{sent}");
    // One member of its own, and the next host.
    let sent = hosts.readers[0].proxy.sent();
    assert!(
        (2 * COMMIT..2 * COMMIT + OVERHEAD).contains(&sent),
        "{sent}"
    );
    assert_eq!(hosts.readers[2].proxy.sent(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_members_of_a_host_fetch_the_bytes_once() {
    let hosts = Hosts::new(&[u64::MAX]).await;
    let received = tokio::join!(hosts.read(&[(0, 2)]), hosts.read(&[(0, 2)]));
    assert_eq!(received, (COMMIT, COMMIT));
    let sent = hosts.holder.proxy.sent();
    assert!((COMMIT..COMMIT + OVERHEAD).contains(&sent), "{sent}");
    // Nothing is kept: a third member would read them anew.
    assert_eq!(hosts.read(&[(0, 1)]).await, COMMIT);
    assert!(hosts.holder.proxy.sent() >= 2 * COMMIT);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_that_breaks_in_the_middle_is_skipped() {
    // In the middle of the second part.
    let hosts = Hosts::new(&[PART + PART / 2, u64::MAX]).await;
    assert_eq!(hosts.read(&[(1, 1), (0, 1)]).await, COMMIT);
    let sent = hosts.holder.proxy.sent();
    // The second part twice, of which the link may have received a part only.
    assert!((COMMIT..COMMIT + PART + OVERHEAD).contains(&sent), "{sent}");
    // It is not asked again.
    let connections = &hosts.readers[0].proxy.connections;
    assert_eq!(connections.load(Ordering::SeqCst), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_passed_on_after_the_round() {
    let mut hosts = Hosts::new(&[u64::MAX]).await;
    // It waits for many more requests.
    assert_eq!(hosts.read(&[(0, 100)]).await, COMMIT);
    let sent = hosts.holder.proxy.sent();
    hosts.readers[0]
        .control
        .command(AgentCommand::Abort { round: Round(2) })
        .await;
    let port = hosts.address(0).port();
    let mut peer = Peer::dial(port, &hosts.driver.worker(), Purpose::Memory)
        .await
        .unwrap();
    let via = Via {
        agent: hosts.address(1),
        requests: 0,
    };
    let asked = request(0, vec![via], 100);
    // The abort has arrived once it is refused, which costs the holder nothing.
    loop {
        peer.write(&asked).await;
        match peer.read().await {
            Some(MemoryAnswer::Found { length, .. }) => drop(peer.raw(length as usize).await),
            answer => break assert_eq!(answer, Some(MemoryAnswer::Missing)),
        }
    }
    let after = hosts.holder.proxy.sent();
    assert!(after < sent + OVERHEAD, "{after}");
}
