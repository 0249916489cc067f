//! Cuts: which shards of a divided state are copied, and which are kept.

use elasticrun_core::agent::{Command, Copied, Event, Wanted};
use elasticrun_protocol::{
    AgentCommand, AgentReport, CommitId, CommitKey, HostId, Process, Round, Shard,
    control::{Cut, CutShard, Exit, Keeper, ShardCopy},
};

use crate::bench::*;

/// A process that never lived.
fn unborn(number: u32) -> Process {
    process(u32::MAX, number)
}

fn shard(index: u32) -> Shard {
    Shard {
        layout: 7,
        index,
        of: 4,
    }
}

/// A shard of a worker of another host.
fn source(index: u32) -> ShardCopy {
    ShardCopy {
        shard: shard(index),
        keeper: Keeper {
            host: HostId::new("b"),
            process: process(index, 1),
            address: ([10, 0, 0, 2], 1).into(),
        },
    }
}

fn cut(keep: Option<CommitId>, next: Option<CommitId>, copies: &[u32]) -> Cut {
    Cut {
        number: 0,
        planned: Round(1),
        base: None,
        keep,
        next,
        copies: copies.iter().map(|index| source(*index)).collect(),
    }
}

fn told(bench: &mut Bench, number: u64, cut: Cut) -> Vec<Command> {
    bench.command(AgentCommand::Cut(Cut { number, ..cut }))
}

fn copy(number: u32, commit: CommitId, index: u32) -> Command {
    let shard = shard(index);
    Command::Replicate {
        process: unborn(number),
        keeper: source(index).keeper,
        wanted: Wanted::Shard(CommitKey { commit, shard }),
        limit: None,
    }
}

/// A copy is whole.
fn copied(bench: &mut Bench, number: u32, commit: CommitId, index: u32) -> Vec<Command> {
    let process = unborn(number);
    bench.memory.commits.insert(process, vec![commit]);
    bench.memory.shards.insert(process, shard(index));
    let (bytes, took) = (8, seconds(1));
    let copied = Copied::Whole {
        commit,
        bytes,
        took,
    };
    bench.event(Event::Copied { process, copied })
}

fn ended(bench: &mut Bench, number: u32, copied: Copied) -> Vec<Command> {
    let process = unborn(number);
    bench.event(Event::Copied { process, copied })
}

fn forget(number: u32) -> Command {
    let process = unborn(number);
    Command::Forget { process }
}

fn reports(commands: Vec<Command>) -> Vec<AgentReport> {
    let reports = commands.into_iter().filter_map(|command| match command {
        Command::AgentReport(AgentReport::Heartbeat { .. }) => None,
        Command::AgentReport(report) => Some(report),
        _ => None,
    });
    reports.collect()
}

fn replicated(commit: CommitId, bytes: u64) -> AgentReport {
    let took = seconds(0);
    AgentReport::Replicated {
        commit,
        bytes,
        took,
    }
}

/// Two workers in round 1, with shards 0 and 1.
fn training() -> Bench {
    let mut bench = Bench::replicating(seconds(1), None);
    for slot in 0..2 {
        bench.command(spawn(slot, 1));
        let process = process(slot, 1);
        bench.event(Event::Attached { process });
        bench.memory.alive.insert(process);
        bench.joins(slot, None, true);
        bench.memory.shards.insert(process, shard(slot));
    }
    bench.flush();
    bench.plan(1, &[0, 1]);
    bench.start(1, &[0, 1], None);
    bench
}

fn commits(bench: &mut Bench, slot: u32, newest_first: &[CommitId]) {
    let commits = newest_first.to_vec();
    bench.memory.commits.insert(process(slot, 1), commits);
}

#[test]
fn a_cut_is_held_once_all_members_have_passed_it() {
    let mut bench = training();
    let next = commit(1, 5);
    told(&mut bench, 1, cut(None, Some(next), &[]));
    for slot in 0..2 {
        assert_eq!(bench.memory.named[&process(slot, 1)], [None, Some(next)]);
    }
    commits(&mut bench, 0, &[next, commit(1, 4)]);
    commits(&mut bench, 1, &[commit(1, 4), commit(1, 3)]);
    assert_eq!(reports(bench.answered_by(seconds(2))), []);
    // One has written over the cut, as if it had been told too late.
    commits(&mut bench, 1, &[commit(1, 7), commit(1, 6)]);
    let held = CutShard {
        process: process(0, 1),
        shard: shard(0),
    };
    let report = AgentReport::CutHeld {
        commit: next,
        held: vec![held],
    };
    assert_eq!(
        reports(bench.answered_by(seconds(2))),
        std::slice::from_ref(&report)
    );
    assert_eq!(reports(bench.answered_by(seconds(2))), []);
    // The driver asks again once it has lost the report.
    let again = told(&mut bench, 2, cut(None, Some(next), &[]));
    assert_eq!(reports(again), [report]);
}

#[test]
fn a_process_that_attaches_later_keeps_the_cut_too() {
    let mut bench = training();
    told(
        &mut bench,
        1,
        cut(Some(commit(1, 2)), Some(commit(1, 5)), &[]),
    );
    bench.command(spawn(2, 1));
    let process = process(2, 1);
    bench.event(Event::Attached { process });
    let expected = [Some(commit(1, 2)), Some(commit(1, 5))];
    assert_eq!(bench.memory.named[&process], expected);
}

#[test]
fn shards_are_copied_one_after_the_other_and_kept_until_the_next_cut_is_complete() {
    let mut bench = Bench::replicating(seconds(1), None);
    let (first, second, third) = (commit(1, 2), commit(1, 6), commit(1, 9));
    assert_eq!(told(&mut bench, 1, cut(None, Some(first), &[])), []);
    let begun = told(&mut bench, 2, cut(None, Some(first), &[2, 3]));
    assert_eq!(begun, [copy(1, first, 2)]);
    assert_eq!(copied(&mut bench, 1, first, 2), [copy(2, first, 3)]);
    let all = Command::AgentReport(replicated(first, 16));
    assert_eq!(copied(&mut bench, 2, first, 3), [all]);
    // Complete. The next one is copied beside it.
    assert_eq!(told(&mut bench, 3, cut(Some(first), Some(second), &[])), []);
    let begun = told(&mut bench, 4, cut(Some(first), Some(second), &[2, 3]));
    assert_eq!(begun, [copy(3, second, 2)]);
    assert_eq!(copied(&mut bench, 3, second, 2), [copy(4, second, 3)]);
    // It is given up, and what was copied of it.
    let other = told(&mut bench, 5, cut(Some(first), Some(third), &[]));
    assert_eq!(other, [forget(4), forget(3)]);
    let begun = told(&mut bench, 6, cut(Some(first), Some(third), &[3]));
    assert_eq!(begun, [copy(5, third, 3)]);
    let all = Command::AgentReport(replicated(third, 8));
    assert_eq!(copied(&mut bench, 5, third, 3), [all]);
    let complete = told(&mut bench, 7, cut(Some(third), None, &[]));
    assert_eq!(complete, [forget(1), forget(2)]);
    // A repeat changes nothing.
    assert_eq!(told(&mut bench, 6, cut(Some(first), Some(third), &[2])), []);
}

#[test]
fn nothing_is_given_up_between_the_answer_to_a_plan_and_the_next_command() {
    let mut bench = Bench::replicating(seconds(1), None);
    let (first, second) = (commit(1, 2), commit(1, 6));
    told(&mut bench, 1, cut(None, Some(first), &[2]));
    copied(&mut bench, 1, first, 2);
    bench.plan(2, &[]);
    // The driver has sent this before the plan.
    let late = told(&mut bench, 2, cut(Some(second), None, &[]));
    assert_eq!(late, []);
    let planned = Round(2);
    let next = Cut {
        planned,
        ..cut(Some(second), None, &[])
    };
    assert_eq!(told(&mut bench, 3, next), [forget(1)]);
}

#[test]
fn a_base_stays_until_a_cut_of_its_round_is_complete() {
    let mut bench = Bench::replicating(seconds(1), None);
    let base = commit(1, 2);
    told(&mut bench, 1, cut(None, Some(base), &[2]));
    copied(&mut bench, 1, base, 2);
    let later = Cut {
        planned: Round(2),
        base: Some(base),
        ..cut(None, Some(commit(2, 0)), &[])
    };
    assert_eq!(told(&mut bench, 2, later.clone()), []);
    let base = None;
    assert_eq!(told(&mut bench, 3, Cut { base, ..later }), [forget(1)]);
}

#[test]
fn a_copy_that_fails_is_tried_again_and_at_last_reported() {
    let mut bench = Bench::replicating(seconds(1), None);
    let next = commit(1, 2);
    told(&mut bench, 1, cut(None, Some(next), &[2]));
    let cut_off = || Copied::Failed { why: "cut".into() };
    for number in 1..3 {
        assert_eq!(ended(&mut bench, number, cut_off()), [forget(number)]);
        let again = bench.answered_by(seconds(1));
        assert!(again.contains(&copy(number + 1, next, 2)), "{again:?}");
    }
    let failed = |why: &str| AgentReport::ReplicaFailed {
        why: why.into(),
        commit: Some(next),
    };
    let last = ended(&mut bench, 3, cut_off());
    assert_eq!(last, [forget(3), Command::AgentReport(failed("cut"))]);
    assert_eq!(reports(bench.answered_by(seconds(5))), []);
    // A shard that is gone does not come back.
    told(&mut bench, 2, cut(None, Some(next), &[2]));
    let gone = reports(ended(&mut bench, 4, Copied::NothingNewer));
    assert_eq!(gone, [failed("the shard is not there any more")]);
}

#[test]
fn the_shards_of_dead_workers_stay_while_a_cut_needs_them() {
    let mut bench = training();
    let (kept, newest) = (commit(1, 2), commit(1, 9));
    told(&mut bench, 1, cut(Some(kept), Some(commit(1, 20)), &[]));
    // The other one stays as the newest commit of a host that lacks the base.
    commits(&mut bench, 0, &[commit(1, 8), kept]);
    commits(&mut bench, 1, &[newest, commit(1, 8)]);
    for slot in 0..2 {
        bench.event(exited(slot, Exit::Signal(9)));
    }
    bench.plan(2, &[]);
    let started = bench.start(2, &[], Some(commit(1, 30)));
    let gone = |slot| Command::Forget {
        process: process(slot, 1),
    };
    assert!(!started.contains(&gone(0)), "it has the complete cut");
    told(&mut bench, 2, cut(Some(commit(1, 20)), None, &[]));
    bench.plan(3, &[]);
    let started = bench.start(3, &[], Some(commit(1, 30)));
    assert!(started.contains(&gone(0)));
}

#[test]
fn an_agent_that_comes_back_says_which_cut_is_complete() {
    let mut bench = Bench::replicating(seconds(1), None);
    assert_eq!(bench.machine.adoption(&bench.memory).cut, None);
    told(
        &mut bench,
        1,
        cut(Some(commit(1, 2)), Some(commit(1, 6)), &[]),
    );
    assert_eq!(
        bench.machine.adoption(&bench.memory).cut,
        Some(commit(1, 2))
    );
}
