//! `--dry-run`: prints the plan of a job. It starts nothing and contacts no host.

use std::fmt::Write;

use elasticrun_plugin_sdk::hosts::HostSpec;

use crate::config::{
    Config, Mode, ParameterServers, PsSnapshots, ReplicaGroupSize, RestartMode, Settings,
    SlotsPerHost, Source, Workers, launcher_of,
};

/// The ranks of a worker in the first round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RankAssignment {
    /// Index of its host in the list.
    pub host: usize,
    /// 0 to size - 1.
    pub rank: u32,
    /// Its slot on the host.
    pub local_rank: u32,
    /// Index of its host among the hosts with this local rank.
    pub cross_rank: u32,
}

/// The first round on hosts with these slots: host by host, slot by slot, up to `max` workers.
#[must_use]
pub fn assign_ranks(slots: &[u32], max: u32) -> Vec<RankAssignment> {
    let mut workers: Vec<_> = slots
        .iter()
        .enumerate()
        .flat_map(|(host, slots)| (0..*slots).map(move |local_rank| (host, local_rank)))
        .take(usize::try_from(max).unwrap_or(usize::MAX))
        .map(|(host, local_rank)| RankAssignment {
            host,
            rank: 0,
            local_rank,
            cross_rank: 0,
        })
        .collect();
    let mut hosts_with = Vec::new();
    for (rank, worker) in (0_u32..).zip(&mut workers) {
        worker.rank = rank;
        let slot = usize::try_from(worker.local_rank).unwrap_or(usize::MAX);
        if slot >= hosts_with.len() {
            hosts_with.push(0);
        }
        worker.cross_rank = hosts_with[slot];
        hosts_with[slot] += 1;
    }
    workers
}

/// Describes the plan of a job.
#[must_use]
pub fn describe(settings: &Settings, config: &Config, notes: &[String]) -> String {
    let mut text = String::new();
    headline(&mut text, settings);
    restarts(&mut text, settings);
    replica_groups(&mut text, settings);
    parameter_servers(&mut text, settings);
    let command: Vec<_> = settings
        .command
        .iter()
        .map(|word| shell_quoted(word))
        .collect();
    line(&mut text, format_args!("command: {}", command.join(" ")));
    match settings.hosts.fixed() {
        Some(hosts) => fixed(&mut text, settings, hosts),
        None => sources(&mut text, settings),
    }
    let differences = config.differences();
    if !differences.is_empty() {
        line(
            &mut text,
            format_args!("\nsettings that differ from their defaults:"),
        );
        for difference in differences {
            line(&mut text, format_args!("  {difference}"));
        }
    }
    for note in notes {
        line(&mut text, format_args!("\nnote: {note}"));
    }
    text
}

fn line(text: &mut String, content: std::fmt::Arguments<'_>) {
    writeln!(text, "{content}").expect("writing to a string does not fail");
}

fn headline(text: &mut String, settings: &Settings) {
    let workers = settings.workers;
    let max = workers
        .max_np
        .map_or("every slot".to_owned(), |max| format!("at most {max}"));
    match settings.mode {
        Mode::Standard => line(
            text,
            format_args!(
                "standard job of {} workers: the first failure ends it",
                workers.np
            ),
        ),
        Mode::Elastic => line(
            text,
            format_args!(
                "elastic job: starts with {} workers, goes on with at least {}, uses {max}{}",
                workers.np,
                workers.min_np,
                match workers.spares {
                    0 => String::new(),
                    spares => format!(", keeps {spares} spare"),
                }
            ),
        ),
    }
}

/// Describes what each worker holds of the state.
fn replica_groups(text: &mut String, settings: &Settings) {
    match settings.workers.replica_group_size {
        ReplicaGroupSize::ONE => {}
        ReplicaGroupSize::All => line(
            text,
            format_args!("each worker holds a shard of the state (--replica-group-size all)"),
        ),
        ReplicaGroupSize::Fixed(size) => line(
            text,
            format_args!(
                "each group of {size} workers holds the state: starts with {}; workers that complete no group wait",
                match settings.workers.np.get() / size {
                    1 => "1 group".to_owned(),
                    groups => format!("{groups} groups"),
                }
            ),
        ),
    }
}

/// Describes the parameter servers.
fn parameter_servers(text: &mut String, settings: &Settings) {
    let Some(servers) = &settings.parameter_servers else {
        return;
    };
    let ParameterServers {
        servers,
        replicas,
        snapshots,
    } = servers;
    let copies = match replicas {
        None => "the first failure of one ends the job".to_owned(),
        Some(0) => "elastic, each value is on one of them".to_owned(),
        Some(replicas) => format!("elastic, each value is on {} of them", replicas + 1),
    };
    line(
        text,
        format_args!("parameter servers beside the workers: {servers}; {copies}"),
    );
    if let Some(snapshots) = snapshots {
        let PsSnapshots { place, interval } = snapshots;
        line(
            text,
            format_args!(
                "their values are saved in {place} every {interval:?}, and loaded from there at the start"
            ),
        );
    }
}

/// Describes the effect of a failure or a change on the workers' processes.
fn restarts(text: &mut String, settings: &Settings) {
    let failures = &settings.failures;
    if settings.mode == Mode::Standard {
        return;
    }
    let count = failures.max_restarts;
    let group = format!("a failure or change restarts all workers, --max-restarts {count}");
    let workers = "workers go on in their processes";
    match failures.restart_mode {
        RestartMode::InProcess => line(text, format_args!("restart mode in-process: {workers}")),
        RestartMode::Process => line(text, format_args!("restart mode process: {group}")),
        RestartMode::Auto => line(
            text,
            format_args!("restart mode auto: {group}; once one has attached, {workers}"),
        ),
    }
}

fn fixed(text: &mut String, settings: &Settings, hosts: &[HostSpec]) {
    let default = match settings.hosts.slots_per_host {
        SlotsPerHost::Auto => None,
        SlotsPerHost::Fixed(slots) => Some(slots),
    };
    line(text, format_args!("hosts:"));
    for host in hosts {
        let slots = host
            .slots
            .or(default)
            .map_or("auto".to_owned(), |slots| slots.to_string());
        let launcher = launcher_of(settings.launch.launcher, host);
        line(
            text,
            format_args!(
                "  {}: slots {slots}, agent started by {launcher}",
                host.id()
            ),
        );
    }
    let slots: Option<Vec<_>> = hosts.iter().map(|host| host.slots.or(default)).collect();
    let Some(slots) = slots else {
        line(
            text,
            format_args!("ranks: follow the slots that are found on the hosts"),
        );
        return;
    };
    let max = settings
        .workers
        .max_np
        .map_or(u32::MAX, std::num::NonZeroU32::get);
    line(text, format_args!("\n  rank  local_rank  cross_rank  host"));
    for worker in assign_ranks(&slots, max) {
        let (rank, local, cross) = (worker.rank, worker.local_rank, worker.cross_rank);
        line(
            text,
            format_args!(
                "  {rank:>4}  {local:>10}  {cross:>10}  {}",
                hosts[worker.host].id()
            ),
        );
    }
}

fn sources(text: &mut String, settings: &Settings) {
    line(
        text,
        format_args!("hosts: asked of their sources when the job starts, ranks follow"),
    );
    for source in &settings.hosts.sources {
        match source {
            Source::Fixed(hosts) => {
                let hosts: Vec<_> = hosts.iter().map(HostSpec::to_string).collect();
                line(text, format_args!("  fixed: {}", hosts.join(", ")));
            }
            Source::Script(path) => line(text, format_args!("  script: {}", path.display())),
            Source::Plugin(plugin) => line(text, format_args!("  plugin: {plugin}")),
            Source::Registration => match &settings.launch.spark {
                Some(master) => spark_slots(text, &settings.workers, master),
                None => line(text, format_args!("  agents that register themselves")),
            },
        }
    }
}

fn spark_slots(text: &mut String, workers: &Workers, master: &str) {
    let spares = workers.spares;
    match workers.max_np {
        Some(max) => line(
            text,
            format_args!("  Spark: {} slots of {master}", max.get() + spares),
        ),
        None => line(
            text,
            format_args!(
                "  Spark: {} slots of {master}, or as many as spark.dynamicAllocation.maxExecutors says",
                workers.np
            ),
        ),
    }
}

/// Quotes a word for a shell, if it needs that.
fn shell_quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn host_by_host_and_slot_by_slot() {
        let table: Vec<_> = assign_ranks(&[2, 1, 3], 5)
            .iter()
            .map(|worker| {
                (
                    worker.host,
                    worker.rank,
                    worker.local_rank,
                    worker.cross_rank,
                )
            })
            .collect();
        assert_eq!(
            table,
            [
                (0, 0, 0, 0),
                (0, 1, 1, 0),
                (1, 2, 0, 1),
                (2, 3, 0, 2),
                (2, 4, 1, 1)
            ]
        );
    }

    #[test]
    fn a_word_is_quoted_when_a_shell_needs_it() {
        assert_eq!(shell_quoted("--lr=0.1"), "--lr=0.1");
        assert_eq!(shell_quoted("it's"), r"'it'\''s'");
        assert_eq!(shell_quoted(""), "''");
    }

    proptest! {
        #[test]
        fn ranks_are_dense_and_slots_distinct(slots in prop::collection::vec(0_u32..9, 0..9), max in 0_u32..40) {
            let table = assign_ranks(&slots, max);
            prop_assert_eq!(table.len() as u32, slots.iter().sum::<u32>().min(max));
            let mut used = std::collections::BTreeSet::new();
            let mut cross_ranks = std::collections::BTreeSet::new();
            for (rank, worker) in (0..).zip(&table) {
                prop_assert_eq!(worker.rank, rank);
                prop_assert!(worker.local_rank < slots[worker.host]);
                prop_assert!(used.insert((worker.host, worker.local_rank)));
                prop_assert!(cross_ranks.insert((worker.local_rank, worker.cross_rank)));
            }
        }
    }
}
