//! Descriptors of processes (pidfd): they report the end of a process and its exit status.
//!
//! The kernel makes a pidfd readable only after it has torn down the memory of the process, which takes tens of
//! milliseconds for each gigabyte. [`crate::liveness_watch`] is faster.

use std::{
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::process::ExitStatusExt,
    },
    process::ExitStatus,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::{Errno, retry_on_intr},
    process::{
        Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid,
    },
};

/// A reference to a process that stays valid when its process id is used again.
///
/// The descriptor is readable (`AsFd`, for an event loop) once the process has ended.
#[derive(Debug)]
pub struct Pidfd(OwnedFd);

impl Pidfd {
    /// Opens a process by its id. The caller must know that the id is still that of the process, as for an unreaped child.
    pub fn open(pid: u32) -> io::Result<Self> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or(Errno::INVAL)?;
        Ok(Self(pidfd_open(pid, PidfdFlags::empty())?))
    }

    /// Waits until the process has ended; `false` if the timeout passed first. A timeout of zero does not wait.
    pub fn wait(&self, timeout: Duration) -> io::Result<bool> {
        // A timeout that the kernel cannot represent is none.
        let timeout = Timespec::try_from(timeout).ok();
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        let ready = retry_on_intr(|| poll(&mut fds, timeout.as_ref()))?;
        Ok(ready > 0)
    }

    /// Reaps an ended child and returns its exit status; `None` if it still runs.
    ///
    /// Fails with `ECHILD` if the process is not a child of this one, or was reaped.
    pub fn reap(&self) -> io::Result<Option<ExitStatus>> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        let ended = retry_on_intr(|| waitid(WaitId::PidFd(self.as_fd()), options))?;
        Ok(ended.map(|status| {
            let code = status.exit_status().map(|code| (code & 0xff) << 8);
            let signal = status.terminating_signal().unwrap_or(0);
            let core = if status.dumped() { 0x80 } else { 0 };
            ExitStatus::from_raw(code.unwrap_or(signal | core))
        }))
    }

    /// Sends a signal. Fails with `ESRCH` if the process has been reaped, and with `EINVAL` for a number without a name.
    pub fn kill(&self, signal: i32) -> io::Result<()> {
        let signal = Signal::from_named_raw(signal).ok_or(Errno::INVAL)?;
        Ok(pidfd_send_signal(self, signal)?)
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
