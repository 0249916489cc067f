//! Helpers of several modules.

use std::collections::BTreeSet;

use elasticrun_process_tests::{Event, Fault, Kind, Point, Running, What, When};

/// Two hosts of two slots, 2 to 4 workers, and failed hosts stay out: the usual set-up.
pub(crate) const USUAL: &str = "-np 2 --min-np 2 --max-np 4 --blacklist forever";

/// The same for a job that begins with four workers. With [`USUAL`] it begins with two if a host comes a second later.
pub(crate) const FOUR: &str = "-np 4 --min-np 2 --max-np 4 --blacklist forever";

/// The hosts of the usual set-up as a script prints them.
pub(crate) const BOTH: &str = "localhost:2\n127.0.0.1:2\n";

/// A fault of one rank at a step.
pub(crate) fn at_step(rank: u32, step: u64, what: What) -> Fault {
    let when = When {
        rank: Some(rank),
        step: Some(step),
        ..When::default()
    };
    Fault::new(Point::Step, when, what)
}

/// A fault of one rank at its next step once a control file is there.
pub(crate) fn on_file(rank: u32, file: &str, what: What) -> Fault {
    let when = When {
        rank: Some(rank),
        file: Some(file.to_owned()),
        ..When::default()
    };
    Fault::new(Point::Step, when, what)
}

/// The first event of a kind, which must exist.
pub(crate) fn first(events: &[Event], kind: Kind) -> Event {
    events
        .iter()
        .find(|event| event.kind == kind)
        .cloned()
        .unwrap_or_else(|| panic!("no {kind:?} in {events:?}"))
}

/// Checks that each round began, for all its members, with the newest commit of the one before: no step is lost
/// and none is repeated. A commit may be one step newer than the log, since a worker logs a step after its commit.
/// `lost_hosts` is the number of steps that may be lost with the memory of hosts.
#[track_caller]
pub(crate) fn assert_nothing_lost(events: &[Event], lost_hosts: u64) {
    let mut rounds: Vec<u64> = events
        .iter()
        .filter(|e| e.kind == Kind::Round)
        .map(|e| e.round)
        .collect();
    rounds.sort_unstable();
    rounds.dedup();
    let mut newest = 0;
    for round in rounds {
        let of = |kind| {
            events
                .iter()
                .filter(move |e| e.round == round && e.kind == kind)
        };
        let begins: Vec<u64> = of(Kind::Round).map(|event| event.step).collect();
        assert!(
            begins.iter().all(|step| *step == begins[0]),
            "round {round} began at different steps: {begins:?}"
        );
        let expected = (newest - lost_hosts.min(newest))..=newest + 1;
        assert!(
            expected.contains(&begins[0]),
            "round {round} began at step {}, not in {expected:?}",
            begins[0]
        );
        let mut next: std::collections::BTreeMap<u32, u64> = std::collections::BTreeMap::new();
        for event in of(Kind::Step) {
            let step = next.entry(event.rank).or_insert(begins[0]);
            *step += 1;
            assert_eq!(
                event.step, *step,
                "rank {} of round {round} missed or repeated a step",
                event.rank
            );
        }
        newest = of(Kind::Step)
            .map(|event| event.step)
            .max()
            .unwrap_or(begins[0]);
    }
}

/// The parent of a process.
pub(crate) fn parent_of(pid: u32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let parent = status
        .lines()
        .find_map(|line| line.strip_prefix("PPid:"))
        .unwrap();
    parent.trim().parse().unwrap()
}

/// The workers of events.
pub(crate) fn workers(events: &[Event]) -> BTreeSet<u32> {
    events.iter().map(|event| event.pid).collect()
}

/// Waits until all four workers have committed a step that is newer than all steps so far. Gives the events.
pub(crate) fn next_steps(job: &mut Running) -> Vec<Event> {
    let steps = job.events().iter().filter(|e| e.kind == Kind::Step);
    let newest = steps.map(|event| event.step).max().unwrap_or(0);
    job.wait_training(4, newest + 2)
}

/// A cluster, or the end of the test with the reason why there is none.
macro_rules! cluster {
    ($count:literal) => {
        match elasticrun_etcd_tests::Cluster::start($count) {
            Ok(cluster) => cluster,
            Err(why) => {
                let test = std::thread::current();
                eprintln!("skipped {}: {why}", test.name().unwrap_or_default());
                return;
            }
        }
    };
}
pub(crate) use cluster;
