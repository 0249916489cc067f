//! Descriptors of processes: the second witness of a death, and the way to its exit status.
//!
//! The kernel makes a pidfd readable only after the memory of the process is torn down, tens of
//! milliseconds later for each gigabyte; [`crate::death`] is the quick one.

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

/// A process that cannot be mistaken for a later one of the same number.
///
/// Readable (`AsFd`, for an event loop) once it has ended.
#[derive(Debug)]
pub struct Pidfd(OwnedFd);

impl Pidfd {
    /// Opens a process by its number; be sure that it is still the one you mean, as for a child not yet reaped.
    pub fn open(pid: u32) -> io::Result<Self> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or(Errno::INVAL)?;
        Ok(Self(pidfd_open(pid, PidfdFlags::empty())?))
    }

    /// Waits until the process has ended; `false` if the timeout passed first. Zero only looks.
    pub fn wait(&self, timeout: Duration) -> io::Result<bool> {
        // A timeout that the kernel cannot represent is none.
        let timeout = Timespec::try_from(timeout).ok();
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        let ready = retry_on_intr(|| poll(&mut fds, timeout.as_ref()))?;
        Ok(ready > 0)
    }

    /// Takes the exit status of an ended child, so that no zombie stays; `None` if it still runs.
    ///
    /// Fails with `ECHILD` if it is not a child of this process, or was reaped.
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
