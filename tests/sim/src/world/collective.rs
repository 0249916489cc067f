//! Joint actions of the workers of a round: they connect, exchange offers, receive the base if their states
//! differ, and run one collective for every step.
//!
//! A collective is complete when all members have reached it. If a member is gone it never is. Whether the others
//! detect that by themselves is random, so their agents must abort the round.

use elasticrun_core::worker::Offer;
use elasticrun_protocol::{CommitId, Process, Rank, Round};

use super::{Ev, World, memory::State, reading::Taken, schedule::Act, worker::Phase};
use crate::invariants;

/// The first collective of a round.
pub(super) const CONNECT: u64 = 0;
/// The exchange of offers.
pub(super) const EXCHANGE: u64 = 1;
/// The broadcast of rank 0, in rounds whose members hold different states.
pub(super) const TRANSFER: u64 = 2;
/// The collective of the first step.
pub(super) const FIRST_STEP: u64 = 3;

/// The collective of the step before a boundary.
pub(super) fn step(boundary: u64) -> u64 {
    FIRST_STEP + 2 * boundary
}

/// The barrier before the commit of a shard, between a step and its boundary.
pub(super) fn barrier(boundary: u64) -> u64 {
    step(boundary) + 1
}

/// Whether a collective is a barrier before a commit.
pub(super) fn is_barrier(index: u64) -> bool {
    index > FIRST_STEP && !is_step(index)
}

fn is_step(index: u64) -> bool {
    index >= FIRST_STEP && (index - FIRST_STEP).is_multiple_of(2)
}

/// A member's seat in a round.
#[derive(Clone, Debug)]
pub(crate) struct Seat {
    pub(crate) host: usize,
    pub(crate) process: Process,
    /// Number of collectives that the member has reached.
    reached: u64,
    /// The same before it reached the last one.
    before: u64,
    /// The member left or died.
    gone: bool,
    /// The member's offer at the start.
    offer: Option<Offer>,
    /// The rows of the member's last step.
    pub(super) taken: Taken,
}

/// A round that was started.
#[derive(Clone, Debug)]
pub(crate) struct RoundSim {
    pub(crate) base: Option<CommitId>,
    pub(crate) seats: Vec<Seat>,
    /// The state with which the first member began to train.
    pub(crate) began: Option<State>,
    /// Reset callbacks of rank 0 have changed the base.
    pub(crate) called_back: bool,
    /// The state that rank 0 broadcasts.
    pub(super) sent: Option<State>,
    /// The introductions of the members after the sync.
    pub(super) introductions: Vec<Vec<u8>>,
    /// The members' reports about their rows in the last complete step.
    pub(super) reports: Vec<Vec<u8>>,
    /// The collective that is stalled by a cut.
    stalled: Option<u64>,
    /// The boundary at which the first member left by a hold.
    pub(crate) left_at: Option<u64>,
}

impl RoundSim {
    pub(crate) fn new(base: Option<CommitId>, members: Vec<(usize, Process)>) -> Self {
        Self {
            base,
            seats: (members.into_iter())
                .map(|(host, process)| Seat {
                    host,
                    process,
                    reached: 0,
                    before: 0,
                    gone: false,
                    offer: None,
                    taken: Taken::default(),
                })
                .collect(),
            began: None,
            called_back: false,
            sent: None,
            introductions: Vec::new(),
            reports: Vec::new(),
            stalled: None,
            left_at: None,
        }
    }

    /// The offers of all members, in the order of their ranks.
    pub(super) fn offers(&self) -> Vec<Offer> {
        self.seats.iter().filter_map(|seat| seat.offer).collect()
    }

    /// Whether all members have reached this collective. Members of a divided state may leave at a boundary that others have
    /// passed, and wait in the barrier of their last commit: that is another collective.
    fn is_complete(&self, index: u64) -> bool {
        (self.seats.iter()).all(|seat| seat.reached == index + 1)
    }

    fn is_broken(&self, index: u64) -> bool {
        self.seats
            .iter()
            .any(|seat| seat.gone && seat.reached <= index)
    }

    fn several_hosts(&self) -> bool {
        self.seats
            .iter()
            .any(|seat| seat.host != self.seats[0].host)
    }
}

impl World {
    /// A worker reaches a collective.
    pub(super) fn arrive(&mut self, host: usize, process: Process, index: u64) {
        let Some(own) = self.hosts[host]
            .workers
            .get(&process)
            .and_then(|w| w.round.as_ref())
        else {
            return;
        };
        let (number, rank) = (own.start.round, own.rank);
        let taken = is_step(index).then(|| self.take_rows(host, process));
        let Some(round) = self.rounds.get_mut(&number) else {
            return;
        };
        let seat = &mut round.seats[rank.0 as usize];
        seat.before = std::mem::replace(&mut seat.reached, index + 1);
        if let Some(taken) = taken {
            seat.taken = taken;
        }
        if round.is_broken(index) {
            self.notice(number, host, process);
        } else if round.is_complete(index) {
            self.complete(number, index);
        }
    }

    fn complete(&mut self, number: Round, index: u64) {
        let Some(round) = self.rounds.get_mut(&number) else {
            return;
        };
        let cut = round.several_hosts()
            && round
                .seats
                .iter()
                .any(|seat| self.hosts[seat.host].cut_data > 0);
        if cut {
            round.stalled = Some(index);
            let wait = self.plan.stall_timeout;
            return self.after(
                wait,
                Ev::Stalled {
                    round: number,
                    index,
                },
            );
        }
        round.stalled = None;
        let seats = round.seats.clone();
        match index {
            _ if !is_step(index) => {}
            _ => {
                invariants::r11::step_done(self, number);
                self.step_taken(number);
            }
        }
        let sync = self.plan.sync.as_micros() as u64;
        let slow = if index == TRANSFER { sync } else { 500 };
        for seat in seats {
            let wait = self.rng.micros(5, slow);
            self.act_after(seat.host, seat.process, wait, Act::Done(index));
        }
    }

    /// The network between hosts is whole again.
    pub(super) fn retry_collectives(&mut self) {
        let stalled: Vec<_> = (self.rounds.iter())
            .filter_map(|(number, round)| Some((*number, round.stalled?)))
            .collect();
        for (number, index) in stalled {
            let broken = self.rounds[&number].is_broken(index);
            if !broken {
                self.complete(number, index);
            }
        }
    }

    /// A collective was stalled for too long.
    pub(super) fn stalled(&mut self, number: Round, index: u64) {
        let Some(round) = self.rounds.get_mut(&number) else {
            return;
        };
        if round.stalled != Some(index) {
            return;
        }
        round.stalled = None;
        for seat in round.seats.clone() {
            let wait = self.rng.millis(0, 50);
            let (host, process) = (seat.host, seat.process);
            self.after(
                wait,
                Ev::PeerLost {
                    host,
                    process,
                    round: number,
                },
            );
        }
    }

    /// A member left or died. Members that wait for it may detect that.
    pub(super) fn seat_gone(&mut self, number: Round, rank: Rank, from: Phase) {
        let Some(round) = self.rounds.get_mut(&number) else {
            return;
        };
        let seat = &mut round.seats[rank.0 as usize];
        seat.gone = true;
        if let Phase::Collective(_) = from {
            // The member left before the collective was complete. It may have come there without the step before.
            seat.reached = seat.before;
        }
        let reached = seat.reached;
        let careless = self.plan.careless;
        let waiting: Vec<_> = (round.seats.iter())
            .filter(|seat| !seat.gone && (seat.reached > reached || careless))
            .map(|seat| (seat.host, seat.process))
            .collect();
        for (host, process) in waiting {
            self.notice(number, host, process);
        }
    }

    fn notice(&mut self, round: Round, host: usize, process: Process) {
        if self.rng.percent(self.plan.notice) {
            let wait = self.rng.micros(100, 50_000);
            self.after(
                wait,
                Ev::PeerLost {
                    host,
                    process,
                    round,
                },
            );
        }
    }

    /// Records the offer of a member at the start of a round.
    pub(super) fn offers(&mut self, host: usize, process: Process, offer: Offer) {
        let Some(own) = (self.hosts[host].workers.get(&process)).and_then(|w| w.round.as_ref())
        else {
            return;
        };
        let (number, rank) = (own.start.round, own.rank);
        if let Some(round) = self.rounds.get_mut(&number) {
            round.seats[rank.0 as usize].offer = Some(offer);
        }
    }

    /// A member leaves a round at this boundary. All members that leave by the hold do so there.
    pub(super) fn leaves_at(&mut self, number: Round, boundary: u64) {
        let Some(round) = self.rounds.get_mut(&number) else {
            return;
        };
        let at = *round.left_at.get_or_insert(boundary);
        if at != boundary {
            self.violate(
                "R6",
                format!("{number:?} is left at the boundaries {at} and {boundary}"),
            );
        }
    }
}
