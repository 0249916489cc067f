//! The whole command line as one command of clap: the options of a run and all subcommands.
//!
//! `--help`, the completions and the man page are made from it. It does not parse subcommands, because COMMAND may have
//! the name of one: each subcommand parses its own words.

use clap::Command;

use super::{agent, command, completions, drain, invocation, man, plugin};
use crate::config::Error;

/// The command `elasticrun`. The short text of a subcommand is its line of `--help`, the long text is its description.
///
/// # Errors
/// None in practice: the defaults of the table of settings are valid.
pub(super) fn root() -> Result<Command, Error> {
    let config = command::base("config", "elasticrun config")
        .subcommand(described(invocation::config_command()?, CONFIG));
    let subcommands = [
        (run(), "Run a job; the word run may be left out"),
        (config, CONFIG),
        (
            invocation::hosts_command()?,
            "List the hosts that a job would use, and why",
        ),
        (
            plugin::command(),
            "List, describe, test or create discovery plugins",
        ),
        (
            agent::command(),
            "Register this host with a driver and run its workers",
        ),
        (drain::command(), "Drain a host of a running job"),
        (data(), "Show how workers share a data set"),
        (
            completions::command(),
            "Print a completion script for a shell",
        ),
        (man::command(), "Print the man page"),
    ];
    Ok(command::run()?
        .subcommand_help_heading("Subcommands")
        .subcommands(subcommands.map(|(command, line)| described(command, line))))
}

/// The names of all subcommands.
///
/// # Errors
/// As [`root`].
pub(super) fn subcommands() -> Result<Vec<String>, Error> {
    let root = root()?;
    let names = root
        .get_subcommands()
        .map(|command| command.get_name().to_owned());
    Ok(names.collect())
}

const CONFIG: &str = "Print every setting, its value and its origin";

fn described(command: Command, line: &'static str) -> Command {
    let about = command.get_about().cloned();
    match about {
        Some(about) => command.about(line).long_about(about),
        None => command.about(line),
    }
}

/// Another name of the root.
fn run() -> Command {
    command::base("run", "elasticrun run").disable_help_flag(true)
}

/// The Python package parses the words after `data`, so their options are not here.
fn data() -> Command {
    let plan = command::base("plan", "elasticrun data plan")
        .about("Shows what a change of workers moves")
        .override_usage("elasticrun data plan DATA... --from WORKERS --to WORKERS");
    let audit = command::base("audit", "elasticrun data audit")
        .about("Shows whether each row was used once")
        .override_usage("elasticrun data audit DIRECTORY [DATA...]");
    command::base("data", "elasticrun data").subcommands([plan, audit])
}
