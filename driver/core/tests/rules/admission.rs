//! Agents that connect: which the driver admits, and which it refuses.

use elasticrun_core::{Decision, Event, Rejected};
use elasticrun_protocol::{AgentCommand, AgentReport, DriverEpoch, HostId, control::Task};

use crate::{
    harness::{Harness, host, process},
    hosts::elastic,
};

/// A job whose hosts register themselves, as tasks of a cluster do.
fn of_tasks(np: u32) -> Harness {
    Harness::new(elasticrun_core::Settings {
        self_registration: true,
        ..elastic(np, 1, np)
    })
}

fn task(machine: &str, slot: u32, attempt: u64) -> Task {
    let machine = machine.to_owned();
    Task {
        machine,
        slot,
        attempt,
    }
}

/// Local rank and local size of the first member on each host, in the round that started last.
fn seats(harness: &Harness) -> Vec<(String, Option<u32>, u32)> {
    let seat = |(host, start): &(HostId, elasticrun_protocol::control::Start)| {
        let place = start.members[0].place;
        (
            host.to_string(),
            place.local_rank.map(|rank| rank.0),
            place.local_size,
        )
    };
    harness.starts.iter().map(seat).collect()
}

#[test]
fn a_newer_connection_of_a_host_takes_the_place_of_the_older() {
    let mut harness = Harness::new(elastic(1, 1, 1));
    harness.list(&[host("a", 1)]);
    harness.connects("a");
    let id = HostId::new("a");
    assert_eq!(harness.disconnected, [(id.clone(), 1)]);
    assert_eq!(harness.admitted, [(id.clone(), 1), (id, 2)]);
    assert_eq!(
        harness.ended_launches,
        [],
        "the new one may come of the same launch"
    );
}

/// The number of announcements that a name is taken.
fn announced(harness: &Harness) -> usize {
    let taken = |note: &&Decision| matches!(note, Decision::NameTaken { .. });
    harness.notes.iter().filter(taken).count()
}

#[test]
fn a_second_machine_of_one_name_is_refused_while_the_first_lives() {
    let mut harness = of_tasks(1);
    let id = HostId::new("a");
    harness.process_connects("a", 7);
    for _ in 0..3 {
        harness.process_connects("a", 8);
    }
    assert_eq!(harness.admitted, [(id.clone(), 1)]);
    let refused = [2, 3, 4].map(|instance| (id.clone(), instance));
    assert_eq!(harness.namesakes, refused);
    assert_eq!(announced(&harness), 1, "once for each machine");
    harness.event(Event::AgentLost {
        host: id.clone(),
        instance: 1,
        why: "it hung up".into(),
    });
    harness.process_connects("a", 8);
    assert_eq!(harness.admitted, [(id.clone(), 1), (id, 5)]);
}

#[test]
fn a_second_machine_of_one_name_is_refused_while_the_job_ends() {
    let mut harness = of_tasks(1);
    harness.process_connects("a", 7);
    harness.event(Event::StopRequested { signal: 15 });
    assert!(harness.outcome.is_some());
    harness.process_connects("a", 8);
    let id = HostId::new("a");
    assert_eq!(harness.admitted, [(id.clone(), 1)]);
    assert_eq!(harness.namesakes, [(id, 2)]);
    assert_eq!(harness.disconnected, []);
}

#[test]
fn an_agent_that_connects_anew_takes_the_place_of_its_own_connection() {
    let mut harness = of_tasks(1);
    let id = HostId::new("a");
    harness.process_connects("a", 7);
    harness.process_connects("a", 7);
    assert_eq!(harness.admitted, [(id.clone(), 1), (id, 2)]);
    assert_eq!((harness.namesakes.len(), announced(&harness)), (0, 0));
}

#[test]
fn an_older_connection_that_arrives_late_is_refused() {
    let mut harness = Harness::new(elastic(1, 1, 1));
    harness.list(&[host("a", 1)]);
    let before = format!("{:?}", harness.job);
    harness.arrives_late("a", 0);
    assert_eq!(harness.refused, [(HostId::new("a"), 0)]);
    assert_eq!(harness.rejected, [Rejected::StaleConnection]);
    assert_eq!(format!("{:?}", harness.job), before, "R3");
}

#[test]
fn tasks_of_one_machine_are_neighbours_and_keep_their_seats() {
    let mut harness = of_tasks(3);
    for (machine, slot) in [("m", 0), ("n", 1), ("m", 2)] {
        harness.task_connects(&task(machine, slot, 1));
    }
    let seat = |host: &str, rank, size| (host.to_owned(), Some(rank), size);
    let all = [
        seat("m/0.1", 0, 2),
        seat("n/1.1", 0, 1),
        seat("m/2.1", 1, 2),
    ];
    assert_eq!(seats(&harness), all);
    harness.lose("m/0.1");
    assert_eq!(seats(&harness), [seat("n/1.1", 0, 1), seat("m/2.1", 1, 1)]);
}

#[test]
fn a_newer_attempt_of_a_task_retires_the_older_and_an_older_is_refused() {
    let mut harness = of_tasks(1);
    harness.task_connects(&task("m", 0, 5));
    harness.sent.clear();
    harness.task_connects(&task("n", 0, 6));
    assert!(
        harness
            .sent
            .contains(&(HostId::new("m/0.5"), AgentCommand::Kill))
    );
    assert_eq!(harness.disconnected, [(HostId::new("m/0.5"), 1)]);
    harness.task_connects(&task("m", 0, 4));
    assert_eq!(harness.rejected, [Rejected::OlderAttempt]);
    assert_eq!(harness.refused, [(HostId::new("m/0.4"), 3)]);
}

#[test]
fn what_is_said_to_another_driver_changes_nothing() {
    let mut harness = Harness::new(elastic(1, 1, 1));
    harness.list(&[host("a", 1)]);
    let before = format!("{:?}", harness.job);
    let report = AgentReport::WorkerLost {
        process: process(0, 1),
        silent: false,
    };
    harness.event(Event::Reported {
        host: "a".into(),
        instance: 1,
        epoch: DriverEpoch(2),
        number: 1,
        report,
    });
    assert_eq!(harness.rejected, [Rejected::OtherDriver(DriverEpoch(2))]);
    assert_eq!(format!("{:?}", harness.job), before, "R3");
}
