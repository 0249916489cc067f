//! Descriptors of processes: the second witness of a death, and the way to its exit status.
//!
//! The kernel makes a pidfd readable only after the memory of the process is torn down, tens of
//! milliseconds later for each gigabyte; [`crate::death`] is the quick one.

use std::{
    io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
        unix::process::ExitStatusExt,
    },
    process::ExitStatus,
    ptr,
    time::Duration,
};

/// A process that cannot be mistaken for a later one of the same number.
///
/// Readable (`AsFd`, for an event loop) once it has ended.
#[derive(Debug)]
pub struct Pidfd(OwnedFd);

impl Pidfd {
    /// Opens a process by its number; be sure that it is still the one you mean, as for a child not yet reaped.
    pub fn open(pid: u32) -> io::Result<Self> {
        // SAFETY: integers only; the call makes a new descriptor (close-on-exec) or fails.
        let raw = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        let raw = i32::try_from(raw).unwrap_or(-1);
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel just gave us this descriptor; nobody else has it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(raw) }))
    }

    /// Waits until the process has ended; `false` if the timeout passed first. Zero only looks.
    pub fn wait(&self, timeout: Duration) -> io::Result<bool> {
        let mut poll = libc::pollfd {
            fd: self.0.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let millis = timeout.as_nanos().div_ceil(1_000_000);
        let millis = i32::try_from(millis).unwrap_or(i32::MAX);
        loop {
            // SAFETY: one live pollfd.
            match unsafe { libc::poll(&raw mut poll, 1, millis) } {
                0 => return Ok(false),
                1.. => return Ok(true),
                _ => {
                    let error = io::Error::last_os_error();
                    if error.kind() != io::ErrorKind::Interrupted {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// Takes the exit status of an ended child, so that no zombie stays; `None` if it still runs.
    ///
    /// Fails with `ECHILD` if it is not a child of this process, or was reaped.
    pub fn reap(&self) -> io::Result<Option<ExitStatus>> {
        // SAFETY: all zeroes is a valid siginfo.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        let id = self.0.as_raw_fd() as libc::id_t;
        loop {
            let options = libc::WEXITED | libc::WNOHANG;
            // SAFETY: an open descriptor and a live siginfo.
            if unsafe { libc::waitid(libc::P_PIDFD, id, &raw mut info, options) } == 0 {
                break;
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
        // SAFETY: waitid filled the fields of a child's status, or left them zero.
        let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
        if pid == 0 {
            return Ok(None);
        }
        Ok(Some(ExitStatus::from_raw(match info.si_code {
            libc::CLD_EXITED => (status & 0xff) << 8,
            libc::CLD_DUMPED => status | 0x80,
            _ => status,
        })))
    }

    /// Sends a signal; fails with `ESRCH` if the process has been reaped.
    pub fn kill(&self, signal: i32) -> io::Result<()> {
        // SAFETY: an open descriptor, integers and a null pointer that the call allows.
        let result = unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                self.0.as_raw_fd(),
                signal,
                ptr::null::<libc::siginfo_t>(),
                0,
            )
        };
        match result {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl AsFd for Pidfd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    #[test]
    #[expect(clippy::zombie_processes, reason = "reaping is what is tested")]
    fn an_exit_code_and_a_signal_are_told_apart() {
        let exits = Command::new("sh").args(["-c", "exit 3"]).spawn().unwrap();
        let pidfd = Pidfd::open(exits.id()).unwrap();
        assert!(pidfd.wait(SOON).unwrap());
        assert_eq!(pidfd.reap().unwrap().unwrap().code(), Some(3));
        assert_eq!(pidfd.reap().unwrap_err().raw_os_error(), Some(libc::ECHILD));

        let waits = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let pidfd = Pidfd::open(waits.id()).unwrap();
        assert!(!pidfd.wait(Duration::ZERO).unwrap());
        assert_eq!(pidfd.reap().unwrap(), None);
        pidfd.kill(libc::SIGKILL).unwrap();
        assert!(pidfd.wait(SOON).unwrap());
        assert_eq!(pidfd.reap().unwrap().unwrap().signal(), Some(libc::SIGKILL));
    }
}
