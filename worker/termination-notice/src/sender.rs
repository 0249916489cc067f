//! The channel from the sources to the agent.

use elasticrun_protocol::Notice;
use tokio::sync::mpsc;

/// Notices that may wait for the receiver.
const CAPACITY: usize = 16;

/// A channel for the notices of all sources.
pub(crate) fn channel() -> (Sender, mpsc::Receiver<Notice>) {
    let (sender, receiver) = mpsc::channel(CAPACITY);
    (Sender(sender), receiver)
}

/// Sends notices of a source.
#[derive(Clone, Debug)]
pub(crate) struct Sender(mpsc::Sender<Notice>);

impl Sender {
    pub(crate) fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    pub(crate) async fn send(&self, notice: Notice) {
        // Fails only at the agent's end, when the receiver is gone.
        let _ = self.0.send(notice).await;
    }
}
