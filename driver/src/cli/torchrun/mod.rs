//! `elasticrun torchrun`: torchrun's options and habits. They become settings of a run, and each error names the option
//! that the user wrote.
//!
//! ```text
//! words, PET_* --options--> Given --nodes, rendezvous, script, settings--> Invocation
//! ```
//! - The first node runs the driver and an agent. All other nodes run an agent that registers with the driver. A single node
//!   runs the driver only, which starts the workers.
//! - With `--rdzv etcd://...` each node starts an agent and a driver. One driver leads, and the others wait for its end. A node
//!   starts its driver by the same words and `--as-driver RUN`.
//! - Settings of elasticrun that torchrun does not have come from `ELASTICRUN_*`. A variable also replaces a habit of torchrun that
//!   no option of the user states, such as the time between SIGTERM and SIGKILL.
//! - Options that only tune torchrun's own code are accepted. One line lists them.

mod given;
mod nodes;
mod options;
mod rendezvous;
mod script;
mod settings;

use std::{
    collections::BTreeMap,
    ffi::OsString,
    num::NonZeroU32,
    path::{Path, PathBuf},
    time::Duration,
};

use elasticrun_protocol::HostId;

use self::{
    given::Given,
    nodes::{Nodes, Processes},
    rendezvous::{Place, Rendezvous},
};
use super::{Invocation, JoinRequest, RunRequest, argv, refusal};
use crate::{
    config::{
        Config, Error, EtcdPlace, Interfaces, LogFormat, LogLevel, PREFIX, Settings, SlotsPerHost,
        Sources, unknown_variables,
    },
    dry_run,
    signals::StopSignals,
};

/// What a node of several runs.
#[derive(Clone, Debug)]
pub enum NodeRequest {
    /// The first node: the driver, and an agent of its own.
    First {
        /// The job.
        run: Box<RunRequest>,
        /// The agent of this node.
        agent: JoinRequest,
        /// Another node of this machine may be the first one. Then this one is another.
        unless_another: bool,
    },
    /// Another node: an agent.
    Other(JoinRequest),
    /// A node of several, which elect the one that runs the driver.
    Elected(ElectedRequest),
}

/// A node of several, which meet in etcd.
#[derive(Clone, Debug)]
pub struct ElectedRequest {
    /// Where they meet.
    pub etcd: EtcdPlace,
    /// The name of their job.
    pub id: String,
    /// The signals by which the node leaves its job.
    pub stop_signals: StopSignals,
    /// Slots of this node.
    pub slots: NonZeroU32,
    /// How long the end of the job is known to nodes that come late.
    pub close_timeout: Duration,
    /// The words after `torchrun` that describe the job.
    pub words: Vec<OsString>,
    /// Lines for stderr, about options without effect.
    pub notes: Vec<String>,
}

/// Whether torchrun has this option, and elasticrun has none of this name. torchrun takes `-` and `_` between words.
pub(super) fn is_option(flag: &str) -> bool {
    let name = flag
        .strip_prefix("--")
        .unwrap_or_default()
        .replace('_', "-");
    let is_setting = crate::config::KEYS.iter().any(|key| key.name == name);
    !is_setting && options::is_known(&name)
}

/// The command for clap.
pub(super) fn command() -> clap::Command {
    options::command()
}

/// Parses the words after `torchrun`.
///
/// # Errors
/// The first mistake.
pub(super) fn parse(
    words: impl Iterator<Item = OsString>,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Invocation, Error> {
    let environment: BTreeMap<String, String> = environment
        .into_iter()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let mut clap = options::command();
    clap.build();
    let all: Vec<OsString> = words.collect();
    let words = argv::split_with(all.clone(), &clap, |word| options::canonical(word, &clap))?;
    let matches = match clap.try_get_matches_from(&words.options) {
        Ok(matches) => matches,
        Err(error) => return refusal::answer(&error),
    };
    let given = Given::read(&matches, &words, &environment)?;
    Plan::new(given, words.command, environment)?.invocation(all)
}

/// `elasticrun agent --rdzv etcd://... -- COMMAND`: the words for [`parse`]. `None` for an agent without `--rdzv`.
pub(super) fn of_agent(words: &[OsString]) -> Option<Vec<OsString>> {
    let mut options = words.iter().take_while(|word| *word != "--");
    let is_rdzv = |word: &OsString| {
        let word = word.to_string_lossy();
        word == "--rdzv" || word.starts_with("--rdzv=")
    };
    let program = OsString::from("--no-python");
    (options.any(is_rdzv)).then(|| {
        std::iter::once(program)
            .chain(words.iter().cloned())
            .collect()
    })
}

/// A valid command line.
struct Plan {
    given: Given,
    nodes: Nodes,
    processes: Processes,
    rendezvous: Rendezvous,
    script: Vec<String>,
    environment: BTreeMap<String, String>,
}

impl Plan {
    fn new(
        given: Given,
        words: Vec<String>,
        environment: BTreeMap<String, String>,
    ) -> Result<Self, Error> {
        let nodes = Nodes::new(&given)?;
        Ok(Self {
            processes: Processes::new(&given)?,
            rendezvous: Rendezvous::new(&given, nodes)?,
            script: script::command(&given, words, &environment)?,
            nodes,
            given,
            environment,
        })
    }

    /// `words` are those after `torchrun`.
    fn invocation(self, words: Vec<OsString>) -> Result<Invocation, Error> {
        let place = self.rendezvous.place.clone();
        let stop_signals = self.stop_signals()?;
        let (settings, config) = self.settings()?;
        let notes = self.notes();
        if self.given.is_set("dry-run") {
            return Ok(Invocation::Print(dry_run::describe(
                &settings, &config, &notes,
            )));
        }
        let run = Box::new(RunRequest {
            settings,
            config,
            notes,
            run_id: self.given.value("as-driver").cloned(),
            // The node of an elected driver handles the signals of the user.
            stop_signals: match self.given.is_set("as-driver") {
                true => StopSignals::default(),
                false => stop_signals.clone(),
            },
        });
        Ok(match place {
            Place::Alone => Invocation::Run(run),
            Place::Elected { .. } if run.run_id.is_some() => Invocation::Run(run),
            Place::Elected { etcd, id } => {
                Invocation::Torchrun(NodeRequest::Elected(ElectedRequest {
                    close_timeout: self.rendezvous.close_timeout(&self.given)?,
                    slots: self.processes.count,
                    stop_signals,
                    notes: run.notes,
                    etcd,
                    id,
                    words,
                }))
            }
            Place::First {
                driver,
                node_rank,
                unless_another,
            } => Invocation::Torchrun(NodeRequest::First {
                run,
                agent: self.agent(driver, node_rank)?,
                unless_another,
            }),
            Place::Other { driver, node_rank } => {
                Invocation::Torchrun(NodeRequest::Other(self.agent(driver, node_rank)?))
            }
        })
    }

    fn settings(&self) -> Result<(Settings, Config), Error> {
        let mut flags =
            settings::flags(&self.given, self.nodes, &self.processes, &self.rendezvous)?;
        settings::without_those_of(&self.environment, &mut flags);
        if let Some(added) = flags.get_mut("env")
            && let Some(given) = self.environment.get("ELASTICRUN_ENV")
        {
            let given = given.split(';').map(|word| word.trim().to_owned());
            added
                .words
                .splice(0..0, given.filter(|word| !word.is_empty()));
        }
        let environment = self.environment.iter();
        let environment = environment
            .filter(|(name, _)| name.starts_with(PREFIX))
            .map(|(name, value)| (name.clone(), value.clone()));
        let sources = Sources {
            file: None,
            environment: environment.collect(),
            flags,
        };
        let mut config = sources.read()?;
        // Nodes that meet in etcd name it to their driver.
        let is_several = self.rendezvous.place != Place::Alone;
        if is_several && !config.join_token_file.is_given() {
            config.join_token_file.value = Some(self.token_file()?);
        }
        let settings = Settings::resolve(&config, self.script.clone())?;
        Ok((settings, config))
    }

    fn notes(&self) -> Vec<String> {
        let inert = settings::without_effect(&self.given, &self.rendezvous);
        let unknown = unknown_variables(self.environment.keys().map(String::as_str));
        inert.into_iter().chain(unknown).collect()
    }

    /// `--signals-to-handle`
    fn stop_signals(&self) -> Result<StopSignals, Error> {
        let name = "signals-to-handle";
        let Some(names) = self.given.value(name) else {
            return Ok(StopSignals::default());
        };
        StopSignals::parse(names).ok_or_else(|| {
            let why = "expected SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1 or SIGUSR2, separated by commas";
            self.given.refuse(name, why)
        })
    }

    /// The agent of this node.
    fn agent(&self, driver: super::Endpoint, node_rank: Option<u32>) -> Result<JoinRequest, Error> {
        Ok(JoinRequest {
            driver,
            others: Vec::new(),
            driver_file: None,
            token_file: self.token_file()?,
            slots: SlotsPerHost::Fixed(self.processes.count.get()),
            host: node_rank.map(|rank| HostId::new(settings::host(rank))),
            network_interfaces: Interfaces::default(),
            one_run: true,
            stop_signals: self.stop_signals()?,
            with_job_code: true,
            signal_notice: None,
            log_level: LogLevel::Warn,
            log_format: LogFormat::Text,
        })
    }

    /// The file with the join token: as given, else one in the state directory of the user, which the nodes of a cluster
    /// share with the home directory.
    fn token_file(&self) -> Result<PathBuf, Error> {
        let variable = self.environment.get("ELASTICRUN_JOIN_TOKEN_FILE");
        if let Some(path) = self.given.value("join-token-file").or(variable) {
            return Ok(PathBuf::from(path));
        }
        let home = |name: &str| self.environment.get(name).filter(|path| !path.is_empty());
        let state = match (home("XDG_STATE_HOME"), home("HOME")) {
            (Some(state), _) => PathBuf::from(state),
            (None, Some(home)) => Path::new(home).join(".local/state"),
            (None, None) => {
                let why =
                    "needs --join-token-file FILE, since neither XDG_STATE_HOME nor HOME is set";
                return Err(self.given.refuse("nnodes", why));
            }
        };
        let id = self.given.value("rdzv-id").map_or("none", String::as_str);
        let (directory, name) = match self.rendezvous.driver() {
            Some(driver) => ("torchrun", format!("{driver}_{id}.token")),
            None => ("nodes", format!("{id}.token")),
        };
        let name: String = name
            .chars()
            .map(|c| match c {
                c if c.is_ascii_alphanumeric() || "._-".contains(c) => c,
                _ => '_',
            })
            .collect();
        Ok(state.join("elasticrun").join(directory).join(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::KEYS;

    #[test]
    fn options_of_torchrun_are_known_and_are_no_settings() {
        assert!(is_option("--nproc_per_node") && is_option("--rdzv-backend"));
        assert!(!is_option("--max-restarts") && !is_option("-m") && !is_option("nnodes"));
        for key in KEYS {
            assert!(!is_option(&format!("--{}", key.name)), "{}", key.name);
        }
    }
}
