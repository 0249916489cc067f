//! Dials for a driver while the workers of an agent live on without one, in a task of its own.
//!
//! - The pause between two turns over all addresses grows, and is random, so that the agents of a job whose network is
//!   back do not come all at once. It also grows while a driver refuses the registration.
//! - A turn begins with the address of the last connection. A refusal there, or a driver of another job, shows that the
//!   driver is gone. Elsewhere it shows nothing: other addresses may belong to other machines, or lead nowhere from here.
//! - The standby drivers that the last driver has named are dialled at the same time, since a driver that stands still takes its
//!   whole time to be silent. They open their ports when they take over. So they are also dialled while the last driver is silent and its
//!   machine answers, until that driver is heard again: it may have been replaced.
//! - A file may have further addresses, which another program writes that knows where the driver is.
//! - A connection that is reached is handed to the loop, which registers over it. The loop closes the old connection
//!   before that: otherwise the new one could overtake bytes that wait in the old one.

use std::{io, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use elasticrun_protocol::HostId;
use tokio::{sync::mpsc, task::JoinSet, time::sleep};

use crate::{
    AgentOptions, Error,
    connect::{self, Joined, Reached, Registration, is_other_job},
    error::PeerError,
    inbox::InboxMessage,
    keys::{Keyring, Keys},
    options::addresses_in,
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
    /// So has a standby driver, which has taken over from a silent one.
    ReachedStandby(Box<Reached>),
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
    /// Where the last driver knew standby drivers.
    standbys: Vec<String>,
    /// The task that dials standby drivers alone, if one runs.
    seeking: JoinSet<()>,
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
            standbys: Vec::new(),
            seeking: JoinSet::new(),
            pause: FIRST_PAUSE,
        }
    }

    /// Learns from the driver where standby drivers are, for the next dial.
    pub(crate) fn learn(&mut self, standbys: Vec<String>) {
        self.standbys = standbys;
        self.seeking = JoinSet::new();
    }

    /// Dials standby drivers, until the driver is heard again.
    pub(crate) fn seek_standbys(&mut self) {
        while self.seeking.try_join_next().is_some() {}
        if self.seeking.is_empty() && !self.standbys.is_empty() {
            let dial = Dial {
                first: self.standbys.clone(),
                others: Vec::new(),
                file: None,
                keys: self.keys.clone(),
                host: self.host.clone(),
                inbox: self.inbox.clone(),
            };
            self.seeking.spawn(dial.seek());
        }
    }

    /// Begins to dial, unless a dial or a registration is under way. `driver` is the address of the last connection.
    pub(crate) fn begin(&mut self, driver: SocketAddr) {
        self.seeking = JoinSet::new();
        while self.task.try_join_next().is_some() {}
        if self.task.is_empty() {
            let first = [&[driver.to_string()], &self.standbys[..]].concat();
            let dial = Dial {
                others: once(self.options.driver.clone(), &first),
                file: self.options.driver_file.clone(),
                first: once(first, &[]),
                keys: self.keys.clone(),
                host: self.host.clone(),
                inbox: self.inbox.clone(),
            };
            self.task.spawn(dial.run(self.pause));
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

/// These addresses, each once, without those of another list.
pub(crate) fn once(addresses: impl IntoIterator<Item = String>, without: &[String]) -> Vec<String> {
    let mut all = Vec::new();
    for address in addresses {
        if !all.contains(&address) && !without.contains(&address) {
            all.push(address);
        }
    }
    all
}

/// What a dial needs.
struct Dial {
    /// The address of the last connection, then those of standby drivers. They are dialled together.
    first: Vec<String>,
    /// All other addresses. They are dialled in turn.
    others: Vec<String>,
    /// Has newer addresses, which are dialled before those.
    file: Option<PathBuf>,
    keys: Arc<Keys>,
    host: HostId,
    inbox: mpsc::Sender<InboxMessage>,
}

impl Dial {
    /// Dials until a driver is reached, or the agent ends.
    async fn run(self, mut pause: Duration) {
        loop {
            sleep(jitter(pause)).await;
            let dialled = match self.dial_first().await {
                Ok(reached) => Ok(reached),
                Err(refused) => self.dial_others().await.ok_or(refused),
            };
            let message = match dialled {
                Ok(reached) => Dialled::Reached(Box::new(reached)),
                Err(refused) => Dialled::Failed { refused },
            };
            let is_reached = matches!(message, Dialled::Reached(_));
            let sent = self.inbox.send(InboxMessage::Dialled(message)).await;
            if is_reached || sent.is_err() {
                return;
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Dials the first addresses, which are those of standby drivers, until one is reached or the agent ends.
    async fn seek(self) {
        let mut pause = FIRST_PAUSE;
        loop {
            sleep(jitter(pause)).await;
            if let Ok(reached) = self.dial_first().await {
                let reached = Dialled::ReachedStandby(Box::new(reached));
                // Fails only at the agent's own end.
                let _ = self.inbox.send(InboxMessage::Dialled(reached)).await;
                return;
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Dials the first addresses together. Fails with whether that of the last connection has refused.
    async fn dial_first(&self) -> Result<Reached, bool> {
        let mut dials = JoinSet::new();
        for (index, candidate) in self.first.iter().enumerate() {
            let dial = dial(candidate.clone(), self.host.clone(), self.keys.clone());
            dials.spawn(async move { (index, dial.await) });
        }
        let mut refused = false;
        while let Some(dialled) = dials.join_next().await {
            match dialled {
                Ok((_, Ok(reached))) => return Ok(reached),
                Ok((0, Err(error))) => refused = is_refusal(&error) || is_other_job(&error),
                Ok((_, Err(_))) => {}
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            }
        }
        Err(refused)
    }

    async fn dial_others(&self) -> Option<Reached> {
        let newer = once(addresses_in(self.file.as_deref()), &self.first);
        let older = self.others.iter().filter(|other| !newer.contains(other));
        for candidate in newer.iter().chain(older) {
            let dialled = dial(candidate.clone(), self.host.clone(), self.keys.clone());
            if let Ok(reached) = dialled.await {
                return Some(reached);
            }
        }
        None
    }
}

/// Dials an address. The agent has a certificate of its run, and a token would not lead back to that run.
async fn dial(candidate: String, host: HostId, keys: Arc<Keys>) -> Result<Reached, PeerError> {
    let mut keyring = Keyring::issued(keys);
    let reached = connect::reach_one(&candidate, &host, &mut keyring).await;
    reached.inspect_err(|error| {
        tracing::debug!(address = %candidate, %error, "cannot reach the driver there");
    })
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
    fn each_address_of_a_turn_is_dialled_once() {
        let all = ["a:1", "b:1", "a:1", "c:1"].map(str::to_owned).to_vec();
        assert_eq!(once(all.clone(), &[]), ["a:1", "b:1", "c:1"]);
        assert_eq!(once(all, &["b:1".to_owned()]), ["a:1", "c:1"]);
    }

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
