//! `elasticrun agent`: the options.

use std::{fmt, path::PathBuf, time::Duration};

use clap::{Args, Command};
use elasticrun_plugin_sdk::hosts::HostSpec;
use elasticrun_protocol::HostId;

use super::{
    Invocation,
    command::{self, base},
};
use crate::{
    config::{
        Error, Interfaces, LogFormat, LogLevel, Origin, Setting, SlotsPerHost, Timeout,
        check_interfaces,
    },
    signals::StopSignals,
};

/// How an agent starts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AgentStart {
    /// A launcher starts it. Its settings are the first line of stdin, a JSON object.
    Launched,
    /// It registers itself at a driver.
    Join(Box<JoinRequest>),
}

/// What an agent needs to register itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JoinRequest {
    /// The address of the driver.
    pub driver: Endpoint,
    /// Other addresses of the driver, tried in turn after that one.
    pub others: Vec<Endpoint>,
    /// A file with further addresses, which may change.
    pub driver_file: Option<PathBuf>,
    /// The file that holds the join token.
    pub token_file: PathBuf,
    /// Slots that it offers.
    pub slots: SlotsPerHost,
    /// The host's id. `None` stands for the name of the machine.
    pub host: Option<HostId>,
    /// Interfaces for data between workers. None stands for that of the route to the driver.
    pub network_interfaces: Interfaces,
    /// It serves one run.
    pub one_run: bool,
    /// The signals that end it in order.
    pub stop_signals: StopSignals,
    /// It ends with the exit code of its job.
    pub with_job_code: bool,
    /// How long this host stays after SIGUSR1. `None`: as the driver says.
    pub signal_notice: Option<Duration>,
    /// What the agent logs.
    pub log_level: LogLevel,
    /// How it writes its log.
    pub log_format: LogFormat,
}

/// A name or an address, and a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    /// The name or address. An IPv6 address has no brackets.
    pub host: String,
    /// The port. Never 0.
    pub port: u16,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl Endpoint {
    /// Parses `HOST:PORT`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let port = port.parse().ok().filter(|port| *port > 0)?;
        Self::of_host(host, port)
    }

    /// A port of a name or an address.
    pub(super) fn of_host(host: &str, port: u16) -> Option<Self> {
        let spec: HostSpec = host.parse().ok()?;
        let plain = spec.user.is_none() && spec.port.is_none() && spec.slots.is_none();
        plain.then_some(Self {
            host: spec.host,
            port,
        })
    }
}

#[derive(Args, Debug)]
struct Options {
    /// Driver to register with; several addresses are tried in turn
    #[arg(long, value_name = "HOST:PORT,...")]
    join: Option<String>,
    /// File with the join token; only its owner may read it
    #[arg(long, value_name = "FILE")]
    join_token_file: Option<PathBuf>,
    /// Slots of this host; auto: the number of its GPUs, else 1 [default: auto]
    #[arg(long, value_name = "N|auto")]
    slots: Option<String>,
    /// Name of this host in the job [default: the name of the machine]
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// Interfaces for data between workers [default: by route to the driver]
    #[arg(long, value_name = "NAME,...", visible_alias = "network-interfaces")]
    network_interface: Option<String>,
    /// Time that this host stays after SIGUSR1 [default: as the driver says]
    #[arg(long, value_name = "TIME")]
    signal_notice: Option<String>,
    /// (internal) File with further addresses of the driver, which may change
    #[arg(long, value_name = "FILE", hide = true)]
    driver_file: Option<PathBuf>,
    /// (internal) Serve one run only
    #[arg(long, hide = true)]
    one_run: bool,
    /// error, warn, info, debug or trace [default: warn]
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// text or json [default: text]
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,
}

const ABOUT: &str = "Registers this host with a driver that runs with --launcher agent, and runs the workers of this host.\n\n\
    With --rdzv etcd://HOST,.../PREFIX, hosts need no driver elsewhere: elasticrun agent --rdzv URL --rdzv-id ID --nnodes MIN:MAX \
    --nproc-per-node N -- COMMAND takes the options of elasticrun torchrun, and the hosts elect the one that runs the driver.\n\n\
    Without --join and --rdzv, a launcher of elasticrun starts this command and sends its settings as one line on stdin.";

/// The command for clap.
pub(super) fn command() -> Command {
    Options::augment_args(base("agent", "elasticrun agent")).about(ABOUT)
}

/// Parses the words after `agent`.
pub(super) fn parse(words: Vec<String>) -> Result<Invocation, Error> {
    command::parse(command(), words, |options: Options| {
        options.start().map(Invocation::Agent)
    })
}

impl Options {
    fn start(self) -> Result<AgentStart, Error> {
        let Some(join) = &self.join else {
            return self.launched();
        };
        let mut drivers = join.split(',').map(Endpoint::parse);
        let (Some(Some(driver)), Some(others)) = (drivers.next(), drivers.collect()) else {
            return Err(usage(format!("--join {join}: expected HOST:PORT")));
        };
        let token_file = self.join_token_file.ok_or_else(|| {
            usage(
                "--join-token-file: missing: expected the file that holds the join token"
                    .to_owned(),
            )
        })?;
        let slots = one("--slots", self.slots, SlotsPerHost::Auto)?;
        let host = self.host.map(host_id).transpose()?;
        let network_interfaces = one(
            "--network-interface",
            self.network_interface,
            Interfaces::default(),
        )?;
        check_interfaces(
            &Origin::Flag("--network-interface".to_owned()),
            &network_interfaces,
        )?;
        let signal_notice = self.signal_notice.map(|word| {
            Timeout::read(std::slice::from_ref(&word))
                .map_err(|allowed| usage(format!("--signal-notice {word}: expected {allowed}")))
        });
        let signal_notice = signal_notice.transpose()?.map(Timeout::get);
        Ok(AgentStart::Join(Box::new(JoinRequest {
            driver,
            others,
            driver_file: self.driver_file,
            token_file,
            slots,
            host,
            network_interfaces,
            one_run: self.one_run,
            stop_signals: StopSignals::of_agent(self.one_run),
            with_job_code: false,
            signal_notice,
            log_level: one("--log-level", self.log_level, LogLevel::Warn)?,
            log_format: one("--log-format", self.log_format, LogFormat::Text)?,
        })))
    }

    fn launched(&self) -> Result<AgentStart, Error> {
        let without_join = [
            (self.join_token_file.is_some(), "--join-token-file"),
            (self.slots.is_some(), "--slots"),
            (self.host.is_some(), "--host"),
            (self.network_interface.is_some(), "--network-interface"),
            (self.signal_notice.is_some(), "--signal-notice"),
            (self.one_run, "--one-run"),
            (self.log_level.is_some(), "--log-level"),
            (self.log_format.is_some(), "--log-format"),
        ];
        match without_join.iter().find(|(given, _)| *given) {
            Some((_, flag)) => Err(usage(format!(
                "{flag}: only together with --join HOST:PORT"
            ))),
            None => Ok(AgentStart::Launched),
        }
    }
}

/// The value of a flag, or `default` without it.
fn one<T: Setting>(flag: &str, word: Option<String>, default: T) -> Result<T, Error> {
    let Some(word) = word else {
        return Ok(default);
    };
    T::read(std::slice::from_ref(&word))
        .map_err(|allowed| usage(format!("{flag} {word}: expected {allowed}")))
}

fn host_id(name: String) -> Result<HostId, Error> {
    let spec: Option<HostSpec> = name.parse().ok();
    match spec.filter(|spec| spec.user.is_none() && spec.slots.is_none() && spec.port.is_none()) {
        Some(spec) => Ok(HostId::new(spec.host)),
        None => Err(usage(format!(
            "--host {name}: expected a host name or an address, IPv6 in brackets"
        ))),
    }
}

fn usage(message: String) -> Error {
    Error::Usage { message }
}
