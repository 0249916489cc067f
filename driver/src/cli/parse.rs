//! Parses the command line: the first word chooses the command, and each command parses its own words.

use std::{collections::BTreeMap, ffi::OsString};

use super::{
    HostsRequest, Invocation, RunRequest, SparkRequest, agent,
    argv::{self, Words},
    command, completions, drain, horovod, man, plugin, refusal, resume, token, torchrun, tree,
};
use crate::{
    config::{
        Config, Error, Hosts, Mode, Origin, PREFIX, Settings, Sources, Variable, idle_slots,
        unknown_variables,
    },
    discovery, dry_run, parameter_servers,
    signals::StopSignals,
};

/// Parses a command line, without the name of the program, and the environment.
///
/// It reads only variables that start with `ELASTICRUN_` and are settings.
///
/// # Errors
/// The first mistake. Nothing was started.
pub fn parse(
    words: impl IntoIterator<Item = OsString>,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Invocation, Error> {
    let mut words = words.into_iter().peekable();
    let subcommand = words
        .peek()
        .and_then(|word| word.to_str())
        .map(str::to_owned);
    match subcommand.as_deref() {
        Some("agent") => {
            let words: Vec<_> = words.skip(1).collect();
            match torchrun::of_agent(&words) {
                Some(words) => torchrun::parse(words.into_iter(), environment),
                None => agent::parse(strings(words.into_iter())?),
            }
        }
        Some("task-service") => task_service(strings(words.skip(1))?),
        Some("data") => Ok(Invocation::Data(words.skip(1).collect())),
        Some("drain") => drain::parse(strings(words.skip(1))?),
        Some("resume") => resume::parse(strings(words.skip(1))?),
        Some("token") => token::parse(strings(words.skip(1))?),
        Some("torchrun") => torchrun::parse(words.skip(1), environment),
        Some(discovery::PLUGIN_HOST) => Ok(Invocation::PluginHost(
            words.nth(1).unwrap_or_default().into(),
        )),
        Some(parameter_servers::SCHEDULER) => Ok(Invocation::Scheduler),
        Some("completions") => completions::parse(strings(words.skip(1))?),
        Some("man") => man::parse(strings(words.skip(1))?),
        Some("plugin") => plugin::parse(strings(words.skip(1))?),
        Some("hosts") => hosts(words.skip(1), environment),
        Some("config") => config(words.skip(1), environment),
        Some("run") => run(words.skip(1), environment),
        Some("help") => help(strings(words.skip(1))?, environment),
        _ => run(words, environment),
    }
}

/// `help [SUBCOMMAND]`: the same as `[SUBCOMMAND] --help`.
fn help(
    words: Vec<String>,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Invocation, Error> {
    let names = tree::subcommands()?;
    match words.first() {
        Some(word) if !names.contains(word) => Err(Error::Usage {
            message: format!(
                "help {word}: no such subcommand; expected {}",
                names.join(", ")
            ),
        }),
        _ => {
            let words = words.into_iter().map(OsString::from);
            parse(words.chain(["--help".into()]), environment)
        }
    }
}

/// `task-service` takes no options. Its settings come by stdin.
fn task_service(words: Vec<String>) -> Result<Invocation, Error> {
    match words.first() {
        None => Ok(Invocation::TaskService),
        Some(word) => Err(Error::Usage {
            message: format!(
                "task-service {word}: expected nothing more; a task of a cluster starts it, with settings on stdin"
            ),
        }),
    }
}

fn strings(words: impl Iterator<Item = OsString>) -> Result<Vec<String>, Error> {
    words
        .map(|word| {
            word.into_string().map_err(|word| Error::Usage {
                message: format!("{}: not UTF-8; expected text", word.to_string_lossy()),
            })
        })
        .collect()
}

fn run(
    words: impl Iterator<Item = OsString>,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Invocation, Error> {
    let clap = command::parser(tree::root()?)?;
    let words = argv::split(words, &clap)?;
    let matches = match clap.try_get_matches_from(&words.options) {
        Ok(matches) => matches,
        Err(error) => return refusal::answer(&error),
    };
    if matches.get_flag("check-build") {
        return Ok(Invocation::Print(BUILD.to_owned()));
    }
    let sources = sources(&matches, &words, environment);
    let config = sources.read()?;
    let options = words.options;
    let settings = Settings::resolve(&config, words.command)?;
    let notes: Vec<_> = horovod::note(&matches)
        .into_iter()
        .chain(unknown_variables(
            sources.environment.keys().map(String::as_str),
        ))
        .chain(standard_note(&config, settings.mode))
        .chain(idle_slots(&config, &settings))
        .collect();
    if matches.get_flag("dry-run") {
        return Ok(Invocation::Print(dry_run::describe(
            &settings, &config, &notes,
        )));
    }
    if let (Some(master), None) = (&settings.launch.spark, settings.launch.embedder_fd) {
        return Ok(Invocation::Spark(Box::new(SparkRequest {
            master: master.clone(),
            workers: settings.workers,
            passed: passed(settings.launch.env),
            options: without_spark(options),
            command: settings.command,
        })));
    }
    Ok(Invocation::Run(Box::new(RunRequest {
        run_id: None,
        stop_signals: StopSignals::default(),
        settings,
        config,
        notes,
    })))
}

/// The variables that have no explicit value, from any source of the setting `env`.
fn passed(variables: Vec<Variable>) -> Vec<String> {
    (variables.into_iter())
        .filter(|variable| variable.value.is_none())
        .map(|variable| variable.name)
        .collect()
}

/// The options for a driver whose hosts Spark provides.
fn without_spark(options: Vec<String>) -> Vec<String> {
    let mut kept = Vec::new();
    let mut words = options.into_iter();
    while let Some(word) = words.next() {
        if word == "--spark" {
            words.next();
        } else if !word.starts_with("--spark=") {
            kept.push(word);
        }
    }
    kept
}

/// `config show`: prints the settings of a run with the same options. A COMMAND after them is ignored.
fn config(
    mut words: impl Iterator<Item = OsString>,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Invocation, Error> {
    match words.next() {
        Some(word) if word == "show" => {}
        Some(word) if word == "--help" || word == "-h" => {
            return Ok(Invocation::Print(format!(
                "Usage: elasticrun config show [OPTIONS]\n\n{}\n",
                tree::CONFIG_SHOW
            )));
        }
        other => {
            let word = other.unwrap_or_default();
            let message = format!("config {}", word.to_string_lossy());
            let message = format!("{}: expected config show [OPTIONS]", message.trim_end());
            return Err(Error::Usage { message });
        }
    }
    let clap = command::parser(tree::config_show()?)?;
    let words = argv::split(words, &clap)?;
    match clap.try_get_matches_from(&words.options) {
        Ok(matches) => Ok(Invocation::Print(
            sources(&matches, &words, environment).read()?.show(),
        )),
        Err(error) => refusal::answer(&error),
    }
}

/// `hosts`: polls the sources of a run with the same options. A COMMAND after them is ignored.
fn hosts(
    words: impl Iterator<Item = OsString>,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Invocation, Error> {
    let clap = command::parser(tree::hosts()?)?;
    let words = argv::split(words, &clap)?;
    let matches = match clap.try_get_matches_from(&words.options) {
        Ok(matches) => matches,
        Err(error) => return refusal::answer(&error),
    };
    let config = sources(&matches, &words, environment).read()?;
    Ok(Invocation::Hosts(HostsRequest {
        hosts: Hosts::resolve(&config)?,
        watch: matches.get_flag("watch"),
        json: matches.get_flag("json"),
    }))
}

fn sources(
    matches: &clap::ArgMatches,
    words: &Words,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Sources {
    let environment: BTreeMap<_, _> = environment
        .into_iter()
        .filter_map(|(name, value)| {
            let name = name
                .into_string()
                .ok()
                .filter(|name| name.starts_with(PREFIX))?;
            Some((name, value.to_string_lossy().into_owned()))
        })
        .collect();
    Sources {
        file: matches.get_one("config").cloned(),
        environment,
        flags: command::flags(matches, &words.spelled),
    }
}

/// A note about flags that only affect elastic jobs. A standard job ends at its first failure.
fn standard_note(config: &Config, mode: Mode) -> Option<String> {
    const ONLY_ELASTIC: [&str; 9] = [
        "elastic-timeout",
        "abort-timeout",
        "interrupt-timeout",
        "last-call",
        "reset-limit",
        "max-host-failures",
        "blacklist",
        "blacklist-cooldown-range",
        "failure-domain",
    ];
    if mode == Mode::Elastic {
        return None;
    }
    let rows = config.rows();
    let idle: Vec<_> = rows
        .iter()
        .filter(|row| ONLY_ELASTIC.contains(&row.key) && matches!(row.origin, Origin::Flag(_)))
        .map(|row| row.origin.to_string())
        .collect();
    (!idle.is_empty()).then(|| {
        format!(
            "without effect in a job that is not elastic: {}; --min-np N makes it elastic",
            idle.join(" ")
        )
    })
}

const BUILD: &str = concat!(
    "elasticrun ",
    env!("CARGO_PKG_VERSION"),
    "\n\
Collectives: shared memory on a host, TCP between hosts\n\
Discovery:   fixed hosts, file, script, plugins by --plugin-dir\n\
Launchers:   local, ssh, agent (self-registration)\n"
);
