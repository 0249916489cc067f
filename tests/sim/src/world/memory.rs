//! The memory that an agent shares with its workers: pages and commit memories, as elasticrun-shm
//! promises them (hold words carry their round, a repeat changes nothing, commits are sealed last).

use std::{collections::BTreeMap, rc::Rc};

use elasticrun_core::{
    Time, agent,
    hold::{self, Look, Verdict},
    worker::{Commits, Fingerprint},
};
use elasticrun_protocol::{Boundary, CommitId, Process, Round};

/// A training state: so many steps, by this way, and the position in the data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) step: u64,
    pub(crate) digest: u64,
    /// The ledger; none before the first commit of a step.
    pub(crate) data: Rc<[u8]>,
}

impl State {
    /// One step in a round. Two ways to the same step have two digests.
    pub(crate) fn advance(&mut self, round: Round) {
        self.step += 1;
        self.digest = (self.digest ^ round.0).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ self.step;
    }
}

impl State {
    /// What reset callbacks make of it in a round: in all workers the same of the same.
    pub(crate) fn after_callbacks(&self, round: Round) -> Self {
        let digest = (self.digest ^ !round.0).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        Self {
            digest,
            ..self.clone()
        }
    }

    /// What its bytes are compared by.
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

/// A complete commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Commit {
    pub(crate) id: CommitId,
    pub(crate) state: State,
}

/// Page and commit memories of one process.
#[derive(Debug)]
pub(crate) struct Shared {
    slots: [Option<Commit>; 2],
    /// Words of the page.
    hold: u64,
    count: u64,
    newest_held: Option<Round>,
    aborted: Round,
    /// Beyond it no boundary is passed; none before the agent has set one.
    lease: Option<Time>,
    /// When it began to beat; none before it attached.
    beating: Option<Time>,
    /// Beats of the past, while it does not beat.
    beats: u64,
    pub(crate) commits: u64,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            slots: [None, None],
            hold: 0,
            count: 0,
            newest_held: None,
            aborted: Round(0),
            lease: None,
            beating: None,
            beats: 0,
            commits: 0,
        }
    }
}

impl Shared {
    /// Complete commits, newest first.
    pub(crate) fn complete(&self) -> Vec<Commit> {
        let mut commits: Vec<_> = self.slots.iter().flatten().cloned().collect();
        commits.sort_by_key(|commit| std::cmp::Reverse(commit.id));
        commits
    }

    /// Begins to write over the older slot; it is incomplete until it is sealed.
    pub(crate) fn begin(&mut self) -> usize {
        let older = match &self.slots {
            [Some(a), Some(b)] => usize::from(b.id < a.id),
            [None, _] => 0,
            [_, None] => 1,
        };
        self.slots[older] = None;
        older
    }

    pub(crate) fn seal(&mut self, slot: usize, commit: Commit) {
        self.slots[slot] = Some(commit);
        self.commits += 1;
    }

    /// Keeps what is no commit of a step.
    pub(crate) fn keep(&mut self, commit: Commit) {
        let slot = self.begin();
        self.slots[slot] = Some(commit);
    }

    /// What a commit holds.
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

/// The shared memory of a host. [`Memories::rung`] says who was woken since it was asked last.
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
            // It may wait for that.
            self.rung.push(process);
        }
    }

    // Workers of the simulation commit at every step as it is.
    fn set_at_risk(&mut self, _: Process) {}

    fn commits(&self, process: Process) -> Vec<CommitId> {
        let shared = self.of.get(&process);
        shared.map_or_else(Vec::new, |shared| {
            shared.complete().iter().map(|c| c.id).collect()
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
}
