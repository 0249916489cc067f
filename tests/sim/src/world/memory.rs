//! The memory that an agent shares with its workers: pages and commit memories, with the guarantees of
//! elasticrun-shm. Hold words carry their round, a repeat changes nothing, and a commit is sealed last.

use std::{collections::BTreeMap, rc::Rc};

use elasticrun_core::{
    Time, agent,
    hold::{self, Look, Verdict},
    worker::{Commits, Fingerprint},
};
use elasticrun_protocol::{Boundary, CommitId, CommitKey, Process, Round, Shard};

/// A training state: the number of steps, a digest of the path to it, and the position in the data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) step: u64,
    pub(crate) digest: u64,
    /// The ledger; none before the first commit of a step.
    pub(crate) data: Rc<[u8]>,
}

impl State {
    /// One step in a round. Two paths to the same step have two digests.
    pub(crate) fn advance(&mut self, round: Round) {
        self.step += 1;
        self.digest = (self.digest ^ round.0).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ self.step;
    }
}

impl State {
    /// The state after reset callbacks in a round: equal states give equal results in all workers.
    pub(crate) fn after_callbacks(&self, round: Round) -> Self {
        let digest = (self.digest ^ !round.0).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        Self {
            digest,
            ..self.clone()
        }
    }

    /// The fingerprint of the state's bytes.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        let data = (self.data.iter()).fold(self.digest, |digest, byte| {
            (digest ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        Fingerprint {
            len: self.step,
            digest: data,
        }
    }
}

/// A sealed commit: the whole state, or a shard of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Commit {
    pub(crate) id: CommitId,
    /// The part of the state that its bytes are.
    pub(crate) shard: Shard,
    /// The whole state, which the bytes are a part of.
    pub(crate) state: State,
}

impl Commit {
    /// A commit of a state that is not divided.
    pub(crate) fn whole(id: CommitId, state: State) -> Self {
        let shard = Shard::default();
        Self { id, shard, state }
    }

    pub(crate) fn key(&self) -> CommitKey {
        let (commit, shard) = (self.id, self.shard);
        CommitKey { commit, shard }
    }
}

/// The buffers for commits of a process.
const BUFFERS: usize = 4;

/// Page and commit memories of one process.
#[derive(Debug)]
pub(crate) struct Shared {
    slots: [Option<Commit>; BUFFERS],
    /// The commits that stay beside the newest one.
    kept: [Option<CommitId>; 2],
    /// Words of the page.
    hold: u64,
    count: u64,
    newest_held: Option<Round>,
    aborted: Round,
    /// No boundary is passed after this time; none before the agent has set it.
    lease: Option<Time>,
    /// Since when the process sends heartbeats; none before it attached and while it is stopped.
    beating: Option<Time>,
    /// Heartbeats of earlier periods.
    beats: u64,
    pub(crate) commits: u64,
    /// The process began an orderly exit outside of a round.
    pub(crate) exited_outside: bool,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            slots: [const { None }; BUFFERS],
            kept: [None; 2],
            hold: 0,
            count: 0,
            newest_held: None,
            aborted: Round(0),
            lease: None,
            beating: None,
            beats: 0,
            commits: 0,
            exited_outside: false,
        }
    }
}

impl Shared {
    /// Sealed commits, newest first.
    pub(crate) fn complete(&self) -> Vec<Commit> {
        let mut commits: Vec<_> = self.slots.iter().flatten().cloned().collect();
        commits.sort_by_key(|commit| std::cmp::Reverse(commit.id));
        commits
    }

    /// Begins to write over an older commit, which is incomplete until it is sealed.
    pub(crate) fn begin(&mut self) -> usize {
        let free = self.free();
        self.slots[free] = None;
        free
    }

    /// The first slot that neither has the newest commit nor one that is kept.
    fn free(&self) -> usize {
        let ids = || {
            self.slots
                .iter()
                .map(|slot| slot.as_ref().map(|commit| commit.id))
        };
        let newest = ids().max().flatten();
        let is_free =
            |id: Option<CommitId>| id.is_none() || id != newest && !self.kept.contains(&id);
        ids().position(is_free).unwrap_or(0)
    }

    /// The commit that the next one is written over.
    pub(crate) fn overwritten(&self) -> Option<&Commit> {
        self.slots[self.free()].as_ref()
    }

    pub(crate) fn seal(&mut self, slot: usize, commit: Commit) {
        self.slots[slot] = Some(commit);
        self.commits += 1;
    }

    /// Keeps a commit that is not one of a step.
    pub(crate) fn keep(&mut self, commit: Commit) {
        let slot = self.begin();
        self.keep_in(slot, commit);
    }

    /// Seals a commit that is not one of a step.
    pub(crate) fn keep_in(&mut self, slot: usize, commit: Commit) {
        self.slots[slot] = Some(commit);
    }

    /// The state of a commit.
    pub(crate) fn state(&self, id: CommitId) -> Option<&State> {
        let mut commits = self.slots.iter().flatten();
        let found = commits.find(|commit| commit.id == id);
        found.map(|commit| &commit.state)
    }

    pub(crate) fn enter(&mut self, round: Round) {
        self.count = hold::count_word(round, 0);
    }

    pub(crate) fn aborted(&self, round: Round) -> bool {
        round <= self.aborted
    }

    pub(crate) fn abort(&mut self, round: Round) {
        self.aborted = self.aborted.max(round);
    }

    /// The worker writes its count, then reads the hold.
    pub(crate) fn boundary(&mut self, round: Round, count: u64) {
        self.count = hold::count_word(round, count);
    }

    pub(crate) fn lease_is_over(&self, now: Time) -> bool {
        self.lease.is_some_and(|until| until <= now)
    }

    pub(crate) fn judge(&self, now: Time, round: Round, count: u64) -> Verdict {
        let look = Look {
            hold: self.hold,
            aborted: self.aborted(round),
            leased: !self.lease_is_over(now),
        };
        hold::judge(look, round, count)
    }

    pub(crate) fn start_beating(&mut self, now: Time) {
        self.beating.get_or_insert(now);
    }

    pub(crate) fn stop_beating(&mut self, now: Time) {
        self.beats = self.beats_at(now);
        self.beating = None;
    }

    fn beats_at(&self, now: Time) -> u64 {
        let since = self
            .beating
            .map_or(0, |since| now.since(since).as_millis() as u64 / 100 + 1);
        self.beats + since
    }

    fn hold(&mut self, round: Round) -> Boundary {
        if self.newest_held.is_some_and(|newest| newest > round) {
            return Boundary(0);
        }
        self.newest_held = Some(round);
        self.hold = hold::after_hold(self.hold, round).unwrap_or(self.hold);
        hold::count_in(self.count, round)
    }
}

impl Commits for Shared {
    fn holds(&self, id: CommitId) -> bool {
        self.state(id).is_some()
    }

    fn discard_newer(&mut self, base: Option<CommitId>) {
        for slot in &mut self.slots {
            if slot.as_ref().is_some_and(|commit| Some(commit.id) > base) {
                *slot = None;
            }
        }
    }

    fn discard(&mut self, id: CommitId) {
        for slot in &mut self.slots {
            if slot.as_ref().is_some_and(|commit| commit.id >= id) {
                *slot = None;
            }
        }
    }
}

/// The shared memory of a host. [`Memories::rung`] takes the processes that were woken since the last call.
#[derive(Debug, Default)]
pub(crate) struct Memories {
    pub(crate) of: BTreeMap<Process, Shared>,
    pub(crate) now: Time,
    rung: Vec<Process>,
}

impl Memories {
    pub(crate) fn rung(&mut self) -> Vec<Process> {
        std::mem::take(&mut self.rung)
    }
}

impl agent::Memory for Memories {
    fn hold(&mut self, process: Process, round: Round) -> Boundary {
        self.rung.push(process);
        self.of
            .get_mut(&process)
            .map_or(Boundary(0), |shared| shared.hold(round))
    }

    fn leave_at(&mut self, process: Process, round: Round, at: Boundary) {
        if let Some(shared) = self.of.get_mut(&process)
            && shared.hold == hold::held(round)
            && let Some(word) = hold::leave_at(round, at)
        {
            shared.hold = word;
            self.rung.push(process);
        }
    }

    fn withdraw(&mut self, process: Process, round: Round) {
        if let Some(shared) = self.of.get_mut(&process)
            && let Some(word) = hold::after_withdrawal(shared.hold, round)
        {
            shared.hold = word;
            self.rung.push(process);
        }
    }

    fn set_lease(&mut self, process: Process, until: Time) {
        if let Some(shared) = self.of.get_mut(&process) {
            shared.lease = Some(until);
            // The worker may wait for a lease.
            self.rung.push(process);
        }
    }

    // A risk changes nothing here: simulated workers do not commit more often.
    fn set_at_risk(&mut self, _: Process) {}

    fn keep_commits(&mut self, process: Process, commits: [Option<CommitId>; 2]) {
        if let Some(shared) = self.of.get_mut(&process) {
            shared.kept = commits;
        }
    }

    fn commits(&self, process: Process) -> Vec<CommitKey> {
        let shared = self.of.get(&process);
        shared.map_or_else(Vec::new, |shared| {
            shared.complete().iter().map(Commit::key).collect()
        })
    }

    fn beats(&self, process: Process) -> u64 {
        self.of
            .get(&process)
            .map_or(0, |shared| shared.beats_at(self.now))
    }

    fn commit_count(&self, process: Process) -> u64 {
        self.of.get(&process).map_or(0, |shared| shared.commits)
    }

    fn exited_outside(&self, process: Process) -> bool {
        let shared = self.of.get(&process);
        shared.is_some_and(|shared| shared.exited_outside)
    }
}
