//! Rounds of real processes: this binary runs itself once for each rank.

#![allow(clippy::unwrap_used, reason = "a helper of a test is a test")]

#[path = "support/mod.rs"]
#[allow(dead_code)]
mod support;

use std::{
    collections::BTreeMap,
    env,
    io::{BufRead, BufReader, Write, stdin},
    net::TcpListener,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    process::{Child, ChildStdout, Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use elasticrun_collectives::{
    Aborter, Error, Group, GroupConfig, Op, RegionMap, abort_region, create_region, neighbours,
};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use support::{KEY, ROUND, topologies};

const ROLE: &str = "ELASTICRUN_TEST_MEMBER";

/// Not a test by itself: one rank of the tests below, if the environment says so.
#[test]
fn member() {
    let Ok(role) = env::var(ROLE) else { return };
    let mut words = role.split(' ');
    let mut word = || words.next().unwrap();
    let (rank, region): (usize, i32) = (word().parse().unwrap(), word().parse().unwrap());
    let layout: Vec<u32> = word().split(',').map(|n| n.parse().unwrap()).collect();
    let topology = topologies(&layout)[rank];
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    // On a line of its own: the test harness writes to the same stdout.
    println!("\nsays {}", listener.local_addr().unwrap());
    let mut lines = stdin().lines();
    let leaders: Vec<_> = lines
        .next()
        .unwrap()
        .unwrap()
        .split(' ')
        .map(str::to_owned)
        .collect();
    let peers: BTreeMap<_, _> = neighbours(topology.host_index, topology.host_count)
        .into_iter()
        .map(|host| (host, leaders[host as usize].parse().unwrap()))
        .collect();
    let config = GroupConfig {
        topology,
        // SAFETY: the parent left this descriptor to this process alone.
        region: (region >= 0).then(|| unsafe { OwnedFd::from_raw_fd(region) }),
        listener: &listener,
        peers,
        key: KEY,
        encrypt: false,
        round_id: ROUND,
        timeout: Duration::from_secs(20),
    };
    let mut group = Group::connect(config, &Aborter::new()).unwrap();
    let rank = topology.rank as i64;
    let size = i64::from(topology.size);
    let mut work = |len: usize| {
        let mut data: Vec<i64> = (0..len as i64).map(|i| i + rank).collect();
        group.allreduce(&mut data, Op::Sum)?;
        let right = |(i, found): (usize, &i64)| *found == i as i64 * size + size * (size - 1) / 2;
        assert!(data.iter().enumerate().all(right));
        Ok::<_, Error>(())
    };
    for len in [0, 3, 1000, 200_000] {
        work(len).unwrap();
    }
    println!("\nsays ready");
    let error = loop {
        if let Err(error) = work(10).and_then(|()| work(150_000)) {
            break error;
        }
    };
    match error {
        Error::Aborted { .. } => println!("\nsays aborted"),
        Error::PeerLost { .. } => println!("\nsays lost"),
        Error::PeerLeft { .. } => println!("\nsays left"),
        other => println!("\nsays {other}"),
    }
    // Keeps its resources until the parent ends the test.
    let _ = lines.next();
}

struct Process {
    child: Child,
    lines: Option<BufReader<ChildStdout>>,
}

impl Process {
    fn next_report(&mut self) -> String {
        next_report(self.lines.as_mut().unwrap())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn next_report(lines: &mut BufReader<ChildStdout>) -> String {
    let mut line = String::new();
    loop {
        line.clear();
        assert!(
            lines.read_line(&mut line).unwrap() > 0,
            "a member ended early"
        );
        if let Some(text) = line.trim_end().strip_prefix("says ") {
            return text.to_owned();
        }
    }
}

/// A connected round that runs operations, and the regions of its hosts as their agents hold them.
fn start(layout: &[u32]) -> (Vec<Process>, Vec<Option<RegionMap>>) {
    let names: Vec<String> = layout.iter().map(u32::to_string).collect();
    let regions: Vec<Option<OwnedFd>> = layout
        .iter()
        .map(|&count| (count > 1).then(|| create_region(count).unwrap()))
        .collect();
    let topologies = topologies(layout);
    let mut processes: Vec<Process> = topologies
        .iter()
        .map(|topology| {
            let region = regions[topology.host_index as usize]
                .as_ref()
                .map(|region| {
                    // A copy for the child without close-on-exec.
                    let copy = region.try_clone().unwrap();
                    fcntl(&copy, FcntlArg::F_SETFD(FdFlag::empty())).unwrap();
                    copy
                });
            let fd = region.as_ref().map_or(-1, AsRawFd::as_raw_fd);
            let mut child = Command::new(env::current_exe().unwrap())
                .args(["--exact", "member", "--nocapture", "--test-threads=1"])
                .env(ROLE, format!("{} {fd} {}", topology.rank, names.join(",")))
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let lines = child.stdout.take().map(BufReader::new);
            Process { child, lines }
        })
        .collect();
    let addresses: Vec<String> = processes.iter_mut().map(Process::next_report).collect();
    let leaders: Vec<&str> = topologies
        .iter()
        .zip(&addresses)
        .filter(|(topology, _)| topology.is_leader())
        .map(|(_, address)| address.as_str())
        .collect();
    for process in &mut processes {
        let stdin = process.child.stdin.as_mut().unwrap();
        writeln!(stdin, "{}", leaders.join(" ")).unwrap();
    }
    for process in &mut processes {
        assert_eq!(process.next_report(), "ready");
    }
    let maps = regions
        .iter()
        .zip(layout)
        .map(|(fd, &count)| fd.as_ref().map(|fd| RegionMap::map(fd, count).unwrap()))
        .collect();
    (processes, maps)
}

#[test]
fn the_death_of_a_member_frees_all_others_at_once() {
    for (layout, victim) in [
        (&[4][..], 2),
        (&[1, 1, 1], 1),
        (&[2, 2], 3),
        (&[1, 2, 1], 1),
    ] {
        for turn in 0..4u64 {
            let (mut processes, regions) = start(layout);
            let host = topologies(layout)[victim].host_index as usize;
            // At any point within an operation.
            thread::sleep(Duration::from_micros(3000 + 777 * turn));
            let (sender, receiver) = mpsc::channel();
            let readers: Vec<_> = processes
                .iter_mut()
                .enumerate()
                .filter(|(rank, _)| *rank != victim)
                .map(|(_, process)| {
                    let (mut lines, sender) = (process.lines.take().unwrap(), sender.clone());
                    thread::spawn(move || {
                        sender
                            .send((next_report(&mut lines), Instant::now()))
                            .unwrap()
                    })
                })
                .collect();
            let start = Instant::now();
            processes[victim].child.kill().unwrap();
            processes[victim].child.wait().unwrap();
            // The agent of the host does this. The other hosts see the connections close.
            regions[host].iter().for_each(abort_region);
            for _ in &readers {
                let received = receiver.recv_timeout(Duration::from_secs(10));
                let (line, end) = received.unwrap_or_else(|_| panic!("{layout:?}: a member hangs"));
                assert!(
                    ["aborted", "lost"].contains(&line.as_str()),
                    "{layout:?}: {line}"
                );
                let took = end - start;
                // Far below the group's timeout of 20 s.
                assert!(took < Duration::from_secs(5), "{layout:?}: {took:?}");
            }
            for reader in readers {
                reader.join().unwrap();
            }
        }
    }
}

#[test]
fn a_forked_child_neither_uses_nor_ends_the_group() {
    use nix::{sys::wait::WaitStatus, sys::wait::waitpid, unistd::ForkResult, unistd::fork};
    support::round(&[2], |group| {
        if group.topology().rank == 0 {
            // SAFETY: the child calls only code that allocates nothing that another thread may have
            // locked, and leaves by _exit.
            match unsafe { fork() }.unwrap() {
                ForkResult::Child => {
                    let refused = matches!(group.barrier(), Err(Error::Config(_)));
                    // SAFETY: ends this process only; the group is dropped as user code would.
                    unsafe {
                        std::ptr::drop_in_place(group);
                        libc::_exit(i32::from(!refused));
                    }
                }
                ForkResult::Parent { child } => {
                    assert_eq!(waitpid(child, None).unwrap(), WaitStatus::Exited(child, 0));
                }
            }
        }
        group.barrier().unwrap();
    });
}
