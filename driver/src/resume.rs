//! `elasticrun resume RUN_ID`: reads the journal of a run, which a new driver continues if the run has no outcome.

use std::{
    env, io,
    path::{self, PathBuf},
};

use elasticrun_protocol::DriverEpoch;

use crate::{
    begin::{Begin, Resume},
    config::{self, Settings},
    journal::{self, Configuration, Epoch, Final, Journal, Stored},
};

/// The command `resume`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResumeRequest {
    /// The id of the run.
    pub run: String,
    /// The journal. `None`: in the state directory of the user.
    pub journal: Option<PathBuf>,
}

/// A run that was found.
#[derive(Debug)]
pub enum Found {
    /// It has an outcome.
    Ended(Final),
    /// It has none, and no driver.
    Unfinished(Box<Unfinished>),
}

/// A run without an outcome. Dropping it closes its journal.
#[derive(Debug)]
pub struct Unfinished {
    run: String,
    stored: Stored,
}

/// Why no driver can continue a run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its journal cannot be opened.
    #[error(transparent)]
    Journal(#[from] journal::Error),
    /// The environment does not say where the journal is.
    #[error(
        "run {run}: name its journal by --journal PATH; neither XDG_STATE_HOME nor HOME is set"
    )]
    NoPlace {
        /// The run.
        run: String,
    },
    /// An entry that each journal has is missing, or cannot be read.
    #[error("the journal of run {run} has no {what} that this release can read")]
    Missing {
        /// The run.
        run: String,
        /// The entry.
        what: &'static str,
    },
    /// The settings of the run are not usable any more, such as a host file that is gone.
    #[error("the settings of run {run} cannot be used: {why}")]
    Settings {
        /// The run.
        run: String,
        /// The setting.
        why: config::Error,
    },
    /// The run depends on a program that started its driver.
    #[error("run {run} ended with the program that provided its hosts")]
    Embedded {
        /// The run.
        run: String,
    },
    /// The results of the run go to the program that called `elasticrun.run`, which has ended.
    #[error("run {run} ended with the program that called elasticrun.run, which gets its results")]
    Called {
        /// The run.
        run: String,
    },
    /// The working directory of the run is not usable.
    #[error("the working directory {directory} of run {run} cannot be used: {why}")]
    Directory {
        /// The run.
        run: String,
        /// The directory.
        directory: String,
        /// The message of the system.
        why: io::Error,
    },
}

impl Error {
    /// Whether the same attempt may succeed a moment later: another process has the journal open, or the system refuses an
    /// operation for now.
    #[must_use]
    pub fn may_be_over_soon(&self) -> bool {
        match self {
            Self::Journal(error) => matches!(
                error,
                journal::Error::Locked { .. }
                    | journal::Error::InUse { .. }
                    | journal::Error::Io { .. }
            ),
            Self::Directory { .. } => true,
            Self::NoPlace { .. }
            | Self::Missing { .. }
            | Self::Settings { .. }
            | Self::Embedded { .. }
            | Self::Called { .. } => false,
        }
    }
}

/// Reads the journal of a run.
///
/// # Errors
/// The journal cannot be read. It stays as it is.
pub fn find(request: &ResumeRequest) -> Result<Found, Error> {
    let run = request.run.clone();
    let path = match &request.journal {
        Some(path) => path::absolute(path).unwrap_or_else(|_| path.clone()),
        None => journal::in_state_directory(&run).ok_or(Error::NoPlace { run: run.clone() })?,
    };
    let stored = Journal::read(&path, &run)?;
    Ok(match Final::read(&stored.entries) {
        Some(outcome) => Found::Ended(outcome),
        None if Final::is_in(&stored.entries) => {
            let what = "outcome";
            return Err(Error::Missing { run, what });
        }
        None => Found::Unfinished(Box::new(Unfinished { run, stored })),
    })
}

impl Unfinished {
    /// What a driver of the same run begins with. The working directory of this process becomes that of the run. `supervised`:
    /// it has the open files of the first driver, from their supervisor.
    ///
    /// # Errors
    /// No driver can continue the run. The journal stays as it is.
    pub fn begin(self, supervised: bool) -> Result<Begin, Error> {
        let Self { run, stored } = self;
        let missing = |what| Error::Missing {
            run: run.clone(),
            what,
        };
        let saved = &stored.entries;
        let config = Configuration::read(saved).ok_or(missing("configuration"))?;
        let DriverEpoch(epoch) = Epoch::read(saved).ok_or(missing("epoch"))?.epoch;
        if let Some(directory) = &config.directory {
            env::set_current_dir(directory).map_err(|why| Error::Directory {
                run: run.clone(),
                directory: directory.clone(),
                why,
            })?;
        }
        let settings = (config.settings.read())
            .and_then(|read| Settings::resolve(&read, config.command.clone()))
            .map_err(|why| Error::Settings {
                run: run.clone(),
                why,
            })?;
        let join = settings.launch.join.as_ref();
        let token_file = join.and_then(|join| join.token_file.clone());
        let trust = config
            .trust(token_file)
            .ok_or(missing("certificate authority"))?;
        if settings.launch.embedder_fd.is_some() {
            return Err(Error::Embedded { run });
        }
        if settings.launch.call.is_some() && !supervised {
            return Err(Error::Called { run });
        }
        let (journal, saved, notices) = stored.start()?;
        Ok(Begin::Resume(Box::new(Resume {
            run_id: run,
            saved,
            config,
            settings,
            trust,
            epoch: DriverEpoch(epoch),
            journal,
            notices,
        })))
    }
}

/// The lines about a run that has ended. The last one is its outcome.
#[must_use]
pub fn describe(run: &str, outcome: &Final) -> Vec<String> {
    let agents = match outcome.finished {
        true => "",
        false => "; its driver was killed before all agents had ended, and they end by themselves",
    };
    let mut lines = vec![format!("run {run} has ended{agents}")];
    lines.extend(outcome.lines.iter().cloned());
    lines
}
