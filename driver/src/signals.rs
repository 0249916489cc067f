//! What tells the driver to end: SIGINT, SIGTERM, SIGHUP, and the end of the program that lends it hosts, as a SIGHUP.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// How often the end of the parent is told: the second time kills, since there is no time to end in good order.
const TOLD: u32 = 2;

/// The signals of the user. From its making on they do not end the process.
#[derive(Debug)]
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
    parent_gone: CancellationToken,
    /// How often the end of the parent is still to be told.
    untold: u32,
}

impl Signals {
    /// Begins to listen.
    ///
    /// # Errors
    /// When the system refuses a handler.
    pub fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
            parent_gone: CancellationToken::new(),
            untold: TOLD,
        })
    }

    /// Says when the program that lends the hosts is gone.
    #[must_use]
    pub fn with_parent(self, gone: CancellationToken) -> Self {
        Self {
            parent_gone: gone,
            ..self
        }
    }

    /// The number of the next one. Cancel-safe.
    pub async fn next(&mut self) -> i32 {
        tokio::select! {
            _ = self.interrupt.recv() => libc::SIGINT,
            _ = self.terminate.recv() => libc::SIGTERM,
            _ = self.hangup.recv() => libc::SIGHUP,
            () = self.parent_gone.cancelled(), if self.untold > 0 => {
                self.untold -= 1;
                libc::SIGHUP
            }
        }
    }
}
