//! A small process that outlives its agent briefly, to kill the processes that a killed agent leaves.
//!
//! A parent-death signal ends the workers of a killed agent, but not the processes that they have started. The reaper
//! process sleeps on a pipe that only the agent holds open. If the pipe closes without a byte, the agent is dead, and
//! the reaper process kills all processes marked by the agent's socket.
//!
//! It is forked and executes no program. It makes system calls only. Its name in the process list is `agent-guard`.

use std::{
    io,
    os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd},
    path::Path,
};

use crate::orphans::MarkedProcesses;

/// The agent's handle of its reaper process. If it is dropped without [`ReaperProcess::dismiss`], the reaper process
/// acts as if the agent were dead.
#[derive(Debug)]
pub(crate) struct ReaperProcess {
    pipe: OwnedFd,
    pid: libc::pid_t,
}

impl ReaperProcess {
    /// Forks the reaper process of an agent with this socket.
    pub(crate) fn start(socket: &Path) -> io::Result<Self> {
        let mut marked = MarkedProcesses::new(socket);
        let (read, write) = pipe()?;
        // SAFETY: the child makes system calls only and never returns.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => watch(read.into_raw_fd(), &mut marked),
            pid => Ok(Self { pipe: write, pid }),
        }
    }

    /// The process id of the reaper process.
    pub(crate) fn pid(&self) -> u32 {
        self.pid as u32
    }

    /// Ends the reaper process without any kill, and waits for its end.
    pub(crate) fn dismiss(self) {
        let byte = [1_u8];
        // SAFETY: an open descriptor and a live byte. The write fails if the reaper process is gone; SIGPIPE is
        // ignored, as in every Rust program.
        unsafe {
            libc::write(self.pipe.as_raw_fd(), byte.as_ptr().cast(), 1);
            libc::waitpid(self.pid, std::ptr::null_mut(), 0);
        }
    }
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just gave us these; nothing else has them.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

/// Runs in the child: waits for the end of the agent.
fn watch(pipe: libc::c_int, marked: &mut MarkedProcesses) -> ! {
    // SAFETY: system calls with integers and live locals; all may be made after a fork. The closed descriptors are
    // copies, which nothing uses in this process.
    unsafe {
        libc::setsid();
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT] {
            libc::signal(signal, libc::SIG_IGN);
        }
        libc::prctl(libc::PR_SET_NAME, c"agent-guard".as_ptr());
        // Close stdout and stderr, so that a reader of the agent's output sees its end.
        libc::dup2(pipe, 0);
        libc::syscall(libc::SYS_close_range, 1_u32, u32::MAX, 0_u32);
        let mut byte = [0_u8];
        loop {
            match libc::read(0, byte.as_mut_ptr().cast(), 1) {
                0 => break,
                -1 if *libc::__errno_location() == libc::EINTR => {}
                _ => libc::_exit(0),
            }
        }
    }
    marked.kill_all();
    // SAFETY: ends this process without the exit handlers of the agent.
    unsafe { libc::_exit(0) }
}
