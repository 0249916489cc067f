//! Mistakes to plant in tests: the simulation must find each of them. A shipped build has none.

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(test), allow(dead_code, reason = "tests plant them"))]
pub(crate) enum Mutant {
    /// A tail acknowledges pushes that its learner does not have, after it has sent the last part of the copy.
    AcknowledgesBeforeLearner,
    /// A copy of a range has an empty filter.
    FilterNotCopied,
    /// What a dead successor has not acknowledged is not sent to the next one.
    PendingNotResent,
    /// A server serves though it may have been declared dead.
    FencedServerServes,
    /// The upper half of a split range has an empty filter.
    SplitDropsFilter,
    /// A server applies what a former predecessor sends.
    OldForwardAccepted,
    /// A push to keys that are copied already is not sent to the learner.
    LearnerMissesPushes,
    /// A server that leaves a chain goes on answering.
    StoppedTailServes,
    /// A snapshot is complete without ranges that moved meanwhile.
    SnapshotWithGap,
    /// A server keeps what it has read beside its ranges.
    LoadKeepsOthers,
}

#[cfg(test)]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Mutant>> = const { std::cell::Cell::new(None) };
}

#[cfg(test)]
impl Mutant {
    pub(crate) const ALL: [Self; 10] = [
        Self::AcknowledgesBeforeLearner,
        Self::FilterNotCopied,
        Self::PendingNotResent,
        Self::FencedServerServes,
        Self::SplitDropsFilter,
        Self::OldForwardAccepted,
        Self::LearnerMissesPushes,
        Self::StoppedTailServes,
        Self::SnapshotWithGap,
        Self::LoadKeepsOthers,
    ];
}

/// Plants a mistake for this thread, or removes it.
#[cfg(test)]
pub(crate) fn plant(mutant: Option<Mutant>) {
    PLANTED.set(mutant);
}

/// Whether this mistake is planted.
#[cfg(test)]
pub(crate) fn planted(mutant: Mutant) -> bool {
    PLANTED.get() == Some(mutant)
}

/// Whether this mistake is planted: never.
#[cfg(not(test))]
pub(crate) const fn planted(_: Mutant) -> bool {
    false
}
