//! Peers that send garbage or are of another job, at each port that a job opens.

use std::{
    collections::BTreeSet,
    fs,
    io::{ErrorKind, Read, Write},
    net::TcpStream,
    os::unix::net::UnixStream,
    path::PathBuf,
    time::Duration,
};

use elasticrun_process_tests::{Job, Running};
use elasticrun_tls::{Authority, Blocking, ClientConfig, Role, Session};

/// Messages of strangers.
const GARBAGE: [&[u8]; 5] = [
    b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\x00\x00\x00\x00\x00\x00\x00\x00\x00",
    b"\x00\x00\x00\x04{}{}",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
];

#[test]
fn garbage_at_every_port_changes_nothing() {
    let mut job = Job::new("-np 4 --min-np 4 -H localhost:2,127.0.0.1:2").start();
    let four = job.wait_training(4, 3);
    let ports = Ports::of(
        &job,
        &four.iter().map(|event| event.pid).collect::<Vec<_>>(),
    );
    assert!(
        !ports.driver.is_empty() && !ports.agents.is_empty() && !ports.workers.is_empty(),
        "{ports:?}"
    );
    assert_eq!(
        ports.sockets.len(),
        2,
        "an agent has one socket for its workers: {ports:?}"
    );
    for garbage in GARBAGE {
        for port in ports.all() {
            shout(TcpStream::connect(("127.0.0.1", port)).unwrap(), garbage);
        }
        for path in &ports.sockets {
            shout(UnixStream::connect(path).unwrap(), garbage);
        }
    }
    // These connections stay open and silent until the job has ended.
    let _silent: Vec<_> = ports
        .all()
        .iter()
        .map(|port| TcpStream::connect(("127.0.0.1", *port)).unwrap())
        .collect();
    let before = job.wait_training(4, 0);
    job.wait_training(4, before[0].step + 50);
    job.finish();
    let ended = job.end();
    ended.expect(0, &["succeeded"]);
    assert_eq!(ended.sizes(), [4]);
}

#[test]
fn a_certificate_of_another_job_opens_no_port() {
    let mut job = Job::new("-np 2 --min-np 2 -H localhost:1,127.0.0.1:1").start();
    let two = job.wait_training(2, 3);
    let ports = Ports::of(&job, &two.iter().map(|event| event.pid).collect::<Vec<_>>());
    let other = Authority::new("another job").unwrap();
    for role in [Role::Agent, Role::Worker, Role::Driver] {
        let stranger = other.issue(role, "localhost").unwrap();
        for (ports, listener) in [(&ports.driver, Role::Driver), (&ports.agents, Role::Agent)] {
            let config = ClientConfig::new(&stranger, listener).unwrap();
            ports.iter().for_each(|port| refused(*port, &config));
        }
    }
    job.wait_training(2, two[0].step + 50);
    job.finish();
    let ended = job.end();
    ended.expect(0, &["succeeded"]);
    assert_eq!(ended.sizes(), [2]);
}

/// Checks that neither side of a connection trusts the other, and that the listener closes it.
fn refused(port: u16, config: &ClientConfig) {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(15)))
        .unwrap();
    let mut rest = stream.try_clone().unwrap();
    let session = Session::client(config).unwrap();
    let error = Blocking::handshake(session, stream).unwrap_err();
    let why = error.downcast::<elasticrun_tls::Error>().unwrap();
    assert_eq!(why, elasticrun_tls::Error::OtherJob);
    // The alert has gone, so the listener ends the connection and says nothing that can be read.
    let _ = rest.read_to_end(&mut Vec::new()).unwrap();
}

#[test]
fn a_peer_of_a_release_without_tls_reads_which_releases_do_not_fit() {
    let mut job = Job::new("-np 2 --min-np 2 -H localhost:1,127.0.0.1:1").start();
    let two = job.wait_training(2, 3);
    let ports = Ports::of(&job, &two.iter().map(|event| event.pid).collect::<Vec<_>>());
    let hello = r#"{"magic":"elasticrun","min":1,"max":1,"software":"0.0.9","purpose":"memory","nonce":""}"#;
    for port in ports.driver.iter().chain(&ports.agents) {
        let mut stream = TcpStream::connect(("127.0.0.1", *port)).unwrap();
        let length = u32::try_from(hello.len()).unwrap();
        stream.write_all(&length.to_be_bytes()).unwrap();
        stream.write_all(hello.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let answer = String::from_utf8_lossy(&answer);
        for words in [
            "refused",
            "elasticrun 0.0.9",
            "install the same release on both",
        ] {
            assert!(answer.contains(words), "{answer}");
        }
    }
    job.wait_said("the peer runs elasticrun 0.0.9 (protocol 1 to 1)");
    job.finish();
    job.end().expect(0, &["succeeded"]);
}

/// Sends `garbage` and closes the connection. The peer may close it first.
fn shout(mut stream: impl Write, garbage: &[u8]) {
    if let Err(error) = stream.write_all(garbage) {
        assert!(
            matches!(
                error.kind(),
                ErrorKind::BrokenPipe | ErrorKind::ConnectionReset
            ),
            "{error}"
        );
    }
}

/// The ports of a job on this machine.
#[derive(Debug)]
struct Ports {
    driver: Vec<u16>,
    agents: Vec<u16>,
    workers: Vec<u16>,
    sockets: Vec<PathBuf>,
}

impl Ports {
    fn of(job: &Running, workers: &[u32]) -> Self {
        let processes = job.tag().processes();
        let agents: Vec<u32> = processes
            .iter()
            .filter(|(_, command)| command.ends_with("elasticrun agent"))
            .map(|(pid, _)| *pid)
            .collect();
        assert!(!agents.is_empty(), "{processes:?}");
        let sockets = workers
            .iter()
            .map(|pid| PathBuf::from(variable(*pid, "ELASTICRUN_AGENT_SOCKET")));
        Self {
            driver: listening(&[job.driver()]),
            agents: listening(&agents),
            workers: listening(workers),
            sockets: sockets.collect::<BTreeSet<_>>().into_iter().collect(),
        }
    }

    fn all(&self) -> Vec<u16> {
        [&self.driver[..], &self.agents, &self.workers].concat()
    }
}

fn variable(pid: u32, name: &str) -> String {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap();
    let environment = String::from_utf8_lossy(&environment).into_owned();
    let found = environment
        .split('\0')
        .find_map(|variable| variable.strip_prefix(&format!("{name}=")));
    found
        .unwrap_or_else(|| panic!("{pid} has no {name}"))
        .to_owned()
}

/// The TCP ports that processes listen at, from their descriptors and the kernel's socket table.
fn listening(pids: &[u32]) -> Vec<u16> {
    let mut inodes = BTreeSet::new();
    for pid in pids {
        for entry in fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten() {
            let target = fs::read_link(entry.path()).unwrap_or_default();
            let target = target.display().to_string();
            if let Some(inode) = target
                .strip_prefix("socket:[")
                .and_then(|rest| rest.strip_suffix(']'))
            {
                inodes.insert(inode.to_owned());
            }
        }
    }
    const LISTEN: &str = "0A";
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"]
        .map(|path| fs::read_to_string(path).unwrap_or_default());
    let mut ports = Vec::new();
    for line in tables.iter().flat_map(|table| table.lines().skip(1)) {
        let fields: Vec<_> = line.split_whitespace().collect();
        if fields[3] == LISTEN && inodes.contains(fields[9]) {
            let port = fields[1].rsplit(':').next().unwrap();
            ports.push(u16::from_str_radix(port, 16).unwrap());
        }
    }
    ports
}
