//! Options of horovodrun that have no effect in elasticrun. They are accepted, so that scripts need no change. One line
//! lists them, so that users know that they have no effect.

use clap::{Arg, ArgAction, ArgMatches};

/// Options that take a value.
const WITH_VALUE: [&str; 17] = [
    "autotune-bayes-opt-max-samples",
    "autotune-gaussian-process-noise",
    "autotune-log-file",
    "autotune-steps-per-sample",
    "autotune-warmup-samples",
    "binding-args",
    "cache-capacity",
    "config-file",
    "cycle-time-ms",
    "fusion-threshold-mb",
    "gloo-timeout-seconds",
    "mpi-args",
    "num-nccl-streams",
    "stall-check-shutdown-time-seconds",
    "stall-check-warning-time-seconds",
    "thread-affinity",
    "timeline-filename",
];

/// Options without a value.
const FLAGS: [&str; 23] = [
    "autotune",
    "disable-cache",
    "gloo",
    "hierarchical-allgather",
    "hierarchical-allreduce",
    "jsrun",
    "log-hide-timestamp",
    "log-with-timestamp",
    "log-without-timestamp",
    "mpi",
    "mpi-threads-disable",
    "no-autotune",
    "no-hierarchical-allgather",
    "no-hierarchical-allreduce",
    "no-log-hide-timestamp",
    "no-mpi-threads-disable",
    "no-stall-check",
    "no-timeline-mark-cycles",
    "no-torus-allreduce",
    "stall-check",
    "tcp",
    "timeline-mark-cycles",
    "torus-allreduce",
];

/// The options for clap. `--help` does not list them.
pub(super) fn arguments() -> impl Iterator<Item = Arg> {
    let with_value = WITH_VALUE.into_iter().map(|name| {
        argument(name)
            .action(ArgAction::Set)
            .allow_hyphen_values(true)
    });
    with_value.chain(
        FLAGS
            .into_iter()
            .map(|name| argument(name).action(ArgAction::SetTrue)),
    )
}

fn argument(name: &'static str) -> Arg {
    Arg::new(name).long(name).hide(true)
}

/// Whether an option, with its dashes, is one of these. Suggestions leave them out.
pub(super) fn is_inert(option: &str) -> bool {
    let name = option
        .trim_start_matches('-')
        .split([' ', '='])
        .next()
        .unwrap_or_default();
    WITH_VALUE.contains(&name) || FLAGS.contains(&name)
}

/// The line that lists the given options. `None` if there are none.
pub(super) fn note(matches: &ArgMatches) -> Option<String> {
    let mut given: Vec<_> = WITH_VALUE
        .iter()
        .chain(&FLAGS)
        .filter(|name| matches.value_source(name) == Some(clap::parser::ValueSource::CommandLine))
        .map(|name| format!("--{name}"))
        .collect();
    given.sort();
    (!given.is_empty()).then(|| {
        format!(
            "accepted for Horovod's sake, without effect here: {}",
            given.join(" ")
        )
    })
}
