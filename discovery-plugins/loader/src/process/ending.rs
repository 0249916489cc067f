//! The end of a plugin's process: waited for within a time, enforced, and told to a person.

use std::{
    io,
    os::{
        fd::{AsFd, FromRawFd, OwnedFd},
        unix::process::ExitStatusExt,
    },
    process::{Child, ExitStatus},
    time::Duration,
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::signal::{Signal, killpg},
    unistd::Pid,
};

/// A process in a group of its own that was not reaped yet.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    /// Readable when it has ended.
    ended: OwnedFd,
}

impl Process {
    pub(super) fn new(mut child: Child) -> io::Result<Self> {
        match pidfd(&child) {
            Ok(ended) => Ok(Self { child, ended }),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it ends by itself within a time.
    pub(super) fn ends_within(&self, time: Duration) -> bool {
        let timeout = PollTimeout::try_from(time).unwrap_or(PollTimeout::MAX);
        loop {
            let mut fds = [PollFd::new(self.ended.as_fd(), PollFlags::POLLIN)];
            match poll(&mut fds, timeout) {
                Err(Errno::EINTR) => {}
                result => return result.is_ok_and(|ready| ready > 0),
            }
        }
    }

    /// Kills what is left of its group and reaps it. The group's number is the process's, which stays taken until it
    /// is reaped; so nobody else can be hit.
    pub(super) fn end(mut self) -> io::Result<ExitStatus> {
        // It fails only if nobody is left.
        let _ = killpg(Pid::from_raw(self.child.id() as i32), Signal::SIGKILL);
        self.child.wait()
    }
}

fn pidfd(child: &Child) -> io::Result<OwnedFd> {
    // SAFETY: no pointers; the process is our child and not reaped, so the number is its own.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, child.id() as libc::pid_t, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given it to us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// How it ended, with what it said last.
pub(super) fn told(status: ExitStatus, last_words: Option<&str>) -> String {
    let how = match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with code {code}, which nobody asked for"),
        (None, Some(number)) => match Signal::try_from(number) {
            Ok(signal) => format!("was killed by signal {number} ({signal})"),
            Err(_) => format!("was killed by signal {number}"),
        },
        (None, None) => "ended".to_owned(),
    };
    match last_words {
        Some(words) => format!("the plugin {how}: {words}"),
        None => format!("the plugin {how}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_told_with_what_was_said_last() {
        let of = |raw: i32| told(ExitStatus::from_raw(raw), None);
        assert_eq!(
            of(0),
            "the plugin exited with code 0, which nobody asked for"
        );
        assert_eq!(of(11), "the plugin was killed by signal 11 (SIGSEGV)");
        assert_eq!(
            told(ExitStatus::from_raw(3 << 8), Some("no such file")),
            "the plugin exited with code 3, which nobody asked for: no such file"
        );
    }
}
