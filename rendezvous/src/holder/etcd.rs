//! The state in etcd, with blocking calls.

use std::time::Duration;

use elasticrun_etcd::{Attempt, Error as EtcdError};
use elasticrun_protocol::rendezvous::{HeartbeatChanges, Snapshot};
use tokio::{
    runtime::Runtime,
    time::{Instant, sleep, timeout, timeout_at},
};

use super::Replaced;
use crate::{
    Cluster, Error,
    etcd::{Refused, Run, Write},
};

/// How long after a failed attempt to connect the next one begins.
const RETRY: Duration = Duration::from_millis(200);

/// The state of a run in a cluster.
#[derive(Debug)]
pub(super) struct EtcdHolder {
    runtime: Runtime,
    run: Run,
    cluster: String,
    timeout: Duration,
    /// The token of the last snapshot without a state: a write that expects it expects that there is none.
    absent: Option<u64>,
}

impl EtcdHolder {
    pub(super) fn connect(
        cluster: &Cluster,
        run: &str,
        timeout: Duration,
        patience: Duration,
    ) -> Result<Self, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Error::system("start the client of etcd"))?;
        let run = cluster.run(run);
        let shown = cluster.to_string();
        let connected = runtime.block_on(read_patiently(&run, &shown, patience));
        connected.map_err(|source| Error::Etcd {
            cluster: shown.clone(),
            source,
        })?;
        Ok(Self {
            runtime,
            run,
            cluster: shown,
            timeout,
            absent: None,
        })
    }

    pub(super) fn read(&mut self) -> Result<Snapshot, Error> {
        let run = self.run.clone();
        let snapshot = self.call(run.read())?;
        self.note(&snapshot);
        Ok(snapshot)
    }

    pub(super) fn compare_and_set(
        &mut self,
        expected: Option<u64>,
        state: &[u8],
    ) -> Result<Replaced, Error> {
        let write = Write {
            expected: expected.filter(|token| self.absent != Some(*token)),
            state: state.to_vec(),
            heartbeats: HeartbeatChanges::default(),
            ends_after: None,
            is_empty: false,
        };
        let run = self.run.clone();
        let snapshot = match self.call(run.compare_and_set(write))? {
            Ok(token) => return Ok(Replaced::Written(token)),
            Err(Refused::Conflict(snapshot)) => snapshot,
            // No node is removed.
            Err(Refused::NotSilent(_)) => self.call(run.read())?,
        };
        self.note(&snapshot);
        Ok(Replaced::Conflict(snapshot))
    }

    fn note(&mut self, snapshot: &Snapshot) {
        if snapshot.state.is_none() {
            self.absent = Some(snapshot.token);
        }
    }

    fn call<T>(&self, call: impl Future<Output = Result<T, EtcdError>>) -> Result<T, Error> {
        let called = self
            .runtime
            .block_on(async { timeout(self.timeout, call).await });
        let result = called.unwrap_or_else(|_| Err(silent(&self.cluster)));
        result.map_err(|source| Error::Etcd {
            cluster: self.cluster.clone(),
            source,
        })
    }
}

/// Reads the state, again and again while etcd is out of reach.
async fn read_patiently(
    run: &Run,
    cluster: &str,
    patience: Duration,
) -> Result<Snapshot, EtcdError> {
    let deadline = Instant::now() + patience;
    loop {
        let read = timeout_at(deadline, run.read()).await;
        match read.unwrap_or_else(|_| Err(silent(cluster))) {
            Err(error) if error.is_temporary() && Instant::now() + RETRY < deadline => {
                sleep(RETRY).await;
            }
            done => return done,
        }
    }
}

/// The error of a cluster that does not answer in time.
fn silent(cluster: &str) -> EtcdError {
    EtcdError::NoAnswer(Attempt {
        endpoint: cluster.to_owned(),
        why: "it does not answer in time".into(),
    })
}
