//! Mistakes that others made, or that were once here, to be planted back: the simulation proves with them that
//! it would see each. They exist only with the feature `mutants`, which nothing that is shipped turns on.

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// A second failure while a round is formed is overlooked.
    SecondFailure,
    /// An answer to a plan that comes twice counts twice.
    RepeatedReady,
    /// An answer to an older plan counts for the current one.
    StaleReady,
    /// A count for an older hold counts for the current one.
    StaleCount,
    /// A report that a worker waits counts whenever it comes.
    RepeatedWaiting,
    /// A cooldown that ends while the job waits for slots is not acted upon.
    CooldownWhileWaiting,
    /// A spare that joins as the job ends leads to one more round.
    LateSpare,
    /// A change of hosts before the first worker has joined is lost.
    EarlyChange,
    /// A slot that goes while a round is formed is noticed too late.
    LateRemoval,
    /// Only members are asked for the base.
    MembersOnly,
    /// What was made void by a later start counts as a base.
    VoidCommit,
    /// The agent that keeps the base is sent away before anybody has fetched it.
    KeeperDismissed,
    /// A round is started while another may still train where nobody hears of it.
    NoFence,
    /// An agent answers a plan while its workers still run to the last boundary.
    EarlyAnswer,
    /// An agent starts whatever it is told to, also for the second time.
    RepeatedSpawn,
    /// A commit holds the ledger of the agreement before its own.
    LedgerOfCommitBefore,
    /// What moves to another worker stays with its former one, too.
    RangeTwice,
    /// A range of what moves is given to nobody.
    RangeLost,
    /// A round in order "deterministic" goes on a step further than its commit.
    LaneSkipped,
}

impl Mutant {
    /// All of them.
    pub const ALL: [Self; 19] = [
        Self::SecondFailure,
        Self::RepeatedReady,
        Self::StaleReady,
        Self::StaleCount,
        Self::RepeatedWaiting,
        Self::CooldownWhileWaiting,
        Self::LateSpare,
        Self::EarlyChange,
        Self::LateRemoval,
        Self::MembersOnly,
        Self::VoidCommit,
        Self::KeeperDismissed,
        Self::NoFence,
        Self::EarlyAnswer,
        Self::RepeatedSpawn,
        Self::LedgerOfCommitBefore,
        Self::RangeTwice,
        Self::RangeLost,
        Self::LaneSkipped,
    ];
}

/// Which mistake is planted; none in what is shipped.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Planted(#[cfg(feature = "mutants")] Option<Mutant>);

impl Planted {
    #[cfg(feature = "mutants")]
    pub(crate) fn plant(&mut self, mutant: Mutant) {
        self.0 = Some(mutant);
    }

    #[cfg(feature = "mutants")]
    pub(crate) fn mutant(self) -> Option<Mutant> {
        self.0
    }

    /// Whether it is this one.
    #[cfg(feature = "mutants")]
    pub(crate) fn is(self, mutant: Mutant) -> bool {
        self.0 == Some(mutant)
    }

    /// Whether it is this one: never.
    #[cfg(not(feature = "mutants"))]
    pub(crate) const fn is(self, _: Mutant) -> bool {
        false
    }
}
