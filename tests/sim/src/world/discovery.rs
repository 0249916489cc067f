//! The source of hosts: what it knows, and how well it tells it.

use std::time::Duration;

use elasticrun_core::{
    Event as JobEvent, Time,
    hosts::{HostRecord, HostState},
};

use super::{Ev, World};
use crate::{fault::Fault, scenario::Scenario};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Listed {
    host: usize,
    slots: u32,
    state: HostState,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Discovery {
    list: Vec<Listed>,
    /// Hosts that were never listed.
    next: usize,
    gone: Vec<Listed>,
    empty: u64,
    flap: bool,
    fail: (u64, bool),
    hangs_until: Time,
}

impl Discovery {
    pub(super) fn new(plan: &Scenario) -> Self {
        Self {
            list: (0..plan.listed)
                .map(|host| listed(host, plan.hosts[host]))
                .collect(),
            next: plan.listed,
            gone: Vec::new(),
            empty: 0,
            flap: false,
            fail: (0, false),
            hangs_until: Time::ZERO,
        }
    }
}

fn listed(host: usize, slots: u32) -> Listed {
    Listed {
        host,
        slots,
        state: HostState::Ready,
    }
}

impl World {
    pub(super) fn begin_discovery(&mut self) {
        if self.plan.settings.self_registration {
            for host in 0..self.plan.listed {
                let wait = self.dice.millis(0, 2_000);
                self.after(wait, Ev::Register(host));
            }
        } else {
            let wait = self.dice.millis(0, 300);
            self.after(wait, Ev::Poll);
        }
    }

    pub(super) fn poll(&mut self) {
        if self.driver.ended.is_some() {
            return;
        }
        let again = self.plan.discovery_interval;
        if self.discovery.hangs_until > self.now {
            let at = self.discovery.hangs_until;
            return self.at(at, Ev::Poll);
        }
        if self.discovery.fail.0 > 0 {
            self.discovery.fail.0 -= 1;
            let (fatal, why) = (self.discovery.fail.1, "no such group".to_owned());
            self.job_event(JobEvent::DiscoveryFailed { fatal, why });
            let wait = again.unwrap_or(Duration::from_secs(1));
            return self.after(wait, Ev::Poll);
        }
        let list = self.list();
        self.job_event(JobEvent::Discovered(list));
        if let Some(wait) = again {
            self.after(wait, Ev::Poll);
        }
    }

    fn list(&mut self) -> Vec<HostRecord> {
        if self.discovery.empty > 0 {
            self.discovery.empty -= 1;
            return Vec::new();
        }
        let mut list = self.discovery.list.clone();
        if std::mem::take(&mut self.discovery.flap) && !list.is_empty() {
            let index = self.dice.range(0, list.len() as u64 - 1) as usize;
            list.remove(index);
        }
        // Gone is said once.
        self.discovery
            .list
            .retain(|listed| listed.state != HostState::Gone);
        (list.iter())
            .map(|listed| HostRecord {
                id: self.hosts[listed.host].id.clone(),
                slots: listed.slots,
                state: listed.state,
                within: None,
            })
            .collect()
    }

    /// The source changes its mind.
    pub(super) fn change_hosts(&mut self, fault: Fault) {
        if self.plan.settings.self_registration {
            return self.change_registered(fault);
        }
        let any = self.discovery.list.len();
        let index = if any == 0 {
            0
        } else {
            self.dice.range(0, any as u64 - 1) as usize
        };
        match fault {
            Fault::Add if self.discovery.next < self.hosts.len() => {
                let host = self.discovery.next;
                self.discovery.next += 1;
                let new = listed(host, self.hosts[host].slots);
                self.discovery.list.push(new);
            }
            Fault::Remove if any > 0 => {
                let gone = self.discovery.list.remove(index);
                self.discovery.gone.push(gone);
            }
            Fault::Drain if any > 0 => self.discovery.list[index].state = HostState::Draining,
            Fault::Undrain => {
                for listed in &mut self.discovery.list {
                    if listed.state == HostState::Draining {
                        listed.state = HostState::Ready;
                    }
                }
            }
            Fault::Gone if any > 0 => {
                self.discovery.list[index].state = HostState::Gone;
                let mut gone = self.discovery.list[index];
                gone.state = HostState::Ready;
                self.discovery.gone.push(gone);
            }
            Fault::Return => {
                if let Some(mut back) = self.discovery.gone.pop() {
                    back.state = HostState::Ready;
                    self.discovery
                        .list
                        .retain(|listed| listed.host != back.host);
                    self.discovery.list.push(back);
                }
            }
            Fault::Resize if any > 0 => {
                self.discovery.list[index].slots = self.dice.range(0, 4) as u32
            }
            Fault::Empty(count) => self.discovery.empty += count,
            Fault::Flap => self.discovery.flap = true,
            Fault::FailPolls { count, fatal } => self.discovery.fail = (count, fatal),
            Fault::HangPoll(wait) => self.discovery.hangs_until = self.now + wait,
            _ => {}
        }
    }

    /// Hosts that come by themselves also go by themselves.
    fn change_registered(&mut self, fault: Fault) {
        match fault {
            Fault::Add if self.discovery.next < self.hosts.len() => {
                let host = self.discovery.next;
                self.discovery.next += 1;
                self.after(Duration::from_millis(10), Ev::Register(host));
            }
            Fault::Remove | Fault::Gone => {
                let host = self.dice.range(0, self.discovery.next as u64 - 1) as usize;
                let quiet = self.plan.calm || self.plan.gentle;
                if self.hosts[host].alive && !quiet {
                    self.kill_host(host, None);
                }
            }
            _ => {}
        }
    }

    pub(super) fn heal_discovery(&mut self) {
        self.discovery.empty = 0;
        self.discovery.flap = false;
        self.discovery.fail = (0, false);
        self.discovery.hangs_until = self.now;
    }
}
