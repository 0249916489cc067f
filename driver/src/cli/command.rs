//! The options of a run for clap, built from the table of settings.

use std::{collections::BTreeMap, path::PathBuf};

use clap::{
    Arg, ArgAction, ArgMatches, Command, FromArgMatches, parser::ValueSource, value_parser,
};

use super::{Invocation, horovod, refusal};
use crate::{
    config::{Error, FlagWords, KEYS, Key, Shape, Sources, flag},
    exit,
};

const USAGE: &str = "elasticrun [run] [OPTIONS] [--] COMMAND...\n       \
    elasticrun SUBCOMMAND [OPTIONS]";

const ABOUT: &str = "Runs COMMAND as a distributed training job on hosts that can join or leave during the job.\n\n\
    A job is elastic with --min-np, --max-np, --spares, --max-restarts, --restart-mode or discovered hosts. \
    In other jobs, the first failed worker ends the job.";

pub(super) const AFTER: &str = "\
Times are 50ms, 5s, 10m or 1h; a bare number is seconds.
Each option is also a key of a --config file (min-np = 2) and a variable (ELASTICRUN_MIN_NP=2).
Precedence: defaults < file < variables < options; elasticrun config show prints values and origins.
horovodrun's tuning options are accepted and ignored; one line lists those ignored.";

/// A command with what all commands have in common. `bin_name` is its name with those of its parents.
pub(super) fn base(name: &'static str, bin_name: &'static str) -> Command {
    Command::new(name)
        .bin_name(bin_name)
        .max_term_width(100)
        .no_binary_name(true)
        .args_override_self(true)
        .disable_help_subcommand(true)
}

/// Reads the words after a subcommand as its options, for `then`. Help that was asked for is printed instead.
///
/// # Errors
/// The words are wrong, or `then` fails.
pub(super) fn parse<T: FromArgMatches>(
    command: Command,
    words: Vec<String>,
    then: impl FnOnce(T) -> Result<Invocation, Error>,
) -> Result<Invocation, Error> {
    let matches = match command.try_get_matches_from(words) {
        Ok(matches) => matches,
        Err(error) => return refusal::answer(&error),
    };
    let options = T::from_arg_matches(&matches).map_err(|error| Error::Usage {
        message: error.to_string(),
    })?;
    then(options)
}

/// The command `run`, as `--help` lists it.
///
/// # Errors
/// None in practice: the defaults of the table are valid.
pub(super) fn run() -> Result<Command, Error> {
    let codes: Vec<_> = exit::DOCUMENTED
        .iter()
        .map(|(code, meaning)| format!("{code} {meaning}"))
        .collect();
    let after = format!("{AFTER}\n\nExit codes: {}.", codes.join(", "));
    let command = base("elasticrun", "elasticrun")
        .version(env!("CARGO_PKG_VERSION"))
        .disable_version_flag(true)
        .override_usage(USAGE)
        .about(ABOUT)
        .after_help(after);
    with_settings(command, run_options())
}

/// Adds the settings of a run, `--config` and other options. Hidden options are not among them.
///
/// # Errors
/// None in practice: the defaults of the table are valid.
pub(super) fn with_settings(
    command: Command,
    others: impl IntoIterator<Item = Arg>,
) -> Result<Command, Error> {
    let defaults = defaults()?;
    let config = Arg::new("config")
        .long("config")
        .value_name("FILE")
        .value_parser(value_parser!(PathBuf))
        .help("Read settings from a TOML file");
    Ok(command
        .args(settings(&defaults).filter(|arg| !arg.is_hide_set()))
        .arg(config)
        .args(others))
}

/// Adds the hidden options to a command with settings, and builds `--help`, which the split of the command line needs.
///
/// # Errors
/// None in practice: the defaults of the table are valid.
pub(super) fn parser(command: Command) -> Result<Command, Error> {
    let defaults = defaults()?;
    let mut command = command
        .args(settings(&defaults).filter(Arg::is_hide_set))
        .args(horovod::arguments());
    command.build();
    Ok(command)
}

fn settings(defaults: &BTreeMap<&'static str, String>) -> impl Iterator<Item = Arg> {
    KEYS.iter().map(|key| argument(key, defaults.get(key.name)))
}

/// Options of `run` that are no settings.
fn run_options() -> [Arg; 3] {
    [
        Arg::new("dry-run")
            .long("dry-run")
            .action(ArgAction::SetTrue)
            .help("Print the plan and exit"),
        Arg::new("check-build")
            .long("check-build")
            .action(ArgAction::SetTrue)
            .help("Print what is built in"),
        Arg::new("version")
            .long("version")
            .short('v')
            .short_alias('V')
            .action(ArgAction::Version)
            .help("Print the version"),
    ]
}

/// The default of each setting that has one, in the syntax of the command line.
fn defaults() -> Result<BTreeMap<&'static str, String>, Error> {
    let config = Sources::default().read()?;
    Ok(config
        .rows()
        .into_iter()
        .filter_map(|row| {
            let text = match row.value? {
                toml::Value::String(text) => text,
                toml::Value::Array(values) => values
                    .iter()
                    .filter_map(toml::Value::as_str)
                    .collect::<Vec<_>>()
                    .join(" "),
                other => other.to_string(),
            };
            Some((row.key, text))
        })
        .collect())
}

fn argument(key: &Key, default: Option<&String>) -> Arg {
    let help = key.help.trim();
    let arg = Arg::new(key.name).long(key.name).help_heading(key.heading);
    let arg = match key.shape {
        Shape::Switch => arg.action(ArgAction::SetTrue).help(help),
        Shape::One => arg.action(ArgAction::Set).num_args(1),
        Shape::Many => arg.action(ArgAction::Append).num_args(1),
        Shape::Pair => arg.action(ArgAction::Set).num_args(2),
    };
    let arg = match (key.shape, default) {
        (Shape::Switch, _) => arg,
        (_, Some(default)) => arg.help(format!("{help} [default: {default}]")),
        (_, None) => arg.help(help),
    };
    let arg = match key.shape {
        Shape::Switch => arg,
        _ => arg
            .value_names(key.value_name.split(' ').collect::<Vec<_>>())
            .allow_hyphen_values(true),
    };
    (key.spelling)(arg)
}

/// The words of each setting that is given as an option, with its name as the user spelled it.
pub(super) fn flags(
    matches: &ArgMatches,
    spelled: &BTreeMap<String, String>,
) -> BTreeMap<&'static str, FlagWords> {
    let given = |key: &&Key| matches.value_source(key.name) == Some(ValueSource::CommandLine);
    KEYS.iter()
        .filter(given)
        .map(|key| {
            let words = match key.shape {
                Shape::Switch => vec!["true".to_owned()],
                _ => matches
                    .get_many::<String>(key.name)
                    .into_iter()
                    .flatten()
                    .cloned()
                    .collect(),
            };
            let spelled = spelled
                .get(key.name)
                .cloned()
                .unwrap_or_else(|| flag(key.name));
            (key.name, FlagWords { spelled, words })
        })
        .collect()
}
