//! The invariants, one file each; numbers are those of the design.
//!
//! Every file states its invariant and checks it against the state of the world, not against the view of the core.
//! [`later_driver`] says what they check of a driver that continues the run of another one.

mod anew;
mod change;
mod copies;
pub(crate) mod ends;
pub(crate) mod exit;
mod filling;
pub(crate) mod groups;
pub(crate) mod last_commit;
pub(crate) mod later_driver;
mod launches;
pub(crate) mod newcomers;
mod paths;
mod r1;
pub(crate) mod r10;
pub(crate) mod r11;
pub(crate) mod r12;
pub(crate) mod r13;
pub(crate) mod r14;
pub(crate) mod r15;
pub(crate) mod r16;
mod r18;
mod r19;
mod r2;
pub(crate) mod r20;
pub(crate) mod r3;
pub(crate) mod r4;
mod r5;
pub(crate) mod r6;
pub(crate) mod r7;
pub(crate) mod r8;
pub(crate) mod r9;
mod reasons;
pub(crate) mod removal;
mod replicas;
mod reserve;
mod returns;
mod success;
pub(crate) mod survival;
pub(crate) mod w4;
pub(crate) mod w5;
pub(crate) mod worker_ended;

use std::time::Duration;

use elasticrun_core::{Command, Decision, Event, rounds::Phase};
use elasticrun_protocol::{
    AgentCommand, AgentReport, CommitId, HostId, Process, Rank, Round, control::Start,
};

use crate::world::{RoundSim, World};

/// Time that the job may need to notice that a deadline has passed.
const SLACK: Duration = Duration::from_millis(100);

/// State that the invariants keep from one event to the next.
#[derive(Debug, Default)]
pub(crate) struct Invariants {
    change: change::Memory,
    pub(crate) copies: copies::Memory,
    pub(crate) ends: ends::Memory,
    exit: exit::Memory,
    filling: filling::Memory,
    newcomers: newcomers::Memory,
    groups: groups::Memory,
    pub(crate) last_commit: last_commit::Memory,
    pub(crate) later_driver: later_driver::Memory,
    paths: paths::Memory,
    r2: r2::Memory,
    r3: r3::Memory,
    r6: r6::Memory,
    pub(crate) r7: r7::Memory,
    r9: r9::Memory,
    r10: r10::Memory,
    r12: r12::Memory,
    r16: r16::Memory,
    r19: r19::Memory,
    r20: r20::Memory,
    replicas: replicas::Memory,
    reasons: reasons::Memory,
    success: success::Memory,
    survival: survival::Memory,
    worker_ended: worker_ended::Memory,
}

/// A round that one step of the job starts: the commands to all its hosts.
pub(crate) struct Started<'a> {
    pub(crate) round: Round,
    pub(crate) base: Option<CommitId>,
    pub(crate) size: u32,
    /// Host and order, in the order of sending.
    pub(crate) starts: Vec<(usize, &'a Start)>,
}

impl Started<'_> {
    /// Members by rank.
    pub(crate) fn members(&self) -> Vec<(usize, Process)> {
        let mut members: Vec<(Rank, usize, Process)> = Vec::new();
        for (host, start) in &self.starts {
            members.extend(
                start
                    .members
                    .iter()
                    .map(|m| (m.place.rank, *host, m.process)),
            );
        }
        members.sort();
        members
            .into_iter()
            .map(|(_, host, process)| (host, process))
            .collect()
    }
}

/// A report reaches the driver that an agent has kept, and that the job applies.
pub(crate) fn heard(world: &mut World, event: &Event) {
    let Event::Reported { host, report, .. } = event else {
        return;
    };
    ends::heard(world, event, host, report);
    worker_ended::heard(world, event);
    world.peer_was_lost(event);
    if world.plan.groups.is_some() {
        groups::heard(world, host, report);
    }
    if let AgentReport::Noticed { notice } = report {
        let now = world.driver_now();
        world.reference.agent_noticed(now, host, *notice);
    }
}

/// Checks the commands of one step of the job, before they are carried out.
pub(crate) fn on_commands(world: &mut World, commands: &[Command]) {
    let ends = |command: &Command| matches!(command, Command::End(_));
    let goes_on = !world.invariants.r10.finishing
        && world.driver.ended.is_none()
        && !commands.iter().any(ends);
    survival::look(world);
    let mut started = None;
    let itself = world.plan.settings.self_registration;
    let (now, hosts) = (world.driver_now(), world.reference.hosts());
    let mut attached = false;
    for (index, command) in commands.iter().enumerate() {
        attached |= matches!(command, Command::Announce(Decision::Attached));
        // An agent that returns may report in one step that a worker has attached and how it ended.
        let takes_out = match attached {
            true => groups::TakesOut::Usual,
            false => groups::takes_out(world, commands, index),
        };
        if let Err(what) = world.blame.command(now, hosts, command, takes_out) {
            world.violate("rule 6", what);
        }
        match command {
            Command::Announce(decision) => {
                world.reference.on_decision(decision);
                change::on_decision(world, decision, commands);
                ends::on_decision(world, decision);
                removal::on_decision(world, decision);
                returns::on_decision(world, decision);
                reserve::on_decision(world, decision, commands);
                paths::on_decision(world, decision);
                r9::on_decision(world, decision);
                r10::on_decision(world, decision);
                reasons::on_decision(world, decision);
                worker_ended::on_decision(world, decision);
                r12::on_decision(world, decision);
                r19::on_decision(world, decision);
                groups::on_decision(world, decision);
            }
            // From here on, commands concern the agent that has connected.
            Command::Admit { host, .. } => {
                world.driver.admitted.insert(host.clone());
            }
            // The agent that connects replaces another.
            Command::Disconnect { host, .. } | Command::EndLaunch { host, .. }
                if world.driver.is_replaced(host) => {}
            // The agent may return.
            Command::Disconnect { host, .. } if goes_away(commands, host) => {
                r12::lost(world, host);
                survival::lost(world, host);
                r16::lost(world, host);
            }
            Command::Disconnect { host, .. } | Command::EndLaunch { host, .. } => {
                if matches!(command, Command::Disconnect { .. }) {
                    r12::lost(world, host);
                    survival::lost(world, host);
                    r16::lost(world, host);
                }
                world.reference.agent_gone(host);
                if itself {
                    world.reference.gone(host);
                }
            }
            Command::Send {
                host,
                command: AgentCommand::Plan { round, members },
            } => ends::planned(world, host, *round, members),
            Command::Send {
                command: AgentCommand::LoadDurable { id, .. },
                ..
            } => r12::loads(world, *id),
            Command::Send {
                command: AgentCommand::Start(start),
                ..
            } if started != Some(start.round) => {
                started = Some(start.round);
                on_start(world, start.round, commands);
            }
            _ => {}
        }
        if let Command::Send {
            host,
            command: AgentCommand::Shutdown,
        } = command
            && goes_on
        {
            r12::dismissed(world, host);
        }
        reserve::on_command(world, command);
        returns::on_command(world, command, commands);
        newcomers::on_command(world, command);
        last_commit::on_command(world, command, commands);
        if !matches!(command, Command::Disconnect { host, .. } if goes_away(commands, host)) {
            success::on_command(world, command);
        }
        r3::on_command(world, command);
        r10::on_command(world, command);
        later_driver::on_command(world, command);
    }
    if world.plan.groups.is_some() {
        groups::on_commands(world, commands);
    }
    launches::on_commands(world, commands);
    exit::on_commands(world, commands);
    r19::on_step(world);
    if let Err(what) =
        world
            .blame
            .look(now, world.driver.job.is_settled(), world.driver.job.fleet())
    {
        world.violate("rule 6", what);
    }
    if !world.driver.job.is_settled() {
        // The consequences of the events follow when the job settles.
        return;
    }
    world.reference.step_over();
    if world.driver.is_taking_over() {
        // Until it is known which round goes on, the job decides nothing.
        return;
    }
    r6::on_step(world);
    r9::on_step(world);
    r10::on_step(world);
}

/// Whether the job announces that a host is out of reach, so that its agent may return, or that it has returned.
pub(crate) fn goes_away(commands: &[Command], host: &HostId) -> bool {
    commands.iter().any(|command| match command {
        Command::Announce(
            Decision::HostAway { host: other, .. } | Decision::HostReturned { host: other },
        ) => other == host,
        _ => false,
    })
}

/// Whether members of the round that trains are out of reach and may return. Then no change interrupts it.
pub(crate) fn waits_for_away(world: &World) -> bool {
    let Phase::Training(training) = &world.driver.job.rounds().phase else {
        return false;
    };
    let away = world.reference.away();
    away.iter().any(|host| training.members.contains_key(host))
}

fn on_start(world: &mut World, round: Round, commands: &[Command]) {
    let mut starts = Vec::new();
    for command in commands {
        if let Command::Send {
            host,
            command: AgentCommand::Start(start),
        } = command
            && start.round == round
            && let Some(index) = world.host_index(host)
        {
            starts.push((index, &**start));
        }
    }
    let Some((_, first)) = starts.first() else {
        return;
    };
    let (base, size) = (first.base, first.size);
    let started = Started {
        round,
        base,
        size,
        starts,
    };
    later_driver::forget_unknown(world);
    let checks = [
        r1::started,
        r2::started,
        r5::started,
        r11::started,
        r12::started,
        newcomers::started,
        anew::started,
        r16::started,
        r18::started,
        r19::started,
    ];
    let names = [
        "R1",
        "R2",
        "R5",
        "R11",
        "R12",
        "newcomers",
        "anew",
        "R16",
        "R18",
        "R19",
    ];
    for (check, name) in checks.into_iter().zip(names) {
        if let Err(what) = check(world, &started) {
            world.violate(name, format!("{round:?}: {what}"));
        }
    }
    let members = started.members();
    last_commit::started(world);
    world.history.started(round, base);
    world.rounds.insert(round, RoundSim::new(base, members));
}

/// Periodic check of the job.
pub(crate) fn watch(world: &mut World) {
    if world.driver.ended.is_some() {
        if let Err(what) = exit::watch(world) {
            world.violate("R9", what);
        }
        return;
    }
    if !world.driver.job.is_settled() || world.driver.is_taking_over() {
        return;
    }
    r6::watch(world);
    survival::look(world);
    let waits = [
        r9::waits(world),
        ends::waits_for_exits(world),
        r12::waits(world),
        newcomers::watch(world),
        replicas::watch(world),
        copies::watch(world),
        r20::watch(world),
    ];
    let names = ["R9", "R10", "R12", "newcomers", "R12", "copies", "R20"];
    for (check, name) in waits.into_iter().zip(names) {
        if let Err(what) = check {
            world.violate(name, what);
        }
    }
    removal::watch(world);
    if world.plan.groups.is_some() {
        groups::watch(world);
    }
    filling::watch(world);
}
