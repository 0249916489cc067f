//! `--dry-run`: what would run where. Nothing is started and no host is asked.

use std::fmt::Write;

use elasticrun_plugin_sdk::hosts::HostSpec;

use crate::config::{
    Config, Mode, RestartMode, Settings, SlotsPerHost, Source, Workers, launcher_of,
};

/// The place of a worker in the first round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Index of its host in the list.
    pub host: usize,
    /// 0 to size - 1.
    pub rank: u32,
    /// Its slot on the host.
    pub local_rank: u32,
    /// Its host's place among the hosts that have this local rank.
    pub cross_rank: u32,
}

/// The first round on hosts with these slots: host by host, slot by slot, up to `most` workers.
#[must_use]
pub fn places(slots: &[u32], most: u32) -> Vec<Place> {
    let mut seats: Vec<_> = slots
        .iter()
        .enumerate()
        .flat_map(|(host, slots)| (0..*slots).map(move |local_rank| (host, local_rank)))
        .take(usize::try_from(most).unwrap_or(usize::MAX))
        .map(|(host, local_rank)| Place {
            host,
            rank: 0,
            local_rank,
            cross_rank: 0,
        })
        .collect();
    let mut hosts_with = Vec::new();
    for (rank, seat) in (0_u32..).zip(&mut seats) {
        seat.rank = rank;
        let slot = usize::try_from(seat.local_rank).unwrap_or(usize::MAX);
        if slot >= hosts_with.len() {
            hosts_with.push(0);
        }
        seat.cross_rank = hosts_with[slot];
        hosts_with[slot] += 1;
    }
    seats
}

/// What a job would do, for people.
#[must_use]
pub fn describe(settings: &Settings, config: &Config, notes: &[String]) -> String {
    let mut text = String::new();
    headline(&mut text, settings);
    restarts(&mut text, settings);
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
    let most = workers
        .max_np
        .map_or("every slot".to_owned(), |most| format!("at most {most}"));
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
                "elastic job: starts with {} workers, goes on with at least {}, uses {most}{}",
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

/// What a failure or a change does to the workers' processes.
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
    let most = settings
        .workers
        .max_np
        .map_or(u32::MAX, std::num::NonZeroU32::get);
    line(text, format_args!("\n  rank  local_rank  cross_rank  host"));
    for place in places(&slots, most) {
        let (rank, local, cross) = (place.rank, place.local_rank, place.cross_rank);
        line(
            text,
            format_args!(
                "  {rank:>4}  {local:>10}  {cross:>10}  {}",
                hosts[place.host].id()
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
                Some(master) => slots_of_spark(text, &settings.workers, master),
                None => line(text, format_args!("  agents that register themselves")),
            },
        }
    }
}

fn slots_of_spark(text: &mut String, workers: &Workers, master: &str) {
    let spares = workers.spares;
    match workers.max_np {
        Some(most) => line(
            text,
            format_args!("  Spark: {} slots of {master}", most.get() + spares),
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

/// A word as a shell would take it.
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
        let table: Vec<_> = places(&[2, 1, 3], 5)
            .iter()
            .map(|place| (place.host, place.rank, place.local_rank, place.cross_rank))
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
        fn ranks_are_dense_and_places_distinct(slots in prop::collection::vec(0_u32..9, 0..9), most in 0_u32..40) {
            let table = places(&slots, most);
            prop_assert_eq!(table.len() as u32, slots.iter().sum::<u32>().min(most));
            let mut seats = std::collections::BTreeSet::new();
            let mut crosses = std::collections::BTreeSet::new();
            for (rank, place) in (0..).zip(&table) {
                prop_assert_eq!(place.rank, rank);
                prop_assert!(place.local_rank < slots[place.host]);
                prop_assert!(seats.insert((place.host, place.local_rank)));
                prop_assert!(crosses.insert((place.local_rank, place.cross_rank)));
            }
        }
    }
}
