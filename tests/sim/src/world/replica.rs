//! Copies of commits from one agent to another: slow, and they fail if the source goes away meanwhile.

use elasticrun_core::agent::{Copied, Event as AgentEvent, Wanted};
use elasticrun_protocol::{Process, control::Keeper};

use super::{
    Ev, World,
    memory::{Commit, Shared},
};

/// The longest copy, in milliseconds.
pub(crate) const LONGEST_COPY: u64 = 1_500;

/// A copy that goes on: the commit is pinned at its source.
#[derive(Clone, Debug)]
pub(crate) struct Copying {
    /// The process that gets the commit.
    process: Process,
    /// The host and the agent that send it.
    from: (usize, u64),
    /// None if the source has no newer commit, or not the one that is wanted.
    commit: Option<Commit>,
}

impl World {
    /// Begins a copy of a commit of a process on another host.
    pub(super) fn replicate(
        &mut self,
        host: usize,
        process: Process,
        keeper: &Keeper,
        wanted: Wanted,
    ) {
        let Some(agent) = self.hosts[host].agent.as_ref().map(|agent| agent.number) else {
            return;
        };
        let at = (host, agent);
        self.invariants.copies.begun(host, self.now);
        self.hosts[host].memories.of.entry(process).or_default();
        let source = self.host_index(&keeper.host);
        let sender = source.and_then(|from| Some((from, self.hosts[from].agent.as_ref()?.number)));
        let reached = source.is_some_and(|from| self.is_path_open(from, host));
        let fails = self.replica_rng.percent(3);
        let wait = self.replica_rng.millis(1, LONGEST_COPY);
        let Some(from) = sender.filter(|_| reached && !fails) else {
            let event = self.copy_failed(process);
            let ev = Ev::Machine { host, agent, event };
            return self.after(wait, ev);
        };
        let memory = self.hosts[from.0].memories.of.get(&keeper.process);
        let commits = memory.map_or_else(Vec::new, Shared::complete).into_iter();
        let mut newest = commits.clone().take(1);
        let commit = match wanted {
            Wanted::Newer(than) => newest.find(|commit| Some(commit.id) > than),
            Wanted::Shard(key) => commits.into_iter().find(|commit| commit.key() == key),
        };
        let copying = Copying {
            process,
            from,
            commit,
        };
        self.after(wait, Ev::Copied { at, copying });
    }

    /// A copy has ended.
    pub(super) fn copied(&mut self, (host, agent): (usize, u64), copying: Copying) {
        if !self.hosts[host].is_agent(agent) {
            return;
        }
        let Copying {
            process,
            from: (from, sender),
            commit,
        } = copying;
        let sent = self.hosts[from].is_agent(sender) && self.is_path_open(from, host);
        // A copy ends when its memory is freed.
        let sent = sent && self.hosts[host].memories.of.contains_key(&process);
        let event = match commit {
            _ if !sent => self.copy_failed(process),
            None => AgentEvent::Copied {
                process,
                copied: Copied::NothingNewer,
            },
            Some(commit) => {
                let id = commit.id;
                let shared = self.hosts[host].memories.of.entry(process);
                shared.or_default().keep(commit.clone());
                if let Err(what) = self.history.sealed(&commit) {
                    return self
                        .violate("R8", format!("h{host} has copied something else: {what}"));
                }
                let (bytes, took) = (1, Default::default());
                let copied = Copied::Whole {
                    commit: id,
                    bytes,
                    took,
                };
                AgentEvent::Copied { process, copied }
            }
        };
        self.invariants.last_commit.arrives(Some((host, process)));
        self.machine_event(host, agent, event);
        self.invariants.last_commit.arrives(None);
    }

    fn copy_failed(&self, process: Process) -> AgentEvent {
        let why = "the source does not answer".into();
        let copied = Copied::Failed { why };
        AgentEvent::Copied { process, copied }
    }

    /// Whether data passes between two hosts.
    fn is_path_open(&self, a: usize, b: usize) -> bool {
        let is_open = |host: usize| self.hosts[host].alive && self.hosts[host].cut_data == 0;
        is_open(a) && is_open(b)
    }
}
