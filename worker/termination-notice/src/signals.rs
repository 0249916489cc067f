//! SIGUSR1 to the agent is a notice. Slurm can be configured to send it before the end of an allocation.

use elasticrun_protocol::{Notice, NoticeKind};
use tokio::signal::unix::{SignalKind, signal};

use crate::sender::Sender;

/// Waits for signals until the task is aborted.
pub(crate) async fn watch(sender: Sender) {
    let mut signals = match signal(SignalKind::user_defined1()) {
        Ok(signals) => signals,
        Err(error) => {
            tracing::warn!(%error, "SIGUSR1 cannot be handled: it is no notice");
            return;
        }
    };
    while signals.recv().await.is_some() {
        let kind = NoticeKind::Signal;
        sender.send(Notice { kind, within: None }).await;
    }
}
