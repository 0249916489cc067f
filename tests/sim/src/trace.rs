//! The record of a run: as text, and as a hash on which two runs of a seed must agree.

use std::fmt::{self, Write};

use elasticrun_core::Time;

/// How much of a run is recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Detail {
    /// Only times and numbers of events, which is cheap.
    #[default]
    Brief,
    /// Every event and command with all its fields.
    Full,
    /// As [`Detail::Full`], and printed.
    Print,
}

/// The record of a run.
#[derive(Debug)]
pub(crate) struct Trace {
    detail: Detail,
    hash: Hash,
    lines: u64,
}

#[derive(Debug)]
struct Hash(u64);

impl Hash {
    fn mix(&mut self, value: u64) {
        self.0 = (self.0 ^ value).wrapping_mul(0x0000_0100_0000_01b3);
    }
}

impl Write for Hash {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.mix(u64::from(byte));
        }
        Ok(())
    }
}

impl Trace {
    pub(crate) fn new(detail: Detail) -> Self {
        Self {
            detail,
            hash: Hash(0xcbf2_9ce4_8422_2325),
            lines: 0,
        }
    }

    /// Records an event of the simulation.
    pub(crate) fn event(&mut self, now: Time, kind: u64) {
        self.lines += 1;
        self.hash.mix(now.since_start().as_nanos() as u64);
        self.hash.mix(kind);
    }

    /// Records a line. `what` is formatted only if lines are recorded.
    pub(crate) fn note(&mut self, now: Time, what: fmt::Arguments<'_>) {
        match self.detail {
            Detail::Brief => {}
            Detail::Full => {
                // Writing to a hash cannot fail.
                let _ = self.hash.write_fmt(what);
            }
            Detail::Print => {
                let _ = self.hash.write_fmt(what);
                println!("{now:?} {what}");
            }
        }
    }

    /// Whether lines are recorded at all.
    pub(crate) fn is_on(&self) -> bool {
        self.detail != Detail::Brief
    }

    pub(crate) fn events(&self) -> u64 {
        self.lines
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash.0
    }
}
