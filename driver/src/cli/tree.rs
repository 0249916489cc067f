//! The whole command line as one command of clap: the options of a run and all subcommands.
//!
//! `--help`, the completions and the man page are made from it. It does not parse subcommands, because COMMAND may have
//! the name of one: each subcommand parses its own words.

use clap::{Arg, ArgAction, Command};

use super::{agent, command, drain, plugin, resume, token, torchrun};
use crate::config::Error;

/// The command `elasticrun`. The short text of a subcommand is its line of `--help`, the long text is its description.
///
/// # Errors
/// None in practice: the defaults of the table of settings are valid.
pub(super) fn root() -> Result<Command, Error> {
    let config =
        command::base("config", "elasticrun config").subcommand(described(config_show()?, CONFIG));
    let subcommands = [
        (run(), "Run a job; the word run may be left out"),
        (config, CONFIG),
        (hosts()?, "List the hosts that a job would use, and why"),
        (
            plugin::command(),
            "List, describe, test or create discovery plugins",
        ),
        (
            agent::command(),
            "Register this host with a driver and run its workers",
        ),
        (token::command(), "Print a new join token"),
        (drain::command(), "Drain a host of a running job"),
        (
            resume::command(),
            "Show the outcome of a run that has ended",
        ),
        (torchrun::command(), "Run a script by torchrun's options"),
        (data(), "Show how workers share a data set"),
        (completions(), "Print a completion script for a shell"),
        (man(), "Print the man page"),
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

/// The command `config show` for clap.
pub(super) fn config_show() -> Result<Command, Error> {
    let command = command::base("show", "elasticrun config show")
        .override_usage("elasticrun config show [OPTIONS]")
        .about(CONFIG_SHOW);
    command::with_settings(command, [])
}

/// The command `hosts` for clap.
pub(super) fn hosts() -> Result<Command, Error> {
    let switch = |name: &'static str, help: &'static str| {
        let arg = Arg::new(name).long(name);
        arg.action(ArgAction::SetTrue).help(help)
    };
    let command = command::base("hosts", "elasticrun hosts")
        .override_usage("elasticrun hosts [--watch] [--json] [OPTIONS]")
        .about(HOSTS);
    let switches = [
        switch("watch", "Continue, and print what changes"),
        switch("json", "Print JSON, one line per change"),
    ];
    command::with_settings(command, switches)
}

/// The command `completions` for clap.
pub(super) fn completions() -> Command {
    command::base("completions", "elasticrun completions")
        .about(COMPLETIONS)
        .arg(
            Arg::new("shell")
                .value_name("SHELL")
                .help("Shell: bash, zsh or fish")
                .required(true)
                .hide_possible_values(true)
                .value_parser(["bash", "zsh", "fish"]),
        )
}

/// The command `man` for clap.
pub(super) fn man() -> Command {
    command::base("man", "elasticrun man").about(MAN)
}

/// The Python package parses the words after `data`, so their options are not here.
fn data() -> Command {
    let plan = command::base("plan", "elasticrun data plan")
        .about("Shows what a change of workers moves")
        .override_usage("elasticrun data plan DATA... --from WORKERS --to WORKERS");
    let audit = command::base("audit", "elasticrun data audit")
        .about("Shows whether each row was used once")
        .override_usage("elasticrun data audit DIRECTORY [DATA...]");
    let convert = command::base("convert", "elasticrun data convert")
        .about("Converts WebDataset, JSON lines, MDS and Arrow files to Parquet")
        .override_usage("elasticrun data convert SOURCE... --to DIRECTORY");
    command::base("data", "elasticrun data").subcommands([plan, audit, convert])
}

pub(super) const CONFIG_SHOW: &str = "Prints every setting, its value and its origin.\n\n\
    The options are those of a run. The output is a valid file for --config.";

const HOSTS: &str = "Lists the hosts of a job's sources, which of them the job would use, and why.\n\n\
    The options are those of a run; a COMMAND after them is ignored. Exit code 5 if a source fails.";

const COMPLETIONS: &str = "Prints a script that completes options, subcommands and COMMAND in a shell.\n\n\
    bash: source <(elasticrun completions bash)\n\
    zsh:  elasticrun completions zsh > DIR/_elasticrun, where DIR is in $fpath\n\
    fish: elasticrun completions fish > ~/.config/fish/completions/elasticrun.fish";

const MAN: &str = "Prints the man page. To read it: elasticrun man | man -l -";
