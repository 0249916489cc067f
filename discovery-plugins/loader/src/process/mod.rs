//! A plugin in a process of its own, which is the rule: nothing that it does can end the driver.
//!
//! ```text
//!   driver                                     plugin's process (a group of its own)
//!   Program: what to run, found and checked    `elasticrun __plugin-host` with a sealed image of the library,
//!   Child: one run of it                       or a program that speaks the frames by itself
//!     caller  -- call ---> connection (3) ---> create, watch, poll, command, destroy
//!     ears    <-- answer, changed, log --------
//!     ears    <-- what it prints -------------- standard output, standard error
//! ```
//!
//! # Invariants
//! - A call ends: with an answer, with the end of the process, or by killing it half a second past the deadline.
//! - A process that did something that no plugin may do is killed, and never asked again.
//! - No code of the plugin runs in the driver, not even a constructor of its library.
//!
//! # Not promised
//! What a plugin's process starts in a session of its own outlives it. If the driver is killed, what else the plugin
//! started outlives it too.

mod child;
mod ears;
mod ending;
mod environment;
mod lines;
mod spawn;

use std::{path::PathBuf, sync::Arc, time::Duration};

pub(crate) use child::{Child, GRACE};

use crate::{Error, Manifest, frames::Hello, library::Image};

/// How long a process may take to say who it is.
const HELLO: Duration = Duration::from_secs(10);

/// The program that loads a library and speaks for it, `elasticrun __plugin-host` or a stand-in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostProgram {
    /// Its path.
    pub program: PathBuf,
    /// What stands in front of the path of the library.
    pub arguments: Vec<String>,
}

/// A plugin that can be run.
#[derive(Debug)]
pub(crate) struct Program {
    /// Of the library or the executable.
    pub(crate) path: PathBuf,
    pub(crate) what: What,
}

/// What is run.
#[derive(Debug)]
pub(crate) enum What {
    /// A host with an image of the library.
    Library { image: Image, host: HostProgram },
    /// A program that speaks the frames by itself.
    Executable,
}

/// A program that has said who it is.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) program: Arc<Program>,
    pub(crate) hello: Arc<Hello>,
}

impl Program {
    /// Runs it to learn who it is, with the environment that everyone gets.
    pub(crate) fn ask(self) -> Result<Known, Error> {
        let unfit = |why: String| Error::Unfit {
            path: self.path.clone(),
            why,
        };
        let mut child = Child::start(&self, &self.name(), &[], Box::new(|| ()))
            .map_err(|failure| unfit(failure.message))?;
        let hello = child.hello(HELLO).map_err(|failure| match &self.what {
            // The host's words begin with the path.
            What::Library { .. } if failure.message.contains(&*self.path.to_string_lossy()) => {
                Error::Refused(failure.message)
            }
            _ => unfit(failure.message),
        })?;
        child.end();
        Ok(Known {
            hello: Arc::new(hello),
            program: Arc::new(self),
        })
    }

    /// For messages before the plugin has said its name.
    fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }
}

impl Known {
    pub(crate) fn manifest(&self) -> &Manifest {
        &self.hello.manifest
    }
}
