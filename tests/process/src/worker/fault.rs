//! The faults of a plan in one process.

use std::{fs::OpenOptions, io::Write, path::PathBuf, process, thread, time::Duration};

use nix::sys::signal::{Signal, raise};

use super::Journal;
use crate::{Fault, Kind, Point, What, When};

/// How often a waiting worker checks for its file.
const POLL: Duration = Duration::from_millis(2);

/// The error that the plan requests from the training function.
#[derive(Debug)]
pub(crate) struct Asked;

impl std::fmt::Display for Asked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a fault of the test: this worker returns an error")
    }
}

/// The faults of the plan, and the directory that marks those that have happened.
#[derive(Debug)]
pub(crate) struct Faults {
    all: Vec<Fault>,
    directory: PathBuf,
}

impl Faults {
    pub(crate) fn new(all: Vec<Fault>, directory: PathBuf) -> Self {
        Self { all, directory }
    }

    /// Applies the faults of this point whose conditions hold.
    pub(crate) fn at(&self, point: Point, journal: &mut Journal) -> Result<(), Asked> {
        for (number, fault) in self.all.iter().enumerate() {
            if fault.point == point
                && self.holds(&fault.when, journal)
                && (fault.always || self.take(number))
            {
                journal.write(Kind::Fault, format!("{:?} {:?}", fault.point, fault.what));
                self.happen(fault.what)?;
            }
        }
        Ok(())
    }

    fn holds(&self, when: &When, journal: &Journal) -> bool {
        let now = &journal.now;
        when.rank.is_none_or(|rank| rank == now.rank)
            && when.host.as_ref().is_none_or(|host| *host == now.host)
            && when.local_rank.is_none_or(|rank| rank == now.local_rank)
            && when
                .generation
                .is_none_or(|generation| generation == now.generation)
            && when.round.is_none_or(|round| round == now.round)
            && when.size.is_none_or(|size| size == now.size)
            && when.step.is_none_or(|step| step <= now.step)
            && when
                .file
                .as_ref()
                .is_none_or(|file| self.directory.join(file).exists())
    }

    /// Marks a fault as taken. Gives whether no process of the run had taken it before.
    fn take(&self, number: usize) -> bool {
        let mark = self.directory.join(format!("fault.{number}"));
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(mark)
            .is_ok()
    }

    fn happen(&self, what: What) -> Result<(), Asked> {
        match what {
            What::Exit(code) => process::exit(code),
            What::Error => return Err(Asked),
            What::Panic => panic!("a fault of the test: this worker panics"),
            What::Kill => raise(Signal::SIGKILL).expect("a process may signal itself"),
            What::Stop => raise(Signal::SIGSTOP).expect("a process may signal itself"),
            What::Hang => loop {
                thread::sleep(Duration::from_secs(3600));
            },
            What::Wait => {
                while !self.directory.join("release").exists() {
                    thread::sleep(POLL);
                }
            }
            What::Print(lines) => {
                let mut out = std::io::stdout().lock();
                for line in 0..lines {
                    writeln!(out, "{line:099}").expect("standard output is open");
                }
                out.flush().expect("standard output is open");
            }
        }
        Ok(())
    }
}
