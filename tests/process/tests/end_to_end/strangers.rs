//! Peers that send garbage or are of another job, at each port that a job opens.

use std::{
    collections::BTreeSet,
    fs::{self, Permissions},
    io::{ErrorKind, Read, Write},
    net::TcpStream,
    os::unix::{fs::PermissionsExt, net::UnixStream},
    path::PathBuf,
    time::{Duration, SystemTime},
};

use elasticrun_process_tests::{
    Job, PATIENCE, Running,
    agents::{agent, port, wait},
};
use elasticrun_protocol::opening::Purpose;
use elasticrun_tls::{
    Authority, Blocking, ClientConfig, Credentials, Error as TlsError, Identity, Role, Session,
    enrol,
    opening::{self, Connection},
    token::Token,
};

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

/// A peer that accepts the certificates of the job, so that only the job can refuse it.
#[test]
fn each_port_of_a_job_refuses_the_certificates_that_it_does_not_serve() {
    let job = Job::new("-np 2 --min-np 2 --launcher agent --listen 127.0.0.1:0");
    let token = job.directory().join("token");
    let mut job = job
        .flag(["--join-token-file", &token.display().to_string()])
        .start();
    let port = port(&mut job);
    let one = agent(port, &token, job.tag(), "one");
    let two = job.wait_training(2, 3);
    let agents = listening(&[one.id()]);
    assert!(!agents.is_empty());
    let text = fs::read_to_string(&token).unwrap();
    let ours = enrolled(port, &text.parse().unwrap());
    let other = Authority::new("another job").unwrap();
    let foreign = |role| Identity {
        authority: ours.agent.authority.clone(),
        ..other.issue(role, "one").unwrap()
    };
    let job_refuses = "this process is of another job";
    let role_refused = "it does not serve processes of this role";
    for (identity, listener, ports, why) in [
        (foreign(Role::Agent), Role::Driver, &vec![port], job_refuses),
        (foreign(Role::Worker), Role::Agent, &agents, job_refuses),
        (foreign(Role::Agent), Role::Agent, &agents, job_refuses),
        (ours.worker.clone(), Role::Driver, &vec![port], role_refused),
    ] {
        let config = ClientConfig::new(&identity, listener).unwrap();
        for port in ports {
            let error = dial(*port, &config).map(|_| ()).unwrap_err();
            let refused = TlsError::Refused(why.into());
            assert!(
                matches!(&error, opening::Error::Tls(error) if *error == refused),
                "{identity:?} at {listener}: {error}"
            );
        }
    }
    // The same peer with the keys of the job is let in.
    let config = ClientConfig::new(&ours.agent, Role::Driver).unwrap();
    dial(port, &config).unwrap();
    job.wait_training(2, two[0].step + 50);
    job.finish();
    job.wait_said("succeeded");
    assert_eq!(wait(one).0, 0);
    let ended = job.end();
    ended.expect(0, &["succeeded"]);
    assert_eq!(ended.sizes(), [2]);
}

#[test]
fn a_job_without_tokens_tells_a_host_with_one_so() {
    let mut job = Job::new("-np 2 --min-np 2 -H localhost:1,127.0.0.1:1").start();
    let two = job.wait_training(2, 3);
    let token = job.path("token");
    let other = Token::random(SystemTime::now() + Duration::from_hours(1)).unwrap();
    fs::write(&token, other.expose().as_str()).unwrap();
    fs::set_permissions(&token, Permissions::from_mode(0o600)).unwrap();
    let [port] = listening(&[job.driver()])[..] else {
        panic!("it listens at one port");
    };
    let (code, said) = wait(agent(port, &token, job.tag(), "stranger"));
    assert_ne!(code, 0);
    assert!(said.contains("it takes no join token"), "{said}");
    job.wait_said("the peer has no certificate of this job");
    job.wait_training(2, two[0].step + 50);
    job.finish();
    job.end().expect(0, &["succeeded"]);
}

/// The credentials of a host of the job.
fn enrolled(port: u16, token: &Token) -> Credentials {
    wait_for(async {
        let stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await;
        enrol::ask(stream.unwrap(), token, "another", PATIENCE).await
    })
    .unwrap()
}

/// Opens a connection of the purpose that the port serves.
fn dial(
    port: u16,
    config: &ClientConfig,
) -> Result<Connection<tokio::net::TcpStream>, opening::Error> {
    wait_for(async {
        let stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await;
        opening::dial(stream.unwrap(), config, Purpose::Control, PATIENCE).await
    })
}

fn wait_for<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(future)
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
    let hello = r#"{"magic":"elasticrun","min":1,"max":2,"software":"0.0.9","purpose":"memory","nonce":""}"#;
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
    job.wait_said("the peer runs elasticrun 0.0.9 (protocol 1 to 2)");
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
