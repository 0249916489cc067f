//! A model of a reader around the shipped [`Position`]: some row groups are open, and rows come from any of them.

use std::{rc::Rc, sync::Arc};

use elasticrun_ledger::{Owner, Position, ReadOrder, RoundHello, Share, Split, Stripes};
use elasticrun_protocol::{Process, Round};

use super::{World, memory::State};
use crate::{invariants::r7, rng::Rng};

/// The data set of a scenario.
#[derive(Clone, Debug)]
pub(crate) struct DataSet {
    /// Rows of each row group.
    pub(crate) groups: Arc<[u32]>,
    /// Rows of a worker in each step; in order "deterministic", rows of all workers together.
    pub(crate) batch: u32,
    /// Number of row groups that a worker has open at most.
    open: usize,
    order: ReadOrder,
    /// Workers have weights from 1 to this.
    weights: u64,
    seed: u64,
}

impl DataSet {
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        let (count, most) = (rng.range(0, 12), rng.pick(&[1, 6, 40]).unwrap_or(1));
        let mut data = Self {
            groups: (0..count).map(|_| rng.range(0, most) as u32).collect(),
            batch: rng.range(1, 4) as u32,
            open: rng.range(1, 4) as usize,
            order: ReadOrder::Local(if rng.percent(25) {
                Split::Never
            } else {
                Split::Rows
            }),
            weights: rng.pick(&[1, 1, 3]).unwrap_or(1),
            seed: rng.seed(),
        };
        if rng.percent(30) {
            // No job has as many workers.
            let stripes = rng.pick(&[64, 100, 5040]).unwrap_or(64);
            data.order = ReadOrder::Deterministic(stripes as u32);
            data.batch = rng.range(1, 24) as u32;
        }
        data
    }

    pub(crate) fn start(&self) -> Position {
        Position::new(self.groups.clone(), 0, Some(self.seed), self.order)
    }

    /// Rows of an epoch.
    pub(crate) fn rows(&self) -> u64 {
        self.groups.iter().copied().map(u64::from).sum()
    }

    /// The stripes in order "deterministic".
    pub(crate) fn stripes(&self) -> Option<Stripes> {
        match self.order {
            ReadOrder::Local(_) => None,
            ReadOrder::Deterministic(stripes) => Some(Stripes::new(self.rows(), stripes)),
        }
    }

    fn introduction(&self, host: usize, process: Process) -> RoundHello {
        let id = (host as u64 + 1) << 48
            | u64::from(process.local_rank.0) << 32
            | u64::from(process.generation.0);
        let (host, zone) = (host as u64, host as u64 % 2);
        RoundHello {
            owner: Owner { id, host, zone },
            weight: 1 + (id % self.weights) as u32,
            batch: self.batch,
        }
    }
}

/// The rows of a member in a step, and its report about them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Taken {
    pub(crate) epoch: u64,
    pub(crate) rows: Vec<u64>,
    report: Vec<u8>,
}

impl World {
    /// A worker has the base and takes over its position in the data.
    pub(super) fn share_out(&mut self, host: usize, process: Process) {
        let Some(worker) = self.hosts[host].workers.get(&process) else {
            return;
        };
        let (Some(own), state) = (worker.round.as_ref(), worker.state.clone()) else {
            return;
        };
        let (number, rank) = (own.start.round, own.rank.0 as usize);
        let Some(mut position) = self.position_of(&state) else {
            return;
        };
        if let Some(round) = self.rounds.get_mut(&number)
            && round.introductions.is_empty()
        {
            // All members have the same state now, so any of them can compute the introductions of all.
            round.introductions = (round.seats.iter())
                .map(|seat| {
                    position.introduce(&self.plan.data.introduction(seat.host, seat.process))
                })
                .collect();
        }
        let entered = self
            .rounds
            .get(&number)
            .map(|round| position.enter(rank, &round.introductions));
        if let Some(Err(what)) = entered {
            return self.violate("R8", format!("{number:?}: {what}"));
        }
        if let Some(worker) = self.worker(host, process) {
            worker.position = Some(position);
        }
    }

    fn position_of(&mut self, state: &State) -> Option<Position> {
        let mut position = self.plan.data.start();
        if !state.data.is_empty()
            && let Err(what) = position.restore(&state.data)
        {
            self.violate("R8", format!("step {}: {what}", state.step));
            return None;
        }
        Some(position)
    }

    /// The rows of the next step, from any of the open row groups.
    pub(super) fn take_rows(&mut self, host: usize, process: Process) -> Taken {
        let mut taken = Taken::default();
        let mut rng = self.data_rng.clone();
        let (open, batch, rows) = (
            self.plan.data.open,
            self.plan.data.batch,
            self.plan.data.groups.iter().any(|rows| *rows > 0),
        );
        let Some(position) = self
            .worker(host, process)
            .and_then(|worker| worker.position.as_mut())
        else {
            return taken;
        };
        if position.steps() == 0 && rows {
            position.next_epoch();
        }
        taken.epoch = position.ledger().epoch();
        if let Some((stripes, rank, size)) = position.stripes() {
            let positions = stripes.share(position.next_step(), rank, size);
            taken.rows = positions.map(|position| stripes.row(position)).collect();
            position.step_stripes();
            taken.report = position.report();
            return taken;
        }
        let share = position.share();
        // As many row groups as may be open, and more if they do not fill a step.
        let (mut pieces, mut opened) = (Vec::new(), 0);
        for piece in share.clone().segments(position.layout()) {
            if pieces.len() >= open && opened >= u64::from(batch) {
                break;
            }
            let range = piece.range();
            opened += range.end - range.start;
            pieces.push(range);
        }
        let behind = share.without_first(opened);
        for _ in 0..batch {
            let full: Vec<usize> = (0..pieces.len())
                .filter(|index| !pieces[*index].is_empty())
                .collect();
            if let Some(index) = rng.pick(&full) {
                taken.rows.extend(pieces[index].next());
            }
        }
        let left: Share = pieces
            .into_iter()
            .chain(behind.ranges().iter().cloned())
            .collect();
        let stepped = position.step(left);
        taken.report = position.report();
        self.data_rng = rng;
        if let Err(what) = stepped {
            self.violate("R7", what.to_string());
        }
        taken
    }

    /// The members have done a step together.
    pub(super) fn step_taken(&mut self, number: Round) {
        let Some(round) = self.rounds.get(&number) else {
            return;
        };
        let Some(seat) = round.seats.first() else {
            return;
        };
        let Some(worker) = self.hosts[seat.host].workers.get(&seat.process) else {
            return;
        };
        let before = worker.state.digest;
        let mut state = worker.state.clone();
        state.advance(number);
        let taken: Vec<Taken> = round.seats.iter().map(|seat| seat.taken.clone()).collect();
        if let Some(round) = self.rounds.get_mut(&number) {
            round.reports = taken.iter().map(|taken| taken.report.clone()).collect();
        }
        if let Err(what) = r7::step_done(&mut self.invariants, before, state.digest, &taken) {
            self.violate("R7", format!("{number:?}: {what}"));
        }
    }

    /// Agrees on the position before the commit of a step that all members have done.
    pub(super) fn agree(&mut self, host: usize, process: Process) {
        let Some(worker) = self.hosts[host].workers.get(&process) else {
            return;
        };
        let Some(number) = worker.round.as_ref().map(|round| round.start.round) else {
            return;
        };
        let Some(round) = self.rounds.get(&number) else {
            return;
        };
        let reports = round.reports.clone();
        let Some(worker) = self.worker(host, process) else {
            return;
        };
        let Some(position) = worker.position.as_mut() else {
            return;
        };
        let agreed = position.agree(&reports);
        worker.state.data = Rc::from(position.save());
        if let Err(what) = agreed {
            self.violate("R8", format!("{number:?}: {what}"));
        }
    }
}
