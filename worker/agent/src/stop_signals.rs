//! The signals that end an agent.

use std::{
    future::poll_fn,
    task::{Context, Poll},
};

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::Error;

/// The handlers of the signals that end an agent ([`AgentOptions::stop_signals`](crate::AgentOptions::stop_signals)).
pub(crate) struct StopSignals(Vec<Signal>);

impl StopSignals {
    /// Handles these signals.
    ///
    /// # Errors
    /// The system refuses a handler.
    pub(crate) fn listen(numbers: &[i32]) -> Result<Self, Error> {
        let listen = |number: &i32| signal(SignalKind::from_raw(*number));
        let signals: Result<_, _> = numbers.iter().map(listen).collect();
        signals.map(Self).map_err(Error::system("handle signals"))
    }

    /// Waits for a signal. Cancel-safe.
    pub(crate) async fn next(&mut self) {
        poll_fn(|cx| self.poll_next(cx)).await;
    }

    /// Ready when a signal has come.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut signals = self.0.iter_mut();
        match signals.any(|signal| signal.poll_recv(cx).is_ready()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }
}
