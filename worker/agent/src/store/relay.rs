//! Between the workers of this host and the driver's store.
//!
//! A seam for a driver that comes back: requests that have no answer are known here by worker and number, and
//! [`Relay::lose_driver`] is the one place where they are given up.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::pending,
    net::SocketAddr,
    os::unix::net::UnixStream,
    time::Duration,
};

use elasticrun_protocol::{
    Process,
    auth::Purpose,
    store::{Answer, FromClient, FromHost, Refused, StoreOf, ToHost},
};
use tokio::{net::TcpStream, sync::mpsc, time::Instant};

use super::{
    Order,
    duplex::Duplex,
    guest::{Guest, Said},
};
use crate::{AgentOptions, connect, error::PeerError};

/// Requests that may wait for the relay; those behind wait in their workers' sockets.
const REQUESTS: usize = 64;

/// After a dial that failed, requests are refused without another one for so long.
const PAUSE: Duration = Duration::from_secs(1);

/// The connection to the driver.
#[derive(Debug)]
enum Line {
    Up(Box<Duplex<TcpStream>>),
    Down {
        why: String,
        /// None if the driver is lost.
        dial_again: Option<Instant>,
    },
}

/// See the module.
#[derive(Debug)]
pub(super) struct Relay {
    options: AgentOptions,
    driver: SocketAddr,
    of: StoreOf,
    line: Line,
    guests: BTreeMap<Process, Guest>,
    /// Number of the last connection of a worker.
    opened: u64,
    /// Requests that the driver has and has not answered.
    unanswered: BTreeSet<(Process, u64)>,
}

impl Relay {
    pub(super) fn new(options: AgentOptions, driver: SocketAddr, of: StoreOf) -> Self {
        Self {
            options,
            driver,
            of,
            line: Line::Down {
                why: String::new(),
                dial_again: Some(Instant::now()),
            },
            guests: BTreeMap::new(),
            opened: 0,
            unanswered: BTreeSet::new(),
        }
    }

    /// Runs until the agent's loop has no more orders.
    pub(super) async fn run(mut self, mut orders: mpsc::UnboundedReceiver<Order>) {
        let (sender, mut said) = mpsc::channel(REQUESTS);
        loop {
            tokio::select! {
                order = orders.recv() => match order {
                    Some(Order::Open(process, stream)) => self.open(process, stream, &sender),
                    Some(Order::Ended(process)) => self.left(process),
                    Some(Order::DriverLost) => self.lose_driver("the driver is lost", None),
                    None => return,
                },
                Some(said) = said.recv(), if self.line.has_room() => self.said(said).await,
                answer = self.line.next() => match answer {
                    Ok(ToHost { process, answer }) => {
                        self.unanswered.remove(&(process, answer.number));
                        self.answer(process, &answer);
                    }
                    Err(error) => {
                        let why = format!("the connection to it ended: {error}");
                        self.lose_driver(&why, Some(Instant::now()));
                    }
                },
            }
        }
    }

    fn open(&mut self, process: Process, stream: UnixStream, said: &mpsc::Sender<Said>) {
        self.left(process);
        self.opened += 1;
        match Guest::serve(process, self.opened, stream, said.clone()) {
            Ok(guest) => {
                self.guests.insert(process, guest);
            }
            Err(error) => tracing::warn!(%process, %error, "a worker's requests cannot be read"),
        }
    }

    async fn said(&mut self, said: Said) {
        let Said {
            process,
            number,
            message,
        } = said;
        // What an older connection said is nobody's any more.
        if self.guests.get(&process).map(|guest| guest.number) != Some(number) {
            return;
        }
        match message {
            FromClient::Ask(request) => {
                let number = request.number;
                if let Err(refused) = self.ask(process, FromClient::Ask(request)).await {
                    let result = Err(refused);
                    self.answer(process, &Answer { number, result });
                } else {
                    self.unanswered.insert((process, number));
                }
            }
            FromClient::Forget { number } => {
                if self.unanswered.remove(&(process, number)) {
                    self.pass_on(process, FromClient::Forget { number });
                }
            }
            FromClient::Left => self.left(process),
        }
    }

    /// Passes a request on, over a new connection if there is none.
    async fn ask(&mut self, process: Process, message: FromClient) -> Result<(), Refused> {
        if let Line::Down { dial_again, why } = &self.line {
            if dial_again.is_none_or(|at| Instant::now() < at) {
                return Err(Refused::Unreachable { why: why.clone() });
            }
            match self.dial().await {
                Ok(line) => self.line = Line::Up(Box::new(line)),
                Err(error) => {
                    let why = format!("no connection to the driver: {error}");
                    tracing::warn!(why, "the store cannot be reached");
                    self.line = Line::Down {
                        why: why.clone(),
                        dial_again: Some(Instant::now() + PAUSE),
                    };
                    return Err(Refused::Unreachable { why });
                }
            }
        }
        let Line::Up(line) = &mut self.line else {
            return Ok(());
        };
        let sent = line.queue(&FromHost { process, message });
        sent.map_err(|error| Refused::Unreachable {
            why: error.to_string(),
        })
    }

    async fn dial(&self) -> Result<Duplex<TcpStream>, PeerError> {
        let (stream, frames) = connect::dial(self.driver, &self.options, Purpose::Store).await?;
        let mut line = Duplex::new(stream, frames);
        line.queue(&self.of)?;
        Ok(line)
    }

    /// For messages that have no answer and are of no use on another connection.
    fn pass_on(&mut self, process: Process, message: FromClient) {
        if let Line::Up(line) = &mut self.line
            && let Err(error) = line.queue(&FromHost { process, message })
        {
            tracing::error!(%process, %error, "the driver's store cannot be told");
        }
    }

    fn answer(&mut self, process: Process, answer: &Answer) {
        let Some(guest) = self.guests.get(&process) else {
            return;
        };
        if !guest.answer(answer) {
            tracing::warn!(%process, "a worker does not read the answers to its requests");
            self.left(process);
        }
    }

    /// All of a worker that is gone, or that has another connection now, is forgotten.
    fn left(&mut self, process: Process) {
        if self.guests.remove(&process).is_some() {
            self.unanswered.retain(|(asker, _)| *asker != process);
            self.pass_on(process, FromClient::Left);
        }
    }

    fn lose_driver(&mut self, why: &str, dial_again: Option<Instant>) {
        tracing::debug!(why, "the store cannot be reached");
        self.line = Line::Down {
            why: why.to_owned(),
            dial_again,
        };
        for (process, number) in std::mem::take(&mut self.unanswered) {
            let why = why.to_owned();
            let result = Err(Refused::Unreachable { why });
            self.answer(process, &Answer { number, result });
        }
    }
}

impl Line {
    fn has_room(&self) -> bool {
        match self {
            Self::Up(line) => line.has_room(),
            Self::Down { .. } => true,
        }
    }

    /// The next answer; never one while there is no connection. Cancel-safe.
    async fn next(&mut self) -> Result<ToHost, PeerError> {
        match self {
            Self::Up(line) => line.next().await,
            Self::Down { .. } => pending().await,
        }
    }
}
