//! Which commit is the next cut: how far ahead of the workers it must be named, and what is known of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use elasticrun_protocol::{
    CommitId, HostId, Round,
    control::{Cut, CutShard, ShardCopy},
};

use crate::Time;

/// How far ahead a cut is named: the time that a command needs to all agents, and a few commits.
const AHEAD: Duration = Duration::from_millis(200);

/// The largest factor by which a cut is named further ahead.
const MAX_FACTOR: u32 = 1 << 16;

/// The cuts of a job.
#[derive(Clone, Debug)]
pub(in crate::job) struct Cuts {
    /// The round that the rest is about.
    pub(super) round: Option<Round>,
    /// The newest complete cut.
    pub(super) keep: Option<CommitId>,
    /// Its shards are on as many machines as they must be.
    pub(super) is_safe: bool,
    pub(super) next: Option<Next>,
    /// The newest commit that the members of any host have sealed, and when the job heard of it.
    pub(super) newest: Option<(CommitId, Time)>,
    /// Commits in 1000 s, and the number of the newest commit when they were counted last.
    pub(super) pace: u64,
    pub(super) counted: Option<(u64, Time)>,
    /// How much further ahead cuts are named, since the last ones were named too late.
    pub(super) factor: u32,
    /// Cuts in a row that were given up.
    pub(super) failures: u32,
    /// When the next cut may be named.
    pub(super) due: Option<Time>,
    /// Each shard is on enough machines without copies, as long as the members are the same.
    pub(super) is_settled: bool,
    /// The job knows whether shards are on one machine only, without copies.
    pub(super) is_looked_at: bool,
    /// What each agent was told last, as long as it is connected.
    pub(super) orders: BTreeMap<HostId, Cut>,
}

/// The cut that is copied next.
#[derive(Clone, Debug)]
pub(super) struct Next {
    pub(super) id: CommitId,
    pub(super) named: Time,
    /// The shards that members hold. Hosts that are not among these have not passed the cut.
    pub(super) held: BTreeMap<HostId, Vec<CutShard>>,
    /// What each host copies, once that is decided, and the hosts that have not copied all of it.
    pub(super) copies: Option<BTreeMap<HostId, Vec<ShardCopy>>>,
    pub(super) missing: BTreeSet<HostId>,
    /// The number of machines that are lacking for its copies.
    pub(super) lacking: usize,
}

impl Cuts {
    pub(in crate::job) fn new() -> Self {
        Self {
            round: None,
            keep: None,
            is_safe: false,
            next: None,
            newest: None,
            pace: 0,
            counted: None,
            factor: 1,
            failures: 0,
            due: None,
            is_settled: false,
            is_looked_at: false,
            orders: BTreeMap::new(),
        }
    }

    /// An agent that comes back to another driver knows a complete cut.
    pub(in crate::job) fn learn(&mut self, cut: Option<CommitId>) {
        if cut > self.keep {
            (self.keep, self.is_safe) = (cut, false);
        }
    }

    /// The members of a host have sealed a commit. Returns whether the job has waited for this to name a cut.
    pub(in crate::job) fn sealed(&mut self, now: Time, commit: CommitId) -> bool {
        let is_known = |(newest, _): (CommitId, Time)| commit <= newest;
        if self.newest.is_some_and(is_known) || self.round.is_some_and(|round| commit.round < round)
        {
            return false;
        }
        let is_first = self
            .newest
            .replace((commit, now))
            .is_none_or(|(newest, _)| newest.round != commit.round);
        match self.counted.filter(|_| !is_first) {
            None => self.counted = Some((commit.count, now)),
            Some((count, since)) if now.since(since) >= AHEAD => {
                let millis = now.since(since).as_millis() as u64;
                self.pace = (commit.count - count).saturating_mul(1_000_000) / millis.max(1);
                self.counted = Some((commit.count, now));
            }
            Some(_) => {}
        }
        is_first && self.next.is_none() && !self.is_settled
    }

    /// The commit to name: one that no worker has sealed, most likely.
    pub(super) fn ahead(&self, now: Time) -> Option<CommitId> {
        let (newest, at) = self.newest?;
        let ahead = now.since(at) + AHEAD * self.factor;
        let millis = ahead.as_millis() as u64;
        let commits = self.pace.saturating_mul(millis).div_ceil(1_000_000);
        Some(CommitId {
            count: newest.count + u64::from(self.factor) + commits,
            ..newest
        })
    }

    /// The cut cannot be copied. The next one is named further ahead.
    pub(super) fn give_up(&mut self) {
        self.next = None;
        self.factor = self.factor.saturating_mul(2).min(MAX_FACTOR);
        self.failures += 1;
    }

    /// The round whose shards a host copies.
    pub(in crate::job) fn followed_by(&self, host: &HostId) -> Option<Round> {
        let order = self.orders.get(host)?;
        let copies = !order.copies.is_empty();
        order.next.filter(|_| copies).map(|next| next.round)
    }

    /// The agent of a host has connected, perhaps once more. It may not know what it was told last.
    pub(in crate::job) fn connected(&mut self, host: &HostId) {
        self.orders.remove(host);
    }

    /// The agent of a host is gone.
    pub(in crate::job) fn lost(&mut self, host: &HostId) {
        self.orders.remove(host);
        self.is_settled = false;
        if self
            .next
            .as_ref()
            .is_some_and(|next| next.missing.contains(host))
        {
            self.next = None;
        }
    }

    /// When the next cut may be named.
    pub(in crate::job) fn deadline(&self) -> Option<Time> {
        let waits = self.next.is_none() && !self.is_settled && self.newest.is_some();
        self.due.filter(|_| waits)
    }
}

impl Next {
    pub(super) fn new(id: CommitId, named: Time) -> Self {
        Self {
            id,
            named,
            held: BTreeMap::new(),
            copies: None,
            missing: BTreeSet::new(),
            lacking: 0,
        }
    }
}
