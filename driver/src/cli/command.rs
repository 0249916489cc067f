//! The options of a run for clap, built from the table of settings.

use std::{collections::BTreeMap, path::PathBuf};

use clap::{Arg, ArgAction, ArgMatches, Command, parser::ValueSource, value_parser};

use super::horovod;
use crate::config::{Error, FlagWords, KEYS, Key, Shape, Sources, flag};

const USAGE: &str = "elasticrun [run] [OPTIONS] [--] COMMAND...\n       \
    elasticrun config show [OPTIONS]\n       \
    elasticrun hosts [--watch] [--json] [OPTIONS]\n       \
    elasticrun plugin list|inspect|test|new\n       \
    elasticrun agent --join HOST:PORT --join-token-file FILE\n       \
    elasticrun drain HOST [--in TIME]\n       \
    elasticrun data plan|audit DATA...";

const ABOUT: &str = "Runs COMMAND as a distributed training job on hosts that can join or leave during the job.\n\n\
    A job is elastic with --min-np, --max-np, --spares, --max-restarts, --restart-mode or discovered hosts. \
    In other jobs, the first failed worker ends the job.";

const AFTER: &str = "\
Times are 50ms, 5s, 10m or 1h; a bare number is seconds.
Each option is also a key of a --config file (min-np = 2) and a variable (ELASTICRUN_MIN_NP=2).
Precedence: defaults < file < variables < options; elasticrun config show prints values and origins.
horovodrun's tuning options are accepted and ignored; one line lists those ignored.

Exit codes: 0 success, 1 a worker failed the job, 2 usage or configuration, 3 too few workers in
time, 4 reset limit, 5 first discovery failed, 6 no committed state left, 128+N stopped by signal N.";

/// The options of `run` and of `config show`.
///
/// # Errors
/// None in practice: the defaults of the table are valid.
pub(super) fn options() -> Result<Command, Error> {
    options_and([])
}

/// The same, with more options.
pub(super) fn options_and(more: impl IntoIterator<Item = Arg>) -> Result<Command, Error> {
    let defaults = defaults()?;
    let settings = KEYS.iter().map(|key| argument(key, defaults.get(key.name)));
    let mut command = Command::new("elasticrun")
        .version(env!("CARGO_PKG_VERSION"))
        .no_binary_name(true)
        .disable_version_flag(true)
        .args_override_self(true)
        .max_term_width(100)
        .override_usage(USAGE)
        .about(ABOUT)
        .after_help(AFTER)
        .args(settings)
        .args(other_options())
        .args(horovod::arguments())
        .args(more);
    // Adds --help, which the split of the command line needs.
    command.build();
    Ok(command)
}

/// Options that are no settings.
fn other_options() -> [Arg; 4] {
    [
        Arg::new("config")
            .long("config")
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf))
            .help("Read settings from a TOML file"),
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
