//! R1: ranks of a started round are 0..n-1, each once, and min_np <= n <= max_np. The place of every worker and
//! the neighbours of its host follow from the ranks.

use std::collections::{BTreeMap, BTreeSet};

use elasticrun_protocol::{LocalRank, topology};

use super::Started;
use crate::world::World;

pub(super) fn started(world: &mut World, started: &Started<'_>) -> Result<(), String> {
    let settings = &world.plan.settings;
    let ranks: Vec<u32> = (started.starts.iter())
        .flat_map(|(_, start)| start.members.iter().map(|member| member.place.rank.0))
        .collect();
    let expected: Vec<u32> = (0..started.size).collect();
    // Orders are sent in the order of ranks, so the list itself is 0..n-1.
    if ranks != expected {
        return Err(format!("ranks are {ranks:?}, size {}", started.size));
    }
    let most = settings.max_np.unwrap_or(u32::MAX);
    if started.size < settings.min_np || started.size > most {
        return Err(format!(
            "size {} is not in {}..={most}",
            started.size, settings.min_np
        ));
    }
    let hosts: BTreeSet<usize> = started.starts.iter().map(|(host, _)| *host).collect();
    if hosts.len() != started.starts.len() {
        return Err("a host is told twice".into());
    }
    let mut crosses: BTreeMap<LocalRank, u32> = BTreeMap::new();
    for member in started.starts.iter().flat_map(|(_, start)| &start.members) {
        *crosses.entry(member.process.local_rank).or_default() += 1;
    }
    let mut seen: BTreeMap<LocalRank, u32> = BTreeMap::new();
    for (index, (_, start)) in started.starts.iter().enumerate() {
        let count = started.starts.len() as u32;
        let slots: BTreeSet<_> = start.members.iter().map(|m| m.process.local_rank).collect();
        if slots.len() != start.members.len() {
            return Err("a slot is used twice".into());
        }
        let peers: Vec<u32> = start.peers.keys().copied().collect();
        let told = (start.host_index, start.host_count, start.size, start.base);
        if told != (index as u32, count, started.size, started.base)
            || peers != topology::neighbours(index as u32, count)
        {
            return Err(format!("a host is told {told:?} with neighbours {peers:?}"));
        }
        for member in &start.members {
            let local = member.process.local_rank;
            let cross = seen.entry(local).or_default();
            let place = member.place;
            let is = (
                place.size,
                place.local_size,
                place.cross_rank,
                place.cross_size,
            );
            let should = (
                started.size,
                start.members.len() as u32,
                *cross,
                crosses[&local],
            );
            if is != should {
                return Err(format!(
                    "place of {:?} is {is:?}, not {should:?}",
                    place.rank
                ));
            }
            *cross += 1;
        }
    }
    Ok(())
}
