//! A plugin in its own process, which is the default. No action of the plugin can end the driver.
//!
//! ```text
//!   driver                                          plugin's process (in its own group)
//!   Program: a checked file                         `elasticrun __plugin-host` with a sealed image of the library,
//!   Child: a running process                        or a program that exchanges frames by itself
//!     poll thread   -- call ---> connection (3) --> create, watch, poll, command, destroy
//!     frame reader  <-- answer, changed, log ------
//!     frame reader  <-- output -------------------- standard output, standard error
//! ```
//!
//! # Invariants
//! - Each call ends: by an answer, by the end of the process, or by killing the process half a second past the deadline.
//! - A process that breaks a rule is killed and gets no further call.
//! - No code of the plugin runs in the driver, not even a constructor of its library.
//!
//! # Not promised
//! Children of the plugin in their own session outlive its process.

mod child;
mod ending;
mod environment;
mod frame_reader;
mod lines;
mod log_rate;
mod spawn;

use std::{path::PathBuf, sync::Arc, time::Duration};

pub(crate) use child::{Child, GRACE};
#[cfg(any(test, fuzzing))]
pub(crate) use frame_reader::{PluginMessage, message, parse};

use crate::{Error, Manifest, frames::Hello, library::Image};

/// How long a process may take to send its hello.
const HELLO: Duration = Duration::from_secs(10);

/// The program that loads a library and exchanges frames for it: `elasticrun __plugin-host`, or another one in tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostProgram {
    /// Its path.
    pub program: PathBuf,
    /// Arguments before the path of the library.
    pub arguments: Vec<String>,
}

/// A checked plugin file.
#[derive(Debug)]
pub(crate) struct Program {
    /// Path of the library or the executable.
    pub(crate) path: PathBuf,
    pub(crate) kind: ProgramKind,
}

/// How the process of a plugin is started.
#[derive(Debug)]
pub(crate) enum ProgramKind {
    /// A host with an image of the library.
    Library { image: Image, host: HostProgram },
    /// A program that exchanges frames by itself.
    Executable,
}

/// A program with the hello that it sent.
#[derive(Clone, Debug)]
pub(crate) struct IdentifiedProgram {
    pub(crate) program: Arc<Program>,
    pub(crate) hello: Arc<Hello>,
}

impl Program {
    /// Runs the program to get its hello, with the variables that all plugins get.
    pub(crate) fn identify(self) -> Result<IdentifiedProgram, Error> {
        let unfit = |why: String| Error::Unfit {
            path: self.path.clone(),
            why,
        };
        let mut child = Child::start(&self, &self.name(), &[], Box::new(|| ()))
            .map_err(|failure| unfit(failure.message))?;
        let hello = child.hello(HELLO).map_err(|failure| match &self.kind {
            // The host's message starts with the path.
            ProgramKind::Library { .. }
                if failure.message.contains(&*self.path.to_string_lossy()) =>
            {
                Error::Refused(failure.message)
            }
            _ => unfit(failure.message),
        })?;
        child.end();
        Ok(IdentifiedProgram {
            hello: Arc::new(hello),
            program: Arc::new(self),
        })
    }

    /// The name for messages before the hello.
    fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }
}

impl IdentifiedProgram {
    pub(crate) fn manifest(&self) -> &Manifest {
        &self.hello.manifest
    }
}
