//! The options, their spellings and their variables `PET_*`.

use std::collections::BTreeMap;

use clap::{Arg, ArgAction, ArgMatches, Command, parser::ValueSource};

use super::super::{argv::Words, command::base};
use crate::config::Error;

/// Options with a value: name, name of the value, help.
const VALUES: [(&str, &str, &str, &str); 27] = [
    (
        "Nodes",
        "nnodes",
        "N|MIN:MAX",
        "Nodes, or the range of nodes [default: 1]",
    ),
    (
        "Nodes",
        "nproc-per-node",
        "N|auto|cpu|gpu",
        "Workers of each node; auto: as many as GPUs, else as CPUs [default: 1]",
    ),
    (
        "Nodes",
        "node-rank",
        "N",
        "Number of this node, with --rdzv-backend static [default: 0]",
    ),
    (
        "Rendezvous",
        "rdzv-backend",
        "NAME",
        "static, c10d or elasticrun; the last two are one [default: static]",
    ),
    (
        "Rendezvous",
        "rdzv-endpoint",
        "HOST[:PORT]",
        "Node that runs the driver, and its port [default port: 29400]",
    ),
    (
        "Rendezvous",
        "rdzv-id",
        "ID",
        "Name of the job, in TORCHELASTIC_RUN_ID",
    ),
    (
        "Rendezvous",
        "rdzv-conf",
        "K=V,...",
        "join_timeout, last_call_timeout, keep_alive_interval, keep_alive_max_attempt, is_host",
    ),
    (
        "Rendezvous",
        "master-addr",
        "HOST",
        "Node that runs the driver, with --rdzv-backend static [default: 127.0.0.1]",
    ),
    (
        "Rendezvous",
        "master-port",
        "PORT",
        "Its port [default: 29500]",
    ),
    (
        "Rendezvous",
        "join-token-file",
        "FILE",
        "File with the join token of the nodes [default: in the state directory of the user]",
    ),
    ("Rendezvous", "local-addr", "ADDR", ""),
    (
        "Failures",
        "max-restarts",
        "N",
        "Restarts of all workers after one failed [default: 0]",
    ),
    (
        "Failures",
        "shutdown-timeout",
        "SECONDS",
        "Time between SIGTERM and SIGKILL of a worker [default: 30]",
    ),
    ("Failures", "signals-to-handle", "SIGNALS", ""),
    ("Failures", "monitor-interval", "SECONDS", ""),
    (
        "Workers",
        "role",
        "NAME",
        "Role of the workers, in ROLE_NAME [default: default]",
    ),
    ("Workers", "start-method", "HOW", ""),
    ("Workers", "numa-binding", "MODE", ""),
    (
        "Output",
        "log-dir",
        "DIR",
        "Directory of the files of --redirects and --tee",
    ),
    (
        "Output",
        "redirects",
        "STREAMS",
        "Streams that only files get: 0, 1 (stdout), 2 (stderr), 3 (both), or by local rank: 0:1,1:3",
    ),
    (
        "Output",
        "tee",
        "STREAMS",
        "Streams that files and the console get; the console with a prefix",
    ),
    (
        "Output",
        "log-line-prefix-template",
        "TEXT",
        "That prefix [default: [${role_name}${local_rank}]:]",
    ),
    (
        "Output",
        "local-ranks-filter",
        "N,...",
        "Show only the output of these local ranks",
    ),
    ("Output", "duplicate-stdout-filters", "TEXT,...", ""),
    ("Output", "duplicate-stderr-filters", "TEXT,...", ""),
    ("Output", "logs-specs", "NAME", ""),
    ("Output", "event-log-handler", "NAME", ""),
];

/// Options without a value: name, help.
const SWITCHES: [(&str, &str, &str, Option<char>); 6] = [
    ("Nodes", "standalone", "Run on this node only", None),
    (
        "Script",
        "module",
        "SCRIPT is a module, as for python -m",
        Some('m'),
    ),
    ("Script", "no-python", "SCRIPT is a program", None),
    ("Script", "run-path", "Run SCRIPT by runpy.run_path", None),
    ("Workers", "virtual-local-rank", "", None),
    ("Nodes", "dry-run", "Print the plan and exit", None),
];

const ABOUT: &str = "Runs a Python script as torchrun does: with its options, variables PET_* and habits.\n\n\
    The node that --rdzv-endpoint or --master-addr names runs the driver, the others register with it. They show a join token, \
    which the first node writes to a file. Variables ELASTICRUN_* set all that torchrun has no option for.";

/// The command for clap.
pub(super) fn command() -> Command {
    let values = VALUES.into_iter().map(|(heading, name, value, help)| {
        let arg = Arg::new(name).long(name).value_name(value).num_args(1);
        let arg = match name {
            "redirects" => arg.short('r'),
            "tee" => arg.short('t'),
            _ => arg,
        };
        (
            arg.action(ArgAction::Set).allow_hyphen_values(true),
            heading,
            help,
        )
    });
    let switches = SWITCHES.into_iter().map(|(heading, name, help, short)| {
        let arg = Arg::new(name).long(name).action(ArgAction::SetTrue);
        (
            short.map_or(arg.clone(), |letter| arg.short(letter)),
            heading,
            help,
        )
    });
    let all = values
        .chain(switches)
        .map(|(arg, heading, help)| arg.help(help).help_heading(heading).hide(help.is_empty()));
    base("torchrun", "elasticrun torchrun")
        .override_usage("elasticrun torchrun [OPTIONS] SCRIPT [ARGUMENTS]")
        .about(ABOUT)
        .args(all)
}

/// The names of all options of torchrun.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    let ours = ["dry-run", "join-token-file"];
    let values = VALUES.into_iter().map(|(_, name, ..)| name);
    let switches = SWITCHES.into_iter().map(|(_, name, ..)| name);
    values
        .chain(switches)
        .filter(move |name| !ours.contains(name))
}

/// A word in clap's spelling: `-` between the words of an option, and an option whose beginning no other one has in full.
pub(super) fn canonical(word: &str, clap: &Command) -> String {
    let (name, value) = match word.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (word, None),
    };
    let name = name.replace('_', "-");
    let known: Vec<_> = clap
        .get_arguments()
        .filter_map(Arg::get_long)
        .filter(|long| {
            name.strip_prefix("--")
                .is_some_and(|start| long.starts_with(start))
        })
        .collect();
    let name = match known.as_slice() {
        [only] => format!("--{only}"),
        _ => name,
    };
    match value {
        Some(value) => format!("{name}={value}"),
        None => name,
    }
}

/// The options that are given, on the command line or by a variable `PET_*`.
#[derive(Debug)]
pub(super) struct Given {
    values: BTreeMap<&'static str, Value>,
}

/// An option and where it is given.
#[derive(Clone, Debug)]
struct Value {
    /// `true` for an option without a value.
    text: String,
    /// As the user spelled it, or the name of the variable.
    spelled: String,
}

impl Given {
    /// Reads the words and the variables of options that are not among the words.
    ///
    /// # Errors
    /// clap's: unknown options, missing values, and the request for help. Within: a variable is wrong.
    pub(super) fn read(
        clap: &Command,
        words: &Words,
        environment: &BTreeMap<String, String>,
    ) -> Result<Result<Self, Error>, clap::Error> {
        let matches = clap.clone().try_get_matches_from(&words.options)?;
        let mut values = BTreeMap::new();
        for (name, is_switch) in VALUES
            .iter()
            .map(|(_, name, ..)| (*name, false))
            .chain(SWITCHES.iter().map(|(_, name, ..)| (*name, true)))
        {
            let value = match of_words(&matches, words, name, is_switch) {
                Some(value) => Some(value),
                None => match of_environment(environment, name, is_switch) {
                    Ok(value) => value,
                    Err(error) => return Ok(Err(error)),
                },
            };
            values.extend(value.map(|value| (name, value)));
        }
        Ok(Ok(Self { values }))
    }

    /// The value of an option.
    pub(super) fn value(&self, name: &str) -> Option<&String> {
        self.values.get(name).map(|value| &value.text)
    }

    /// Whether an option is given.
    pub(super) fn is_set(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// The option as the user spelled it.
    pub(super) fn spelled(&self, name: &str) -> String {
        let given = self.values.get(name);
        given.map_or_else(|| format!("--{name}"), |value| value.spelled.clone())
    }

    /// The error that this option has a wrong value, or contradicts another one.
    pub(super) fn refuse(&self, name: &str, why: impl AsRef<str>) -> Error {
        let is_variable = !self.spelled(name).starts_with('-');
        let text = match self.value(name) {
            Some(text) if text != "true" && is_variable => format!("={text}"),
            Some(text) if text != "true" => format!(" {text}"),
            _ => String::new(),
        };
        Error::Usage {
            message: format!("{}{text}: {}", self.spelled(name), why.as_ref()),
        }
    }
}

fn of_words(
    matches: &ArgMatches,
    words: &Words,
    name: &'static str,
    is_switch: bool,
) -> Option<Value> {
    if matches.value_source(name) != Some(ValueSource::CommandLine) {
        return None;
    }
    let spelled = words.spelled.get(name).cloned();
    Some(Value {
        text: match is_switch {
            true => "true".to_owned(),
            false => matches.get_one::<String>(name)?.clone(),
        },
        spelled: spelled.unwrap_or_else(|| format!("--{name}")),
    })
}

/// `PET_NPROC_PER_NODE=4`. An option without a value is set by 1.
fn of_environment(
    environment: &BTreeMap<String, String>,
    name: &'static str,
    is_switch: bool,
) -> Result<Option<Value>, Error> {
    let variable = format!("PET_{}", name.replace('-', "_").to_ascii_uppercase());
    let Some(text) = environment.get(&variable).filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let text = match (is_switch, text.trim()) {
        (false, _) => text.clone(),
        (true, "1") => "true".to_owned(),
        (true, "0") => return Ok(None),
        (true, _) => {
            return Err(Error::Usage {
                message: format!("{variable}={text}: expected 0 or 1"),
            });
        }
    };
    Ok(Some(Value {
        text,
        spelled: variable,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn torchruns_spellings_are_those_of_clap() {
        let clap = command();
        for (word, expected) in [
            ("--nproc_per_node", "--nproc-per-node"),
            ("--nproc_per_node=2_000", "--nproc-per-node=2_000"),
            ("--nproc", "--nproc-per-node"),
            ("--rdzv", "--rdzv"),
            ("--rdzv-b=c10d", "--rdzv-backend=c10d"),
            ("--role", "--role"),
            ("--no-such", "--no-such"),
        ] {
            assert_eq!(canonical(word, &clap), expected);
        }
    }
}
