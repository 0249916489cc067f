//! The state in etcd: each request is a call, and a watch reports the writes of others.
//!
//! etcd gives no turns to those that have lost a race. So the answer to a lost write comes after a random pause, which grows
//! with each loss in a row, and has the state of then.

use std::time::Duration;

use elasticrun_core::rendezvous::{
    BeatNumber, Event, HeartbeatChanges, HolderError, NodeId, RequestId, State, Token,
};
use tokio::{sync::watch, task::JoinSet, time::sleep};

use super::{Heard, decoded, encoded, not_silent, recorded};
use crate::etcd::{Beaten, Followed, Refused, Run, Write, follow};

/// The longest pause after the first lost write in a row. It doubles with each further one.
const PAUSE: Duration = Duration::from_millis(5);

/// The longest pause. Several fit into the lease of a node with the default intervals.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The link of a node to a cluster.
#[derive(Debug)]
pub(super) struct EtcdLink {
    run: Run,
    /// How long a closed state is there for nodes that come late.
    closed_for: Duration,
    /// The request without an answer. A call that the machine has given up is aborted: whether it took effect is unknown.
    request: JoinSet<Heard>,
    follower: JoinSet<()>,
    followed: Option<watch::Receiver<Followed>>,
    was_connected: bool,
    /// The token of the last snapshot without a state: a write that expects it expects that there is none.
    absent: Option<Token>,
    losses: u32,
}

impl EtcdLink {
    pub(super) fn new(run: Run, closed_for: Duration) -> Self {
        Self {
            run,
            closed_for,
            request: JoinSet::new(),
            follower: JoinSet::new(),
            followed: None,
            was_connected: false,
            absent: None,
            losses: 0,
        }
    }

    pub(super) fn open(&mut self) {
        if self.followed.is_none() {
            let (sender, followed) = watch::channel(Followed::default());
            self.follower.spawn(follow(self.run.clone(), sender));
            self.followed = Some(followed);
        }
    }

    pub(super) fn read(&mut self, request: RequestId) {
        let run = self.run.clone();
        self.ask(async move {
            Heard::Event(match run.read().await {
                Ok(snapshot) => read(request, snapshot, |request, snapshot| Event::StateRead {
                    request,
                    snapshot,
                }),
                Err(error) => failed(request, &error),
            })
        });
    }

    pub(super) fn compare_and_set(
        &mut self,
        request: RequestId,
        expected: Token,
        state: &State,
        heartbeats: HeartbeatChanges,
    ) {
        let run = self.run.clone();
        let write = Write {
            expected: (self.absent != Some(expected)).then_some(expected.0),
            state: state.encode(),
            heartbeats: encoded(heartbeats),
            ends_after: state.is_closed().then_some(self.closed_for),
            is_empty: state.members().next().is_none(),
        };
        let pause = pause(self.losses);
        self.ask(async move {
            let mut snapshot = match run.compare_and_set(write).await {
                Ok(Ok(token)) => {
                    let token = Token(token);
                    return Heard::Event(Event::Written { request, token });
                }
                Ok(Err(Refused::NotSilent(nodes))) => {
                    return Heard::Event(not_silent(request, nodes));
                }
                Ok(Err(Refused::Conflict(snapshot))) => snapshot,
                Err(error) => return Heard::Event(failed(request, &error)),
            };
            sleep(pause).await;
            match run.read().await {
                Ok(newer) => snapshot = newer,
                Err(error) => tracing::debug!(%error, "the state that won cannot be read again"),
            }
            Heard::Lost(read(request, snapshot, |request, snapshot| {
                Event::Conflict { request, snapshot }
            }))
        });
    }

    pub(super) fn heartbeat(&mut self, request: RequestId, node: &NodeId, since: BeatNumber) {
        let (run, node) = (self.run.clone(), node.clone());
        self.ask(async move {
            Heard::Event(match run.heartbeat(node.as_str(), since.0).await {
                Ok(Beaten {
                    number,
                    token,
                    nodes,
                    silent,
                }) => recorded(request, number, token, nodes, silent),
                Err(error) => failed(request, &error),
            })
        });
    }

    pub(super) fn is_open(&self) -> bool {
        let followed = self.followed.as_ref();
        followed.is_some_and(|followed| followed.borrow().connected)
    }

    fn ask(&mut self, call: impl Future<Output = Heard> + Send + 'static) {
        self.open();
        self.request.abort_all();
        self.request.detach_all();
        self.request.spawn(call);
    }

    /// Waits for the next event. Cancel-safe.
    pub(super) async fn next(&mut self) -> Heard {
        loop {
            let Some(followed) = &mut self.followed else {
                return std::future::pending().await;
            };
            tokio::select! {
                Some(answer) = self.request.join_next() => {
                    // A call does not panic, and one that was aborted is detached.
                    if let Ok(heard) = answer {
                        self.note(&heard);
                        return heard;
                    }
                }
                Ok(()) = followed.changed() => {
                    let now = followed.borrow_and_update().clone();
                    let was_connected = std::mem::replace(&mut self.was_connected, now.connected);
                    if was_connected && !now.connected {
                        return Heard::Ended(None);
                    }
                    let Some(newest) = now.newest else { continue };
                    match decoded(newest) {
                        Ok(snapshot) => {
                            let heard = Heard::Changed(Event::StateChanged(snapshot));
                            self.note(&heard);
                            return heard;
                        }
                        Err(error) => tracing::warn!(%error, "a report of the rendezvous is not read"),
                    }
                }
            }
        }
    }

    /// Keeps what the next write needs to know.
    fn note(&mut self, heard: &Heard) {
        let (Heard::Event(event) | Heard::Lost(event) | Heard::Changed(event)) = heard else {
            return;
        };
        match event {
            Event::Conflict { .. } => self.losses = self.losses.saturating_add(1),
            Event::Written { .. } => self.losses = 0,
            _ => {}
        }
        if let Event::StateRead { snapshot, .. }
        | Event::Conflict { snapshot, .. }
        | Event::StateChanged(snapshot) = event
            && snapshot.state.is_none()
        {
            self.absent = self.absent.max(Some(snapshot.token));
        }
    }
}

fn read(
    request: RequestId,
    snapshot: elasticrun_protocol::rendezvous::Snapshot,
    event: impl FnOnce(RequestId, elasticrun_core::rendezvous::Snapshot) -> Event,
) -> Event {
    match decoded(snapshot) {
        Ok(snapshot) => event(request, snapshot),
        Err(error) => Event::Failed { request, error },
    }
}

fn failed(request: RequestId, error: &elasticrun_etcd::Error) -> Event {
    if error.is_temporary() {
        tracing::debug!(%error, "etcd does not answer");
    } else {
        tracing::warn!(%error, "etcd refuses the rendezvous");
    }
    Event::Failed {
        request,
        error: HolderError::Unreachable,
    }
}

/// A random pause after so many lost writes in a row.
fn pause(losses: u32) -> Duration {
    let longest = PAUSE.saturating_mul(1 << losses.min(16)).min(LONGEST_PAUSE);
    let mut random = [0; 4];
    // Without random numbers all nodes pause alike, and only take longer.
    let _ = getrandom::fill(&mut random);
    longest.mul_f64(f64::from(u32::from_ne_bytes(random)) / f64::from(u32::MAX))
}
