//! The end of a plugin's process: waits for it with a timeout, enforces it, and describes it.

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

/// A process in its own group that is not reaped.
#[derive(Debug)]
pub(super) struct Process {
    /// The leader of the group, which ends with the status of the plugin.
    child: Child,
    /// A pidfd: readable after the end of the process.
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

    /// A descriptor that is readable after its end.
    pub(super) fn ended(&self) -> io::Result<OwnedFd> {
        self.ended.try_clone()
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for its end. Returns whether it ended within `time`.
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

    /// Kills its process group and reaps it. The id of the group is that of the process, which the kernel does not reuse
    /// before it is reaped. So no other process can be hit.
    pub(super) fn end(mut self) -> io::Result<ExitStatus> {
        // Fails only if the group is empty.
        let _ = killpg(Pid::from_raw(self.child.id() as i32), Signal::SIGKILL);
        self.child.wait()
    }
}

fn pidfd(child: &Child) -> io::Result<OwnedFd> {
    // SAFETY: no pointers. The process is an unreaped child, so the id is its own.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, child.id() as libc::pid_t, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just created it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// How the process ended, with its last output.
pub(super) fn describe(status: ExitStatus, last_line: Option<&str>) -> String {
    let how = match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with code {code}, which nobody asked for"),
        (None, Some(number)) => match Signal::try_from(number) {
            Ok(signal) => format!("was killed by signal {number} ({signal})"),
            Err(_) => format!("was killed by signal {number}"),
        },
        (None, None) => "ended".to_owned(),
    };
    match last_line {
        Some(line) => format!("the plugin {how}: {line}"),
        None => format!("the plugin {how}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_has_a_cause_and_the_last_output() {
        let end = |raw: i32| describe(ExitStatus::from_raw(raw), None);
        assert_eq!(
            end(0),
            "the plugin exited with code 0, which nobody asked for"
        );
        assert_eq!(end(11), "the plugin was killed by signal 11 (SIGSEGV)");
        assert_eq!(
            describe(ExitStatus::from_raw(3 << 8), Some("no such file")),
            "the plugin exited with code 3, which nobody asked for: no such file"
        );
    }
}
