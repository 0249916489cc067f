//! The options, and their spellings.

use clap::{Arg, ArgAction, Command};

use super::super::command::base;

/// An option.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) name: &'static str,
    short: Option<char>,
    /// The name of its value. None for an option without a value.
    pub(super) value: Option<&'static str>,
    heading: &'static str,
    /// Empty for an option without effect, which is not listed.
    help: &'static str,
}

impl Known {
    const fn with_value(
        heading: &'static str,
        name: &'static str,
        value: &'static str,
        help: &'static str,
    ) -> Self {
        Self {
            name,
            short: None,
            value: Some(value),
            heading,
            help,
        }
    }

    const fn switch(heading: &'static str, name: &'static str, help: &'static str) -> Self {
        Self {
            name,
            short: None,
            value: None,
            heading,
            help,
        }
    }

    /// An option by which a node starts its driver. It is not listed.
    const fn internal(name: &'static str, value: &'static str) -> Self {
        Self::with_value("", name, value, " ")
    }

    /// An option that only tunes torchrun's own code.
    const fn without_effect(name: &'static str) -> Self {
        Self::with_value("", name, "VALUE", "")
    }

    const fn or(self, letter: char) -> Self {
        Self {
            short: Some(letter),
            ..self
        }
    }

    fn arg(self) -> Arg {
        let arg = Arg::new(self.name).long(self.name).help(self.help);
        let arg = arg.help_heading(self.heading).hide(self.heading.is_empty());
        let arg = match self.short {
            Some(letter) => arg.short(letter),
            None => arg,
        };
        match self.value {
            None => arg.action(ArgAction::SetTrue),
            Some(value) => arg
                .action(ArgAction::Set)
                .num_args(1)
                .value_name(value)
                .allow_hyphen_values(true),
        }
    }
}

/// All options, in the order of the help.
pub(super) const ALL: [Known; 35] = [
    Known::with_value("Nodes", "nnodes", "N|MIN:MAX", "Nodes, or the range of nodes [default: 1]"),
    Known::with_value("Nodes", "nproc-per-node", "N|auto|cpu|gpu", "Workers of each node; auto: as many as GPUs, else as CPUs [default: 1]"),
    Known::with_value("Nodes", "node-rank", "N", "Number of this node, with --rdzv-backend static [default: 0]"),
    Known::switch("Nodes", "standalone", "Run on this node only"),
    Known::switch("Nodes", "dry-run", "Print the plan and exit"),
    Known::with_value("Rendezvous", "rdzv-backend", "NAME", "static, c10d, elasticrun (the same) or etcd [default: static]"),
    Known::with_value("Rendezvous", "rdzv-endpoint", "HOST[:PORT]", "Node that runs the driver, and its port [default: 29400]; with etcd HOST:PORT,HOST:PORT of its members"),
    Known::with_value("Rendezvous", "rdzv", "etcd://HOST,.../PREFIX", "Meet in etcd: any node may run the driver, and any node may be lost"),
    Known::with_value("Rendezvous", "rdzv-id", "ID", "Name of the job, in TORCHELASTIC_RUN_ID; with etcd the nodes find each other by it"),
    Known::with_value("Rendezvous", "rdzv-conf", "K=V,...", "join_timeout, last_call_timeout, keep_alive_interval, keep_alive_max_attempt, is_host, close_timeout"),
    Known::with_value("Rendezvous", "master-addr", "HOST", "Node that runs the driver, with --rdzv-backend static [default: 127.0.0.1]"),
    Known::with_value("Rendezvous", "master-port", "PORT", "Its port [default: 29500]"),
    Known::with_value("Rendezvous", "join-token-file", "FILE", "File with the join token of the nodes [default: in the state directory of the user]"),
    Known::with_value("Failures", "max-restarts", "N", "Restarts of all workers after one failed [default: 0]"),
    Known::with_value("Failures", "shutdown-timeout", "SECONDS", "Time between SIGTERM and SIGKILL of a worker [default: 30]"),
    Known::with_value("Failures", "signals-to-handle", "NAME,...", "Signals that end this node in order [default: SIGTERM,SIGINT,SIGHUP,SIGQUIT]"),
    Known::with_value("Workers", "role", "NAME", "Role of the workers, in ROLE_NAME [default: default]"),
    Known::switch("Workers", "virtual-local-rank", "LOCAL_RANK is 0 for each worker, which sees its own device only"),
    Known::with_value("Workers", "numa-binding", "MODE", "Run each worker on the CPUs near its GPU: node, socket, exclusive or core-complex"),
    Known::with_value("Output", "log-dir", "DIR", "Directory of the files of --redirects, --tee and --duplicate-*-filters"),
    Known::with_value("Output", "redirects", "STREAMS", "Streams that only files get: 0, 1 (stdout), 2 (stderr), 3 (both), or by local rank: 0:1,1:3").or('r'),
    Known::with_value("Output", "tee", "STREAMS", "Streams that files and the console get; the console with a prefix").or('t'),
    Known::with_value("Output", "log-line-prefix-template", "TEXT", "That prefix [default: [${role_name}${local_rank}]:]"),
    Known::with_value("Output", "local-ranks-filter", "N,...", "Show only the output of these local ranks"),
    Known::with_value("Output", "duplicate-stdout-filters", "TEXT,...", "Lines of stdout with one of these texts also go to filtered_stdout.log in --log-dir"),
    Known::with_value("Output", "duplicate-stderr-filters", "TEXT,...", "Lines of stderr with one of these texts also go to filtered_stderr.log in --log-dir"),
    Known::switch("Script", "module", "SCRIPT is a module, as for python -m").or('m'),
    Known::switch("Script", "no-python", "SCRIPT is a program"),
    Known::switch("Script", "run-path", "Run SCRIPT by runpy.run_path"),
    Known::internal("as-driver", "RUN"),
    Known::without_effect("local-addr"),
    Known::without_effect("monitor-interval"),
    Known::without_effect("start-method"),
    Known::without_effect("logs-specs"),
    Known::without_effect("event-log-handler"),
];

const ABOUT: &str = "Runs a Python script as torchrun does: with its options, variables PET_* and habits.\n\n\
    The node that --rdzv-endpoint or --master-addr names runs the driver, the others register with it. They show a join token, \
    which the first node writes to a file. With --rdzv etcd://... the nodes elect the one that runs the driver. Variables ELASTICRUN_* set all that torchrun has no option for.";

/// The command for clap.
pub(super) fn command() -> Command {
    base("torchrun", "elasticrun torchrun")
        .override_usage("elasticrun torchrun [OPTIONS] SCRIPT [ARGUMENTS]")
        .about(ABOUT)
        .args(ALL.map(Known::arg))
}

/// Whether torchrun has an option of this name.
pub(super) fn is_known(name: &str) -> bool {
    // These are elasticrun's.
    let ours = ["dry-run", "join-token-file", "rdzv", "as-driver"];
    !ours.contains(&name) && ALL.iter().any(|known| known.name == name)
}

/// The options without effect.
pub(super) fn without_effect() -> impl Iterator<Item = &'static str> {
    let inert = ALL.into_iter().filter(|known| known.help.is_empty());
    inert.map(|known| known.name)
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
