//! The machine of a worker: its messages to the agent, its commits, and the base of its rounds.

mod commits;
mod joining;
mod setup;
mod starts;

use std::collections::BTreeSet;

use elasticrun_core::worker::{
    BaseSource, Command, Commits, Event, Join, Machine, RoundId, RoundStart,
};
use elasticrun_protocol::{CommitId, DriverEpoch, Rank, Round};

fn round(number: u64) -> RoundId {
    RoundId {
        epoch: DriverEpoch(1),
        round: Round(number),
    }
}

fn start(number: u64, rank: u32, base: Option<CommitId>) -> RoundStart {
    RoundStart {
        id: round(number),
        rank: Rank(rank),
        base,
        source: BaseSource::None,
    }
}

fn step(machine: &mut Machine, event: Event) -> Vec<Command> {
    let mut out = Vec::new();
    machine.step(event, &mut out);
    out
}

/// The machine announces itself and enters a round.
fn enter(machine: &mut Machine, start: RoundStart) {
    assert!(matches!(machine.join(), Ok(Join::Announce(_))));
    step(machine, Event::Started(start));
    assert_eq!(machine.join(), Ok(Join::Connect(start)));
}

/// A machine that is in round 1.
fn member(rank: u32, base: Option<CommitId>) -> Machine {
    let mut machine = Machine::default();
    enter(&mut machine, start(1, rank, base));
    machine
}

/// A set of commit ids.
#[derive(Clone, Debug, Default)]
struct Held(BTreeSet<CommitId>);

impl Held {
    fn of(ids: impl IntoIterator<Item = CommitId>) -> Self {
        Self(ids.into_iter().collect())
    }
}

impl Commits for Held {
    fn holds(&self, id: CommitId) -> bool {
        self.0.contains(&id)
    }

    fn discard_newer(&mut self, base: Option<CommitId>) {
        self.0.retain(|id| Some(*id) <= base);
    }

    fn discard(&mut self, id: CommitId) {
        self.0.retain(|held| *held < id);
    }
}
