//! R18: a round has whole replica groups, and each group has each shard once. All hosts are told the same order of seats.

use elasticrun_core::ReplicaGroupSize;
use elasticrun_protocol::control::{Seat, Start};

use super::Started;
use crate::world::World;

pub(super) fn started(world: &mut World, started: &Started<'_>) -> Result<(), String> {
    let size = match world.plan.settings.replica_group_size {
        ReplicaGroupSize::One => return Ok(()),
        ReplicaGroupSize::All => started.size,
        ReplicaGroupSize::Fixed(size) => size,
    };
    let multiple = world.plan.settings.size_multiple;
    if !started.size.is_multiple_of(size) || !started.size.is_multiple_of(multiple) {
        return Err(format!(
            "{} workers, with groups of {size} and a multiple of {multiple}",
            started.size
        ));
    }
    let seats = started.seats();
    let mut taken: Vec<_> = (seats.iter().zip(0..))
        .filter_map(|(seat, rank)| seat.map(|seat| ((seat.group, seat.shard, seat.of), rank)))
        .collect();
    taken.sort_unstable();
    let expected = (0..started.size).map(|place| (place / size, place % size, size));
    if !(taken.iter().map(|(seat, _)| *seat)).eq(expected) {
        return Err(format!("the seats are {seats:?}"));
    }
    let by_seat: Vec<u32> = taken.into_iter().map(|(_, rank)| rank).collect();
    let tells_it = |(_, start): &&(usize, &Start)| order_of(start) == by_seat;
    match started.starts.iter().all(|start| tells_it(&start)) {
        true => Ok(()),
        false => Err(format!(
            "the order of seats is {by_seat:?}, and hosts are told another"
        )),
    }
}

fn order_of(start: &Start) -> Vec<u32> {
    match start.order.as_slice() {
        [] => (0..start.size).collect(),
        runs => (runs.iter())
            .flat_map(|run| run.first.0..run.first.0 + run.count)
            .collect(),
    }
}

impl Started<'_> {
    /// The seats by rank.
    pub(super) fn seats(&self) -> Vec<Option<Seat>> {
        let members = self.starts.iter().flat_map(|(_, start)| &start.members);
        members.map(|member| member.seat).collect()
    }
}
