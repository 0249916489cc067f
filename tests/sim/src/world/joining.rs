//! How a worker waits for rounds and leaves them, and the messages of its agent meanwhile.

use std::rc::Rc;

use elasticrun_core::{
    mutant::{Mutant, planted},
    worker::{Announcement, Command, Ended, Event, Failure, Join, Over, RoundId, RoundStart},
};
use elasticrun_protocol::{
    FromWorker, Process, Round,
    control::{Member, Start, StopReason},
};

use super::{Ev, World, schedule::Act, worker::Phase};

/// A message of the agent to a worker.
#[derive(Clone, Debug)]
pub(crate) enum Tell {
    Start(Rc<Start>, Member),
    Abort(Round),
    Stop(StopReason),
}

impl World {
    /// The worker is at `run()` and follows its machine.
    pub(super) fn join(&mut self, host: usize, process: Process) {
        self.turn(host, process, Phase::Joined);
        while let Some(worker) = self.worker(host, process) {
            match worker.machine.join() {
                Ok(Join::Announce(announcement)) => self.announce(host, process, announcement),
                Ok(Join::Wait) => return,
                Ok(Join::Connect(_)) => {
                    if let Some((start, member)) = worker.start.take() {
                        self.enter(host, process, start, member);
                    }
                    return;
                }
                Err(Over::Ended(_)) => return self.end_as_told(host, process),
                // A process that was asked to stop announces itself before it ends. Its script sees an error otherwise.
                Err(over) => {
                    let what = format!("h{host} {process:?} comes to run() and gets {over:?}");
                    return self.violate("R9", what);
                }
            }
        }
    }

    fn announce(&mut self, host: usize, process: Process, announcement: Announcement) {
        let left = announcement.left;
        let join = FromWorker::Join {
            left: left.map(|left| left.round),
            told: left.is_none_or(|left| left.ordered),
            data_port: 1000 + process.local_rank.0 as u16,
            commit: self.hosts[host].newest(process),
            empty: false,
            unreachable: announcement.unreachable,
        };
        self.say(host, process, join);
    }

    /// Hosts of a round that this host exchanges no data with, by their index in the round.
    fn unreachable_from(&self, host: usize, round: Round) -> Vec<u32> {
        let Some(round) = self.rounds.get(&round) else {
            return Vec::new();
        };
        let mut hosts: Vec<_> = round.seats.iter().map(|seat| seat.host).collect();
        hosts.dedup();
        let cut = |at: usize| self.hosts[at].cut_data > 0;
        let lost = |at: &usize| *at != host && (cut(*at) || cut(host));
        let lost = hosts.iter().enumerate().filter(|(_, at)| lost(at));
        lost.map(|(index, _)| index as u32).collect()
    }

    /// A collective of this worker has failed: a peer is gone, or cannot be reached.
    pub(super) fn peers_fail(&mut self, host: usize, process: Process) {
        let round = self.worker(host, process).and_then(|w| w.round.as_ref());
        let Some(round) = round.map(|round| round.start.round) else {
            return;
        };
        let hosts = self.unreachable_from(host, round);
        self.collective_fails(host, process, hosts);
    }

    /// A collective of this worker has failed, since its round is over.
    pub(super) fn round_fails(&mut self, host: usize, process: Process) {
        self.collective_fails(host, process, Vec::new());
    }

    fn collective_fails(&mut self, host: usize, process: Process, hosts: Vec<u32>) {
        let Some(worker) = self.worker(host, process) else {
            return;
        };
        let over = worker.machine.failed(Failure::Lost { hosts });
        if worker.machine.commit().is_ok() {
            let what = format!("h{host} {process:?} may commit what a collective left half done");
            return self.violate("W4", what);
        }
        if over.is_none() {
            return self.violate(
                "W1",
                format!("h{host} {process:?} lost a peer and its round goes on"),
            );
        }
        self.leave(host, process);
    }

    /// The worker goes back to `run()`, since its round is over.
    pub(super) fn leave(&mut self, host: usize, process: Process) {
        // The shell makes this mistake.
        if self.is_copying(host, process) && !planted(Mutant::SealedAfterLeave) {
            return self.leave_copying(host, process);
        }
        let Some(id) = self.round_id(host, process) else {
            return;
        };
        let shared = self.hosts[host].memories.of.get(&process);
        let aborted = shared.is_some_and(|shared| shared.aborted(id.round));
        let Some(worker) = self.worker(host, process) else {
            return;
        };
        let Some(departure) = worker.machine.leave(false, aborted) else {
            return self.violate(
                "W1",
                format!(
                    "h{host} {process:?} cannot leave {:?}, which is over",
                    id.round
                ),
            );
        };
        let Some(round) = worker.round.take() else {
            return;
        };
        let from = worker.phase;
        self.turn(host, process, Phase::Busy);
        self.seat_gone(round.start.round, round.rank, from);
        let wait = self.rng.micros(20, 5_000);
        let wait = wait + self.take_away(host, process);
        self.note(format_args!("h{host} {process:?} leaves: {departure:?}"));
        if departure.ordered {
            self.act_after(host, process, wait, Act::Join);
        } else {
            self.join(host, process);
        }
    }

    pub(super) fn round_id(&self, host: usize, process: Process) -> Option<RoundId> {
        let worker = self.hosts[host].workers.get(&process)?;
        let start = &*worker.round.as_ref()?.start;
        Some(start.into())
    }

    pub(super) fn tell(&mut self, host: usize, process: Process, tell: Tell) {
        let latest = self.plan.hearing.as_micros() as u64;
        let at = self.now + self.rng.micros(10, latest);
        let Some(worker) = self.worker(host, process) else {
            return;
        };
        worker.told_at = worker.told_at.max(at);
        let (at, agent) = (worker.told_at, worker.agent);
        self.at(
            at,
            Ev::Tell {
                host,
                agent,
                process,
                tell,
            },
        );
    }

    /// A worker receives a message of its agent. Another process may have its number by now, of a later agent.
    pub(super) fn worker_told(&mut self, host: usize, agent: u64, process: Process, tell: Tell) {
        let addressee = self.hosts[host].workers.get(&process);
        if addressee.is_some_and(|worker| worker.agent != agent) {
            return;
        }
        let again = || Ev::Tell {
            host,
            agent,
            process,
            tell: tell.clone(),
        };
        if self.defers(host, process, again) {
            return;
        }
        let now_at = self.worker(host, process).map(|worker| worker.phase);
        match tell {
            Tell::Start(start, member) => {
                if now_at != Some(Phase::Joined) {
                    let round = start.round;
                    let what = format!(
                        "h{host} {process:?} is told to start {round:?} and is not at run() but {now_at:?}"
                    );
                    return self.violate("R3", what);
                }
                let own = &self.hosts[host].id;
                let keeper = start.keeper.as_ref();
                let is_local = keeper.is_some_and(|keeper| keeper.host == *own);
                let facts = RoundStart::new(&start, &member, is_local);
                if let Some(worker) = self.worker(host, process) {
                    worker.start = Some((start, member));
                }
                self.worker_hears(host, process, Event::Started(facts));
            }
            Tell::Abort(round) => self.worker_hears(host, process, Event::Aborted { round }),
            Tell::Stop(why) => {
                let Some(worker) = self.worker(host, process).filter(|w| !w.script) else {
                    // A script receives no messages.
                    return;
                };
                worker.told_to_stop = true;
                self.worker_hears(host, process, Event::Ended(Ended::Stopped(why)));
            }
        }
    }

    /// A collective beside the training fails by the loss of a peer, so no result of it is complete.
    pub(super) fn is_cut_short(&mut self, host: usize, process: Process) {
        let Some(id) = self.round_id(host, process) else {
            return;
        };
        if let Some(worker) = self.worker(host, process) {
            worker.cut_short = Some(id.round);
        }
        self.worker_hears(host, process, Event::CutShort { id });
    }

    /// The SDK's thread passes a message of the agent to the machine, and carries out the commands.
    fn worker_hears(&mut self, host: usize, process: Process, event: Event) {
        let Some(worker) = self.worker(host, process) else {
            return;
        };
        let mut commands = Vec::new();
        worker.machine.step(event, &mut commands);
        let joined = worker.phase == Phase::Joined;
        for command in commands {
            if let Command::EndRound(id) = command {
                if let Some(shared) = self.hosts[host].memories.of.get_mut(&process) {
                    shared.abort(id.round);
                }
                let wait = self.rng.micros(5, 50);
                self.after(wait, Ev::Wake { host, process });
            }
        }
        if joined {
            self.wakes_in_run(host, process);
        }
    }

    /// The thread that waits in `run()` sees what has come, often at once. On a busy host more may come until then.
    fn wakes_in_run(&mut self, host: usize, process: Process) {
        let Some(worker) = self.worker(host, process) else {
            return;
        };
        if worker.wakes == Some(worker.token) {
            return;
        }
        if self.rng.percent(80) {
            return self.join(host, process);
        }
        let longest = if self.rng.percent(10) { 500_000 } else { 3_000 };
        let wait = self.rng.micros(50, longest);
        self.act_after(host, process, wait, Act::Join);
        if let Some(worker) = self.worker(host, process) {
            worker.wakes = Some(worker.token);
        }
    }
}
