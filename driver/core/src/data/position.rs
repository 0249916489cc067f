//! The position of one worker in its data, through rounds, commits and epochs.

use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

use super::{
    Identity, Ledger, Line, Malformed, Owner, Refused, Share, Split,
    encoding::{put, take, take_word},
};

/// What the workers of a round tell each other when it begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Introduction {
    /// Who this worker is.
    pub owner: Owner,
    /// How much it gets in proportion to the others.
    pub weight: u32,
    /// How many rows it takes at each step; not 0.
    pub batch: u32,
}

/// Why workers cannot go on together.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Disagreement {
    /// Another ledger, epoch or data set.
    #[error(
        "rank {rank} is elsewhere in the data: do all workers read the same files, and is the data set part of the state?"
    )]
    Elsewhere {
        /// Who.
        rank: usize,
    },
    /// Not what a worker says.
    #[error("rank {rank}: {why}")]
    Malformed {
        /// Who.
        rank: usize,
        /// What is wrong.
        why: Malformed,
    },
    /// Rows that are not its own.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// Nobody would read the rows.
    #[error("no worker of this round has a weight: one at least must be more than 0")]
    NoWeight,
    /// Two processes that say they are the same one.
    #[error("ranks {0} and {1} say that they are the same worker")]
    Twins(usize, usize),
}

/// The ledger of the last agreement, and what this worker has done since.
///
/// A machine without I/O: the shell brings what [`Position::introduce`] and [`Position::report`] give to all workers of the
/// round, and gives what all of them have said to [`Position::enter`] and [`Position::agree`].
#[derive(Clone, Debug)]
pub struct Position {
    /// Rows of each row group.
    groups: Arc<[u32]>,
    split: Split,
    ledger: Ledger,
    /// The ledger as bytes, and their hash.
    bytes: Vec<u8>,
    digest: u64,
    line: Line,
    /// The workers of the round, by rank.
    workers: Vec<Introduction>,
    rank: usize,
    /// What this worker has left.
    share: Share,
    /// Steps of this epoch that are left, the same in all workers.
    steps: u64,
}

impl Position {
    /// The start of epoch 0 of a data set whose row groups have so many rows. `digest` is that of [`Identity`].
    pub fn new(groups: Arc<[u32]>, digest: u64, seed: Option<u64>, split: Split) -> Self {
        let identity = Identity {
            rows: groups.iter().copied().map(u64::from).sum(),
            groups: groups.len() as u32,
            digest,
        };
        let ledger = Ledger::new(identity, seed);
        let mut position = Self {
            line: Line::new(&groups, ledger.shuffle()),
            groups,
            split,
            ledger,
            bytes: Vec::new(),
            digest: 0,
            workers: Vec::new(),
            rank: 0,
            share: Share::EMPTY,
            steps: 0,
        };
        position.settle();
        position
    }

    /// The ledger of the last agreement.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The ledger as bytes: what a commit holds of the data. The same in all workers.
    pub fn save(&self) -> &[u8] {
        &self.bytes
    }

    /// The rows of this epoch.
    pub fn line(&self) -> &Line {
        &self.line
    }

    /// What this worker has left.
    pub fn share(&self) -> &Share {
        &self.share
    }

    /// Steps that are left until all workers are through with the epoch. The same in all of them: who has no rows left any
    /// more has empty steps, so that all can make the same calls of collectives.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Whether rows were processed since the last agreement: a commit would not know of them.
    pub fn is_ahead(&self) -> bool {
        self.ledger.shares().get(self.rank) != Some(&self.share)
    }

    /// What the other workers of a round are to know when it begins.
    pub fn introduce(&self, this: &Introduction) -> Vec<u8> {
        let mut out = Vec::new();
        for number in [self.digest, this.owner.id, this.owner.host, this.owner.zone] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        put(&mut out, this.weight.into());
        put(&mut out, this.batch.into());
        out
    }

    /// Enters a round as `rank`: what is left is handed out anew. Gives how many rows go to another worker.
    ///
    /// All workers must have the same ledger, that of the commit which the round goes on from.
    ///
    /// # Errors
    /// If they do not, or one of them said nonsense; nothing has changed then.
    pub fn enter<B: AsRef<[u8]>>(
        &mut self,
        rank: usize,
        introductions: &[B],
    ) -> Result<u64, Disagreement> {
        let own = self.digest;
        let read = |from: &mut &[u8]| {
            let digest = take_word(from)?;
            let [id, host, zone] = [take_word(from)?, take_word(from)?, take_word(from)?];
            let weight = small(take(from)?)?;
            let batch = small(take(from)?)?;
            let owner = Owner { id, host, zone };
            match batch {
                0 => Err(Malformed("a step of no rows would never end the epoch")),
                batch => Ok((
                    digest,
                    Introduction {
                        owner,
                        weight,
                        batch,
                    },
                )),
            }
        };
        let mut workers: Vec<Introduction> = Vec::with_capacity(introductions.len());
        for (rank, mut bytes) in introductions.iter().map(AsRef::as_ref).enumerate() {
            let (digest, worker) =
                read(&mut bytes).map_err(|why| Disagreement::Malformed { rank, why })?;
            if digest != own {
                return Err(Disagreement::Elsewhere { rank });
            }
            workers.push(worker);
        }
        let mut ids: Vec<(u64, usize)> = (workers.iter().enumerate())
            .map(|(rank, worker)| (worker.owner.id, rank))
            .collect();
        ids.sort_unstable();
        if let Some(twins) = ids.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(Disagreement::Twins(twins[0].1, twins[1].1));
        }
        if workers.iter().all(|worker| worker.weight == 0) {
            return Err(Disagreement::NoWeight);
        }
        self.workers = workers;
        self.rank = rank;
        Ok(self.share_out())
    }

    /// This worker has processed the rows of a step, all that it has or as many as it said: this is what it has left. One
    /// step less is left.
    ///
    /// # Errors
    /// If it has processed fewer, or if there are rows left that it did not have.
    pub fn step(&mut self, left: Share) -> Result<(), Refused> {
        if !left.is_part_of(&self.share) {
            return Err(Refused::Foreign(self.rank));
        }
        let had = self.share.rows();
        let taken = had - left.rows();
        let step = self
            .workers
            .get(self.rank)
            .map_or(0, |this| had.min(this.batch.into()));
        if taken < step {
            let rank = self.rank;
            return Err(Refused::Short { rank, taken, step });
        }
        self.share = left;
        self.steps = self.steps.saturating_sub(1);
        Ok(())
    }

    /// What the other workers are to know before a commit.
    pub fn report(&self) -> Vec<u8> {
        let mut out = self.digest.to_le_bytes().to_vec();
        self.share.encode(&mut out);
        out
    }

    /// All workers have reported, by rank: from here on the ledger is that of the commit which follows.
    ///
    /// # Errors
    /// If they disagree; nothing has changed then.
    pub fn agree<B: AsRef<[u8]>>(&mut self, reports: &[B]) -> Result<(), Disagreement> {
        let own = self.digest;
        let mut ledger = self.ledger.clone();
        for (rank, mut from) in reports.iter().map(AsRef::as_ref).enumerate() {
            let malformed = |why| Disagreement::Malformed { rank, why };
            if take_word(&mut from).map_err(malformed)? != own {
                return Err(Disagreement::Elsewhere { rank });
            }
            let share = Share::decode(&mut from).map_err(malformed)?;
            ledger.record(rank, share)?;
        }
        self.ledger = ledger;
        self.settle();
        Ok(())
    }

    /// Goes to the start of the next epoch; all workers do so at the same step. What is left of this one stays unread.
    pub fn next_epoch(&mut self) {
        self.ledger.begin(self.ledger.epoch() + 1);
        self.line = Line::new(&self.groups, self.ledger.shuffle());
        if self.workers.is_empty() {
            self.settle();
        } else {
            self.share_out();
        }
    }

    /// Becomes the position of a commit, as [`Ledger::encode`] gave it. If it is one of this round, training goes on from
    /// there; else another round has to be entered before.
    ///
    /// # Errors
    /// If it is none, or one of another data set; nothing has changed then.
    pub fn restore(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        let ledger = Ledger::decode(bytes)?;
        if ledger.identity() != self.ledger.identity() {
            return Err(Malformed("it is of another data set"));
        }
        if ledger.seed() != self.ledger.seed() {
            return Err(Malformed("its order has another seed"));
        }
        if ledger.epoch() != self.ledger.epoch() {
            self.line = Line::new(&self.groups, ledger.shuffle());
        }
        self.ledger = ledger;
        self.settle();
        let same = (self.workers.iter().map(|worker| &worker.owner)).eq(self.ledger.owners());
        if same {
            self.share.clone_from(&self.ledger.shares()[self.rank]);
        } else {
            self.share = Share::EMPTY;
            self.steps = 0;
        }
        Ok(())
    }

    fn share_out(&mut self) -> u64 {
        let weights: Vec<(Owner, u32)> = (self.workers.iter())
            .map(|worker| (worker.owner, worker.weight))
            .collect();
        let plan = self.ledger.share_out(&self.line, &weights, self.split);
        self.share = plan.shares[self.rank].clone();
        self.settle();
        plan.moved
    }

    /// The ledger has changed.
    fn settle(&mut self) {
        self.bytes = self.ledger.encode();
        self.digest = xxh3_64(&self.bytes);
        let steps =
            |(share, worker): (&Share, &Introduction)| share.rows().div_ceil(worker.batch.into());
        self.steps = (self.ledger.shares().iter().zip(&self.workers))
            .map(steps)
            .max()
            .unwrap_or(0);
    }
}

fn small(number: u64) -> Result<u32, Malformed> {
    u32::try_from(number).map_err(|_| Malformed("a number is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A world of workers with these ids.
    struct World(Vec<Position>);

    fn groups() -> Arc<[u32]> {
        [30, 10, 0, 25, 35].into()
    }

    fn introduction(id: u64) -> Introduction {
        let (host, zone) = (id, 0);
        Introduction {
            owner: Owner { id, host, zone },
            weight: 1,
            batch: 4,
        }
    }

    impl World {
        fn new(size: usize) -> Self {
            Self(vec![Position::new(groups(), 9, Some(1), Split::Rows); size])
        }

        fn enter(&mut self, ids: &[u64]) -> Vec<Result<u64, Disagreement>> {
            let all: Vec<_> = (self.0.iter().zip(ids))
                .map(|(position, id)| position.introduce(&introduction(*id)))
                .collect();
            self.0
                .iter_mut()
                .enumerate()
                .map(|(rank, position)| position.enter(rank, &all))
                .collect()
        }

        fn agree(&mut self) -> Vec<Result<(), Disagreement>> {
            let all: Vec<_> = self.0.iter().map(Position::report).collect();
            self.0
                .iter_mut()
                .map(|position| position.agree(&all))
                .collect()
        }

        /// Each worker takes its next rows.
        fn step(&mut self) {
            for position in &mut self.0 {
                let mut taken = position.share().clone();
                let left = taken.cut(4, None);
                position.step(left).unwrap();
            }
        }
    }

    #[test]
    fn all_have_as_many_steps() {
        let mut world = World::new(3);
        assert!(world.enter(&[1, 2, 3]).iter().all(Result::is_ok));
        let mut steps = 0;
        while world.0[0].steps() > 0 {
            world.step();
            steps += 1;
            assert!(
                world
                    .0
                    .iter()
                    .all(|position| position.steps() == world.0[0].steps())
            );
            assert_eq!(world.agree(), [Ok(()), Ok(()), Ok(())]);
        }
        // 34 rows at most, 4 at a time.
        assert_eq!((steps, world.0[2].ledger().left()), (9, 0));
    }

    #[test]
    fn a_commit_is_what_all_have_reported() {
        let mut world = World::new(2);
        world.enter(&[1, 2]);
        world.step();
        assert!(world.0[1].is_ahead());
        assert_eq!(world.0[1].ledger().left(), 100);
        world.agree();
        assert!(!world.0[1].is_ahead());
        assert_eq!(world.0[1].ledger().left(), 92);
        assert_eq!(world.0[0].save(), world.0[1].save());
    }

    #[test]
    fn after_a_rollback_the_same_rows_are_left() {
        let mut world = World::new(2);
        world.enter(&[1, 2]);
        world.step();
        world.agree();
        let commit = world.0[0].save().to_vec();
        let share = world.0[0].share().clone();
        world.step();
        for position in &mut world.0 {
            position.restore(&commit).unwrap();
        }
        assert_eq!(world.0[0].share(), &share);
        // One of them goes on alone, and has all that is left.
        world.0.remove(0);
        assert_eq!(world.enter(&[2]), [Ok(46)]);
        assert_eq!(world.0[0].share().rows(), 92);
    }

    #[test]
    fn who_is_elsewhere_is_named() {
        let mut world = World::new(3);
        world.0[2].next_epoch();
        assert_eq!(
            world.enter(&[1, 2, 3])[0],
            Err(Disagreement::Elsewhere { rank: 2 })
        );
        let mut world = World::new(3);
        world.enter(&[1, 2, 3]);
        world.0[1].next_epoch();
        assert_eq!(world.agree()[0], Err(Disagreement::Elsewhere { rank: 1 }));
        assert_eq!(
            world.enter(&[1, 7, 7])[0],
            Err(Disagreement::Elsewhere { rank: 1 })
        );
    }

    #[test]
    fn a_step_that_takes_too_little_would_leave_rows_unread() {
        let mut world = World::new(2);
        world.enter(&[1, 2]);
        let left = world.0[1].share().behind(3);
        let (rank, taken, step) = (1, 3, 4);
        assert_eq!(
            world.0[1].step(left),
            Err(Refused::Short { rank, taken, step })
        );
        let left = world.0[1].share().behind(5);
        assert_eq!(world.0[1].step(left), Ok(()));
    }

    #[test]
    fn one_worker_cannot_be_two() {
        assert_eq!(
            World::new(2).enter(&[5, 5])[0],
            Err(Disagreement::Twins(0, 1))
        );
    }

    #[test]
    fn a_commit_of_another_data_set_is_refused() {
        let mut other = Position::new(groups(), 8, Some(1), Split::Rows);
        let commit = Position::new(groups(), 9, Some(1), Split::Rows)
            .save()
            .to_vec();
        assert_eq!(
            other.restore(&commit),
            Err(Malformed("it is of another data set"))
        );
        let mut other = Position::new(groups(), 9, None, Split::Rows);
        assert_eq!(
            other.restore(&commit),
            Err(Malformed("its order has another seed"))
        );
    }

    #[test]
    fn an_empty_data_set_has_no_steps() {
        let mut position = Position::new(Vec::new().into(), 0, Some(1), Split::Rows);
        let hello = position.introduce(&introduction(1));
        assert_eq!(position.enter(0, &[hello]), Ok(0));
        assert_eq!(position.steps(), 0);
    }
}
