//! Dials for a driver while the workers of an agent live on without one, in a task of its own.
//!
//! - The pause between two turns over all addresses grows, and is random, so that the agents of a job whose network is
//!   back do not come all at once. It also grows while a driver refuses the registration.
//! - A turn begins with the address of the last connection. A refusal there, or a driver of another job, shows that the
//!   driver is gone. Elsewhere it shows nothing: other addresses may belong to other machines, or lead nowhere from here.
//! - A connection that is reached is handed to the loop, which registers over it. The loop closes the old connection
//!   before that: otherwise the new one could overtake bytes that wait in the old one.

use std::{io, iter, net::SocketAddr, sync::Arc, time::Duration};

use elasticrun_protocol::HostId;
use tokio::{sync::mpsc, task::JoinSet, time::sleep};

use crate::{
    AgentOptions, Error,
    connect::{self, Joined, Reached, Registration, is_other_job},
    error::PeerError,
    inbox::InboxMessage,
    keys::{Keyring, Keys},
};

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A result of the task, for the loop.
#[derive(Debug)]
pub(crate) enum Dialled {
    /// No address has led to a driver.
    Failed {
        /// The address of the last connection has refused another one, or is that of another job by now.
        refused: bool,
    },
    /// A driver has proved itself, and waits for a registration.
    Reached(Box<Reached>),
    /// The driver has answered the registration.
    Answered(Box<Joined>),
    /// The registration has failed.
    Unanswered(Error),
}

/// The task, if one runs.
#[derive(Debug)]
pub(crate) struct Redial {
    options: AgentOptions,
    keys: Arc<Keys>,
    host: HostId,
    inbox: mpsc::Sender<InboxMessage>,
    task: JoinSet<()>,
    /// The pause before the first turn of the next dial.
    pause: Duration,
}

impl Redial {
    pub(crate) fn new(
        options: AgentOptions,
        keys: Arc<Keys>,
        host: HostId,
        inbox: mpsc::Sender<InboxMessage>,
    ) -> Self {
        Self {
            options,
            keys,
            host,
            inbox,
            task: JoinSet::new(),
            pause: FIRST_PAUSE,
        }
    }

    /// Begins to dial, unless a dial or a registration is under way. `driver` is the address of the last connection.
    pub(crate) fn begin(&mut self, driver: SocketAddr) {
        while self.task.try_join_next().is_some() {}
        if self.task.is_empty() {
            let dial = Dial {
                candidates: self.options.driver.clone(),
                // The agent has a certificate of its run, and a token would not lead back to that run.
                keyring: Keyring::issued(self.keys.clone()),
                host: self.host.clone(),
                inbox: self.inbox.clone(),
            };
            self.task.spawn(dial.run(driver, self.pause));
        }
    }

    /// Ends the dial or the registration that is under way. The next one begins without a long pause.
    pub(crate) fn stop(&mut self) {
        self.task = JoinSet::new();
        self.pause = FIRST_PAUSE;
    }

    /// Registers over a connection that was reached.
    pub(crate) fn register(&mut self, reached: Reached, registration: Registration) {
        let (options, host) = (self.options.clone(), self.host.clone());
        let inbox = self.inbox.clone();
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        self.task.spawn(async move {
            let answer = match reached.join(&options, &host, registration).await {
                Ok(joined) => Dialled::Answered(Box::new(joined)),
                Err(error) => Dialled::Unanswered(error),
            };
            // Fails only at the agent's own end.
            let _ = inbox.send(InboxMessage::Dialled(answer)).await;
        });
    }
}

/// What a dial needs.
struct Dial {
    candidates: Vec<String>,
    keyring: Keyring,
    host: HostId,
    inbox: mpsc::Sender<InboxMessage>,
}

impl Dial {
    /// Dials until a driver is reached, or the agent ends.
    async fn run(mut self, driver: SocketAddr, mut pause: Duration) {
        let last = driver.to_string();
        loop {
            sleep(jitter(pause)).await;
            let mut refused = false;
            let others = (self.candidates.iter()).filter(|candidate| **candidate != last);
            for candidate in iter::once(&last).chain(others) {
                match connect::reach_one(candidate, &self.host, &mut self.keyring).await {
                    Ok(reached) => {
                        let reached = Dialled::Reached(Box::new(reached));
                        let _ = self.inbox.send(InboxMessage::Dialled(reached)).await;
                        return;
                    }
                    Err(error) => {
                        tracing::debug!(address = %candidate, %error, "cannot reach the driver there");
                        let is_gone = is_refusal(&error) || is_other_job(&error);
                        refused |= *candidate == last && is_gone;
                    }
                }
            }
            let failed = InboxMessage::Dialled(Dialled::Failed { refused });
            if self.inbox.send(failed).await.is_err() {
                return;
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

fn is_refusal(error: &PeerError) -> bool {
    matches!(error, PeerError::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused)
}

/// A random time between half of a pause and the whole.
fn jitter(pause: Duration) -> Duration {
    let share = getrandom::u32().map_or(1.0, |random| f64::from(random) / f64::from(u32::MAX));
    pause.mul_f64((1.0 + share) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_never_longer_than_it_says_and_never_shorter_than_half() {
        for _ in 0..1000 {
            let pause = jitter(FIRST_PAUSE);
            assert!(
                (FIRST_PAUSE / 2..=FIRST_PAUSE).contains(&pause),
                "{pause:?}"
            );
        }
    }
}
