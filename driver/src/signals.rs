//! Signals of the user. SIGINT, SIGTERM, SIGHUP and SIGQUIT end the job in order. The end of the embedder counts as SIGHUP.
//!
//! - A signal that is ignored when the driver starts stays ignored, as SIGHUP under `nohup` and SIGINT in the background of
//!   a script. Except SIGTERM, which no launcher ignores by mistake.
//! - SIGXFSZ does nothing, so that a write beyond the file size limit of the user (`ulimit -f`) is an error, and not the end of
//!   the job. Agents and workers start with its default.
//! - SIGUSR1 and SIGUSR2 do nothing. Their default would kill the driver. Slurm sends them to agents (docs/draining.md).

use std::{future::pending, io, mem::MaybeUninit};

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

/// The signals of the user. Once this exists, they do not end the process.
#[derive(Debug)]
pub struct Signals {
    /// `None` if it is ignored.
    interrupt: Option<Signal>,
    terminate: Signal,
    hangup: Option<Signal>,
    quit: Option<Signal>,
    user_1: Option<Signal>,
    user_2: Option<Signal>,
    embedder_gone: CancellationToken,
    /// SIGHUPs of the embedder's end that are not yet reported.
    hangups_left: u32,
}

impl Signals {
    /// Installs the handlers.
    ///
    /// # Errors
    /// The system refuses a handler.
    pub fn listen() -> io::Result<Self> {
        // The handler stays when this is dropped.
        drop(signal(SignalKind::from_raw(libc::SIGXFSZ))?);
        Ok(Self {
            interrupt: unless_ignored(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: unless_ignored(SignalKind::hangup())?,
            quit: unless_ignored(SignalKind::quit())?,
            user_1: unless_ignored(SignalKind::user_defined1())?,
            user_2: unless_ignored(SignalKind::user_defined2())?,
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
        use UserSignal::{ForAgents, Stop};
        tokio::select! {
            () = received(&mut self.interrupt) => Stop(libc::SIGINT),
            _ = self.terminate.recv() => Stop(libc::SIGTERM),
            () = received(&mut self.hangup) => Stop(libc::SIGHUP),
            () = received(&mut self.quit) => Stop(libc::SIGQUIT),
            () = received(&mut self.user_1) => ForAgents(libc::SIGUSR1),
            () = received(&mut self.user_2) => ForAgents(libc::SIGUSR2),
            () = self.embedder_gone.cancelled(), if self.hangups_left > 0 => {
                self.hangups_left -= 1;
                Stop(libc::SIGHUP)
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

/// The handler of a signal, unless the signal is ignored.
fn unless_ignored(kind: SignalKind) -> io::Result<Option<Signal>> {
    let ignored = is_ignored(kind.as_raw_value())?;
    (!ignored).then(|| signal(kind)).transpose()
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

async fn received(signal: &mut Option<Signal>) {
    match signal {
        // `None` is never given: the handler outlives the process.
        Some(signal) => drop(signal.recv().await),
        None => pending().await,
    }
}
