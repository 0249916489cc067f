//! Reaching the driver, losing it, and connections of other programs.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod common;

use std::{
    collections::BTreeMap,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::net::UnixStream,
    time::Duration,
};

use common::{Agent, Driver, Peer, SOON, process, processes_of_run, shell, worker};
use elasticrun_protocol::{
    AgentCommand, AgentReport, CommitId, HostId, Round,
    control::{MemoryAnswer, MemoryRequest, ProbeHost},
    opening::{Error as Disagreement, Purpose},
};
use elasticrun_tls::{Authority, Error as TlsError, Role, opening};
use tokio::time::{Instant, timeout};

#[tokio::test]
async fn an_unreachable_driver_is_reported_with_each_address() {
    let driver = Driver::new(shell("true")).await;
    let mut launch = driver.launch();
    // No other test listens at this port.
    launch.driver = vec!["127.0.0.1:1".into()];
    launch.driver.push("no-such-host.invalid:1".into());
    let agent = Agent::start(&launch, &[("ELASTICRUN_TEST_CONNECT_MS", "300")]);
    let (status, stderr) = agent.end().await;
    assert_eq!(status.code(), Some(1));
    let last = stderr.lines().last().unwrap();
    assert!(
        last.contains("cannot reach the driver within 300ms"),
        "{last}"
    );
    assert!(
        last.contains(&format!("{}: Connection refused", launch.driver[0])),
        "{last}"
    );
    assert!(last.contains("no-such-host.invalid:1: "), "{last}");
}

#[tokio::test]
async fn the_first_address_that_answers_is_taken() {
    let driver = Driver::new(shell("true")).await;
    let mut launch = driver.launch();
    launch.driver.insert(0, "127.0.0.1:1".into());
    let _agent = Agent::start(&launch, &[]);
    driver.welcome().await;
}

#[tokio::test]
async fn a_driver_of_another_job_is_refused_at_once() {
    let driver = Driver::new(shell("true")).await;
    let other = Driver::new(shell("true")).await;
    let mut launch = driver.launch();
    launch.credentials = other.launch().credentials;
    let agent = Agent::start(&launch, &[]);
    // The agent proves nothing to a driver of another job.
    assert!(driver.accept().await.is_err());
    let (status, stderr) = agent.end().await;
    assert_eq!(status.code(), Some(1));
    let last = stderr.lines().last().unwrap();
    assert!(
        last.contains("the peer's certificate is of another job"),
        "{last}"
    );
}

#[tokio::test]
async fn something_else_at_the_port_is_named() {
    let driver = Driver::new(shell("true")).await;
    let agent = Agent::start(&driver.launch(), &[]);
    let (stream, _) = driver.listener.accept().await.unwrap();
    let mut stream = stream.into_std().unwrap();
    stream.set_nonblocking(false).unwrap();
    stream
        .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        .unwrap();
    let (_, stderr) = agent.end().await;
    let last = stderr.lines().last().unwrap();
    assert!(last.contains("the peer does not speak TLS"), "{last}");
}

#[tokio::test]
async fn an_interface_gives_the_address_for_others() {
    let driver = Driver::new(shell("true")).await;
    let mut launch = driver.launch();
    launch.network_interface = Some("lo".into());
    let _agent = Agent::start(&launch, &[]);
    let (control, _lines) = driver.welcome().await;
    assert_eq!(control.register.address, None, "it is that of the route");
    launch.host = "another".into();
    launch.network_interface = Some("no-such0".into());
    let agent = Agent::start(&launch, &[]);
    driver.accept().await.unwrap();
    let (_, stderr) = agent.end().await;
    let last = stderr.lines().last().unwrap();
    assert!(last.contains("network interface no-such0"), "{last}");
}

#[tokio::test]
async fn workers_learn_the_interface_that_the_user_has_chosen() {
    let script = "echo \"nccl=$NCCL_SOCKET_IFNAME gloo=$GLOO_SOCKET_IFNAME.\"";
    let mut driver = Driver::new(shell(script)).await;
    driver.setup.env = BTreeMap::from([("GLOO_SOCKET_IFNAME".into(), "mine".into())]);
    let mut launch = driver.launch();
    launch.network_interfaces = vec!["no-such0".into(), "lo".into()];
    let _agent = Agent::start(&launch, &[]);
    let (mut control, mut lines) = driver.welcome().await;
    control.spawn(0, 1).await;
    lines.until("nccl=lo gloo=mine.").await;
}

#[tokio::test]
async fn a_second_agent_waits_for_the_first_and_takes_over() {
    let mut driver = Driver::new(shell("sleep 1000")).await;
    // The second agent waits that long for the first.
    driver.setup.orphan_timeout = SOON;
    let (first, mut control, _lines) = driver.with_agent().await;
    control.spawn(0, 1).await;
    let second = Agent::start(&driver.launch(), &[]);
    let refused = timeout(Duration::from_millis(300), driver.listener.accept()).await;
    assert!(
        refused.is_err(),
        "it does not register while the first one lives"
    );
    first.signal(libc::SIGTERM);
    let (_control, _lines) = driver.welcome().await;
    drop(second);
}

#[tokio::test]
async fn a_second_agent_is_refused_in_the_end() {
    let driver = Driver::new(shell("true")).await;
    let (first, _control, _lines) = driver.with_agent().await;
    let begun = Instant::now();
    let (status, stderr) = Agent::start(&driver.launch(), &[]).end().await;
    assert_eq!(status.code(), Some(1));
    assert!(begun.elapsed() >= driver.setup.orphan_timeout);
    let last = stderr.lines().last().unwrap();
    let expected = format!(
        "another agent (process {}) serves host localhost",
        first.child.id()
    );
    assert!(last.contains(&expected), "{last}");
}

#[tokio::test]
async fn two_hosts_of_one_machine_do_not_get_in_each_others_way() {
    let driver = Driver::new(shell("true")).await;
    let (_first, _control, _lines) = driver.with_agent().await;
    let mut launch = driver.launch();
    launch.host = "127.0.0.1".into();
    let _second = Agent::start(&launch, &[]);
    driver.welcome().await;
}

#[tokio::test]
async fn workers_without_a_driver_are_kept_for_a_while_and_then_ended() {
    let driver = Driver::new(shell("sleep 1000")).await;
    let (agent, mut control, lines) = driver.with_agent().await;
    control.spawn(0, 1).await;
    common::eventually("the worker runs", || {
        !processes_of_run(&driver.run_id).is_empty()
    })
    .await;
    let lost = Instant::now();
    drop((control, lines));
    let (status, stderr) = agent.end().await;
    assert!(
        status.success() && stderr.contains("ended: Orphaned"),
        "{stderr}"
    );
    assert!(lost.elapsed() >= driver.setup.orphan_timeout);
    assert!(processes_of_run(&driver.run_id).is_empty());
}

#[tokio::test]
async fn commits_outlive_a_driver_that_was_out_of_reach() {
    let words = [
        "attach",
        "join",
        "start",
        "commit=300000",
        "print=done",
        "hang",
    ];
    let driver = Driver::new(worker(&words)).await;
    let (_agent, mut control, mut lines) = driver.with_agent().await;
    assert_eq!(control.register.keeps_run, None);
    control.spawn(0, 1).await;
    control.all_wait(1).await;
    control.start(1, &[process(0, 1)], None, None).await;
    lines.until("done").await;
    drop((control, lines));
    driver.adopt_nothing().await;
    let (mut control, _lines) = driver.welcome().await;
    assert_eq!(control.register.keeps_run.as_ref(), Some(&driver.run_id));
    assert!(
        processes_of_run(&driver.run_id).is_empty(),
        "its worker is ended"
    );
    let (round, members) = (Round(2), Vec::new());
    control.command(AgentCommand::Plan { round, members }).await;
    let Some(AgentReport::Ready { kept, .. }) = control.report().await else {
        panic!("no answer");
    };
    let commit = CommitId {
        epoch: common::EPOCH,
        round: Round(1),
        count: 1,
    };
    assert_eq!(kept.len(), 1);
    assert_eq!(
        (kept[0].process, &kept[0].commits),
        (process(0, 1), &vec![commit])
    );
    let mut peer = Peer::dial(
        control.register.memory_port,
        &driver.worker(),
        Purpose::Memory,
    )
    .await
    .unwrap();
    let process = process(0, 1);
    let key = commit.into();
    peer.write(&MemoryRequest {
        process,
        key,
        newer: false,
        ranges: Vec::new(),
        background: false,
        via: Vec::new(),
        requests: 0,
    })
    .await;
    let Some(MemoryAnswer::Found { length, .. }) = peer.read().await else {
        panic!("it is there");
    };
    assert_eq!(length, 300_000);
}

#[tokio::test]
async fn a_registration_that_gets_no_answer_is_repeated() {
    let driver = Driver::new(shell("true")).await;
    let _agent = Agent::start(&driver.launch(), &[]);
    let (_, mut peer) = driver.accept().await.unwrap();
    let _: Option<elasticrun_protocol::control::Register> = peer.read().await;
    drop(peer);
    driver.welcome().await;
}

#[tokio::test]
async fn a_self_registered_agent_joins_anew() {
    let driver = Driver::new(shell("sleep 1000")).await;
    let mut launch = driver.launch();
    launch.run_id = None;
    let agent = Agent::start(&launch, &[("ELASTICRUN_TEST_ITSELF", "1")]);
    let (mut control, lines) = driver.welcome().await;
    assert!(control.register.self_registered);
    control.spawn(0, 1).await;
    common::eventually("the worker runs", || {
        !processes_of_run(&driver.run_id).is_empty()
    })
    .await;
    drop((control, lines));
    driver.adopt_nothing().await;
    let (mut control, _lines) = driver.welcome().await;
    assert!(processes_of_run(&driver.run_id).is_empty(), "a fresh start");
    control.spawn(0, 1).await;
    common::eventually("a new worker runs", || {
        !processes_of_run(&driver.run_id).is_empty()
    })
    .await;
    control.command(AgentCommand::Shutdown).await;
    let (status, stderr) = agent.end().await;
    assert!(
        status.success() && stderr.contains("ended: ShutDown"),
        "{stderr}"
    );
}

#[tokio::test]
async fn a_self_registered_agent_waits_for_the_lock_without_a_connection_to_the_driver() {
    let mut driver = Driver::new(shell("sleep 1000")).await;
    driver.setup.orphan_timeout = Duration::from_secs(20);
    let (first, _control, _lines) = driver.with_agent().await;
    let mut launch = driver.launch();
    launch.run_id = None;
    let _second = Agent::start(&launch, &[("ELASTICRUN_TEST_ITSELF", "1")]);
    let mut refused = driver.register().await;
    assert_eq!(refused.report().await, None, "it hangs up");
    first.signal(libc::SIGTERM);
    driver.welcome().await;
}

#[tokio::test]
async fn a_silent_driver_is_lost_and_a_late_one_is_not() {
    let mut driver = Driver::new(shell("sleep 1000")).await;
    driver.setup.heartbeat_timeout = Duration::from_millis(300);
    driver.setup.orphan_timeout = Duration::from_secs(4);
    let (agent, mut control, _lines) = driver.with_agent().await;
    control.spawn(0, 1).await;
    common::eventually("the worker runs", || {
        !processes_of_run(&driver.run_id).is_empty()
    })
    .await;
    // The driver is silent beyond the heartbeat timeout, but answers before the orphan timeout.
    let late = Instant::now() + Duration::from_millis(1000);
    while Instant::now() < late {
        control.beat().await;
    }
    let answered = Instant::now();
    control.answer_beat().await;
    let (status, stderr) = agent.end().await;
    assert!(
        status.success() && stderr.contains("ended: Orphaned"),
        "{stderr}"
    );
    let kept = answered.elapsed();
    assert!(
        kept >= Duration::from_millis(4200),
        "kept for {kept:?} only"
    );
}

#[tokio::test]
async fn unauthenticated_peers_get_nothing() {
    let driver = Driver::new(worker(&["attach", "join", "hang"])).await;
    let (agent, mut control, mut lines) = driver.with_agent().await;
    let run = run_dir(agent.child.id());
    let memory = ("127.0.0.1", control.register.memory_port);
    let exchange = |mut stream: Box<dyn ReadWrite>, bytes: Vec<u8>| {
        tokio::task::spawn_blocking(move || {
            // The agent may close the stream while we still write.
            let _ = stream.write_all(&bytes);
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer);
            answer
        })
    };
    let connect = || TcpStream::connect(memory).unwrap();
    let connect_local = || UnixStream::connect(run.join("agent")).unwrap();
    for bytes in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        &[0; 64],
        b"\0\0\0\x02{}",
        &[0xff; 9000],
    ] {
        assert_eq!(
            exchange(Box::new(connect()), bytes.to_vec()).await.unwrap(),
            b""
        );
        assert_eq!(
            exchange(Box::new(connect_local()), bytes.to_vec())
                .await
                .unwrap(),
            b""
        );
    }
    // A process that claims to be a worker that was never started is refused.
    let frame = elasticrun_protocol::frame::to_frame(&elasticrun_protocol::FromWorker::Attach {
        local_rank: elasticrun_protocol::LocalRank(0),
        generation: elasticrun_protocol::Generation(1),
        pid: std::process::id(),
        buffers: 3,
    })
    .unwrap();
    let answer = exchange(Box::new(connect_local()), frame.clone())
        .await
        .unwrap();
    let answer = String::from_utf8_lossy(&answer[4..]).into_owned();
    assert!(answer.contains("has started no such process"), "{answer}");
    // A process that does not descend from the worker's leader is refused, too.
    control.spawn(0, 1).await;
    control.all_wait(1).await;
    let answer = exchange(Box::new(connect_local()), frame).await.unwrap();
    let answer = String::from_utf8_lossy(&answer[4..]).into_owned();
    assert!(answer.contains("not of the process"), "{answer}");
    control.command(AgentCommand::Shutdown).await;
    lines.rest().await;
    let (_, stderr) = agent.end().await;
    assert_eq!(stderr.matches("a stranger at").count(), 8, "{stderr}");
}

trait ReadWrite: Read + Write + Send {}
impl<T: Read + Write + Send> ReadWrite for T {}

/// The run directory of an agent, found by its open socket.
fn run_dir(pid: u32) -> std::path::PathBuf {
    let sockets = std::fs::read_to_string(format!("/proc/{pid}/net/unix")).unwrap();
    let inodes: Vec<String> = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok())
        .filter_map(|link| {
            Some(
                link.to_str()?
                    .strip_prefix("socket:[")?
                    .strip_suffix(']')?
                    .to_owned(),
            )
        })
        .collect();
    let path = sockets.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(6);
        let (inode, path) = (words.next()?, words.next()?);
        let is_of_agent = inodes.iter().any(|open| open == inode);
        (path.ends_with("/agent") && is_of_agent).then(|| path.to_owned())
    });
    std::path::Path::new(&path.unwrap())
        .parent()
        .unwrap()
        .to_owned()
}

#[tokio::test]
async fn a_commit_of_a_dead_worker_is_handed_out() {
    let words = ["attach", "join", "start", "commit=300000", "_exit=9"];
    let driver = Driver::new(worker(&words)).await;
    let (_agent, mut control, _lines) = driver.with_agent().await;
    control.spawn(0, 1).await;
    control.all_wait(1).await;
    control.start(1, &[process(0, 1)], None, None).await;
    while !matches!(control.report().await, Some(AgentReport::Exited { .. })) {}
    let commit = CommitId {
        epoch: common::EPOCH,
        round: Round(1),
        count: 1,
    };
    let mut peer = Peer::dial(
        control.register.memory_port,
        &driver.worker(),
        Purpose::Memory,
    )
    .await
    .unwrap();
    let request = |count| MemoryRequest {
        newer: false,
        ranges: Vec::new(),
        background: false,
        via: Vec::new(),
        requests: 0,
        process: process(0, 1),
        key: CommitId { count, ..commit }.into(),
    };
    peer.write(&request(7)).await;
    assert_eq!(peer.read().await, Some(MemoryAnswer::Missing));
    for _ in 0..2 {
        peer.write(&request(1)).await;
        let Some(MemoryAnswer::Found { length, digest, .. }) = peer.read().await else {
            panic!("it is there");
        };
        assert_eq!(length, 300_000);
        let bytes = peer.raw(300_000).await;
        assert!(bytes.iter().all(|byte| *byte == b'c'));
        assert_eq!(digest, xxhash_rust::xxh3::xxh3_64(&bytes));
    }
    let port = control.register.memory_port;
    let other = Authority::new(&driver.run_id).unwrap();
    let other = other.issue(Role::Worker, "localhost").unwrap();
    let wrong = Peer::dial(port, &other, Purpose::Memory).await;
    assert!(matches!(
        wrong.err(),
        Some(opening::Error::Tls(TlsError::OtherJob))
    ));
    // A driver of the job has no business here.
    let wrong = driver.authority.issue(Role::Driver, "driver").unwrap();
    let wrong = Peer::dial(port, &wrong, Purpose::Memory).await;
    assert!(matches!(
        wrong.err(),
        Some(opening::Error::Tls(TlsError::Refused(_)))
    ));
    let wrong = Peer::dial(port, &driver.worker(), Purpose::Control).await;
    assert!(matches!(
        wrong.err(),
        Some(opening::Error::Disagreement(Disagreement::Refused(_)))
    ));
}

#[tokio::test]
async fn a_commit_of_a_live_worker_is_copied_whole_while_it_commits() {
    // Much more than the buffers of the connection hold.
    let len = 32 << 20;
    let commit = format!("commit={len}");
    let words = [
        "attach", "join", "start", &commit, "abort", &commit, &commit, &commit,
    ];
    let words = [&words[..], &["print=done", "hang"]].concat();
    let driver = Driver::new(worker(&words)).await;
    let (_agent, mut control, mut lines) = driver.with_agent().await;
    control.spawn(0, 1).await;
    control.all_wait(1).await;
    control.start(1, &[process(0, 1)], None, None).await;
    lines.until("committed").await;
    let mut peer = Peer::dial(
        control.register.memory_port,
        &driver.worker(),
        Purpose::Memory,
    )
    .await
    .unwrap();
    let commit = CommitId {
        epoch: common::EPOCH,
        round: Round(1),
        count: 1,
    };
    let (process, key) = (process(0, 1), commit.into());
    peer.write(&MemoryRequest {
        process,
        key,
        newer: false,
        ranges: Vec::new(),
        background: false,
        via: Vec::new(),
        requests: 0,
    })
    .await;
    let Some(MemoryAnswer::Found { length, digest, .. }) = peer.read().await else {
        panic!("it is there");
    };
    assert_eq!(length, len);
    // The worker commits more often than it has buffers before the peer reads on.
    control
        .command(AgentCommand::Abort { round: Round(1) })
        .await;
    lines.until("done").await;
    let bytes = peer.raw(length as usize).await;
    assert_eq!(digest, xxhash_rust::xxh3::xxh3_64(&bytes));
    assert!(bytes.iter().all(|byte| *byte == b'c'));
}

#[tokio::test]
async fn a_keeper_of_this_host_comes_with_the_start() {
    let script = format!(
        "if [ $ELASTICRUN_GENERATION = 1 ]; then exec {}; else exec {}; fi",
        worker(&["attach", "join", "start", "commit=5000", "_exit=9"]).join(" "),
        worker(&["attach", "join", "start", "keeper", "hang"]).join(" ")
    );
    let driver = Driver::new(shell(&script)).await;
    let (_agent, mut control, mut lines) = driver.with_agent().await;
    control.spawn(0, 1).await;
    control.all_wait(1).await;
    control.start(1, &[process(0, 1)], None, None).await;
    while !matches!(control.report().await, Some(AgentReport::Exited { .. })) {}
    control.spawn(0, 2).await;
    control.all_wait(1).await;
    let base = CommitId {
        epoch: common::EPOCH,
        round: Round(1),
        count: 1,
    };
    control
        .start(2, &[process(0, 2)], Some(base), Some(process(0, 1)))
        .await;
    timeout(SOON, lines.until("keeper 1.1.1 5000"))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_hold_counts_and_all_leave_at_the_boundary() {
    let driver = Driver::new(worker(&[
        "attach", "join", "start", "boundary", "join", "hang",
    ]))
    .await;
    let (_agent, mut control, mut lines) = driver.with_agent().await;
    let members = [process(0, 1), process(1, 1)];
    for slot in 0..2 {
        control.spawn_of(slot, 1, 2).await;
    }
    control.all_wait(2).await;
    control.start(1, &members, None, None).await;
    lines.until("start round=1").await;
    let round = Round(1);
    control.command(AgentCommand::Hold { round }).await;
    let Some(AgentReport::BoundaryCounted { highest, .. }) = control.report().await else {
        panic!("not counted");
    };
    control
        .command(AgentCommand::Leave {
            round,
            at: highest.next(),
        })
        .await;
    control.all_wait(2).await;
}

#[tokio::test]
async fn an_agent_reports_which_hosts_it_does_not_reach() {
    let driver = Driver::new(shell("sleep 1000")).await;
    let (_agent, mut control, _lines) = driver.with_agent().await;
    assert!(control.register.probes);
    let closed = TcpListener::bind("127.0.0.1:0").unwrap();
    let closed_port = closed.local_addr().unwrap().port();
    drop(closed);
    let host = |name: &str, port: u16| ProbeHost {
        host: HostId::new(name),
        address: ([127, 0, 0, 1], port).into(),
    };
    let itself = host("itself", control.register.memory_port);
    for (number, hosts, missing) in [
        (1, vec![itself.clone()], None),
        (2, vec![itself, host("gone", closed_port)], Some("gone")),
    ] {
        let within = SOON;
        control
            .command(AgentCommand::Probe {
                number,
                hosts,
                within,
            })
            .await;
        let unreachable = missing.into_iter().map(HostId::new).collect();
        let probed = AgentReport::Probed {
            number,
            unreachable,
        };
        assert_eq!(control.report().await, Some(probed));
    }
}
