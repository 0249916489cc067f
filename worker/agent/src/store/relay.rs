//! Relays requests between the workers of this host and the driver's store.
//!
//! The relay keeps all unanswered requests by worker and number. When the connection ends, it repeats those over the next
//! one that change nothing, or that write the same again. The others may have taken effect or not: their workers get an
//! error. While the agent has no driver to return to, requests wait. When the driver is lost, all are refused.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

use elasticrun_protocol::{
    Process,
    opening::Purpose,
    store::{Answer, FromClient, FromHost, Op, Refused, Request, StoreOf, ToHost},
};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};

use super::{
    StoreCommand, WorkerOpening,
    driver_conn::{DriverConn, OpenConn},
    worker_conn::{WorkerConn, WorkerMessage},
};
use crate::{connect, duplex::Duplex, error::PeerError, keys::Keys, spans};

/// Requests that may wait for the relay. Further ones wait in the sockets of their workers.
const MAX_WAITING: usize = 64;

/// How long requests are refused after a failed dial, before the next dial.
const REDIAL_INTERVAL: Duration = Duration::from_secs(1);

/// How long requests that wait for another connection are kept before it is dialled: the end of the connection to the
/// driver is known by then, if it has ended as well.
const REPEAT_PAUSE: Duration = Duration::from_millis(100);

/// Passes requests to the driver and answers to the workers.
#[derive(Debug)]
pub(super) struct Relay {
    keys: Arc<Keys>,
    driver: SocketAddr,
    hello: StoreOf,
    driver_conn: DriverConn,
    workers: BTreeMap<Process, WorkerConn>,
    /// How many connections of workers were opened; the number of the last one.
    opened: u64,
    /// Requests without an answer.
    unanswered: BTreeMap<(Process, u64), Request>,
}

impl Relay {
    pub(super) fn new(keys: Arc<Keys>, driver: SocketAddr, hello: StoreOf) -> Self {
        Self {
            keys,
            driver,
            hello,
            driver_conn: DriverConn::Down {
                why: String::new(),
                dial_again: Some(Instant::now()),
            },
            workers: BTreeMap::new(),
            opened: 0,
            unanswered: BTreeMap::new(),
        }
    }

    /// Runs until the agent's loop has no more commands.
    pub(super) async fn run(mut self, mut commands: mpsc::UnboundedReceiver<StoreCommand>) {
        let (sender, mut messages) = mpsc::channel(MAX_WAITING);
        loop {
            let due = self
                .driver_conn
                .dial_due()
                .filter(|_| !self.unanswered.is_empty());
            tokio::select! {
                command = commands.recv() => match command {
                    Some(StoreCommand::Open(opening)) => self.open(opening, &sender),
                    Some(StoreCommand::Ended(process)) => self.remove(process),
                    Some(StoreCommand::DriverLost) => self.lose_driver("the driver is lost", None),
                    Some(StoreCommand::DriverAway) => {
                        self.drop_unrepeatable("the connection to the driver ended");
                        self.driver_conn = DriverConn::Away;
                    }
                    Some(StoreCommand::DriverBack(driver, instance)) => {
                        (self.driver, self.hello.instance) = (driver, instance);
                        self.repeat().await;
                    }
                    None => return,
                },
                Some(message) = messages.recv(), if self.has_capacity() => {
                    self.on_message(message).await;
                }
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    self.repeat().await;
                }
                answer = self.driver_conn.next() => match answer {
                    Ok(ToHost { process, answer }) => {
                        self.unanswered.remove(&(process, answer.number));
                        self.answer(process, &answer);
                    }
                    Err(error) => {
                        let why = format!("the connection to it ended: {error}");
                        self.drop_unrepeatable(&why);
                        let dial_again = Some(Instant::now() + REPEAT_PAUSE);
                        self.driver_conn = DriverConn::Down { why, dial_again };
                    }
                },
            }
        }
    }

    /// Whether further requests are taken. Without a driver, those beyond a limit wait in the sockets of their workers.
    fn has_capacity(&self) -> bool {
        match &self.driver_conn {
            DriverConn::Up(conn) => conn.duplex.has_capacity(),
            DriverConn::Down { .. } => true,
            DriverConn::Away => self.unanswered.len() < MAX_WAITING,
        }
    }

    fn open(&mut self, opening: WorkerOpening, messages: &mpsc::Sender<WorkerMessage>) {
        let process = opening.process;
        self.remove(process);
        self.opened += 1;
        match WorkerConn::serve(opening, self.opened, messages.clone()) {
            Ok(worker) => {
                self.workers.insert(process, worker);
            }
            Err(error) => spans::worker(process)
                .in_scope(|| tracing::warn!(%error, "a worker's requests cannot be read")),
        }
    }

    async fn on_message(&mut self, message: WorkerMessage) {
        let WorkerMessage {
            process,
            number,
            message,
        } = message;
        // Drop messages of a connection that was replaced.
        if self.workers.get(&process).map(|worker| worker.number) != Some(number) {
            return;
        }
        match message {
            FromClient::Ask(request) => {
                let number = request.number;
                match self.ask(process, &request).await {
                    Ok(()) => {
                        self.unanswered.insert((process, number), request);
                    }
                    Err(refused) => {
                        let result = Err(refused);
                        self.answer(process, &Answer { number, result });
                    }
                }
            }
            FromClient::Forget { number } => {
                if self.unanswered.remove(&(process, number)).is_some() {
                    self.forward(process, FromClient::Forget { number });
                }
            }
            FromClient::Discard { .. } => self.forward(process, message),
            FromClient::Left => self.remove(process),
        }
    }

    /// Forwards a request, or keeps it for the next connection. Dials the driver if there is no connection.
    async fn ask(&mut self, process: Process, request: &Request) -> Result<(), Refused> {
        if let DriverConn::Down { dial_again, why } = &self.driver_conn {
            if !self.unanswered.is_empty() {
                // It follows those that wait.
                return Ok(());
            }
            if dial_again.is_none_or(|time| Instant::now() < time) {
                return Err(Refused::Unreachable { why: why.clone() });
            }
            match self.dial().await {
                Ok(conn) => self.driver_conn = DriverConn::Up(Box::new(conn)),
                Err(error) => {
                    let why = format!("no connection to the driver: {error}");
                    tracing::warn!(why, "the store cannot be reached");
                    self.driver_conn = DriverConn::Down {
                        why: why.clone(),
                        dial_again: Some(Instant::now() + REDIAL_INTERVAL),
                    };
                    return Err(Refused::Unreachable { why });
                }
            }
        }
        let DriverConn::Up(conn) = &mut self.driver_conn else {
            return Ok(());
        };
        conn.ask(process, request)
    }

    async fn dial(&self) -> Result<OpenConn, PeerError> {
        let connection = connect::dial(self.driver, &self.keys, Purpose::Store).await?;
        let mut duplex = Duplex::new(connection.stream, connection.frames);
        duplex.queue(&self.hello)?;
        let version = connection.opened.version;
        Ok(OpenConn { duplex, version })
    }

    /// Forwards a message that has no answer. Drops it if there is no connection, since it concerns the old one.
    fn forward(&mut self, process: Process, message: FromClient) {
        if let DriverConn::Up(conn) = &mut self.driver_conn
            && let Err(error) = conn.duplex.queue(&FromHost { process, message })
        {
            spans::worker(process)
                .in_scope(|| tracing::error!(%error, "the driver's store cannot be told"));
        }
    }

    fn answer(&mut self, process: Process, answer: &Answer) {
        let Some(worker) = self.workers.get(&process) else {
            return;
        };
        if !worker.answer(answer) {
            spans::worker(process)
                .in_scope(|| tracing::warn!("a worker does not read the answers to its requests"));
            self.remove(process);
        }
    }

    /// Closes the connection of a worker, forgets its requests, and reports to the driver that it has left.
    fn remove(&mut self, process: Process) {
        if self.workers.remove(&process).is_some() {
            self.unanswered.retain(|(worker, _), _| *worker != process);
            self.forward(process, FromClient::Left);
        }
    }

    /// Closes the connection to the driver and refuses all unanswered requests.
    fn lose_driver(&mut self, why: &str, dial_again: Option<Instant>) {
        tracing::debug!(why, "the store cannot be reached");
        self.driver_conn = DriverConn::Down {
            why: why.to_owned(),
            dial_again,
        };
        self.refuse(why, |_| true);
    }

    /// Refuses the requests that may have taken effect, and would take effect again.
    fn drop_unrepeatable(&mut self, why: &str) {
        self.refuse(why, |request| !is_repeatable(&request.op));
    }

    fn refuse(&mut self, why: &str, which: impl Fn(&Request) -> bool) {
        let refused = self.unanswered.extract_if(.., |_, request| which(request));
        for (process, number) in refused.map(|(key, _)| key).collect::<Vec<_>>() {
            let why = why.to_owned();
            let result = Err(Refused::Unreachable { why });
            self.answer(process, &Answer { number, result });
        }
    }

    /// Opens a connection and sends all requests without an answer over it, each worker's in order.
    async fn repeat(&mut self) {
        let mut conn = match self.dial().await {
            Ok(conn) => conn,
            Err(error) => {
                let why = format!("no connection to the driver: {error}");
                return self.lose_driver(&why, Some(Instant::now() + REDIAL_INTERVAL));
            }
        };
        let mut refused = Vec::new();
        self.unanswered.retain(|(process, number), request| {
            let sent = conn.ask(*process, request);
            refused.extend(sent.clone().err().map(|why| (*process, *number, why)));
            sent.is_ok()
        });
        for (process, number, why) in refused {
            let result = Err(why);
            self.answer(process, &Answer { number, result });
        }
        self.driver_conn = DriverConn::Up(Box::new(conn));
    }
}

/// Whether an operation that may have taken effect can be sent again: it changes nothing, or writes the same.
fn is_repeatable(op: &Op) -> bool {
    match op {
        Op::Get { .. }
        | Op::Wait { .. }
        | Op::Check { .. }
        | Op::NumKeys { .. }
        | Op::MultiGet { .. }
        | Op::QueueLen { .. }
        | Op::ListKeys { .. }
        | Op::Set { .. }
        | Op::MultiSet { .. }
        // A store that lacks what was staged before refuses these.
        | Op::Stage { .. }
        | Op::ReadStaged { .. } => true,
        Op::Large { op, .. } => is_repeatable(op),
        Op::Add { .. }
        | Op::CompareSet { .. }
        | Op::Delete { .. }
        | Op::Append { .. }
        | Op::QueuePush { .. }
        | Op::QueuePop { .. } => false,
    }
}
