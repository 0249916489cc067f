//! A plugin that was found, and an instance of it: in a process of its own, or here.

use std::time::{Duration, Instant};

use elasticrun_plugin_sdk::{Command, Snapshot};
use serde_json::{Map, Value};

use crate::{
    Failure, FailureKind, Instance, Library, Manifest, Nudge, Origin,
    process::{Child, Known},
};

/// Where plugins run that are not part of this program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// In a process of their own: whatever they do, the driver goes on.
    #[default]
    Process,
    /// In the driver's process, in threads of their own. One that crashes takes the job with it.
    Thread,
}

/// A plugin that was found. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Plugin(Place);

#[derive(Clone, Debug)]
enum Place {
    Here(Library),
    Apart(Known),
}

impl From<Library> for Plugin {
    fn from(library: Library) -> Self {
        Self(Place::Here(library))
    }
}

impl From<Known> for Plugin {
    fn from(known: Known) -> Self {
        Self(Place::Apart(known))
    }
}

impl Plugin {
    /// What it says of itself.
    pub fn manifest(&self) -> &Manifest {
        match &self.0 {
            Place::Here(library) => library.manifest(),
            Place::Apart(known) => known.manifest(),
        }
    }

    /// Where it came from.
    pub fn origin(&self) -> Origin {
        match &self.0 {
            Place::Here(library) => library.origin().clone(),
            Place::Apart(known) => Origin::File(known.program.path.clone()),
        }
    }

    /// Where its instances run.
    pub fn isolation(&self) -> Isolation {
        match &self.0 {
            Place::Here(_) => Isolation::Thread,
            Place::Apart(_) => Isolation::Process,
        }
    }

    /// Whether it says by itself when it has something new.
    pub fn watches(&self) -> bool {
        match &self.0 {
            Place::Here(library) => library.watches(),
            Place::Apart(known) => known.hello.watches,
        }
    }

    /// Makes an instance, and has it push if it can. Blocks for as long as the plugin takes; if that has a process of
    /// its own, no longer than a little beyond the deadline. That process ends with the calling thread.
    pub fn start(
        &self,
        options: &Map<String, Value>,
        deadline: Duration,
        nudge: Nudge,
    ) -> Result<Live, Failure> {
        match &self.0 {
            Place::Here(library) => {
                let mut instance = library.create(options)?;
                instance.watch(nudge)?;
                Ok(Live(Running::Here(instance)))
            }
            Place::Apart(known) => {
                let started = Instant::now();
                let left = || deadline.saturating_sub(started.elapsed());
                let manifest = known.manifest();
                let mut child =
                    Child::start(&known.program, &manifest.name, &manifest.environment, nudge)?;
                child.hello(deadline)?;
                child.create(options, left())?;
                if known.hello.watches {
                    child.watch(left())?;
                }
                let commands = known.hello.commands;
                Ok(Live(Running::Apart { child, commands }))
            }
        }
    }
}

/// An instance of a plugin. Dropping it destroys it.
#[derive(Debug)]
pub struct Live(Running);

#[derive(Debug)]
enum Running {
    Here(Instance),
    Apart { child: Child, commands: bool },
}

impl Live {
    /// The hosts as they are now.
    pub fn poll(&mut self, deadline: Duration) -> Result<Snapshot, Failure> {
        match &mut self.0 {
            Running::Here(instance) => instance.poll(deadline),
            Running::Apart { child, .. } => child.poll(deadline),
        }
    }

    /// Tells the plugin something, if it listens.
    pub fn command(&mut self, command: &Command, deadline: Duration) -> Result<(), Failure> {
        match &mut self.0 {
            Running::Here(instance) => instance.command(command, deadline),
            Running::Apart { child, commands } if *commands => child.command(command, deadline),
            Running::Apart { .. } => Ok(()),
        }
    }

    /// Bytes that its process wrote to standard output so far; 0 if it has none of its own.
    pub fn printed(&self) -> u64 {
        match &self.0 {
            Running::Here(_) => 0,
            Running::Apart { child, .. } => child.printed(),
        }
    }

    /// The number of its process, as long as it has one of its own.
    pub fn process(&self) -> Option<u32> {
        match &self.0 {
            Running::Here(_) => None,
            Running::Apart { child, .. } => child.id(),
        }
    }

    /// Destroys it. Says whether its process, if it has one, ended by itself when it was told to.
    pub fn end(self) -> bool {
        match self.0 {
            Running::Here(_) => true,
            Running::Apart { mut child, .. } => child.end(),
        }
    }

    /// Whether it is of no use after this failure.
    pub(crate) fn is_over(failure: &Failure) -> bool {
        matches!(
            failure.kind,
            FailureKind::Panicked | FailureKind::Died | FailureKind::Hung | FailureKind::BadAnswer
        )
    }
}
