//! The inputs of the run loop, and how those that come together are taken together.

use std::future::pending;

use elasticrun_core::Event;
use tokio::{sync::mpsc, task::yield_now};

use crate::{admin_socket, control, journal::Notice, launch, signals::Signals};

/// Inputs of agents, or ends of launches, that the job receives before it plans.
pub(crate) const BATCH: usize = 4096;

/// The inputs of the loop.
#[derive(Debug)]
pub struct Inputs {
    /// Messages of agents.
    pub control: mpsc::Receiver<control::Input>,
    /// Launches that ended.
    pub launches: mpsc::Receiver<launch::Ended>,
    /// Answers of sources.
    pub discovery: mpsc::Receiver<Event>,
    /// Requests to the admin socket.
    pub admin: mpsc::Receiver<admin_socket::AdminRequest>,
    /// Signals of the user.
    pub signals: Signals,
    /// Whether the journal can be written, if there is one.
    pub journal: Option<mpsc::Receiver<Notice>>,
}

/// Waits for a notice of the journal. Gives nothing once no more can come, and does not end without a journal. Cancel-safe.
pub(crate) async fn notified(journal: &mut Option<mpsc::Receiver<Notice>>) -> Option<Notice> {
    match journal {
        Some(notices) => notices.recv().await,
        None => pending().await,
    }
}

/// Waits for inputs of agents and takes what is there. Gives nothing once no more can come. Cancel-safe: what was taken is in
/// `batch`.
///
/// If an agent is lost, further losses are taken that the system reports by now: the tasks of the connections see the loss of
/// many hosts one after the other, and the job plans once for all of them.
pub(crate) async fn received(
    control: &mut mpsc::Receiver<control::Input>,
    batch: &mut Vec<control::Input>,
) -> Option<()> {
    if batch.is_empty() && control.recv_many(batch, BATCH).await == 0 {
        return None;
    }
    let is_lost = |input: &control::Input| matches!(input, control::Input::Lost { .. });
    let mut seen = 0;
    while batch.len() < BATCH && batch[seen..].iter().any(is_lost) {
        seen = batch.len();
        // The runtime polls the sockets before it comes back here.
        yield_now().await;
        take_arrived(control, batch);
    }
    Some(())
}

/// Takes the inputs that have arrived.
pub(crate) fn take_arrived(
    control: &mut mpsc::Receiver<control::Input>,
    batch: &mut Vec<control::Input>,
) {
    while batch.len() < BATCH
        && let Ok(input) = control.try_recv()
    {
        batch.push(input);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(host: &str) -> control::Input {
        control::Input::Lost {
            host: host.into(),
            instance: 1,
            why: "gone".into(),
        }
    }

    #[tokio::test]
    async fn losses_that_are_seen_one_after_the_other_are_one_batch() {
        let (control_in, mut control) = mpsc::channel(8);
        for turns in 0..3 {
            let control = control_in.clone();
            tokio::spawn(async move {
                for _ in 0..turns {
                    yield_now().await;
                }
                control.send(lost("a")).await
            });
        }
        let mut batch = Vec::new();
        received(&mut control, &mut batch).await;
        assert_eq!(batch.len(), 3);
    }
}
