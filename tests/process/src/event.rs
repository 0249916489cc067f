//! The event log: one line of JSON for each event of a worker, appended by one write.

use std::{
    fs::{File, OpenOptions},
    io::Read,
    path::Path,
};

use serde::{Deserialize, Serialize};

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A process begins.
    Begin,
    /// The reset callbacks of a round run.
    Reset,
    /// A round begins for this worker: it is connected and has the state.
    Round,
    /// A step is committed.
    Step,
    /// A fault is about to happen.
    Fault,
    /// The training function returns an error, such as one that `run()` answers with a new round.
    Left,
    /// `run()` has returned.
    Trained,
}

/// One line of the log. A field without a value is zero or empty.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// CLOCK_MONOTONIC in nanoseconds, comparable between processes of one machine.
    pub at: u64,
    /// The kind of the event.
    pub kind: Kind,
    /// Process id.
    pub pid: u32,
    /// Name of the worker's host.
    pub host: String,
    /// Slot of the worker.
    pub local_rank: u32,
    /// Number of the slot's start, from 1.
    pub generation: u32,
    /// Round of the worker.
    #[serde(default)]
    pub round: u64,
    /// Rank of the worker in the round.
    #[serde(default)]
    pub rank: u32,
    /// Size of the round.
    #[serde(default)]
    pub size: u32,
    /// Steps of the model.
    #[serde(default)]
    pub step: u64,
    /// Details, by kind.
    #[serde(default)]
    pub text: String,
}

/// Appends to a log. Each event is one write, so lines of several processes do not mix.
#[derive(Debug)]
pub(crate) struct Writer(File);

impl Writer {
    /// Opens the log at `path` and creates it if necessary.
    ///
    /// # Errors
    /// The error of the system.
    pub(crate) fn open(path: &Path) -> std::io::Result<Self> {
        Ok(Self(
            OpenOptions::new().create(true).append(true).open(path)?,
        ))
    }

    /// Appends an event.
    #[cfg(feature = "worker")]
    pub(crate) fn write(&mut self, event: &Event) {
        let mut line = serde_json::to_vec(event).expect("an event is always JSON");
        line.push(b'\n');
        std::io::Write::write_all(&mut self.0, &line).expect("the log can be written");
    }
}

/// Reads a log as it grows.
#[derive(Debug)]
pub struct Log {
    file: File,
    rest: Vec<u8>,
    events: Vec<Event>,
}

impl Log {
    /// Opens the log at `path` and creates it if necessary.
    ///
    /// # Panics
    /// When the file cannot be made.
    pub fn open(path: &Path) -> Self {
        drop(Writer::open(path).expect("the log can be made"));
        let file = File::open(path).expect("the log can be read");
        Self {
            file,
            rest: Vec::new(),
            events: Vec::new(),
        }
    }

    /// All events so far, in the order of the log.
    ///
    /// # Panics
    /// When a line is not an event.
    pub fn events(&mut self) -> &[Event] {
        self.file
            .read_to_end(&mut self.rest)
            .expect("the log can be read");
        let whole = self
            .rest
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |end| end + 1);
        for line in self.rest[..whole]
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
        {
            let event = serde_json::from_slice(line);
            self.events.push(
                event.unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(line))),
            );
        }
        self.rest.drain(..whole);
        &self.events
    }
}
