//! Rewrites addresses in orders, so that the receiving agent can use them.
//!
//! An agent that connects over loopback is on the driver's machine, and the driver knows only its loopback address. Agents
//! on the same machine use that address. For any other host the driver inserts its own address on the route to that
//! host. That address is of the same machine, and workers of local agents listen at all addresses.
//!
//! Invariant: no command to a host on another machine holds a loopback address.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
};

use elasticrun_core::Command;
use elasticrun_protocol::{AgentCommand, HostId};

/// Addresses of the admitted agents.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    /// Connections that the job has not admitted yet, by instance. They do not count: one may have the name of another host.
    pending: BTreeMap<u64, IpAddr>,
    /// The instance and the address of each admitted agent.
    by_host: BTreeMap<HostId, (u64, IpAddr)>,
    /// How many addresses are loopback addresses.
    loopback: usize,
}

impl Addresses {
    /// Adds a connection. Other hosts reach its host at `address`, which counts from the batch that admits the agent.
    pub(crate) fn connected(&mut self, instance: u64, address: IpAddr) {
        self.pending.insert(instance, address);
    }

    /// Applies the decisions of a batch on connections.
    fn decide(&mut self, commands: &[Command]) {
        for command in commands {
            match command {
                Command::Admit { host, instance, .. } => {
                    if let Some(address) = self.pending.remove(instance) {
                        self.loopback += usize::from(address.is_loopback());
                        let replaced = self.by_host.insert(host.clone(), (*instance, address));
                        self.uncount(replaced);
                    }
                }
                Command::Refuse { instance, .. }
                | Command::RefuseName { instance, .. }
                | Command::SendBack { instance, .. } => {
                    self.pending.remove(instance);
                }
                _ => {}
            }
        }
    }

    /// Removes the agent of a host, unless another connection of the host has replaced this one.
    pub(crate) fn disconnected(&mut self, host: &HostId, instance: u64) {
        if (self.by_host.get(host)).is_some_and(|(current, _)| *current == instance) {
            let removed = self.by_host.remove(host);
            self.uncount(removed);
        }
    }

    fn uncount(&mut self, agent: Option<(u64, IpAddr)>) {
        self.loopback -= usize::from(agent.is_some_and(|(_, address)| address.is_loopback()));
    }

    /// Whether there are hosts on this machine and on others. Only then an address may need a rewrite.
    fn is_mixed(&self) -> bool {
        self.loopback > 0 && self.loopback < self.by_host.len()
    }

    /// Rewrites commands. `local_toward` returns the address of this machine on the route to another one. All commands that
    /// start one round, or one group, must be in one batch. Agents that the batch admits count, those that it refuses do not.
    pub(crate) fn rewrite(
        &mut self,
        commands: &mut [Command],
        local_toward: impl Fn(IpAddr) -> Option<IpAddr>,
    ) {
        self.decide(commands);
        if !self.is_mixed() {
            return;
        }
        // All members share one coordinator address, so members on this machine use the one that other machines reach.
        let remote = commands.iter().find_map(|command| match command {
            Command::Send {
                host,
                command: AgentCommand::Start(_),
            } => self.remote_address(host),
            Command::Send {
                host,
                command: AgentCommand::Spawn(spawn),
            } if spawn.restarts.is_some() => self.remote_address(host),
            _ => None,
        });
        for command in commands {
            let Command::Send { host, command } = command else {
                continue;
            };
            let to = self.remote_address(host);
            match command {
                AgentCommand::Spawn(spawn) if spawn.restarts.is_some() => {
                    rewrite(&mut spawn.coordinator, to.or(remote), &local_toward);
                }
                AgentCommand::Spawn(spawn) => rewrite(&mut spawn.coordinator, to, &local_toward),
                AgentCommand::Start(start) => {
                    rewrite(&mut start.coordinator, to.or(remote), &local_toward);
                    for peer in start.peers.values_mut() {
                        rewrite(peer, to, &local_toward);
                    }
                    // Its members tell those of other hosts.
                    if let Some(memory) = &mut start.memory {
                        rewrite(memory, to.or(remote), &local_toward);
                    }
                    for holder in &mut start.holders {
                        rewrite(&mut holder.keeper.address, to, &local_toward);
                    }
                    if let Some(keeper) = &mut start.keeper {
                        rewrite(&mut keeper.address, to, &local_toward);
                    }
                }
                AgentCommand::Probe { hosts, .. } => {
                    for probed in hosts {
                        rewrite(&mut probed.address, to, &local_toward);
                    }
                }
                _ => {}
            }
        }
    }

    /// The address of a host, unless it is on this machine.
    fn remote_address(&self, host: &HostId) -> Option<IpAddr> {
        let address = self.by_host.get(host).map(|(_, address)| *address);
        address.filter(|address| !address.is_loopback())
    }
}

fn rewrite(
    address: &mut SocketAddr,
    to: Option<IpAddr>,
    local_toward: &impl Fn(IpAddr) -> Option<IpAddr>,
) {
    let Some(to) = to.filter(|_| address.ip().is_loopback()) else {
        return;
    };
    match local_toward(to) {
        Some(local) => address.set_ip(local),
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
        let hosts = [("here", "127.0.0.1"), ("b", "10.1.0.2"), ("c", "10.2.0.3")];
        for (instance, (host, address)) in (1..).zip(hosts) {
            addresses.connected(instance, address.parse().unwrap());
            addresses.decide(&[admit(host, instance)]);
        }
        addresses
    }

    fn admit(host: &str, instance: u64) -> Command {
        let host = HostId::new(host);
        Command::Admit {
            host,
            instance,
            adopted: false,
        }
    }

    /// One address of this machine in each network.
    fn local_toward(to: IpAddr) -> Option<IpAddr> {
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
        let command = AgentCommand::Start(Box::new(Start {
            epoch: DriverEpoch(1),
            round: Round(2),
            base: Some(commit),
            base_shards: None,
            memory: None,
            holders: Vec::new(),
            replica_group_size: None,
            order: Vec::new(),
            keeper: Some(Keeper {
                host: HostId::new("here"),
                process: PROCESS,
                address: "127.0.0.1:70".parse().unwrap(),
            }),
            size: 3,
            members: vec![Member {
                process: PROCESS,
                place: PLACE,
                seat: None,
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
            command,
        }
    }

    /// Addresses in each start: peers, keeper and coordinator.
    fn addresses_in(commands: &[Command]) -> Vec<String> {
        let words = |command: &Command| match command {
            Command::Send {
                command: AgentCommand::Start(start),
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
        addresses().rewrite(&mut commands, local_toward);
        assert_eq!(
            addresses_in(&commands),
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
            command: AgentCommand::Spawn(Spawn {
                process: PROCESS,
                place: PLACE,
                coordinator: "127.0.0.1:9".parse().unwrap(),
                restarts,
            }),
        };
        let coordinators = |restarts| {
            let mut commands = ["here", "b"].map(|host| spawn(host, restarts));
            addresses().rewrite(&mut commands, local_toward);
            commands.map(|command| match command {
                Command::Send {
                    command: AgentCommand::Spawn(spawn),
                    ..
                } => spawn.coordinator.to_string(),
                other => panic!("{other:?}"),
            })
        };
        assert_eq!(coordinators(None), ["127.0.0.1:9", "10.1.0.1:9"]);
        let group = Some(Restarts {
            used: 0,
            allowed: 0,
        });
        assert_eq!(
            coordinators(group),
            ["10.1.0.1:9"; 2],
            "one for all of a group"
        );
    }

    #[test]
    fn a_round_of_this_machine_alone_keeps_its_addresses() {
        let before = [
            start("here", &["127.0.0.1:5"], "127.0.0.1:9"),
            start("there", &["127.0.0.1:6"], "127.0.0.1:9"),
        ];
        let mut addresses = addresses();
        addresses.connected(4, "127.0.0.1".parse().unwrap());
        addresses.decide(&[admit("there", 4)]);
        let mut commands = before.clone();
        addresses.rewrite(&mut commands, local_toward);
        assert_eq!(commands, before);
        // Agents that have disconnected do not count.
        for (host, instance) in [("b", 2), ("here", 1), ("there", 4)] {
            addresses.disconnected(&HostId::new(host), instance);
        }
        let mut commands = [start("c", &["127.0.0.1:5"], "127.0.0.1:9")];
        let before = commands.clone();
        addresses.rewrite(&mut commands, local_toward);
        assert_eq!(commands, before);
    }

    #[test]
    fn the_address_of_a_refused_agent_never_counts() {
        let host = HostId::new("b");
        let by = "10.1.0.2".parse().unwrap();
        let refusals = [
            Command::Refuse {
                host: host.clone(),
                instance: 9,
            },
            Command::RefuseName {
                host,
                instance: 9,
                by,
            },
        ];
        for refusal in refusals {
            let mut addresses = addresses();
            // An agent of this machine has the name of a host on another one.
            addresses.connected(9, "127.0.0.1".parse().unwrap());
            let start_b = start("b", &["127.0.0.1:5"], "127.0.0.1:9");
            let rewritten = ["10.1.0.1:5 | 10.1.0.1:70 | 10.1.0.1:9"];
            // Before the decision, in its batch, and after it.
            let mut commands = [start_b.clone()];
            addresses.rewrite(&mut commands, local_toward);
            assert_eq!(addresses_in(&commands), rewritten);
            let mut commands = [start_b.clone(), refusal];
            addresses.rewrite(&mut commands, local_toward);
            assert_eq!(addresses_in(&commands[..1]), rewritten);
            let mut commands = [start_b];
            addresses.rewrite(&mut commands, local_toward);
            assert_eq!(addresses_in(&commands), rewritten);
            assert!(addresses.pending.is_empty());
        }
    }

    #[test]
    fn the_address_of_an_admitted_agent_counts_in_the_batch_of_its_admission() {
        let mut addresses = addresses();
        addresses.connected(9, "10.3.0.4".parse().unwrap());
        let start_d = start("d", &["127.0.0.1:5"], "127.0.0.1:9");
        let mut commands = [start_d, admit("d", 9)];
        addresses.rewrite(&mut commands, local_toward);
        let rewritten = ["10.3.0.1:5 | 10.3.0.1:70 | 10.3.0.1:9"];
        assert_eq!(addresses_in(&commands[..1]), rewritten);
    }

    #[test]
    fn the_address_of_an_agent_that_connects_anew_outlives_its_old_connection() {
        let mut addresses = addresses();
        addresses.connected(9, "10.1.0.7".parse().unwrap());
        let host = HostId::new("b");
        let old = Command::Disconnect {
            host: host.clone(),
            instance: 2,
        };
        let mut commands = [
            start("b", &["127.0.0.1:5"], "127.0.0.1:9"),
            old,
            admit("b", 9),
        ];
        addresses.rewrite(&mut commands, local_toward);
        // The commands are executed after that.
        addresses.disconnected(&host, 2);
        let mut commands = [start("b", &["127.0.0.1:5"], "127.0.0.1:9")];
        addresses.rewrite(&mut commands, local_toward);
        let rewritten = ["10.1.0.1:5 | 10.1.0.1:70 | 10.1.0.1:9"];
        assert_eq!(addresses_in(&commands), rewritten);
    }
}
