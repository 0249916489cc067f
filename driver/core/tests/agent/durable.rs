//! Write-behind: which commits are written, and what is reported.

use elasticrun_core::agent::{Command, Event};
use elasticrun_protocol::{
    AgentCommand, AgentReport,
    control::{Exit, Notice, NoticeKind, StoredCommit},
};

use crate::bench::*;

/// Two workers in round 1, whose commits are written every 10 s. The process of slot 0 has rank 0.
fn training() -> Bench {
    let mut bench = Bench::durable(seconds(10));
    bench.plan(1, &[0, 1]);
    bench.start(1, &[0, 1], None);
    bench
}

fn commits(bench: &mut Bench, slot: u32, count: u64) {
    let process = process(slot, 1);
    bench.memory.commits.insert(process, vec![commit(1, count)]);
}

fn write(slot: u32) -> Command {
    Command::WriteDurable {
        process: process(slot, 1),
        size: 2,
    }
}

fn written(bench: &mut Bench, count: u64) -> Vec<Command> {
    bench.event(Event::DurableWritten {
        commit: commit(1, count),
        bytes: 8,
        took: seconds(1),
    })
}

fn failed(bench: &mut Bench, why: &str) -> Vec<Command> {
    bench.event(Event::DurableFailed { why: why.into() })
}

fn failure(why: &str) -> Command {
    Command::AgentReport(AgentReport::DurableFailed { why: why.into() })
}

#[test]
fn the_newest_commit_of_rank_0_is_written_once_per_interval() {
    let mut bench = training();
    commits(&mut bench, 0, 3);
    assert_eq!(bench.pass(seconds(9), true), []);
    assert_eq!(bench.pass(seconds(1), true), [write(0)]);
    // The next one begins an interval after this one has ended.
    assert_eq!(bench.pass(seconds(15), true), []);
    let reported = Command::AgentReport(AgentReport::DurableWritten {
        commit: commit(1, 3),
        bytes: 8,
        took: seconds(1),
    });
    assert_eq!(written(&mut bench, 3), [reported]);
    commits(&mut bench, 0, 4);
    assert_eq!(bench.pass(seconds(9), true), []);
    assert_eq!(bench.pass(seconds(1), true), [write(0)]);
}

#[test]
fn a_commit_is_not_written_twice() {
    let mut bench = training();
    assert_eq!(bench.pass(seconds(20), true), [], "there is no commit");
    commits(&mut bench, 0, 3);
    assert_eq!(bench.pass(seconds(10), true), [write(0)]);
    written(&mut bench, 3);
    assert_eq!(bench.pass(seconds(30), true), []);
}

#[test]
fn without_rank_0_an_agent_writes_nothing() {
    let mut bench = training();
    bench.command(elasticrun_protocol::AgentCommand::Abort {
        round: elasticrun_protocol::Round(1),
    });
    for slot in 0..2 {
        commits(&mut bench, slot, 3);
        bench.joins(slot, Some(1), true);
    }
    bench.flush();
    // Rank 0 is on another host.
    bench.plan(2, &[1]);
    bench.start_at(2, &[1], 1);
    assert_eq!(bench.pass(seconds(30), true), []);
}

#[test]
fn the_commit_of_a_dead_process_is_written() {
    let mut bench = training();
    commits(&mut bench, 0, 3);
    bench.event(exited(0, Exit::Signal(9)));
    let out = bench.pass(seconds(10), true);
    assert!(out.contains(&write(0)), "{out:?}");
}

#[test]
fn a_commit_without_bytes_is_no_failure() {
    let mut bench = training();
    commits(&mut bench, 0, 3);
    bench.pass(seconds(10), true);
    assert_eq!(bench.event(Event::DurableEmpty), []);
    assert_eq!(bench.pass(seconds(10), true), [write(0)], "a later one may");
}

#[test]
fn a_host_that_will_go_away_writes_at_once() {
    let mut bench = training();
    commits(&mut bench, 0, 3);
    let notice = Notice {
        kind: NoticeKind::Signal,
        within: Some(seconds(30)),
    };
    bench.event(Event::Noticed(notice));
    let out = bench.pass(seconds(0), true);
    assert!(out.contains(&write(0)), "{out:?}");
}

#[test]
fn a_store_that_cannot_be_used_is_reported_before_the_first_write() {
    let mut bench = training();
    let why = "no such store".to_owned();
    let unusable = Event::DurableUnusable { why: why.clone() };
    assert_eq!(bench.event(unusable), [failure(&why)]);
    commits(&mut bench, 0, 3);
    assert_eq!(bench.pass(seconds(10), true), [write(0)]);
    assert_eq!(failed(&mut bench, &why), [], "it is known");
}

#[test]
fn a_load_that_was_given_up_leaves_nothing_behind() {
    let mut bench = training();
    let load = |number| AgentCommand::LoadDurable {
        number,
        stored: StoredCommit {
            written_at: number,
            run_id: "r".into(),
            commit: commit(1, number),
        },
        id: commit(0, 1),
    };
    let process_of = |out: Vec<Command>| match out.as_slice() {
        [Command::LoadDurable { process, .. }] => *process,
        other => panic!("{other:?}"),
    };
    let first = process_of(bench.command(load(5)));
    let second = process_of(bench.command(load(6)));
    assert_ne!(first, second, "both may go on at the same time");
    assert_eq!(bench.command(load(6)), [], "a repeat");
    let loaded = |number, process| Event::DurableLoaded {
        number,
        process,
        refused: None,
    };
    assert_eq!(
        bench.event(loaded(5, first)),
        [Command::Forget { process: first }]
    );
    let report = AgentReport::DurableLoaded {
        number: 6,
        refused: None,
    };
    assert_eq!(
        bench.event(loaded(6, second)),
        [Command::AgentReport(report)]
    );
}

#[test]
fn a_failure_is_reported_once_until_a_write_succeeds() {
    let mut bench = training();
    commits(&mut bench, 0, 3);
    bench.pass(seconds(10), true);
    assert_eq!(failed(&mut bench, "full"), [failure("full")]);
    assert_eq!(
        bench.pass(seconds(10), true),
        [write(0)],
        "it is tried again"
    );
    assert_eq!(failed(&mut bench, "full"), []);
    bench.pass(seconds(10), true);
    written(&mut bench, 3);
    commits(&mut bench, 0, 4);
    bench.pass(seconds(10), true);
    assert_eq!(failed(&mut bench, "full"), [failure("full")]);
}

#[test]
fn a_store_that_hangs_is_reported_and_gets_no_further_write() {
    let mut bench = training();
    commits(&mut bench, 0, 3);
    bench.pass(seconds(10), true);
    let out = bench.pass(seconds(600), true);
    let why = "a write has not ended after 60 s: the store is slow or does not answer";
    assert_eq!(out, [failure(why)]);
    // It ends after all.
    written(&mut bench, 3);
    commits(&mut bench, 0, 4);
    assert_eq!(bench.pass(seconds(10), true), [write(0)]);
}
