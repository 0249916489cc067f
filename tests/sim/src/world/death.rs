//! How workers end, and how they are stopped for a while.

use std::time::Duration;

use elasticrun_core::agent::Event as AgentEvent;
use elasticrun_protocol::{Process, control::Exit};

use super::{Ev, World, schedule::Act, worker::Phase};

impl World {
    pub(super) fn end_as_told(&mut self, host: usize, process: Process) {
        self.obeys(host, process);
        let wait = self.rng.micros(500, 20_000);
        let code = i32::from(self.rng.percent(50));
        self.act_after(host, process, wait, Act::Exit(Exit::Code(code)));
    }

    /// A signal reaches a process.
    pub(super) fn worker_signalled(&mut self, host: usize, process: Process, term: bool) {
        if term
            && self.defers(host, process, || Ev::Kill {
                host,
                process,
                term,
            })
        {
            return;
        }
        if process.is_server() {
            return self.server_signalled(host, process, term);
        }
        // Some scripts do not end by SIGTERM.
        if term && self.rng.percent(20) {
            return;
        }
        if self.worker(host, process).is_some() {
            self.signal_ends(host, process);
        }
        self.die(host, process, Exit::Signal(if term { 15 } else { 9 }));
    }

    pub(super) fn die(&mut self, host: usize, process: Process, exit: Exit) {
        let now = self.now;
        let Some(worker) = self.worker(host, process) else {
            return;
        };
        let (attached, agent, script) = (worker.attached, worker.agent, worker.script);
        let seat = worker
            .round
            .as_ref()
            .map(|round| (round.start.round, round.rank));
        let from = worker.phase;
        let lost = worker.orphan;
        worker.phase = Phase::Dead;
        worker.token += 1;
        worker.end = Some(exit.clone());
        self.note(format_args!("h{host} {process:?} dies: {exit}"));
        self.ends(host, process, &exit, lost);
        let outside = from == Phase::Joined && matches!(exit, Exit::Code(_));
        if let Some(shared) = self.hosts[host].memories.of.get_mut(&process) {
            shared.stop_beating(now);
            shared.exited_outside = outside;
        }
        if let Some((round, rank)) = seat.filter(|_| from != Phase::Finished) {
            self.seat_gone(round, rank, from);
        }
        if script && from != Phase::Finished {
            self.script_gone(host, process);
        }
        // The agent learns of an orderly exit by its status alone.
        if attached && !outside && self.rng.percent(90) {
            let wait = self.rng.micros(50, 2_000);
            let event = AgentEvent::Died { process };
            self.machine_after(wait, host, agent, event);
        }
        // The status comes before the last lines of output, with which the process is gone.
        let ended = self.rng.micros(100, 20_000);
        let event = AgentEvent::Ended { process, exit };
        self.machine_after(ended, host, agent, event);
        let wait = ended + self.rng.micros(0, 180_000);
        self.after(wait, Ev::Reap { host, process });
    }

    fn machine_after(&mut self, wait: Duration, host: usize, agent: u64, event: AgentEvent) {
        self.after(wait, Ev::Machine { host, agent, event });
    }

    pub(super) fn suspend(&mut self, host: usize, process: Process) {
        let now = self.now;
        if let Some(worker) = self.worker(host, process) {
            worker.set_suspended(Some(now));
            if let Some(shared) = self.hosts[host].memories.of.get_mut(&process) {
                shared.stop_beating(now);
            }
        }
    }

    pub(super) fn resume(&mut self, host: usize, process: Process) {
        let now = self.now;
        // Only the agent continues a process that it has stopped.
        let stopped = |worker: &&mut super::worker::Worker| worker.suspended && !worker.frozen;
        let Some(worker) = self.worker(host, process).filter(stopped) else {
            return;
        };
        worker.set_suspended(None);
        let attached = worker.attached;
        let deferred = std::mem::take(&mut worker.deferred);
        self.note(format_args!("h{host} {process:?} is continued"));
        if let Some(shared) = self.hosts[host].memories.of.get_mut(&process)
            && attached
        {
            shared.start_beating(now);
        }
        for ev in deferred {
            self.at(now, ev);
        }
        self.retry_groups();
    }
}
