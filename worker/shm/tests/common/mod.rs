//! Runs this test binary again as a worker process, with a socket to it as its stdin.

use std::{
    env,
    io::{Read, Write},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    process::{Child, Command, Stdio},
};

use elasticrun_shm::fds;

const ROLE: &str = "ELASTICRUN_TEST_PART";

/// A worker process of a test, killed and reaped when the test ends.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) process: Child,
    pub(crate) socket: UnixStream,
}

impl Worker {
    /// Starts the test `entry` of this binary as a worker with a role, and sends it descriptors.
    pub(crate) fn start(entry: &str, role: &str, fds: &[BorrowedFd<'_>]) -> Self {
        let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
        let process = Command::new(env::current_exe().expect("this binary"))
            .args(["--exact", entry, "--nocapture", "--quiet"])
            .env(ROLE, role)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .spawn()
            .expect("this binary starts");
        fds::send_all(&ours, b"f", fds).expect("descriptors go");
        Self {
            process,
            socket: ours,
        }
    }

    /// Receives a byte from the worker.
    pub(crate) fn recv_byte(&mut self) -> u8 {
        let mut byte = [0];
        self.socket.read_exact(&mut byte).expect("the worker lives");
        byte[0]
    }

    /// Sends the worker a byte.
    #[allow(
        dead_code,
        reason = "not every suite that has this module sends to its workers"
    )]
    pub(crate) fn send_byte(&mut self, byte: u8) {
        self.socket.write_all(&[byte]).expect("the worker lives");
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Fails only if the process is reaped already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// In a worker process: its role, the socket to the test, and the received descriptors.
pub(crate) fn role() -> Option<(String, UnixStream, Vec<OwnedFd>)> {
    let role = env::var(ROLE).ok()?;
    let socket = std::io::stdin()
        .as_fd()
        .try_clone_to_owned()
        .expect("stdin is the socket");
    let socket = UnixStream::from(socket);
    let mut got = Vec::new();
    fds::recv(&socket, &mut [0], &mut got).expect("descriptors come");
    Some((role, socket, got))
}
