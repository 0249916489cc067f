//! A standby interpreter that waits to become a worker.

use std::os::fd::{AsFd, OwnedFd};

use elasticrun_shm::{fds, pidfd::Pidfd};
use libc::cpu_set_t;

use super::{error::Error, fork_server::receive};
use crate::{
    numa::bind,
    process::starter::{Started, output_pipe},
};

/// A forked interpreter, a child of this process. Dropping it kills the process.
#[derive(Debug)]
pub(super) struct StandbyInterpreter {
    pid: u32,
    socket: OwnedFd,
    /// None once it is a worker.
    pidfd: Option<Pidfd>,
}

impl StandbyInterpreter {
    /// Takes over an interpreter that was just forked, with our end of its socket.
    pub(super) fn new(pid: u32, socket: OwnedFd) -> Result<Self, Error> {
        let pidfd = Pidfd::open(pid).map_err(Error::system("open the interpreter"))?;
        // The process id may be of another process if the interpreter has ended already.
        match pidfd.reap() {
            Ok(None) => Ok(Self {
                pid,
                socket,
                pidfd: Some(pidfd),
            }),
            _ => Err(Error::Silent { who: WHO }),
        }
    }

    /// Makes it a worker with these variables, bound to these CPUs. On an error it has not run the program, and is killed.
    pub(super) fn start(
        mut self,
        variables: &[u8],
        cpus: Option<&cpu_set_t>,
    ) -> Result<Started, Error> {
        if let Some(cpus) = cpus {
            // It has one thread, which waits for the variables. As at an ordinary start, an error leaves it unbound.
            let _ = bind(self.pid, cpus);
        }
        let (stdout, child_stdout) = output_pipe().map_err(Error::system("make a pipe"))?;
        let (stderr, child_stderr) = output_pipe().map_err(Error::system("make a pipe"))?;
        let pipes = [child_stdout.as_fd(), child_stderr.as_fd()];
        fds::send_all(&self.socket, variables, &pipes)
            .map_err(Error::system("send the variables"))?;
        let answer = receive(&self.socket, WHO)?;
        if answer != "started" {
            return Err(Error::Unexpected { answer });
        }
        let pidfd = self.pidfd.take().ok_or(Error::Silent { who: WHO })?;
        Ok(Started {
            pid: self.pid,
            pidfd,
            stdout,
            stderr,
        })
    }
}

const WHO: &str = "the standby interpreter";

impl Drop for StandbyInterpreter {
    fn drop(&mut self) {
        if let Some(pidfd) = &self.pidfd {
            // It may have ended. The sweep of orphans reaps it.
            let _ = pidfd.kill(libc::SIGKILL);
        }
    }
}
