//! `elasticrun resume RUN_ID`: reads the journal of a run, which a new driver continues if the run has no outcome.

use std::{env, io, net::SocketAddr, path, thread};

use elasticrun_protocol::DriverEpoch;

use crate::{
    begin::{Begin, Resume},
    config::{self, EtcdPlace, Settings},
    control_port::ControlPort,
    former_driver,
    journal::{self, Configuration, Epoch, EtcdRun, Final, Journal, Stored, Wait},
};

/// The command `resume`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResumeRequest {
    /// The id of the run.
    pub run: String,
    /// The journal. [`config::Journal::None`] is the one in the state directory of the user, too.
    pub journal: config::Journal,
    /// Wait for the end of the run's driver, however long it lives.
    pub standby: Option<Standby>,
}

/// A driver that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standby {
    /// Where it will listen. `None`: at a free port, on loopback if all hosts of the run are local.
    pub listen: Option<SocketAddr>,
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
    port: Option<ControlPort>,
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
    /// A standby driver has no port.
    #[error("run {run}: {why}")]
    Port {
        /// The run.
        run: String,
        /// Why.
        why: String,
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
                    | journal::Error::Led { .. }
                    | journal::Error::Etcd { .. }
                    | journal::Error::Io { .. }
            ),
            Self::Directory { .. } | Self::Port { .. } => true,
            Self::NoPlace { .. }
            | Self::Missing { .. }
            | Self::Settings { .. }
            | Self::Embedded { .. }
            | Self::Called { .. } => false,
        }
    }
}

/// Reads the journal of a run. Tells by `say` what it waits for.
///
/// # Errors
/// The journal cannot be read. It stays as it is.
pub fn find(request: &ResumeRequest, say: &dyn Fn(&str)) -> Result<Found, Error> {
    let run = request.run.clone();
    let path = match &request.journal {
        config::Journal::Etcd(place) => return find_in_etcd(request, place, say),
        config::Journal::File(path) => path::absolute(path).unwrap_or_else(|_| path.clone()),
        config::Journal::InStateDirectory | config::Journal::None => {
            journal::in_state_directory(&run).ok_or(Error::NoPlace { run: run.clone() })?
        }
    };
    found(run.clone(), Journal::read(&path, &run)?, None)
}

/// Reads the journal of a run in etcd, once no driver leads the run.
fn find_in_etcd(
    request: &ResumeRequest,
    place: &EtcdPlace,
    say: &dyn Fn(&str),
) -> Result<Found, Error> {
    let run = &request.run;
    let etcd = EtcdRun::existing(place, run)?;
    let lookup = etcd.look()?;
    if lookup.is_over() {
        return match Final::read(&lookup.entries) {
            Some(outcome) => Ok(Found::Ended(outcome)),
            None => Err(missing(run, "outcome")),
        };
    }
    let config = Configuration::read(&lookup.entries).ok_or(missing(run, "configuration"))?;
    let settings = settings(run, &config)?;
    let lease = config::lease_in_etcd(settings.timeouts.orphan);
    let Some(standby) = &request.standby else {
        let stored = Journal::take_in_etcd(&etcd, lease, Wait::ForLease, Vec::new())?;
        if let Some(by) = former_driver(&etcd, run, &stored) {
            stored.release();
            let (run, by) = (run.clone(), Some(by));
            return Err(journal::Error::Led { run, by }.into());
        }
        return found(run.clone(), stored, None);
    };
    let port = ControlPort::bind(&settings, standby.listen).map_err(|why| Error::Port {
        run: run.clone(),
        why: format!("{why:#}"),
    })?;
    let endpoints = port.reachable_at();
    let registered = etcd.register(endpoints.clone(), lease)?;
    say(&format!(
        "run {run}: standby driver at {}; it continues the run when the driver is lost",
        endpoints.join(", ")
    ));
    let mut reported = false;
    loop {
        let stored = Journal::take_in_etcd(&etcd, lease, Wait::ForEver, endpoints.clone())?;
        if former_driver(&etcd, run, &stored).is_none() {
            etcd.unregister(registered);
            return found(run.clone(), stored, Some(port));
        }
        stored.release();
        if !std::mem::replace(&mut reported, true) {
            say(&format!(
                "run {run}: its driver has lost its lease, and still answers; waiting for its end"
            ));
        }
        // Nothing tells of the end of a process on another machine.
        thread::sleep(lease);
    }
}

/// The address at which the driver that has written the journal still answers. It may be cut off from etcd alone, and have all
/// agents. `None` for a run that has ended.
fn former_driver(etcd: &EtcdRun, run: &str, stored: &Stored) -> Option<String> {
    let entries = &stored.entries;
    if Final::is_in(entries) {
        return None;
    }
    let endpoints = Epoch::read(entries)?.endpoints;
    let trust = Configuration::read(entries)?.trust(None)?;
    etcd.wait(former_driver::answers(&endpoints, run, &trust))
}

fn found(run: String, stored: Stored, port: Option<ControlPort>) -> Result<Found, Error> {
    match Final::read(&stored.entries) {
        Some(outcome) => {
            stored.close_ended();
            Ok(Found::Ended(outcome))
        }
        None if Final::is_in(&stored.entries) => Err(missing(&run, "outcome")),
        None => Ok(Found::Unfinished(Box::new(Unfinished {
            run,
            stored,
            port,
        }))),
    }
}

fn missing(run: &str, what: &'static str) -> Error {
    let run = run.to_owned();
    Error::Missing { run, what }
}

/// The settings of a run. Its working directory becomes that of this process.
fn settings(run: &str, config: &Configuration) -> Result<Settings, Error> {
    if let Some(directory) = &config.directory {
        env::set_current_dir(directory).map_err(|why| Error::Directory {
            run: run.to_owned(),
            directory: directory.clone(),
            why,
        })?;
    }
    (config.settings.read())
        .and_then(|read| Settings::resolve(&read, config.command.clone()))
        .map_err(|why| Error::Settings {
            run: run.to_owned(),
            why,
        })
}

impl Unfinished {
    /// What a driver of the same run begins with. The working directory of this process becomes that of the run. `supervised`:
    /// it has the open files of the first driver, from their supervisor.
    ///
    /// # Errors
    /// No driver can continue the run. The journal stays as it is.
    pub fn begin(self, supervised: bool) -> Result<Begin, Error> {
        let Self { run, stored, port } = self;
        let saved = &stored.entries;
        let config = Configuration::read(saved).ok_or(missing(&run, "configuration"))?;
        let DriverEpoch(epoch) = Epoch::read(saved).ok_or(missing(&run, "epoch"))?.epoch;
        let settings = settings(&run, &config)?;
        let join = settings.launch.join.as_ref();
        let token_file = join.and_then(|join| join.token_file.clone());
        let trust = config
            .trust(token_file)
            .ok_or(missing(&run, "certificate authority"))?;
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
            port,
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
