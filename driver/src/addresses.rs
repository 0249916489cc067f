//! Addresses in orders, as the agent that gets them can use them.
//!
//! An agent that reached the driver over loopback is on the driver's machine, and a loopback address is all that is known of
//! it. Neighbours on its machine use that. To any other host the driver names its own address on the route to
//! that host, which is an address of the same machine; workers of such an agent listen at all of them.
//!
//! Invariant: no order to a host of another machine holds a loopback address.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
};

use elasticrun_core::Command;
use elasticrun_protocol::{AgentCommand, HostId};

/// Where agents are, by the addresses of their hosts.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    by_host: BTreeMap<HostId, IpAddr>,
    /// How many of them are loopback addresses.
    loopback: usize,
}

impl Addresses {
    /// An agent has connected whose host others reach there.
    pub(crate) fn connected(&mut self, host: HostId, address: IpAddr) {
        self.loopback += usize::from(address.is_loopback());
        let before = self.by_host.insert(host, address);
        self.forget(before);
    }

    /// The agent of a host is gone.
    pub(crate) fn left(&mut self, host: &HostId) {
        let before = self.by_host.remove(host);
        self.forget(before);
    }

    fn forget(&mut self, address: Option<IpAddr>) {
        self.loopback -= usize::from(address.is_some_and(|address| address.is_loopback()));
    }

    /// Whether there are hosts on this machine and others: only then an address may need a rewrite.
    fn is_mixed(&self) -> bool {
        self.loopback > 0 && self.loopback < self.by_host.len()
    }

    /// Rewrites orders; `own` gives the address of this machine on the route to another one. All orders that start one
    /// round, or one group, come in one batch.
    pub(crate) fn view(&self, commands: &mut [Command], own: impl Fn(IpAddr) -> Option<IpAddr>) {
        if !self.is_mixed() {
            return;
        }
        // The coordinator is one for all members: also those of this machine use the address that others can.
        let away = commands.iter().find_map(|command| match command {
            Command::Send {
                host,
                order: AgentCommand::Start(_),
            } => self.away(host),
            Command::Send {
                host,
                order: AgentCommand::Spawn(spawn),
            } if spawn.restarts.is_some() => self.away(host),
            _ => None,
        });
        for command in commands {
            let Command::Send { host, order } = command else {
                continue;
            };
            let to = self.away(host);
            match order {
                AgentCommand::Spawn(spawn) if spawn.restarts.is_some() => {
                    rewrite(&mut spawn.coordinator, to.or(away), &own);
                }
                AgentCommand::Spawn(spawn) => rewrite(&mut spawn.coordinator, to, &own),
                AgentCommand::Start(start) => {
                    rewrite(&mut start.coordinator, to.or(away), &own);
                    for peer in start.peers.values_mut() {
                        rewrite(peer, to, &own);
                    }
                    if let Some(keeper) = &mut start.keeper {
                        rewrite(&mut keeper.address, to, &own);
                    }
                }
                AgentCommand::Probe { hosts, .. } => {
                    for probed in hosts {
                        rewrite(&mut probed.address, to, &own);
                    }
                }
                _ => {}
            }
        }
    }

    /// The address of a host, unless it is on this machine.
    fn away(&self, host: &HostId) -> Option<IpAddr> {
        let address = self.by_host.get(host).copied();
        address.filter(|address| !address.is_loopback())
    }
}

fn rewrite(address: &mut SocketAddr, to: Option<IpAddr>, own: &impl Fn(IpAddr) -> Option<IpAddr>) {
    let Some(to) = to.filter(|_| address.ip().is_loopback()) else {
        return;
    };
    match own(to) {
        Some(own) => address.set_ip(own),
        None => tracing::warn!(%to, "this machine has no route to a host of the job"),
    }
}

#[cfg(test)]
mod tests {
    use elasticrun_protocol::{
        CommitId, DriverEpoch, Generation, LocalRank, Process, Rank, Round,
        control::{Keeper, Member, Place, Restarts, Spawn, Start},
    };

    use super::*;

    const PROCESS: Process = Process {
        local_rank: LocalRank(0),
        generation: Generation(1),
    };
    const PLACE: Place = Place {
        rank: Rank(0),
        size: 3,
        local_size: 1,
        cross_rank: 0,
        cross_size: 3,
        local_rank: None,
    };

    fn addresses() -> Addresses {
        let mut addresses = Addresses::default();
        for (host, address) in [("here", "127.0.0.1"), ("b", "10.1.0.2"), ("c", "10.2.0.3")] {
            addresses.connected(HostId::new(host), address.parse().unwrap());
        }
        addresses
    }

    /// One address of this machine in each network.
    fn own(to: IpAddr) -> Option<IpAddr> {
        match to {
            IpAddr::V4(to) => {
                let [a, b, ..] = to.octets();
                Some(IpAddr::from([a, b, 0, 1]))
            }
            IpAddr::V6(_) => None,
        }
    }

    fn start(host: &str, peers: &[&str], coordinator: &str) -> Command {
        let commit = CommitId {
            epoch: DriverEpoch(1),
            round: Round(1),
            count: 1,
        };
        let order = AgentCommand::Start(Box::new(Start {
            epoch: DriverEpoch(1),
            round: Round(2),
            base: Some(commit),
            keeper: Some(Keeper {
                host: HostId::new("here"),
                process: PROCESS,
                address: "127.0.0.1:70".parse().unwrap(),
            }),
            size: 3,
            members: vec![Member {
                process: PROCESS,
                place: PLACE,
            }],
            host_index: 0,
            host_count: 3,
            peers: (0..)
                .zip(peers.iter().map(|peer| peer.parse().unwrap()))
                .collect(),
            coordinator: coordinator.parse().unwrap(),
            prefix: String::new(),
        }));
        Command::Send {
            host: HostId::new(host),
            order,
        }
    }

    /// Peers, keeper and coordinator of each start.
    fn told(commands: &[Command]) -> Vec<String> {
        let words = |command: &Command| match command {
            Command::Send {
                order: AgentCommand::Start(start),
                ..
            } => {
                let peers: Vec<_> = start.peers.values().map(ToString::to_string).collect();
                let keeper = start.keeper.as_ref().unwrap().address;
                format!("{} | {keeper} | {}", peers.join(" "), start.coordinator)
            }
            other => panic!("{other:?}"),
        };
        commands.iter().map(words).collect()
    }

    #[test]
    fn a_host_of_another_machine_gets_no_loopback_address() {
        let mut commands = [
            start("here", &["10.1.0.2:5", "10.2.0.3:5"], "127.0.0.1:9"),
            start("b", &["127.0.0.1:5", "10.2.0.3:5"], "127.0.0.1:9"),
            start("c", &["127.0.0.1:5", "10.1.0.2:5"], "127.0.0.1:9"),
        ];
        addresses().view(&mut commands, own);
        assert_eq!(
            told(&commands),
            [
                "10.1.0.2:5 10.2.0.3:5 | 127.0.0.1:70 | 10.1.0.1:9",
                "10.1.0.1:5 10.2.0.3:5 | 10.1.0.1:70 | 10.1.0.1:9",
                "10.2.0.1:5 10.1.0.2:5 | 10.2.0.1:70 | 10.2.0.1:9",
            ]
        );
    }

    #[test]
    fn a_worker_elsewhere_is_started_with_a_coordinator_that_it_reaches() {
        let spawn = |host: &str, restarts| Command::Send {
            host: HostId::new(host),
            order: AgentCommand::Spawn(Spawn {
                process: PROCESS,
                place: PLACE,
                coordinator: "127.0.0.1:9".parse().unwrap(),
                restarts,
            }),
        };
        let told = |restarts| {
            let mut commands = ["here", "b"].map(|host| spawn(host, restarts));
            addresses().view(&mut commands, own);
            commands.map(|command| match command {
                Command::Send {
                    order: AgentCommand::Spawn(spawn),
                    ..
                } => spawn.coordinator.to_string(),
                other => panic!("{other:?}"),
            })
        };
        assert_eq!(told(None), ["127.0.0.1:9", "10.1.0.1:9"]);
        let group = Some(Restarts {
            used: 0,
            allowed: 0,
        });
        assert_eq!(told(group), ["10.1.0.1:9"; 2], "one for all of a group");
    }

    #[test]
    fn a_round_of_this_machine_alone_keeps_its_addresses() {
        let before = [
            start("here", &["127.0.0.1:5"], "127.0.0.1:9"),
            start("there", &["127.0.0.1:6"], "127.0.0.1:9"),
        ];
        let mut addresses = addresses();
        addresses.connected(HostId::new("there"), "127.0.0.1".parse().unwrap());
        let mut commands = before.clone();
        addresses.view(&mut commands, own);
        assert_eq!(commands, before);
        // Nor does a job care whose agent has gone.
        addresses.left(&HostId::new("b"));
        addresses.left(&HostId::new("here"));
        addresses.left(&HostId::new("there"));
        let mut commands = [start("c", &["127.0.0.1:5"], "127.0.0.1:9")];
        let before = commands.clone();
        addresses.view(&mut commands, own);
        assert_eq!(commands, before);
    }
}
