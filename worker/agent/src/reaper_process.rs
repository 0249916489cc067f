//! A small process that outlives its agent by a moment, to end what the agent would have ended.
//!
//! A parent-death signal ends the workers of an agent that is killed, but not what they have started. The
//! guard sleeps on a pipe that only the agent holds open. When that closes without a word, the agent is
//! dead, and the guard kills all processes marked by the agent's socket.
//!
//! It is forked, not executed, so that it needs no program of its own; it makes system calls only.

use std::{
    io,
    os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd},
    path::Path,
};

use crate::leftovers::Marked;

/// The agent's end of the pipe. [`Guard::dismiss`] it, or it takes the agent for dead.
#[derive(Debug)]
pub(crate) struct Guard {
    pipe: OwnedFd,
    pid: libc::pid_t,
}

impl Guard {
    /// Forks the guard of an agent with this socket.
    pub(crate) fn start(socket: &Path) -> io::Result<Self> {
        let mut marked = Marked::new(socket);
        let (read, write) = pipe()?;
        // SAFETY: the child makes system calls only and never returns.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => watch(read.into_raw_fd(), &mut marked),
            pid => Ok(Self { pipe: write, pid }),
        }
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.pid as u32
    }

    /// Lets it go without doing anything, and waits for that.
    pub(crate) fn dismiss(self) {
        let word = [1_u8];
        // SAFETY: an open descriptor and a live byte. If the guard is gone, there is nobody to tell:
        // SIGPIPE is ignored, as in every program of Rust.
        unsafe {
            libc::write(self.pipe.as_raw_fd(), word.as_ptr().cast(), 1);
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
    // SAFETY: the kernel just gave us these; nobody else has them.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

/// In the child.
fn watch(pipe: libc::c_int, marked: &mut Marked) -> ! {
    // SAFETY: system calls with integers and live locals; all may be made after a fork. The descriptors
    // closed are copies that nobody uses in this process.
    unsafe {
        libc::setsid();
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT] {
            libc::signal(signal, libc::SIG_IGN);
        }
        libc::prctl(libc::PR_SET_NAME, c"agent-guard".as_ptr());
        // Whoever waits for the end of the agent's output must not wait for us.
        libc::dup2(pipe, 0);
        libc::syscall(libc::SYS_close_range, 1_u32, u32::MAX, 0_u32);
        let mut word = [0_u8];
        loop {
            match libc::read(0, word.as_mut_ptr().cast(), 1) {
                0 => break,
                -1 if *libc::__errno_location() == libc::EINTR => {}
                _ => libc::_exit(0),
            }
        }
    }
    marked.end_all();
    // SAFETY: ends this process, without any handler of the agent's.
    unsafe { libc::_exit(0) }
}
