//! The processes of a node: an agent and a driver. Each is started again after a pause when it dies.

use std::{
    ffi::OsString,
    io,
    os::unix::process::ExitStatusExt as _,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::{
    process::Command,
    time::{Instant, timeout},
};

use crate::supervise::restarts::Restarts;

/// The pause between two starts of a process that has died too often in a row.
const RARE: Duration = Duration::from_mins(1);

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    /// By itself.
    Code(u8),
    /// By this signal.
    Signal(i32),
}

impl Fate {
    pub(super) fn of(status: ExitStatus) -> Self {
        match status.code().and_then(|code| u8::try_from(code).ok()) {
            Some(code) => Self::Code(code),
            None => Self::Signal(status.signal().unwrap_or(libc::SIGKILL)),
        }
    }
}

/// A process, or the pause before its next start.
#[derive(Debug, Default)]
pub(super) struct Child {
    process: Option<tokio::process::Child>,
    started: Option<Instant>,
    restarts: Restarts,
    paused_until: Option<Instant>,
}

impl Child {
    /// Starts this program with other words, in a process group of its own: signals of the terminal are for the node.
    ///
    /// # Errors
    /// The system starts no process.
    pub(super) fn start(&mut self, words: &[OsString]) -> io::Result<()> {
        let mut command = Command::new("/proc/self/exe");
        command
            .args(words)
            .stdin(Stdio::null())
            .process_group(0)
            .kill_on_drop(false);
        self.process = Some(command.spawn()?);
        (self.started, self.paused_until) = (Some(Instant::now()), None);
        Ok(())
    }

    /// Whether it runs.
    pub(super) fn runs(&self) -> bool {
        self.process.is_some()
    }

    /// Whether it does not run, and no pause is left.
    pub(super) fn may_start(&self) -> bool {
        !self.runs()
            && self
                .paused_until
                .is_none_or(|until| until <= Instant::now())
    }

    pub(super) fn paused_until(&self) -> Option<Instant> {
        self.paused_until.filter(|_| !self.runs())
    }

    /// Waits for its end; for ever if it does not run. Cancel-safe.
    pub(super) async fn ended(&mut self) -> ExitStatus {
        let Some(process) = &mut self.process else {
            return std::future::pending().await;
        };
        let status = process.wait().await;
        self.process = None;
        // Nobody else waits for it, so the system gives its status.
        status.unwrap_or_default()
    }

    /// Waits for its end, at most this long.
    pub(super) async fn wait(&mut self, limit: Duration) {
        if self.runs() {
            let _ = timeout(limit, self.ended()).await;
        }
    }

    /// Waits for its end, and kills it when the time is over.
    pub(super) async fn end_within(&mut self, limit: Duration) {
        self.wait(limit).await;
        self.signal(Signal::SIGKILL);
        self.wait(limit).await;
    }

    /// Sends a signal if it runs.
    pub(super) fn signal(&self, signal: Signal) {
        let id = self.process.as_ref().and_then(tokio::process::Child::id);
        if let Some(id) = id {
            // It may have ended.
            let _ = kill(Pid::from_raw(id.cast_signed()), signal);
        }
    }

    /// Sends the signal of this number if it runs.
    pub(super) fn signal_number(&self, number: i32) {
        if let Ok(signal) = Signal::try_from(number) {
            self.signal(signal);
        }
    }

    /// Begins the pause before the next start, after the end of a process. Returns whether another start is worth while.
    pub(super) fn pause(&mut self) -> bool {
        let now = Instant::now();
        let lived = self.started.map_or(Duration::ZERO, |started| now - started);
        let pause = self.restarts.next(lived);
        self.paused_until = Some(now + pause.unwrap_or(RARE));
        pause.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_ends_at_once_is_started_rarely_in_the_end() {
        let mut child = Child::default();
        let until = Instant::now() + RARE;
        while child.pause() {
            assert!(!child.may_start() && child.paused_until() < Some(until));
        }
        assert!(child.paused_until() >= Some(until));
    }

    #[test]
    fn a_status_is_a_code_or_a_signal() {
        assert_eq!(Fate::of(ExitStatus::from_raw(7 << 8)), Fate::Code(7));
        assert_eq!(Fate::of(ExitStatus::from_raw(9)), Fate::Signal(9));
    }
}
