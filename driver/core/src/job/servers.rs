//! Parameter servers: `--ps N` processes that run beside the workers, on hosts of the job.
//!
//! A server is in no round. It takes no slot, and its end changes no round: the servers of a job take over from each other by
//! themselves, see `elasticrun-ps`. The job only sees to it that N of them run.
//!
//! - A server stays on its host. One on a host that is lost or leaves is replaced on the host with the fewest servers, in the order of the
//!   hosts' arrival. On a host that leaves it is ended once the other one is started, so that it can hand over what it holds.
//! - A server that fails is replaced after a pause that doubles. If [`Settings::server_failures`](crate::Settings::server_failures) fail one after
//!   the other, each within [`STEADY`] of its start, the job ends: the program is at fault, or no other server has the values.
//! - A server that ends with code 0 has finished, and is not replaced: in ps-lite's programs servers end with the last worker.
//! - The end of a server that its agent was told to end is neither a failure nor a finish, whichever driver told it.
//! - The first servers start once no launch of an agent is under way, so that they are spread over the hosts.
//!
//! Not promised: that no more than N run at a time. The connection of an agent may be lost while its servers live.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use elasticrun_protocol::{AgentCommand, DriverEpoch, HostId, Process, control::Exit};

use super::{Job, Out};
use crate::{
    Command, Decision, Time,
    fleet::Agent,
    results::{Failure, Outcome},
};

/// A server that has run for so long has not failed in a row with the one before.
const STEADY: Duration = Duration::from_secs(60);
/// The pause after the first failure, and the longest one.
const PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// The servers of a job.
#[derive(Clone, Debug)]
pub(super) struct Servers {
    epoch: DriverEpoch,
    /// Servers of this driver that were started.
    started: u32,
    /// The number of the last command.
    number: u64,
    /// Those that are to run.
    running: BTreeMap<Process, Running>,
    /// Those that were told to end, and their hosts.
    ending: BTreeMap<Process, HostId>,
    /// Those that have ended with code 0 by themselves.
    finished: u32,
    /// Failures in a row.
    failures: u32,
    /// No server starts before this time.
    paused_until: Option<Time>,
    /// Hosts that do not know yet which servers they are to run.
    untold: BTreeSet<HostId>,
}

#[derive(Clone, Debug)]
struct Running {
    host: HostId,
    since: Time,
}

impl Servers {
    pub(super) fn new(epoch: DriverEpoch) -> Self {
        Self {
            epoch,
            started: 0,
            number: 0,
            running: BTreeMap::new(),
            ending: BTreeMap::new(),
            finished: 0,
            failures: 0,
            paused_until: None,
            untold: BTreeSet::new(),
        }
    }

    /// An agent has connected, anew or again. It is told which servers it runs.
    pub(super) fn connected(&mut self, host: &HostId) {
        if self.of_host(host).next().is_some() || self.runs_on(host) {
            self.untold.insert(host.clone());
        }
    }

    /// An agent that served a former driver runs these.
    pub(super) fn learn(&mut self, now: Time, host: &HostId, servers: &[Process]) {
        for process in servers.iter().filter(|process| process.is_server()) {
            let host = host.clone();
            let running = Running { host, since: now };
            self.running.entry(*process).or_insert(running);
        }
        self.connected(host);
    }

    /// An agent is lost, and its servers with it.
    pub(super) fn lost(&mut self, host: &HostId) {
        self.running.retain(|_, running| running.host != *host);
        self.ending.retain(|_, other| other != host);
        self.untold.remove(host);
    }

    /// Whether a host has servers that run or end.
    pub(super) fn runs_on(&self, host: &HostId) -> bool {
        self.of_host(host).next().is_some() || self.ending.values().any(|other| other == host)
    }

    fn of_host<'a>(&'a self, host: &'a HostId) -> impl Iterator<Item = Process> + 'a {
        (self.running.iter())
            .filter(move |(_, running)| running.host == *host)
            .map(|(process, _)| *process)
    }

    /// When the next server may start, unless that was so when the job was settled last, and none was needed.
    pub(super) fn deadline(&self, settled: Time) -> Option<Time> {
        self.paused_until.filter(|until| *until > settled)
    }
}

impl Job {
    /// Starts servers that are missing, ends those of hosts that leave, and tells the agents.
    pub(super) fn follow_servers(&mut self, now: Time, out: &mut Out) {
        if self.settings.servers == 0 || self.takeover.is_some() {
            return;
        }
        let servers = &self.servers;
        let leaves = |host: &HostId| !self.hosts.contains(host) || self.hosts.is_draining(host);
        let leaving: Vec<_> = (servers.running.iter())
            .filter(|(_, running)| leaves(&running.host))
            .map(|(process, _)| *process)
            .collect();
        let missing = self.missing_servers(leaving.len());
        if missing > 0 && self.may_start_servers(now) {
            let hosts = self.hosts_for_servers();
            self.start_servers(now, missing, hosts, out);
        }
        if self.missing_servers(leaving.len()) == 0 {
            for process in leaving {
                if let Some(running) = self.servers.running.remove(&process) {
                    self.servers.untold.insert(running.host.clone());
                    self.servers.ending.insert(process, running.host);
                }
            }
        }
        self.tell_servers(out);
    }

    /// The number of servers to start, if so many of those that run leave.
    fn missing_servers(&self, leaving: usize) -> usize {
        let wanted = self.settings.servers.saturating_sub(self.servers.finished);
        (wanted as usize + leaving).saturating_sub(self.servers.running.len())
    }

    fn may_start_servers(&mut self, now: Time) -> bool {
        if self.servers.paused_until.is_some_and(|until| now < until) {
            return false;
        }
        self.servers.paused_until = None;
        let launching = |state: &crate::fleet::Host| matches!(state.agent, Agent::Launching { .. });
        self.servers.started > 0 || !self.fleet.hosts().any(|(_, state)| launching(state))
    }

    /// The hosts that may get servers, with the number that they have, in the order of their arrival.
    fn hosts_for_servers(&self) -> Vec<(usize, HostId)> {
        let may = |host: &&HostId| {
            let up = self.fleet.host(host).and_then(|state| state.up());
            up.is_some_and(|up| up.servers)
                && !self.hosts.is_draining(host)
                && self.has_usable_slot(host)
        };
        (self.hosts.in_order().into_iter())
            .filter(may)
            .map(|host| (self.servers.of_host(host).count(), host.clone()))
            .collect()
    }

    fn start_servers(
        &mut self,
        now: Time,
        count: usize,
        mut hosts: Vec<(usize, HostId)>,
        out: &mut Out,
    ) {
        for _ in 0..count {
            // The first of those with the fewest.
            let Some((has, host)) = hosts.iter_mut().min_by_key(|(has, _)| *has) else {
                return;
            };
            *has += 1;
            let host = host.clone();
            let process = Process::server(self.servers.epoch, self.servers.started);
            self.servers.started += 1;
            out.push(Command::Announce(Decision::ServerStarted {
                host: host.clone(),
                process,
            }));
            self.servers.untold.insert(host.clone());
            let running = Running { host, since: now };
            self.servers.running.insert(process, running);
        }
    }

    fn tell_servers(&mut self, out: &mut Out) {
        for host in std::mem::take(&mut self.servers.untold) {
            if !self.is_up(&host) {
                continue;
            }
            self.servers.number += 1;
            let number = self.epoch.0 << 32 | self.servers.number;
            let run = self.servers.of_host(&host).collect();
            self.send(&host, AgentCommand::Servers { number, run }, out);
        }
    }

    pub(super) fn server_exited(
        &mut self,
        now: Time,
        host: &HostId,
        (process, stopped): (Process, bool),
        exit: Exit,
        tail: Vec<String>,
        out: &mut Out,
    ) {
        let host = host.clone();
        let ending = self.servers.ending.remove(&process).is_some();
        let running = self.servers.running.remove(&process);
        // A former driver may have ended one that this driver takes for running.
        if ending || (stopped && running.is_some()) {
            return out.push(Command::Announce(Decision::ServerStopped { host, process }));
        }
        let Some(running) = running else {
            return;
        };
        if exit.is_success() {
            self.servers.finished += 1;
            return;
        }
        let in_a_row = now < running.since + STEADY;
        let servers = &mut self.servers;
        servers.failures = if in_a_row { servers.failures + 1 } else { 1 };
        let failures = servers.failures;
        let pause = (PAUSE * (1 << (failures - 1).min(10))).min(MAX_PAUSE);
        servers.paused_until = Some(now + pause);
        out.push(Command::Announce(Decision::ServerFailed {
            host: host.clone(),
            process,
            exit: exit.clone(),
        }));
        if failures >= self.settings.server_failures {
            self.results.failed_last(Failure {
                host,
                process: Some(process),
                member: None,
                exit: Some(exit),
                tail,
                why: None,
            });
            self.end(Outcome::ServersFailed { failures }, out);
        }
    }
}
