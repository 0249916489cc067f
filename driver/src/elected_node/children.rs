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

/// A process that lives for so long has worked.
const WORKED: Duration = Duration::from_secs(10);

const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Starts in a row of processes that die before they have worked: about half a minute.
const LIMIT: u32 = 18;

/// The pause after that many.
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

/// Whether a process may be started once more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Restarts {
    Left,
    Exhausted,
}

/// A process, or the pause before its next start.
#[derive(Debug, Default)]
pub(super) struct Child {
    process: Option<tokio::process::Child>,
    started: Option<Instant>,
    /// Processes in a row that have not worked.
    failures: u32,
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

    /// Begins the pause before the next start. It grows while the process does not work.
    pub(super) fn pause(&mut self) {
        self.pause_at(Instant::now());
    }

    fn pause_at(&mut self, now: Instant) {
        let worked = self.started.is_some_and(|started| now - started >= WORKED);
        self.failures = if worked { 1 } else { self.failures + 1 };
        let pause = FIRST_PAUSE * 2_u32.saturating_pow(self.failures - 1).min(100);
        let pause = match self.restarts() {
            Restarts::Left => pause.min(LONGEST_PAUSE),
            Restarts::Exhausted => RARE,
        };
        self.paused_until = Some(now + pause);
    }

    /// Whether another start is worth while.
    pub(super) fn restarts(&self) -> Restarts {
        match self.failures < LIMIT {
            true => Restarts::Left,
            false => Restarts::Exhausted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_until_a_process_has_worked() {
        let mut child = Child::default();
        let mut pauses = Vec::new();
        let mut now = Instant::now();
        for _ in 0..LIMIT {
            assert_eq!(child.restarts(), Restarts::Left);
            child.started = Some(now);
            child.pause_at(now);
            let until = child.paused_until().expect("a pause");
            pauses.push((until - now).as_millis());
            now = until;
        }
        assert_eq!(pauses[..6], [200, 400, 800, 1600, 2000, 2000]);
        assert_eq!(child.restarts(), Restarts::Exhausted);
        child.started = Some(now);
        child.pause_at(now + WORKED);
        assert_eq!(child.restarts(), Restarts::Left);
    }

    #[test]
    fn a_status_is_a_code_or_a_signal() {
        assert_eq!(Fate::of(ExitStatus::from_raw(7 << 8)), Fate::Code(7));
        assert_eq!(Fate::of(ExitStatus::from_raw(9)), Fate::Signal(9));
    }
}
