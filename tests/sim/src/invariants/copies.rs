//! Copies: no host goes on to copy commits while K others do so and have copied some of the round that trains.

use std::{collections::BTreeMap, time::Duration};

use elasticrun_core::{Time, rounds::Phase};
use elasticrun_protocol::Round;

use super::replicas::of_whole_states;
use crate::world::{LONGEST_COPY, World};

#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// When each host began a copy last.
    begun: BTreeMap<usize, Time>,
    /// The round that trains, and since when more hosts copy than are needed.
    since: Option<(Round, Time)>,
}

impl Memory {
    /// A host begins a copy.
    pub(crate) fn begun(&mut self, host: usize, now: Time) {
        self.begun.insert(host, now);
    }
}

pub(super) fn watch(world: &mut World) -> Result<(), String> {
    let (Some(interval), Phase::Training(training)) =
        (of_whole_states(world), &world.driver.job.rounds().phase)
    else {
        world.invariants.copies.since = None;
        return Ok(());
    };
    let (round, now) = (training.round, world.now);
    let longest = Duration::from_millis(LONGEST_COPY);
    let pause = interval.max(longest) + longest;
    let copies = |host: &usize| {
        let begun = world.invariants.copies.begun.get(host);
        let state = &world.hosts[*host];
        let known = world.driver.job.fleet().host(&state.id);
        let is_up = known.is_some_and(|known| known.up().is_some());
        let is_well = is_up && world.reaches(*host) && state.stalled <= now;
        let stays = world.driver.job.has_host(&state.id) && !world.reference.drains(&state.id);
        let has_copied = (state.commits().into_iter())
            .any(|commit| commit.round == round && world.history.is_valid(commit));
        let is_recent = begun.is_some_and(|begun| now.since(*begun) <= pause);
        is_well && stays && has_copied && is_recent
    };
    let hosts: Vec<_> = (0..world.hosts.len()).filter(copies).collect();
    let is_stable = training.hold.is_none() && !world.invariants.r10.finishing;
    if !is_stable || hosts.len() <= world.plan.settings.replicas as usize {
        world.invariants.copies.since = None;
        return Ok(());
    }
    let known = (world.invariants.copies.since).filter(|(of, _)| *of == round);
    let (_, since) = *world
        .invariants
        .copies
        .since
        .insert(known.unwrap_or((round, now)));
    let patience = pause * 2 + world.plan.late * 4 + Duration::from_secs(10);
    match now.since(since) > patience {
        true => Err(format!("since {since:?}, all of {hosts:?} copy {round:?}")),
        false => Ok(()),
    }
}
