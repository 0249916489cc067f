//! Agents pass parts of a commit on to each other: real agents, whose connections go through proxies that count and cut.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use common::{Agent, Control, Driver, EPOCH, Lines, Peer, process, worker};
use elasticrun_protocol::{
    AgentCommand, CommitId, HostId, Round,
    control::{BaseShards, MemoryAnswer, MemoryRequest, Via},
    opening::Purpose,
};
use elasticrun_tls::Identity;

/// Bytes of the commit, and of one request.
const COMMIT: u64 = 12 << 20;
const PART: u64 = 4 << 20;

/// The base of the round in which parts are passed on.
const BASE: CommitId = CommitId {
    epoch: EPOCH,
    round: Round(1),
    count: 1,
};

/// What a proxy does to the bytes that its agent sends.
#[derive(Clone, Copy)]
struct Path {
    /// After so many of them, connections are cut.
    cut_after: u64,
    /// So many pass in a second, of all connections together.
    bandwidth: Option<u64>,
}

const GOOD: Path = Path {
    cut_after: u64::MAX,
    bandwidth: None,
};

/// A port before that of an agent. It counts the bytes that the agent sends.
struct Proxy {
    address: SocketAddr,
    sent: Arc<AtomicU64>,
    connections: Arc<AtomicU64>,
}

impl Proxy {
    fn new(agent: u16, path: Path) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (sent, connections) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let counters = (sent.clone(), connections.clone());
        let free_at = Arc::new(Mutex::new(Instant::now()));
        thread::spawn(move || {
            while let Ok((near, _)) = listener.accept() {
                let far = TcpStream::connect(("127.0.0.1", agent)).unwrap();
                counters.1.fetch_add(1, Ordering::SeqCst);
                copy(&near, &far, None);
                copy(
                    &far,
                    &near,
                    Some((path, counters.0.clone(), free_at.clone())),
                );
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

type Counted = (Path, Arc<AtomicU64>, Arc<Mutex<Instant>>);

fn copy(from: &TcpStream, to: &TcpStream, counted: Option<Counted>) {
    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
    thread::spawn(move || {
        let mut bytes = [0; 64 << 10];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            if let Some((path, sent, free_at)) = &counted {
                if sent.fetch_add(count as u64, Ordering::SeqCst) >= path.cut_after {
                    break;
                }
                if let Some(bandwidth) = path.bandwidth {
                    let takes = Duration::from_secs_f64(count as f64 / bandwidth as f64);
                    let mut free_at = free_at.lock().unwrap();
                    let begins = (*free_at).max(Instant::now());
                    *free_at = begins + takes;
                    drop(free_at);
                    thread::sleep((begins + takes).saturating_duration_since(Instant::now()));
                }
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
    /// Bytes of the commit, and of one request.
    sizes: (u64, u64),
    holder: Host,
    readers: Vec<Host>,
}

impl Hosts {
    async fn new(readers: &[Path]) -> Self {
        Self::with_commit((COMMIT, PART), GOOD, readers).await
    }

    /// The paths are those of the holder, and of each reader.
    async fn with_commit(sizes: (u64, u64), holder: Path, readers: &[Path]) -> Self {
        let mut driver = Driver::new(Vec::new()).await;
        // It answers no heartbeat.
        driver.setup.heartbeat_timeout = Duration::from_secs(600);
        let commit = format!("commit={}", sizes.0);
        driver.setup.command = worker(&["attach", "join", "start", &commit, "print=done", "hang"]);
        let mut holder = Self::host(&driver, "holder", holder).await;
        holder.control.start(1, &[process(0, 1)], None, None).await;
        holder.lines.until("done").await;
        driver.setup.command = worker(&["attach", "join", "start", "print=begun", "hang"]);
        let mut hosts = Self {
            driver,
            sizes,
            holder,
            readers: Vec::new(),
        };
        for (index, path) in readers.iter().enumerate() {
            let name = format!("reader-{index}");
            let mut host = Self::host(&hosts.driver, &name, *path).await;
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

    async fn host(driver: &Driver, name: &str, path: Path) -> Host {
        let mut launch = driver.launch();
        launch.host = HostId::new(name);
        let agent = Agent::start(&launch, &[]);
        let (mut control, lines) = driver.welcome().await;
        control.spawn(0, 1).await;
        control.all_wait(1).await;
        let proxy = Proxy::new(control.register.memory_port, path);
        Host {
            _agent: agent,
            control,
            lines,
            proxy,
        }
    }

    /// A member, on whatever host.
    fn member(&self) -> Member {
        let hosts = self.readers.iter().chain([&self.holder]);
        Member {
            identity: self.driver.worker(),
            addresses: hosts.map(|host| host.proxy.address).collect(),
            sizes: self.sizes,
        }
    }

    async fn read(&self, hosts: &[(usize, u32)]) -> u64 {
        self.member().read(hosts).await
    }

    fn address(&self, host: usize) -> SocketAddr {
        let host = self.readers.get(host).unwrap_or(&self.holder);
        host.proxy.address
    }
}

/// A member that needs the commit.
struct Member {
    identity: Identity,
    /// Those of the agents, the holder's last.
    addresses: Vec<SocketAddr>,
    sizes: (u64, u64),
}

impl Member {
    /// Asks the first of these hosts for all parts, one after the other. Each host gets so many requests. Without a host it
    /// asks the holder. Returns the bytes that it has received.
    async fn read(&self, hosts: &[(usize, u32)]) -> u64 {
        let holder = (self.addresses.len() - 1, 0);
        let way: Vec<_> = hosts.iter().copied().chain([holder]).collect();
        let (first, requests) = way[0];
        let via = way[1..].iter().map(|&(host, requests)| Via {
            agent: self.addresses[host],
            requests,
        });
        let via: Vec<_> = via.collect();
        let port = self.addresses[first].port();
        let mut peer = Peer::dial(port, &self.identity, Purpose::Memory)
            .await
            .unwrap();
        let (commit, part) = self.sizes;
        let mut received = 0;
        while received < commit {
            let len = part.min(commit - received);
            let request = request((received, len), via.clone(), requests);
            peer.write(&request).await;
            let Some(MemoryAnswer::Found { length, digest, .. }) = peer.read().await else {
                panic!("it is not passed on");
            };
            let bytes = peer.raw(length as usize).await;
            assert_eq!(digest, xxhash_rust::xxh3::xxh3_64(&bytes));
            received += length;
        }
        received
    }
}

fn request((offset, len): (u64, u64), via: Vec<Via>, requests: u32) -> MemoryRequest {
    MemoryRequest {
        process: process(0, 1),
        key: BASE.into(),
        newer: false,
        ranges: vec![(offset, len / 2), (offset + len / 2, len - len / 2)],
        background: false,
        via,
        requests,
    }
}

/// What connections add to the bytes that are read: handshakes, messages and encryption.
const OVERHEAD: u64 = COMMIT / 50;

#[tokio::test(flavor = "multi_thread")]
async fn three_hosts_read_one_copy_from_the_holder() {
    let hosts = Hosts::new(&[GOOD; 3]).await;
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
    let hosts = Hosts::new(&[GOOD]).await;
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
    let breaks = Path {
        cut_after: PART + PART / 2,
        bandwidth: None,
    };
    let hosts = Hosts::new(&[breaks, GOOD]).await;
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
    let mut hosts = Hosts::new(&[GOOD]).await;
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
    let asked = request((0, PART), vec![via], 100);
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

#[tokio::test(flavor = "multi_thread")]
#[ignore = "prints how long it takes"]
async fn readers_of_one_shard() {
    let sizes = (200 << 20, 64 << 20);
    for bandwidth in [None, Some(200 << 20)] {
        let path = Path { bandwidth, ..GOOD };
        for count in [1, 2, 4] {
            for passes in [false, true] {
                let hosts = Hosts::with_commit(sizes, path, &vec![path; count]).await;
                let ways = (0..count).map(|host| match passes {
                    false => Vec::new(),
                    // The last host has one member that needs the shard, and nobody after it.
                    true => (0..=host.min(count.saturating_sub(2)))
                        .rev()
                        .filter(|_| count > 1)
                        .map(|host| (host, 2))
                        .collect(),
                });
                let begun = Instant::now();
                let reads: Vec<_> = ways
                    .map(|way| {
                        let member = hosts.member();
                        tokio::spawn(async move { member.read(&way).await })
                    })
                    .collect();
                for read in reads {
                    assert_eq!(read.await.unwrap(), sizes.0);
                }
                println!(
                    "{count} readers, passed on: {passes}, bandwidth {:?} MB/s: {:.2} s, {:.0} MB from the holder",
                    bandwidth.map(|bandwidth| bandwidth >> 20),
                    begun.elapsed().as_secs_f64(),
                    hosts.holder.proxy.sent() as f64 / f64::from(1 << 20)
                );
            }
        }
    }
}
