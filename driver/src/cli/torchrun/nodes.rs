//! How many nodes and how many workers of each: `--nnodes`, `--nproc-per-node`.

use std::{num::NonZeroU32, thread};

use super::given::Given;
use crate::{config::Error, devices};

/// A range of nodes: 1 <= min <= max.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Nodes {
    pub(super) min: NonZeroU32,
    pub(super) max: NonZeroU32,
}

impl Nodes {
    pub(super) fn new(given: &Given) -> Result<Self, Error> {
        let Some(text) = given.value("nnodes") else {
            let one = NonZeroU32::MIN;
            return Ok(Self { min: one, max: one });
        };
        let (min, max) = text.split_once(':').unwrap_or((text, text));
        match (min.trim().parse(), max.trim().parse()) {
            (Ok(min), Ok(max)) if min <= max => Ok(Self { min, max }),
            _ => Err(given.refuse(
                "nnodes",
                "expected a number of nodes, or MIN:MAX with 1 <= MIN <= MAX",
            )),
        }
    }

    /// Whether there is one node.
    pub(super) fn are_one(self) -> bool {
        self.max.get() == 1
    }
}

/// The workers of each node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Processes {
    pub(super) count: NonZeroU32,
}

impl Processes {
    pub(super) fn new(given: &Given) -> Result<Self, Error> {
        let refuse = |why: &str| given.refuse("nproc-per-node", why);
        let count = match given.value("nproc-per-node").map(|text| text.trim()) {
            None => Some(1),
            Some("auto") => Some(devices::gpus().unwrap_or_else(cpus)),
            Some("cpu") => Some(cpus()),
            Some("gpu") => match devices::gpus() {
                Some(gpus) => Some(gpus),
                None => return Err(refuse("no NVIDIA GPU is here; auto takes the CPUs then")),
            },
            Some(number) => number.parse().ok(),
        };
        count
            .and_then(NonZeroU32::new)
            .map(|count| Self { count })
            .ok_or_else(|| refuse("expected a number of workers from 1, auto, cpu or gpu"))
    }
}

/// The CPUs that this process may use.
fn cpus() -> u32 {
    thread::available_parallelism().map_or(1, |count| u32::try_from(count.get()).unwrap_or(1))
}
