//! What sources say of hosts: which of them has which, and what it knows of slots.

use elasticrun_hosts::SlotsFrom;

use crate::rng::Rng;

/// What the sources of a host say of its slots, and whether its agent counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slots {
    /// A person has given them.
    Given,
    /// Nothing.
    Unsaid,
    /// So many more than there are, by a tag or label, or by its accelerators.
    TooMany(u32, SlotsFrom),
}

impl Slots {
    /// What a source says of a host that has so many.
    pub(crate) fn said(self, slots: u32) -> (Option<u32>, Option<SlotsFrom>) {
        match self {
            Self::Given => (Some(slots), Some(SlotsFrom::Explicit)),
            Self::Unsaid => (None, None),
            Self::TooMany(more, from) => (Some(slots + more), Some(from)),
        }
    }

    /// What the agent of a host counts that has so many.
    pub(crate) fn counted(self, slots: u32) -> Option<u32> {
        matches!(self, Self::TooMany(..)).then_some(slots)
    }
}

/// One host.
#[derive(Clone, Debug)]
pub(crate) struct Listing {
    /// The sources that have it.
    pub(crate) sources: Vec<usize>,
    pub(crate) slots: Slots,
}

impl Listing {
    /// A host that one source has, whose slots a person has given.
    pub(crate) fn plain() -> Self {
        Self {
            sources: vec![0],
            slots: Slots::Given,
        }
    }

    /// A host of one or two of so many sources.
    pub(crate) fn draw(rng: &mut Rng, count: usize) -> Self {
        let mut sources = vec![rng.range(0, count as u64 - 1) as usize];
        let other = rng.range(0, count as u64 - 1) as usize;
        if rng.percent(40) && other != sources[0] {
            sources.push(other);
        }
        sources.sort_unstable();
        let more = rng.range(1, 2) as u32;
        let slots = match rng.range(0, 9) {
            0..=3 => Slots::Given,
            4..=6 => Slots::Unsaid,
            7 => Slots::TooMany(more, SlotsFrom::Label),
            _ => Slots::TooMany(more, SlotsFrom::Accelerators),
        };
        Self { sources, slots }
    }
}
