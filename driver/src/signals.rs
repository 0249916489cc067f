//! Signals that end the driver: SIGINT, SIGTERM, SIGHUP. The end of the embedder counts as SIGHUP.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// How many SIGHUPs the end of the embedder stands for. The second one kills, since there is no time for an orderly end.
const HANGUPS: u32 = 2;

/// The signals of the user. Once this exists, they do not end the process.
#[derive(Debug)]
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
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
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
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

    /// The number of the next signal. Cancel-safe.
    pub async fn next(&mut self) -> i32 {
        tokio::select! {
            _ = self.interrupt.recv() => libc::SIGINT,
            _ = self.terminate.recv() => libc::SIGTERM,
            _ = self.hangup.recv() => libc::SIGHUP,
            () = self.embedder_gone.cancelled(), if self.hangups_left > 0 => {
                self.hangups_left -= 1;
                libc::SIGHUP
            }
        }
    }
}
