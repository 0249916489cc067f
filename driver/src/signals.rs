//! Signals of the user. SIGINT, SIGTERM, SIGHUP and SIGQUIT end the job in order, unless the user chooses others
//! ([`StopSignals`]). The end of the embedder counts as SIGHUP.
//!
//! - A signal that is ignored when the driver starts stays ignored, as SIGHUP under `nohup` and SIGINT in the background of
//!   a script. Except SIGTERM, which no launcher ignores by mistake.
//! - SIGXFSZ does nothing, so that a write beyond the file size limit of the user (`ulimit -f`) is an error, and not the end of
//!   the job. Agents and workers start with its default.
//! - SIGUSR1 and SIGUSR2 do nothing unless they are chosen. Their default would kill the driver. Slurm sends them to agents (docs/draining.md).

use std::{future::poll_fn, io, mem::MaybeUninit, task::Poll};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// How many SIGHUPs the end of the embedder stands for. The second one kills, since there is no time for an orderly end.
const HANGUPS: u32 = 2;

/// What a signal means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UserSignal {
    /// The job ends, by the signal of this number.
    Stop(i32),
    /// Nothing: the signal of this number is for agents.
    ForAgents(i32),
}

/// The signals that end a job, or a node of one, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StopSignals(Vec<i32>);

/// The signals that may end a job, with their names.
const NAMES: [(&str, i32); 6] = [
    ("SIGTERM", libc::SIGTERM),
    ("SIGINT", libc::SIGINT),
    ("SIGHUP", libc::SIGHUP),
    ("SIGQUIT", libc::SIGQUIT),
    ("SIGUSR1", libc::SIGUSR1),
    ("SIGUSR2", libc::SIGUSR2),
];

impl Default for StopSignals {
    /// Those of a driver.
    fn default() -> Self {
        Self(NAMES[..4].iter().map(|(_, number)| *number).collect())
    }
}

impl StopSignals {
    /// Those of an agent. It may be in the foreground of a terminal.
    #[must_use]
    pub fn of_agent(in_foreground: bool) -> Self {
        let mut numbers = vec![libc::SIGTERM];
        numbers.extend(in_foreground.then_some(libc::SIGINT));
        Self(numbers)
    }

    /// Reads names such as `SIGTERM,SIGINT`. `None` if one of them is no signal that may end a job.
    #[must_use]
    pub fn parse(names: &str) -> Option<Self> {
        let number = |name: &str| {
            let found = NAMES.iter().find(|(known, _)| *known == name.trim());
            found.map(|(_, number)| *number)
        };
        names
            .split(',')
            .map(number)
            .collect::<Option<_>>()
            .map(Self)
    }

    /// Whether the signal of this number is one of them.
    #[must_use]
    pub fn contains(&self, number: i32) -> bool {
        self.0.contains(&number)
    }

    /// The numbers of those that this process does not ignore. An ignored SIGTERM is among them, since no launcher ignores it on
    /// purpose.
    ///
    /// # Errors
    /// The system does not tell which ones are ignored.
    pub fn to_handle(&self) -> io::Result<Vec<i32>> {
        let mut numbers = Vec::new();
        for number in &self.0 {
            if *number == libc::SIGTERM || !is_ignored(*number)? {
                numbers.push(*number);
            }
        }
        Ok(numbers)
    }
}

/// The signals of the user. Once this exists, they do not end the process.
#[derive(Debug)]
pub struct Signals {
    /// Those that are not ignored.
    handlers: Vec<(UserSignal, Signal)>,
    embedder_gone: CancellationToken,
    /// SIGHUPs of the embedder's end that are not yet reported.
    hangups_left: u32,
}

impl Signals {
    /// Installs the handlers. Signals that are neither in `stop` nor for agents keep their action.
    ///
    /// # Errors
    /// The system refuses a handler.
    pub fn listen(stop: &StopSignals) -> io::Result<Self> {
        // The handler stays when this is dropped.
        drop(signal(SignalKind::from_raw(libc::SIGXFSZ))?);
        let mut all: Vec<_> = stop
            .to_handle()?
            .into_iter()
            .map(UserSignal::Stop)
            .collect();
        for number in [libc::SIGUSR1, libc::SIGUSR2] {
            if !stop.contains(number) && !is_ignored(number)? {
                all.push(UserSignal::ForAgents(number));
            }
        }
        let mut handlers = Vec::new();
        for what in all {
            let (UserSignal::Stop(number) | UserSignal::ForAgents(number)) = what;
            handlers.push((what, signal(SignalKind::from_raw(number))?));
        }
        Ok(Self {
            handlers,
            embedder_gone: CancellationToken::new(),
            hangups_left: HANGUPS,
        })
    }

    /// Also reports the end of the embedder.
    #[must_use]
    pub fn with_embedder(self, gone: CancellationToken) -> Self {
        Self {
            embedder_gone: gone,
            ..self
        }
    }

    /// The next signal. Cancel-safe.
    pub async fn next(&mut self) -> UserSignal {
        let handlers = &mut self.handlers;
        let received = poll_fn(|cx| {
            let mut ready = handlers
                .iter_mut()
                .filter_map(|(what, signal)| signal.poll_recv(cx).is_ready().then_some(*what));
            ready.next().map_or(Poll::Pending, Poll::Ready)
        });
        tokio::select! {
            what = received => what,
            () = self.embedder_gone.cancelled(), if self.hangups_left > 0 => {
                self.hangups_left -= 1;
                UserSignal::Stop(libc::SIGHUP)
            }
        }
    }

    /// Waits for a signal that ends the job, and gives its number. Cancel-safe.
    pub async fn stop(&mut self) -> i32 {
        loop {
            if let UserSignal::Stop(number) = self.next().await {
                return number;
            }
        }
    }
}

/// Whether this process ignores a signal.
pub(crate) fn is_ignored(number: i32) -> io::Result<bool> {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: without a new action the call only fills the old one, for which there is room.
    if unsafe { libc::sigaction(number, std::ptr::null(), action.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has filled it.
    let action = unsafe { action.assume_init() };
    Ok(action.sa_sigaction == libc::SIG_IGN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_read_by_name() {
        let two = StopSignals::parse("SIGTERM, SIGUSR2").expect("two signals");
        assert!(two.contains(libc::SIGTERM) && two.contains(libc::SIGUSR2));
        assert!(!two.contains(libc::SIGINT));
        let all = StopSignals::parse("SIGTERM,SIGINT,SIGHUP,SIGQUIT");
        assert_eq!(all, Some(StopSignals::default()));
        for wrong in ["", "TERM", "SIGKILL", "SIGTERM,", "15"] {
            assert_eq!(StopSignals::parse(wrong), None, "{wrong}");
        }
    }
}
