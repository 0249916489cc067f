//! A plugin and its instances, in their own process or in this one.

use std::time::{Duration, Instant};

use elasticrun_plugin_sdk::{Command, Snapshot};
use serde_json::{Map, Value};

use crate::{
    ChangeSignal, Failure, FailureKind, Instance, Library, Manifest, Origin,
    process::{Child, IdentifiedProgram},
};

/// Where plugins run that are not linked in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// Each in its own process. A crash of the plugin does not affect the driver.
    #[default]
    Process,
    /// In threads of the driver's process. A crash of the plugin ends the job.
    Thread,
}

/// A plugin. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Plugin(Inner);

#[derive(Clone, Debug)]
enum Inner {
    InProcess(Library),
    Isolated(IdentifiedProgram),
}

impl From<Library> for Plugin {
    fn from(library: Library) -> Self {
        Self(Inner::InProcess(library))
    }
}

impl From<IdentifiedProgram> for Plugin {
    fn from(program: IdentifiedProgram) -> Self {
        Self(Inner::Isolated(program))
    }
}

impl Plugin {
    /// Its manifest.
    pub fn manifest(&self) -> &Manifest {
        match &self.0 {
            Inner::InProcess(library) => library.manifest(),
            Inner::Isolated(program) => program.manifest(),
        }
    }

    /// Its origin.
    pub fn origin(&self) -> Origin {
        match &self.0 {
            Inner::InProcess(library) => library.origin().clone(),
            Inner::Isolated(program) => Origin::File(program.program.path.clone()),
        }
    }

    /// Where its instances run.
    pub fn isolation(&self) -> Isolation {
        match &self.0 {
            Inner::InProcess(_) => Isolation::Thread,
            Inner::Isolated(_) => Isolation::Process,
        }
    }

    /// Whether it pushes changes.
    pub fn watches(&self) -> bool {
        match &self.0 {
            Inner::InProcess(library) => library.watches(),
            Inner::Isolated(program) => program.hello.watches,
        }
    }

    /// Creates an instance and enables its change signal, if it has one. Blocks while the plugin works. An isolated plugin
    /// blocks not much longer than the deadline. Its process ends with the calling thread.
    pub fn start(
        &self,
        options: &Map<String, Value>,
        deadline: Duration,
        signal: ChangeSignal,
    ) -> Result<Live, Failure> {
        match &self.0 {
            Inner::InProcess(library) => {
                let mut instance = library.create(options)?;
                instance.watch(signal)?;
                Ok(Live(Running::InProcess(instance)))
            }
            Inner::Isolated(program) => {
                let started = Instant::now();
                let left = || deadline.saturating_sub(started.elapsed());
                let manifest = program.manifest();
                let (name, needed) = (&manifest.name, &manifest.environment);
                let mut child = Child::start(&program.program, name, needed, signal)?;
                child.hello(deadline)?;
                child.create(options, left())?;
                if program.hello.watches {
                    child.watch(left())?;
                }
                let commands = program.hello.commands;
                Ok(Live(Running::Isolated { child, commands }))
            }
        }
    }
}

/// An instance of a plugin. Dropping it destroys it.
#[derive(Debug)]
pub struct Live(Running);

#[derive(Debug)]
enum Running {
    InProcess(Instance),
    Isolated { child: Child, commands: bool },
}

impl Live {
    /// Polls the current hosts.
    pub fn poll(&mut self, deadline: Duration) -> Result<Snapshot, Failure> {
        match &mut self.0 {
            Running::InProcess(instance) => instance.poll(deadline),
            Running::Isolated { child, .. } => child.poll(deadline),
        }
    }

    /// Sends a command to the plugin, if it takes commands.
    pub fn command(&mut self, command: &Command, deadline: Duration) -> Result<(), Failure> {
        match &mut self.0 {
            Running::InProcess(instance) => instance.command(command, deadline),
            Running::Isolated { child, commands } if *commands => child.command(command, deadline),
            Running::Isolated { .. } => Ok(()),
        }
    }

    /// Bytes that its process has written to standard output. 0 if it runs in this process.
    pub fn printed(&self) -> u64 {
        match &self.0 {
            Running::InProcess(_) => 0,
            Running::Isolated { child, .. } => child.printed(),
        }
    }

    /// The id of its process. `None` if it runs in this process, or has ended.
    pub fn process(&self) -> Option<u32> {
        match &self.0 {
            Running::InProcess(_) => None,
            Running::Isolated { child, .. } => child.id(),
        }
    }

    /// Destroys the instance. Returns whether its process, if it has one, ended by itself.
    pub fn end(self) -> bool {
        match self.0 {
            Running::InProcess(_) => true,
            Running::Isolated { mut child, .. } => child.end(),
        }
    }

    /// Whether the instance is unusable after this failure.
    pub(crate) fn is_over(failure: &Failure) -> bool {
        matches!(
            failure.kind,
            FailureKind::Panicked | FailureKind::Died | FailureKind::Hung | FailureKind::BadAnswer
        )
    }
}
