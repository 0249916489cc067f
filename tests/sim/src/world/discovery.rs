//! The sources of hosts: the list of each, and how reliably it answers.

use std::time::Duration;

use elasticrun_core::{Event as JobEvent, Time};
use elasticrun_hosts::{Host, HostState, Snapshot};

use super::{Ev, World};
use crate::{fault::Fault, scenario::Scenario};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Listed {
    host: usize,
    slots: u32,
    state: HostState,
}

#[derive(Clone, Debug, Default)]
struct Source {
    list: Vec<Listed>,
    /// Number of coming answers without hosts, and of those that are marked incomplete.
    empty: u64,
    part: u64,
    flap: bool,
    fail: (u64, bool),
    hangs_until: Time,
}

/// The sources, and the hosts that may come or return.
#[derive(Debug)]
pub(super) struct Discovery {
    sources: Vec<Source>,
    /// The first host that was never listed.
    next: usize,
    gone: Vec<(usize, u32)>,
}

impl Discovery {
    pub(super) fn new(plan: &Scenario) -> Self {
        let mut discovery = Self {
            sources: vec![Source::default(); plan.settings.sources],
            next: plan.listed,
            gone: Vec::new(),
        };
        for host in 0..plan.listed {
            discovery.add(plan, host, plan.hosts[host]);
        }
        discovery
    }

    /// Appends a host to the lists of its sources.
    fn add(&mut self, plan: &Scenario, host: usize, slots: u32) {
        for source in &plan.listings[host].sources {
            let list = &mut self.sources[*source].list;
            list.retain(|listed| listed.host != host);
            list.push(Listed {
                host,
                slots,
                state: HostState::Ready,
            });
        }
    }

    /// Hosts that some source lists.
    fn listed(&self) -> Vec<(usize, u32)> {
        let mut all: Vec<(usize, u32)> = Vec::new();
        for listed in self.sources.iter().flat_map(|source| &source.list) {
            if all.iter().all(|(host, _)| *host != listed.host) {
                all.push((listed.host, listed.slots));
            }
        }
        all
    }

    /// The entries of a host in its sources.
    fn of(&mut self, host: usize) -> impl Iterator<Item = &mut Listed> {
        (self.sources.iter_mut())
            .flat_map(|source| &mut source.list)
            .filter(move |listed| listed.host == host)
    }
}

impl World {
    pub(super) fn begin_discovery(&mut self) {
        if self.plan.settings.self_registration {
            for host in 0..self.plan.listed {
                let wait = self.rng.millis(0, 2_000);
                self.after(wait, Ev::Register(host));
            }
        } else {
            for source in 0..self.discovery.sources.len() {
                let wait = self.rng.millis(0, 300);
                self.after(wait, Ev::Poll(source));
            }
        }
    }

    pub(super) fn poll(&mut self, source: usize) {
        if self.driver.ended.is_some() {
            return;
        }
        let again = self.plan.discovery_interval;
        let polled = &mut self.discovery.sources[source];
        if polled.hangs_until > self.now {
            let at = polled.hangs_until;
            return self.at(at, Ev::Poll(source));
        }
        if polled.fail.0 > 0 {
            polled.fail.0 -= 1;
            let (fatal, why) = (polled.fail.1, "no such group".to_owned());
            self.job_event(JobEvent::SourceFailed { source, fatal, why });
            let wait = again.unwrap_or(Duration::from_secs(1));
            return self.after(wait, Ev::Poll(source));
        }
        let snapshot = self.snapshot(source);
        self.job_event(JobEvent::SourceAnswered { source, snapshot });
        if let Some(wait) = again {
            self.after(wait, Ev::Poll(source));
        }
    }

    fn snapshot(&mut self, source: usize) -> Snapshot {
        let polled = &mut self.discovery.sources[source];
        if polled.empty > 0 {
            polled.empty -= 1;
            return Snapshot::new(Vec::new());
        }
        let mut list = polled.list.clone();
        if std::mem::take(&mut polled.flap) && !list.is_empty() {
            let index = self.rng.range(0, list.len() as u64 - 1) as usize;
            list.remove(index);
        }
        let complete = polled.part == 0;
        if !complete {
            polled.part -= 1;
            list.truncate(list.len() / 2);
        }
        // A source reports a host as gone once.
        let said = |listed: &Listed| list.contains(listed) && listed.state == HostState::Gone;
        polled.list.retain(|listed| !said(listed));
        let host = |listed: &Listed| {
            let (slots, slots_from) = self.plan.listings[listed.host].slots.said(listed.slots);
            Host {
                slots,
                slots_from,
                state: listed.state,
                ..Host::new(self.hosts[listed.host].id.to_string())
            }
        };
        Snapshot {
            complete,
            ..Snapshot::new(list.iter().map(host).collect())
        }
    }

    /// A random index below `count`; draws nothing for one.
    fn one_of(&mut self, count: usize) -> usize {
        match count {
            0 | 1 => 0,
            _ => self.rng.range(0, count as u64 - 1) as usize,
        }
    }

    /// Changes the lists of the sources.
    pub(super) fn change_hosts(&mut self, fault: Fault) {
        if self.plan.settings.self_registration {
            return self.change_registered(fault);
        }
        let all = self.discovery.listed();
        let any = all.len();
        let index = if any == 0 {
            0
        } else {
            self.rng.range(0, any as u64 - 1) as usize
        };
        let any = all.get(index).copied();
        match (fault, any) {
            (Fault::Add, _) if self.discovery.next < self.hosts.len() => {
                let host = self.discovery.next;
                self.discovery.next += 1;
                self.discovery.add(&self.plan, host, self.hosts[host].slots);
            }
            (Fault::Remove, Some((host, slots))) => {
                for source in &mut self.discovery.sources {
                    source.list.retain(|listed| listed.host != host);
                }
                self.discovery.gone.push((host, slots));
            }
            (Fault::Drain, Some((host, _))) => {
                // It is enough that one of the sources reports it.
                let count = self.discovery.of(host).count();
                let one = self.one_of(count);
                if let Some(listed) = self.discovery.of(host).nth(one) {
                    listed.state = HostState::Draining;
                }
            }
            (Fault::Undrain, _) => {
                let all = self.discovery.sources.iter_mut();
                for listed in all.flat_map(|source| &mut source.list) {
                    if listed.state == HostState::Draining {
                        listed.state = HostState::Ready;
                    }
                }
            }
            (Fault::Gone, Some((host, slots))) => {
                for listed in self.discovery.of(host) {
                    listed.state = HostState::Gone;
                }
                self.discovery.gone.push((host, slots));
            }
            (Fault::Return, _) => {
                if let Some((host, slots)) = self.discovery.gone.pop() {
                    self.discovery.add(&self.plan, host, slots);
                }
            }
            (Fault::Resize, Some((host, _))) => {
                let slots = self.rng.range(0, 4) as u32;
                for listed in self.discovery.of(host) {
                    listed.slots = slots;
                }
            }
            (fault, _) => self.disturb_source(fault),
        }
    }

    fn disturb_source(&mut self, fault: Fault) {
        let several = self.discovery.sources.len() > 1;
        let source = self.one_of(self.discovery.sources.len());
        let part = several && self.rng.percent(50);
        let source = &mut self.discovery.sources[source];
        match fault {
            Fault::Empty(count) if part => source.part += count,
            Fault::Empty(count) => source.empty += count,
            Fault::Flap => source.flap = true,
            Fault::FailPolls { count, fatal } => source.fail = (count, fatal),
            Fault::HangPoll(wait) => source.hangs_until = self.now + wait,
            _ => {}
        }
    }

    /// Hosts that register themselves also go by themselves.
    fn change_registered(&mut self, fault: Fault) {
        match fault {
            Fault::Add if self.discovery.next < self.hosts.len() => {
                let host = self.discovery.next;
                self.discovery.next += 1;
                self.after(Duration::from_millis(10), Ev::Register(host));
            }
            Fault::Remove | Fault::Gone => {
                let host = self.rng.range(0, self.discovery.next as u64 - 1) as usize;
                let quiet = self.plan.calm || self.plan.gentle;
                if self.hosts[host].alive && !quiet {
                    self.kill_host(host, None);
                }
            }
            _ => {}
        }
    }

    pub(super) fn heal_discovery(&mut self) {
        for source in &mut self.discovery.sources {
            *source = Source {
                list: std::mem::take(&mut source.list),
                hangs_until: self.now,
                ..Source::default()
            };
        }
    }
}
