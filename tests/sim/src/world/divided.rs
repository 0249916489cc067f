//! States that are divided among the workers of a round: how a worker puts its shard together from those of the base,
//! seals it as the first commit of the round, and commits it later.
//!
//! A shard is modelled by the whole state that it is a part of, with its place in the layout. So shards that do not
//! belong together show it. A worker reads from any host that it reaches and that has a memory; shipped workers read from
//! their own host only.
//!
//! Before its first step an optimizer has no state, so the layout of the first commits differs from that of later ones.

use std::collections::BTreeMap;

use elasticrun_core::{
    mutant::{Mutant, planted},
    worker::Machine,
};
use elasticrun_protocol::{CommitId, Process, Shard, control::BaseShards, control::Exit};

use super::{
    World,
    collective::{EXCHANGE, TRANSFER},
    memory::{Commit, Shared, State},
    schedule::Act,
};
use crate::invariants::{r14, r15};

/// The layout of a state that is divided in this number of shards.
fn layout_of(of: u32, state: &State) -> u64 {
    let has_optimizer = u64::from(state.step > 0);
    u64::from(of) * 2 + has_optimizer + 1
}

/// Distinguishes the layout of a member whose shard does not fit to those of the others.
const STRAY: u64 = 1 << 32;

impl World {
    /// A worker looks for the shards of the base. Gives `false` if there is none, so that it begins anew.
    pub(super) fn load_shards(&mut self, host: usize, process: Process) -> bool {
        let load = |machine: &mut Machine, shared: &mut Shared| machine.load_shards(shared);
        let before = self.hosts[host].keys_of(process);
        let base = self.with_machine(host, process, load);
        let kept = self.hosts[host].keys_of(process);
        let lost: Vec<_> = before
            .into_iter()
            .filter(|key| !kept.contains(key))
            .collect();
        r15::gave_up(self, host, process, &lost);
        let Some(worker) = self.worker(host, process) else {
            return true;
        };
        worker.has_strayed = false;
        match base {
            Some(Ok(Some(base))) => {
                let wait = self.rng.millis(1, 200);
                self.act_after(host, process, wait, Act::ShardsFound(base));
                true
            }
            Some(Ok(None)) => {
                worker.state = State::default();
                false
            }
            _ => true,
        }
    }

    /// A worker reads the shards of the base, or misses some.
    pub(super) fn shards_found(&mut self, host: usize, process: Process, base: CommitId) {
        if self.is_aborted(host, process) {
            self.sync_fails(host, process);
            return self.round_fails(host, process);
        }
        let Some(shards) = self.base_shards(host, process) else {
            let what = format!("h{host} {process:?} is not told the layout of {base:?}");
            return self.violate("R14", what);
        };
        let copies = self.copies_for(host, base, shards);
        if let Some(worker) = self.worker(host, process)
            && copies.len() as u32 == shards.of
        {
            worker.machine.fetched();
            worker.machine.loaded_shards();
            if let Some(copy) = copies.values().next() {
                worker.state = copy.state.clone();
            }
            r14::loaded(self, host, process, base, copies.values());
            return self.set_up(host, process);
        }
        self.note(format_args!(
            "h{host} {process:?} misses shards of {base:?}: it found {:?}",
            copies.keys()
        ));
        self.base_missed(host, process);
    }

    fn base_shards(&self, host: usize, process: Process) -> Option<BaseShards> {
        let worker = self.hosts[host].workers.get(&process)?;
        worker.round.as_ref()?.start.base_shards
    }

    /// A copy of each shard of a commit, from the memory of hosts that this one reaches.
    fn copies_for(&self, host: usize, id: CommitId, shards: BaseShards) -> BTreeMap<u32, Commit> {
        let is_part = |commit: &Commit| {
            let Shard { layout, of, .. } = commit.shard;
            commit.id == id && BaseShards { layout, of } == shards
        };
        let reached = |at: &usize| {
            let is_open = self.hosts[*at].cut_data == 0 && self.hosts[host].cut_data == 0;
            self.hosts[*at].agent.is_some() && (*at == host || is_open)
        };
        let hosts = (0..self.hosts.len()).filter(reached);
        let parts = hosts.flat_map(|at| self.hosts[at].sealed().filter(is_part));
        parts.map(|part| (part.shard.index, part)).collect()
    }

    /// The members compare what must be alike. Those that reset callbacks have not run in get the values of rank 0.
    pub(super) fn compares_shards(&mut self, host: usize, process: Process) {
        if self.is_root(host, process) {
            let state = self.worker(host, process).map(|w| w.state.clone());
            let round = self.round_id(host, process).map(|id| id.round);
            if let Some(round) = round.and_then(|round| self.rounds.get_mut(&round)) {
                round.sent = state;
            }
        }
        let wait = self.rng.micros(10, 500);
        self.act_after(host, process, wait, Act::Reach(EXCHANGE));
    }

    /// A worker writes its shard of the first commit of its round.
    pub(super) fn seal_first(&mut self, host: usize, process: Process) {
        let round = self.round_id(host, process).map(|id| id.round);
        let sent = round.and_then(|round| self.rounds.get(&round)?.sent.clone());
        let callbacks = self.plan.callbacks;
        let Some(worker) = self.worker(host, process) else {
            return;
        };
        if let Some(sent) = sent.filter(|_| callbacks) {
            worker.state = sent;
        }
        let Ok(id) = worker.machine.first_commit() else {
            return;
        };
        if let Some(slot) = self.begin_commit(host, process) {
            let most = self.plan.seal.as_micros() as u64;
            let wait = self.rng.micros(50, most);
            self.act_after(host, process, wait, Act::FirstWritten { slot, id });
        }
    }

    /// The shard is sealed. No member trains before all have sealed theirs.
    pub(super) fn first_written(
        &mut self,
        host: usize,
        process: Process,
        slot: usize,
        id: CommitId,
    ) {
        let Some(state) = self.worker(host, process).map(|w| w.state.clone()) else {
            return;
        };
        let shard = self.place_of(host, process, layout_of, &state);
        let commit = Commit { id, shard, state };
        r14::first(self, host, process, id);
        if let Some(shared) = self.hosts[host].memories.of.get_mut(&process) {
            shared.keep_in(slot, commit.clone());
        }
        self.sealed(host, process, &commit);
        // The shell makes this mistake.
        if planted(Mutant::NoBarrierAtFirst) {
            return self.all_sealed(host, process);
        }
        self.reach(host, process, TRANSFER);
    }

    pub(super) fn all_sealed(&mut self, host: usize, process: Process) {
        if let Some(worker) = self.worker(host, process) {
            worker.machine.all_sealed();
        }
        self.set_up(host, process);
    }

    /// Begins to write a commit over the older one of a worker.
    pub(super) fn begin_commit(&mut self, host: usize, process: Process) -> Option<usize> {
        let lost = self.hosts[host].overwritten(process);
        let shared = self.hosts[host].memories.of.get_mut(&process)?;
        let slot = shared.begin();
        r15::gave_up(self, host, process, lost.as_slice());
        Some(slot)
    }

    /// The part of the state that a commit of a worker is. Now and then the layout is another one than that of the other
    /// members, for example since the script of one of them has changed its model. This member fails at its next commit.
    pub(super) fn shard_of(&mut self, host: usize, process: Process, state: &State) -> Shard {
        if !self.plan.is_divided() {
            return Shard::default();
        }
        let strays = !self.healed && self.layout_rng.percent(self.plan.strays);
        if let Some(worker) = self.worker(host, process).filter(|_| strays) {
            worker.has_strayed = true;
            return self.place_of(
                host,
                process,
                |of, state| layout_of(of, state) | STRAY,
                state,
            );
        }
        self.place_of(host, process, layout_of, state)
    }

    /// The shard of the seat of a worker, in this layout.
    fn place_of(
        &self,
        host: usize,
        process: Process,
        layout_of: impl Fn(u32, &State) -> u64,
        state: &State,
    ) -> Shard {
        let worker = self.hosts[host].workers.get(&process);
        let round = worker.and_then(|worker| worker.round.as_ref());
        let seat = round.and_then(|round| round.seat);
        seat.map_or_else(Shard::default, |seat| Shard {
            layout: layout_of(seat.of, state),
            index: seat.shard,
            of: seat.of,
        })
    }

    /// The base of a round could not be read. The worker leaves the round, or fails if that happens again and again.
    pub(super) fn base_missed(&mut self, host: usize, process: Process) {
        self.sync_fails(host, process);
        let over = self
            .worker(host, process)
            .and_then(|worker| worker.machine.fetch_failed(None));
        match over {
            Some(_) => self.leave(host, process),
            None => self.die(host, process, Exit::Code(1)),
        }
    }
}
