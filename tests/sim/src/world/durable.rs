//! The durable store, which all hosts share: slow, sometimes full, and with commits that are damaged later.

use elasticrun_core::{
    agent::Event as AgentEvent,
    mutant::{Mutant, planted},
};
use elasticrun_protocol::{CommitId, Process, control::StoredCommit};

use super::{
    Ev, World,
    memory::{Commit, State},
};
use crate::invariants;

/// A complete commit in the store.
#[derive(Clone, Debug)]
pub(crate) struct Durable {
    pub(crate) commit: Commit,
    pub(crate) written: elasticrun_core::Time,
    /// Its bytes are not those that were written.
    pub(crate) damaged: bool,
}

impl World {
    /// Copies the newest commit of a process, which the worker leaves alone meanwhile. It is whole at the end of the write,
    /// unless the agent is gone by then.
    pub(super) fn write_durable(&mut self, host: usize, process: Process) {
        let memory = self.hosts[host].memories.of.get(&process);
        let newest = memory.and_then(|shared| shared.complete().into_iter().next());
        let fails = newest.is_none() || self.store_rng.percent(10);
        let longest = self.plan.write.as_millis() as u64;
        let wait = self.store_rng.millis(1, longest);
        self.after_store(host, wait, |at| match newest.filter(|_| !fails) {
            Some(commit) => Ev::Stored { at, commit },
            None => Ev::Machine {
                host: at.0,
                agent: at.1,
                event: AgentEvent::DurableFailed { why: "full".into() },
            },
        });
    }

    /// A write has ended.
    pub(super) fn stored(&mut self, (host, agent): (usize, u64), commit: Commit) {
        if !self.hosts[host].is_agent(agent) {
            return;
        }
        let id = commit.id;
        let damaged = self.store_rng.percent(15);
        self.note(format_args!(
            "h{host} has written {id:?} durably (damaged later: {damaged})"
        ));
        let written = self.now;
        self.store.retain(|stored| stored.commit.id != id);
        self.store.push(Durable {
            commit,
            written,
            damaged,
        });
        // Two complete commits are kept (S3), and older ones are removed.
        self.store.sort_by_key(|stored| stored.commit.id);
        let surplus = self.store.len().saturating_sub(2);
        self.store.drain(..surplus);
        let event = AgentEvent::DurableWritten {
            commit: id,
            bytes: 1,
            took: Default::default(),
        };
        self.machine_event(host, agent, event);
    }

    pub(super) fn find_durable(&mut self, host: usize, number: u64) {
        invariants::r12::lists(self);
        let stored = |stored: &Durable| StoredCommit {
            written_at: stored.written.since_start().as_millis() as u64,
            run_id: "run".into(),
            commit: stored.commit.id,
        };
        let commits = self.store.iter().map(stored).collect();
        let event = AgentEvent::DurableFound {
            number,
            commits,
            refused: Vec::new(),
        };
        let wait = self.store_rng.millis(1, 500);
        self.after_store(host, wait, |(host, agent)| Ev::Machine {
            host,
            agent,
            event,
        });
    }

    /// Loads a commit. A damaged one is refused by its checksum.
    pub(super) fn load_durable(
        &mut self,
        host: usize,
        number: u64,
        process: Process,
        id: CommitId,
    ) {
        let stored = self
            .store
            .iter()
            .find(|stored| stored.commit.id == id)
            .cloned();
        let wait = self.store_rng.millis(1, 2_000);
        self.after_store(host, wait, |at| Ev::Loaded {
            at,
            number,
            process,
            stored,
        });
    }

    pub(super) fn loaded(
        &mut self,
        (host, agent): (usize, u64),
        (number, process): (u64, Process),
        stored: Option<Durable>,
    ) {
        if !self.hosts[host].is_agent(agent) {
            return;
        }
        let torn = planted(Mutant::DamagedLoaded);
        let whole = stored.filter(|stored| !stored.damaged || torn);
        let refused = whole.is_none().then(|| "damaged".to_owned());
        if let Some(Durable {
            mut commit,
            damaged,
            ..
        }) = whole
        {
            if damaged {
                commit.state = State {
                    digest: !commit.state.digest,
                    ..commit.state
                };
            }
            let shared = self.hosts[host].memories.of.entry(process);
            shared.or_default().keep(commit.clone());
            if let Err(what) = self.history.sealed(&commit) {
                return self.violate("R8", format!("h{host} has loaded something else: {what}"));
            }
        }
        let event = AgentEvent::DurableLoaded {
            number,
            process,
            refused,
        };
        self.invariants.last_commit.arrives(Some((host, process)));
        self.machine_event(host, agent, event);
        self.invariants.last_commit.arrives(None);
    }

    /// Schedules an event of the agent that a host has now.
    fn after_store(
        &mut self,
        host: usize,
        wait: std::time::Duration,
        event: impl FnOnce((usize, u64)) -> Ev,
    ) {
        if let Some(agent) = self.hosts[host].agent.as_ref().map(|agent| agent.number) {
            self.after(wait, event((host, agent)));
        }
    }
}
