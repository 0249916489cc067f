//! The keys of one run.

use std::time::Duration;

use elasticrun_etcd::{
    Client, Compare, Error, KeyValue, Keys, LeaseId, Op, Revision, Watch, WatchError,
};
use elasticrun_protocol::{
    Blob,
    rendezvous::{HeartbeatChanges, Snapshot},
};

/// The most steps in one group of a transaction: etcd takes 128, less those of the level around. That has two conditions for each of
/// at most 40 dead nodes, and a step for each group.
const STEPS: usize = 40;

/// A run in a cluster. A clone shares its connections.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    client: Client,
    state: Vec<u8>,
    /// What the key of a node's last heartbeat begins with.
    beats: String,
}

/// Why a state is not written.
#[derive(Debug)]
pub(crate) enum Refused {
    /// The state of now, which the write did not expect.
    Conflict(Snapshot),
    /// These nodes, which the write removes as dead, are not silent.
    NotSilent(Vec<String>),
}

/// What a heartbeat has found.
#[derive(Debug)]
pub(crate) struct Beaten {
    pub(crate) number: u64,
    pub(crate) token: u64,
    pub(crate) nodes: usize,
    pub(crate) silent: Vec<String>,
}

/// A state to write.
#[derive(Debug)]
pub(crate) struct Write {
    /// The token of the state that it replaces; `None` if there must be none.
    pub(crate) expected: Option<u64>,
    pub(crate) state: Vec<u8>,
    pub(crate) heartbeats: HeartbeatChanges,
    /// How long the state is there after the write, if it is the end of a run.
    pub(crate) ends_after: Option<Duration>,
    /// The state has no nodes.
    pub(crate) is_empty: bool,
}

impl Run {
    /// `prefix` is what all its keys begin with, without a slash at its end.
    pub(super) fn new(client: Client, prefix: &str) -> Self {
        Self {
            client,
            state: format!("{prefix}/state").into(),
            beats: format!("{prefix}/beats/"),
        }
    }

    fn state(&self) -> Keys {
        Keys::One(self.state.clone())
    }

    fn beat(&self, node: &str) -> Vec<u8> {
        format!("{}{node}", self.beats).into()
    }

    fn all_beats(&self) -> Keys {
        Keys::Prefix(self.beats.clone().into())
    }

    /// Reads the state.
    pub(crate) async fn read(&self) -> Result<Snapshot, Error> {
        Ok(self.read_at().await?.0)
    }

    /// Reads the state, and the revision of the cluster at that time. Heartbeats raise it, too.
    pub(super) async fn read_at(&self) -> Result<(Snapshot, Revision), Error> {
        let found = self.client.range(&self.state(), 1, Revision(0)).await?;
        let state = found.keys.into_iter().next();
        Ok((snapshot(state, found.revision), found.revision))
    }

    /// Watches the state for changes after a revision.
    pub(super) async fn watch(&self, after: Revision) -> Result<Watch, WatchError> {
        self.client
            .watch(&self.state(), Revision(after.0 + 1))
            .await
    }

    /// Replaces the state, and changes the heartbeats by the same transaction. Gives the new token.
    pub(crate) async fn compare_and_set(
        &self,
        write: Write,
    ) -> Result<Result<u64, Refused>, Error> {
        let lease = match write.ends_after {
            Some(ttl) => self.client.grant(ttl).await?.lease,
            None => LeaseId::default(),
        };
        let expected = write.expected.map_or(Revision(0), revision);
        let is_expected = Compare::Modified(self.state.clone(), expected);
        if write.expected.is_none() {
            // Those of a former run with the same name, whose nodes have died.
            let clear = Op::Delete(self.all_beats());
            let is_expected = std::slice::from_ref(&is_expected);
            self.client.txn(is_expected, &[clear], &[]).await?;
        }
        let silence = write.heartbeats.unless_beaten.as_ref();
        let suspects = silence.map_or(&[][..], |silence| &silence.nodes);
        let since = silence.map_or(Revision(0), |silence| revision(silence.since));
        let are_silent = suspects.iter().flat_map(|node| {
            let key = self.beat(node);
            [
                Compare::Exists(key.clone()),
                Compare::Unmodified(key, since),
            ]
        });
        let compares: Vec<_> = [is_expected].into_iter().chain(are_silent).collect();
        let put = Op::Put {
            key: self.state.clone(),
            value: write.state,
            lease,
        };
        let changes = match write.is_empty {
            true => vec![Op::Delete(self.all_beats())],
            false => self.changes(&write.heartbeats),
        };
        let steps: Vec<_> = [put].into_iter().chain(changes).collect();
        let reads = suspects.iter().map(|node| Keys::One(self.beat(node)));
        let reads: Vec<_> = [self.state()]
            .into_iter()
            .chain(reads)
            .map(Op::Range)
            .collect();
        let outcome = self.client.txn(&compares, &steps, &reads).await?;
        if outcome.succeeded {
            return Ok(Ok(token(outcome.revision)));
        }
        let mut found = outcome
            .found
            .into_iter()
            .map(|found| found.into_iter().next());
        let state = found.next().flatten();
        let is_as_expected =
            state.as_ref().map(|state| state.mod_revision) == write.expected.map(revision);
        if !is_as_expected || suspects.is_empty() {
            return Ok(Err(Refused::Conflict(snapshot(state, outcome.revision))));
        }
        let beats = suspects.iter().zip(found);
        let alive = beats.filter(|(_, beat)| {
            let beat = beat.as_ref();
            beat.is_none_or(|beat| beat.mod_revision > since)
        });
        let alive = alive.map(|(node, _)| node.clone()).collect();
        Ok(Err(Refused::NotSilent(alive)))
    }

    /// Records a heartbeat of a node of the state, and finds the nodes whose last one is not after `since`.
    pub(crate) async fn heartbeat(&self, node: &str, since: u64) -> Result<Beaten, Error> {
        let key = self.beat(node);
        let put = Op::Put {
            key: key.clone(),
            value: Vec::new(),
            lease: LeaseId::default(),
        };
        let silent = Op::Unmodified(self.all_beats(), revision(since));
        // The name of the state: its revision is enough.
        let state = Op::Unmodified(self.state(), Revision(i64::MAX));
        let reads = [silent, state];
        let steps: Vec<_> = [put].into_iter().chain(reads.clone()).collect();
        let is_member = Compare::Exists(key);
        let outcome = self.client.txn(&[is_member], &steps, &reads).await?;
        let nodes = outcome.counts.first().copied().unwrap_or(0);
        let mut found = outcome.found.into_iter();
        let silent = found.next().unwrap_or_default();
        let state = found.next().unwrap_or_default().into_iter().next();
        Ok(Beaten {
            number: token(outcome.revision),
            token: token(state.map_or(outcome.revision, |state| state.mod_revision)),
            nodes,
            silent: silent
                .iter()
                .filter_map(|beat| self.node(&beat.key))
                .collect(),
        })
    }

    /// The node of the key of a heartbeat.
    fn node(&self, key: &[u8]) -> Option<String> {
        let key = std::str::from_utf8(key).ok()?;
        key.strip_prefix(&self.beats).map(str::to_owned)
    }

    /// The steps of the changes of heartbeats, in groups that etcd takes.
    fn changes(&self, changes: &HeartbeatChanges) -> Vec<Op> {
        let beats = changes.beats.iter().map(|node| Op::Put {
            key: self.beat(node),
            value: Vec::new(),
            lease: LeaseId::default(),
        });
        let forgets = changes.forgets.iter();
        let forgets = forgets.map(|node| Op::Delete(Keys::One(self.beat(node))));
        let all: Vec<_> = beats.chain(forgets).collect();
        all.chunks(STEPS)
            .map(|steps| Op::All(steps.to_vec()))
            .collect()
    }
}

/// The state that a key has, or that is not there at a revision.
pub(super) fn snapshot(found: Option<KeyValue>, at: Revision) -> Snapshot {
    match found {
        Some(found) => Snapshot {
            token: token(found.mod_revision),
            state: Some(Blob(found.value)),
        },
        None => Snapshot {
            token: token(at),
            state: None,
        },
    }
}

/// Revisions are positive.
fn token(revision: Revision) -> u64 {
    u64::try_from(revision.0).unwrap_or(0)
}

fn revision(token: u64) -> Revision {
    Revision(i64::try_from(token).unwrap_or(i64::MAX - 1))
}
