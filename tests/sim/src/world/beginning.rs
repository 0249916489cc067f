//! The start of a round in a worker, as the shipped machine directs it. The worker connects, its reset callbacks
//! run, and it takes over the base. This file models the time, the memory and the network that this needs.

use std::rc::Rc;

use elasticrun_core::worker::{
    Action, Fingerprint, Hooks, Machine, Offer, Outcome, SetupStep, SyncError,
};
use elasticrun_protocol::{
    CommitId, Process,
    control::{Member, Start},
};

use super::{
    World,
    collective::{CONNECT, EXCHANGE, TRANSFER},
    memory::{Commit, Shared, State},
    schedule::Act,
    worker::{InRound, Phase},
};
use crate::invariants::{r7, r8, r13, r14, survival, w5};

impl World {
    pub(super) fn enter(
        &mut self,
        host: usize,
        process: Process,
        start: Rc<Start>,
        member: Member,
    ) {
        let round = start.round;
        let Some(worker) = self.worker(host, process) else {
            return;
        };
        worker.round = Some(InRound {
            start,
            rank: member.place.rank,
            seat: member.seat,
            boundary: 0,
        });
        self.turn(host, process, Phase::Busy);
        if let Some(shared) = self.hosts[host].memories.of.get_mut(&process) {
            shared.enter(round);
            if shared.aborted(round) {
                return self.round_fails(host, process);
            }
        }
        let wait = self.rng.micros(10, 2_000);
        self.act_after(host, process, wait, Act::Reach(CONNECT));
    }

    /// All members are connected.
    pub(super) fn connected(&mut self, host: usize, process: Process) {
        let hooks = Hooks {
            callbacks: self.plan.callbacks,
            divided: self.plan.is_divided(),
            ..Hooks::default()
        };
        let Some(worker) = self.worker(host, process) else {
            return;
        };
        match worker.machine.setup(hooks) {
            Ok(steps) => worker.setup = steps.into(),
            Err(over) => {
                let what = format!("h{host} {process:?} is connected and cannot begin: {over:?}");
                return self.violate("W1", what);
            }
        }
        self.set_up(host, process);
    }

    /// Carries out the next steps of the start of a round, until one takes time.
    pub(super) fn set_up(&mut self, host: usize, process: Process) {
        while let Some(step) = self.next_setup_step(host, process) {
            match step {
                SetupStep::FetchBase => {
                    let fetch =
                        |machine: &mut Machine, shared: &mut Shared| machine.fetch_base(shared);
                    let asked = self.with_machine(host, process, fetch);
                    if let Some(Ok(Some(Action::Fetch { id, .. }))) = asked {
                        let wait = self.rng.millis(1, 200);
                        return self.act_after(host, process, wait, Act::BaseAsked(id));
                    }
                }
                SetupStep::RestoreNewest | SetupStep::Restore => self.restore_newest(host, process),
                SetupStep::Reset => self.call_back(host, process),
                // These steps are for scripts that keep their state themselves.
                SetupStep::RequireBase | SetupStep::SyncOwn => {}
                SetupStep::LoadShards => {
                    if self.load_shards(host, process) {
                        return;
                    }
                }
                SetupStep::SealFirst => return self.compares_shards(host, process),
                SetupStep::Sync { fresh } => {
                    let begin =
                        |machine: &mut Machine, shared: &mut Shared| machine.sync(fresh, shared);
                    let action = self.with_machine(host, process, begin);
                    let action = action.map(|action| action.map_err(SyncError::Over));
                    return self.act_on(host, process, action);
                }
                SetupStep::Adapt => self.share_out(host, process),
                SetupStep::Train => return self.begin_training(host, process),
            }
        }
    }

    fn next_setup_step(&mut self, host: usize, process: Process) -> Option<SetupStep> {
        let worker = self.worker(host, process)?;
        // The memory of an orphan went with its agent, and the orphan ends soon.
        if worker.orphan {
            return None;
        }
        worker.setup.pop_front()
    }

    pub(super) fn is_root(&self, host: usize, process: Process) -> bool {
        let worker = self.hosts[host].workers.get(&process);
        let round = worker.and_then(|worker| worker.round.as_ref());
        round.is_some_and(|round| round.rank.0 == 0)
    }

    /// Rank 0 has requested the base before its reset callbacks run.
    pub(super) fn base_asked(&mut self, host: usize, process: Process, id: CommitId) {
        if self.is_aborted(host, process) {
            return self.round_fails(host, process);
        }
        if self.fetch(host, process, id) {
            self.set_up(host, process);
        }
    }

    /// A worker restores its last commit for its reset callbacks; without a commit, its initial state.
    fn restore_newest(&mut self, host: usize, process: Process) {
        let shared = self.hosts[host].memories.of.get(&process);
        let newest = shared.and_then(|shared| shared.complete().into_iter().next());
        let Some(worker) = self.worker(host, process) else {
            return;
        };
        match newest {
            Some(newest) => {
                worker.state = newest.state;
                worker.machine.restored(newest.id, true);
            }
            None => worker.state = State::default(),
        }
    }

    /// Reset callbacks, if there are any, change the live state.
    fn call_back(&mut self, host: usize, process: Process) {
        if !self.plan.callbacks {
            return;
        }
        let Some(id) = self.round_id(host, process) else {
            return;
        };
        if self.is_root(host, process) {
            w5::called_back(self, host, process);
        }
        let Some(worker) = self.worker(host, process) else {
            return;
        };
        let before = worker.state.digest;
        worker.state = worker.state.after_callbacks(id.round);
        let after = worker.state.digest;
        r7::called_back(&mut self.invariants, before, after);
    }

    /// Calls the machine of a worker with its memory.
    pub(super) fn with_machine<R>(
        &mut self,
        host: usize,
        process: Process,
        call: impl FnOnce(&mut Machine, &mut Shared) -> R,
    ) -> Option<R> {
        let host = &mut self.hosts[host];
        let shared = host.memories.of.get_mut(&process)?;
        let worker = host.workers.get_mut(&process)?;
        Some(call(&mut worker.machine, shared))
    }

    fn act_on(&mut self, host: usize, process: Process, action: Option<Result<Action, SyncError>>) {
        match action {
            None => {}
            Some(Ok(Action::Begin { .. })) => self.set_up(host, process),
            Some(Ok(Action::Exchange {
                commit,
                is_first,
                base,
            })) => {
                let print = |id: CommitId| self.print(host, process, id);
                let offer = Offer {
                    commit: print(commit),
                    is_first,
                    base: base.and_then(print),
                };
                self.offers(host, process, offer);
                let wait = self.rng.micros(10, 500);
                self.act_after(host, process, wait, Act::Reach(EXCHANGE));
            }
            Some(Ok(action @ (Action::Send(_) | Action::Receive { .. }))) => {
                self.sends(host, process, action);
                if let Some(worker) = self.worker(host, process) {
                    worker.transfer = Some(action);
                }
                let wait = self.rng.micros(10, 500);
                self.act_after(host, process, wait, Act::Reach(TRANSFER));
            }
            Some(Ok(action @ Action::Fetch { .. })) => {
                let wait = self.rng.millis(1, 200);
                self.act_after(host, process, wait, Act::Synced(action));
            }
            Some(Ok(action @ (Action::Save(_) | Action::Restore(_)))) => {
                let wait = self.rng.micros(10, 500);
                self.act_after(host, process, wait, Act::Synced(action));
            }
            Some(Ok(Action::Compare(base))) => {
                let what = format!("members hold different bytes as {base:?}");
                self.violate("R12", what);
            }
            Some(Err(error)) => {
                let what = format!("h{host} {process:?} cannot begin its round: {error:?}");
                self.violate("R12", what);
            }
        }
    }

    fn print(&self, host: usize, process: Process, id: CommitId) -> Option<Fingerprint> {
        let shared = self.hosts[host].memories.of.get(&process)?;
        shared.state(id).map(State::fingerprint)
    }

    /// An action of the start of a round is done, or fails.
    pub(super) fn performed(&mut self, host: usize, process: Process, action: Action) {
        if self.is_aborted(host, process) {
            self.sync_fails(host, process);
            return self.round_fails(host, process);
        }
        match action {
            Action::Fetch { id, .. } if !self.fetch(host, process, id) => return,
            Action::Save(id) => {
                let Some(state) = self.worker(host, process).map(|w| w.state.clone()) else {
                    return;
                };
                self.keep(host, process, Commit::whole(id, state));
            }
            Action::Restore(id) => {
                let shared = self.hosts[host].memories.of.get(&process);
                let state = shared.and_then(|shared| shared.state(id).cloned());
                if let (Some(state), Some(worker)) = (state, self.worker(host, process)) {
                    worker.state = state;
                }
            }
            _ => {}
        }
        self.go_on_with(host, process, Outcome::Done);
    }

    /// The offers of all members have arrived.
    pub(super) fn exchanged(&mut self, host: usize, process: Process) {
        if self.plan.is_divided() {
            return self.seal_first(host, process);
        }
        let Some(id) = self.round_id(host, process) else {
            return;
        };
        let Some(all) = self.rounds.get(&id.round).map(|round| round.offers()) else {
            return;
        };
        self.go_on_with(host, process, Outcome::Exchanged(all));
    }

    pub(super) fn transferred(&mut self, host: usize, process: Process) {
        if self.plan.is_divided() {
            return self.all_sealed(host, process);
        }
        let transfer = self.worker(host, process).and_then(|w| w.transfer.take());
        if let Some(Action::Receive {
            id, fingerprint, ..
        }) = transfer
        {
            let round = self.round_id(host, process).map(|id| id.round);
            let sent = round.and_then(|round| self.rounds.get(&round)?.sent.clone());
            let Some(state) = sent.filter(|state| state.fingerprint() == fingerprint) else {
                let what = format!("h{host} {process:?} receives {id:?} damaged");
                return self.violate("R12", what);
            };
            self.keep(host, process, Commit::whole(id, state));
        }
        self.go_on_with(host, process, Outcome::Done);
    }

    /// The broadcast of rank 0 is on its way from now on, even if rank 0 ends.
    fn sends(&mut self, host: usize, process: Process, action: Action) {
        let Action::Send(id) = action else {
            return;
        };
        if !self.is_root(host, process) {
            return;
        }
        let shared = self.hosts[host].memories.of.get(&process);
        let state = shared.and_then(|shared| shared.state(id).cloned());
        let round = self.round_id(host, process).map(|id| id.round);
        if let Some(round) = round.and_then(|round| self.rounds.get_mut(&round)) {
            round.sent = state;
        }
    }

    fn go_on_with(&mut self, host: usize, process: Process, outcome: Outcome) {
        let next = |machine: &mut Machine, shared: &mut Shared| machine.synced(outcome, shared);
        let action = self.with_machine(host, process, next);
        self.act_on(host, process, action);
    }

    /// The start of a round was cut short.
    pub(super) fn sync_fails(&mut self, host: usize, process: Process) {
        self.with_machine(host, process, |machine, shared| machine.sync_failed(shared));
    }

    /// Rank 0 requests the base from the keeper. Gives `false` if the base did not come; the worker has then left
    /// the round or ended.
    fn fetch(&mut self, host: usize, process: Process, id: CommitId) -> bool {
        let Some(start) = self
            .worker(host, process)
            .and_then(|worker| Some(worker.round.as_ref()?.start.clone()))
        else {
            return false;
        };
        if let Some(state) = self.ask_keeper(host, &start) {
            self.keep(host, process, Commit::whole(id, state));
            if let Some(worker) = self.worker(host, process) {
                worker.machine.fetched();
            }
            return true;
        }
        self.base_missed(host, process);
        false
    }

    fn ask_keeper(&self, host: usize, start: &Start) -> Option<State> {
        let keeper = start.keeper.as_ref()?;
        let at = self.host_index(&keeper.host)?;
        let reached =
            at == host || (self.hosts[at].cut_data == 0 && self.hosts[host].cut_data == 0);
        let there = self.hosts[at].agent.is_some() && reached;
        let memories = &self.hosts[at].memories.of;
        let shared = memories.get(&keeper.process).filter(|_| there)?;
        shared.state(start.base?).cloned()
    }

    /// Keeps a commit that is not one of a step.
    fn keep(&mut self, host: usize, process: Process, commit: Commit) {
        if let Some(shared) = self.hosts[host].memories.of.get_mut(&process) {
            shared.keep(commit.clone());
        }
        self.sealed(host, process, &commit);
    }

    pub(super) fn sealed(&mut self, host: usize, process: Process, commit: &Commit) {
        let Commit { id, state, .. } = commit;
        let (id, step) = (*id, state.step);
        self.note(format_args!(
            "h{host} {process:?} seals {id:?} at step {step}"
        ));
        if let Err(what) = r7::sealed(self, id, state) {
            return self.violate("R7", what);
        }
        if let Err(what) = self.history.sealed(commit) {
            self.violate("R12", what);
        }
        survival::look(self);
    }

    fn begin_training(&mut self, host: usize, process: Process) {
        r13::begins(self, host, process);
        r14::begins(self, host, process);
        r8::begins(self, host, process);
        if let Some(worker) = self.worker(host, process) {
            worker.machine.train();
        }
        self.train(host, process);
    }
}
