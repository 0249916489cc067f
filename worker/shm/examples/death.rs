//! Prints how long after kill(2) an agent knows of a worker's death: by the robust futex and by the
//! pidfd, with 1 MiB and 1 GiB resident.
//!
//! `cargo run --release -p elasticrun-shm --example death`

use std::{
    env,
    io::{Read, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    process::{Command, Stdio},
    sync::mpsc::channel,
    time::{Duration, Instant},
};

use elasticrun_shm::{
    alive::Alive,
    death::DeathWatch,
    fds,
    page::{AgentPage, WorkerPage},
    pidfd::Pidfd,
};

const TRIALS: usize = 20;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    if let Some(bytes) = env::args().nth(1) {
        return worker(bytes.parse()?);
    }
    println!("resident   robust futex median / max   pidfd median / max   (of {TRIALS})");
    for (name, bytes) in [("1 MiB", 1 << 20), ("1 GiB", 1 << 30)] {
        let mut futexes = Vec::new();
        let mut pidfds = Vec::new();
        for _ in 0..TRIALS {
            let (futex, pidfd) = trial(bytes)?;
            futexes.push(futex);
            pidfds.push(pidfd);
        }
        let [(futex, futex_max), (pidfd, pidfd_max)] = [futexes, pidfds].map(|mut all| {
            all.sort();
            (all[all.len() / 2], all[all.len() - 1])
        });
        println!(
            "{name:8}   {futex:>10.1?} / {futex_max:>10.1?}   {pidfd:>10.1?} / {pidfd_max:>10.1?}"
        );
    }
    Ok(())
}

fn trial(bytes: usize) -> Result<(Duration, Duration), Failure> {
    let page = AgentPage::create()?;
    let (send, ended) = channel();
    let _watch = DeathWatch::start(&page, move |_| {
        // The receiver may be gone if this trial failed.
        let _ = send.send(Instant::now());
    })?;
    let (mut ours, theirs) = UnixStream::pair()?;
    let mut process = Command::new(env::current_exe()?)
        .arg(bytes.to_string())
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .spawn()?;
    fds::send_all(&ours, b"f", &[page.as_fd()])?;
    ours.read_exact(&mut [0])?;
    let pidfd = Pidfd::open(process.id())?;
    pidfd.kill(libc::SIGKILL)?;
    let killed = Instant::now();
    let torn_down = pidfd.wait(Duration::from_secs(60))?;
    let by_pidfd = killed.elapsed();
    let by_futex = ended.recv()?.saturating_duration_since(killed);
    process.wait()?;
    if !torn_down {
        return Err("the worker did not end".into());
    }
    Ok((by_futex, by_pidfd))
}

fn worker(bytes: usize) -> Result<(), Failure> {
    let mut socket = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let mut got = Vec::new();
    fds::recv(&socket, &mut [0], &mut got)?;
    let page = WorkerPage::open(&got[0])?;
    let (send, held) = channel();
    std::thread::spawn(move || {
        let alive = Alive::hold(&page);
        let _ = send.send(alive.is_ok());
        loop {
            std::thread::park();
        }
    });
    held.recv()?;
    let memory = vec![1_u8; bytes];
    socket.write_all(b"h")?;
    let _ = socket.read(&mut [0]);
    std::hint::black_box(memory);
    Ok(())
}
