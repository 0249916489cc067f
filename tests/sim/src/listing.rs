//! Which sources list a host, and what they report of its slots.

use elasticrun_hosts::SlotsFrom;

use crate::rng::Rng;

/// What the sources of a host report of its slots, and whether its agent detects them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slots {
    /// The slots are given explicitly.
    Given,
    /// The sources report no slots.
    Unsaid,
    /// The sources report so many more slots than there are, by a tag or label, or by accelerators.
    TooMany(u32, SlotsFrom),
}

impl Slots {
    /// What a source reports of a host with `slots` slots.
    pub(crate) fn said(self, slots: u32) -> (Option<u32>, Option<SlotsFrom>) {
        match self {
            Self::Given => (Some(slots), Some(SlotsFrom::Explicit)),
            Self::Unsaid => (None, None),
            Self::TooMany(more, from) => (Some(slots + more), Some(from)),
        }
    }

    /// What the agent of a host with `slots` slots detects.
    pub(crate) fn counted(self, slots: u32) -> Option<u32> {
        matches!(self, Self::TooMany(..)).then_some(slots)
    }
}

/// The listing of one host.
#[derive(Clone, Debug)]
pub(crate) struct Listing {
    /// The sources that list the host.
    pub(crate) sources: Vec<usize>,
    pub(crate) slots: Slots,
}

impl Listing {
    /// A host in one source, with explicit slots.
    pub(crate) fn plain() -> Self {
        Self {
            sources: vec![0],
            slots: Slots::Given,
        }
    }

    /// A host in one or two of `count` sources.
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
