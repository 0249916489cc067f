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
use support::{KEY, SESSION, topologies};

const ROLE: &str = "ELASTICRUN_TEST_MEMBER";

/// Not a test by itself: one rank of the tests below, if it was started as one.
#[test]
fn member() {
    let Ok(role) = env::var(ROLE) else { return };
    let mut words = role.split(' ');
    let mut word = || words.next().unwrap();
    let (rank, region): (usize, i32) = (word().parse().unwrap(), word().parse().unwrap());
    let layout: Vec<u32> = word().split(',').map(|n| n.parse().unwrap()).collect();
    let topology = topologies(&layout)[rank];
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    // On lines of their own: the harness writes to the same stdout.
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
        session: SESSION,
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
    // Holds what it has until the parent has seen enough.
    let _ = lines.next();
}

struct Process {
    child: Child,
    lines: Option<BufReader<ChildStdout>>,
}

impl Process {
    fn says(&mut self) -> String {
        says(self.lines.as_mut().unwrap())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn says(lines: &mut BufReader<ChildStdout>) -> String {
    let mut line = String::new();
    loop {
        line.clear();
        assert!(
            lines.read_line(&mut line).unwrap() > 0,
            "a member ended early"
        );
        if let Some(said) = line.trim_end().strip_prefix("says ") {
            return said.to_owned();
        }
    }
}

/// A connected round that works, and the regions of its hosts as their agents hold them.
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
                    // A copy for the child, which is not closed when it starts.
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
    let addresses: Vec<String> = processes.iter_mut().map(Process::says).collect();
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
        assert_eq!(process.says(), "ready");
    }
    let maps = regions
        .iter()
        .zip(layout)
        .map(|(fd, &count)| fd.as_ref().map(|fd| RegionMap::map(fd, count).unwrap()))
        .collect();
    (processes, maps)
}

#[test]
fn a_killed_member_takes_nobody_along_for_longer_than_its_death_takes() {
    for (layout, victim) in [
        (&[4][..], 2),
        (&[1, 1, 1], 1),
        (&[2, 2], 3),
        (&[1, 2, 1], 1),
    ] {
        for turn in 0..4u64 {
            let (mut processes, regions) = start(layout);
            let host = topologies(layout)[victim].host_index as usize;
            // Anywhere within an operation.
            thread::sleep(Duration::from_micros(3000 + 777 * turn));
            let (said, hears) = mpsc::channel();
            let readers: Vec<_> = processes
                .iter_mut()
                .enumerate()
                .filter(|(rank, _)| *rank != victim)
                .map(|(_, process)| {
                    let (mut lines, said) = (process.lines.take().unwrap(), said.clone());
                    thread::spawn(move || said.send((says(&mut lines), Instant::now())).unwrap())
                })
                .collect();
            let start = Instant::now();
            processes[victim].child.kill().unwrap();
            processes[victim].child.wait().unwrap();
            // The agent of its host does this; the other hosts see the connections close.
            regions[host].iter().for_each(abort_region);
            for _ in &readers {
                let heard = hears.recv_timeout(Duration::from_secs(10));
                let (said, at) = heard.unwrap_or_else(|_| panic!("{layout:?}: somebody hangs"));
                assert!(
                    ["aborted", "lost"].contains(&said.as_str()),
                    "{layout:?}: {said}"
                );
                let took = at - start;
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
            // SAFETY: the child only calls what allocates nothing that another thread may have locked,
            // and leaves by _exit.
            match unsafe { fork() }.unwrap() {
                ForkResult::Child => {
                    let refused = matches!(group.barrier(), Err(Error::Config(_)));
                    // SAFETY: ends this process only; the group is dropped as a user's code would.
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
