//! Replicas: which commits of other hosts are copied, when, and which are kept.

use std::time::Duration;

use elasticrun_core::agent::{Command, Copied, Event, Wanted};
use elasticrun_protocol::{
    AgentCommand, AgentReport, CommitId, HostId, Process, Round,
    control::{Keeper, ReplicaSource},
};

use crate::bench::*;

/// A process that never lived.
fn unborn(number: u32) -> Process {
    process(u32::MAX, number)
}

fn keeper() -> Keeper {
    Keeper {
        host: HostId::new("b"),
        process: process(0, 1),
        address: ([10, 0, 0, 2], 1).into(),
    }
}

fn source(at_once: bool) -> ReplicaSource {
    ReplicaSource {
        keeper: keeper(),
        holders: 5,
        at_once,
    }
}

fn follow(bench: &mut Bench, number: u64, round: u64, base: Option<CommitId>) -> Vec<Command> {
    order(bench, number, round, base, Some(source(false)))
}

fn order(
    bench: &mut Bench,
    number: u64,
    round: u64,
    base: Option<CommitId>,
    source: Option<ReplicaSource>,
) -> Vec<Command> {
    bench.command(AgentCommand::Replicate {
        number,
        round: Round(round),
        planned: Round(round),
        base,
        source,
    })
}

fn copy(number: u32, newer_than: Option<CommitId>) -> Command {
    Command::Replicate {
        process: unborn(number),
        keeper: keeper(),
        wanted: Wanted::Newer(newer_than),
        limit: None,
    }
}

/// A copy is whole: the memory of its process has the commit.
fn copied(bench: &mut Bench, number: u32, commit: CommitId) -> Vec<Command> {
    bench.memory.commits.insert(unborn(number), vec![commit]);
    bench.event(Event::Copied {
        process: unborn(number),
        copied: Copied::Whole {
            commit,
            bytes: 8,
            took: seconds(1),
        },
    })
}

fn failed(bench: &mut Bench, number: u32) -> Vec<Command> {
    bench.event(Event::Copied {
        process: unborn(number),
        copied: Copied::Failed { why: "cut".into() },
    })
}

fn forget(number: u32) -> Command {
    Command::Forget {
        process: unborn(number),
    }
}

fn reported(commit: CommitId) -> Command {
    Command::AgentReport(AgentReport::Replicated {
        commit,
        bytes: 8,
        took: seconds(1),
    })
}

/// What the agent answers to a plan without a member here.
fn answer(bench: &mut Bench, round: u64) -> Vec<(Process, CommitId)> {
    let out = bench.plan(round, &[]);
    let kept = out.into_iter().find_map(|command| match command {
        Command::AgentReport(AgentReport::Ready { kept, .. }) => Some(kept),
        _ => None,
    });
    let kept = kept.expect("it answers").into_iter();
    kept.map(|kept| (kept.process, kept.commits[0])).collect()
}

/// An agent without workers that copies every 10 s, and has a replica of commit 3 of round 1.
fn keeping() -> Bench {
    let mut bench = Bench::replicating(seconds(10), None);
    follow(&mut bench, 1, 1, None);
    bench.pass(seconds(10), true);
    copied(&mut bench, 1, commit(1, 3));
    bench
}

#[test]
fn the_newest_commit_is_copied_once_per_interval_and_replaces_the_last_one() {
    let mut bench = Bench::replicating(seconds(10), None);
    assert_eq!(follow(&mut bench, 1, 1, None), []);
    assert_eq!(bench.pass(seconds(9), true), []);
    assert_eq!(bench.pass(seconds(1), true), [copy(1, None)]);
    assert_eq!(bench.pass(seconds(4), true), [], "one at a time");
    assert_eq!(
        copied(&mut bench, 1, commit(1, 3)),
        [reported(commit(1, 3))]
    );
    assert_eq!(bench.pass(seconds(9), true), []);
    assert_eq!(bench.pass(seconds(1), true), [copy(2, Some(commit(1, 3)))]);
    assert_eq!(
        copied(&mut bench, 2, commit(1, 7)),
        [forget(1), reported(commit(1, 7))],
        "the older one goes when the newer one is whole"
    );
    assert_eq!(answer(&mut bench, 2), [(unborn(2), commit(1, 7))]);
}

#[test]
fn copies_take_at_most_half_of_the_time() {
    let mut bench = keeping();
    bench.pass(seconds(10), true);
    bench.pass(seconds(60), true);
    copied(&mut bench, 2, commit(1, 4));
    assert_eq!(bench.pass(seconds(59), true), []);
    assert_eq!(bench.pass(seconds(1), true), [copy(3, Some(commit(1, 4)))]);
}

#[test]
fn nothing_changes_from_the_answer_to_a_plan_to_the_next_command() {
    let mut bench = keeping();
    assert_eq!(bench.pass(seconds(10), true), [copy(2, Some(commit(1, 3)))]);
    assert_eq!(answer(&mut bench, 2), [(unborn(1), commit(1, 3))]);
    assert_eq!(
        copied(&mut bench, 2, commit(1, 7)),
        [reported(commit(1, 7))],
        "the driver may have chosen the other one"
    );
    assert_eq!(bench.pass(seconds(60), true), []);
    let out = follow(&mut bench, 2, 2, Some(commit(1, 3)));
    assert_eq!(out, [forget(2)], "it was not chosen");
    assert_eq!(
        bench.pass(Duration::ZERO, true),
        [copy(3, Some(commit(1, 3)))]
    );
    assert_eq!(
        copied(&mut bench, 3, commit(2, 1)),
        [forget(1), reported(commit(2, 1))]
    );
}

#[test]
fn an_aborted_plan_changes_nothing_either() {
    let mut bench = keeping();
    answer(&mut bench, 2);
    bench.command(AgentCommand::Abort { round: Round(2) });
    assert_eq!(bench.pass(seconds(60), true), []);
}

#[test]
fn a_copy_of_a_void_commit_is_dropped() {
    let mut bench = keeping();
    bench.pass(seconds(10), true);
    answer(&mut bench, 2);
    follow(&mut bench, 2, 2, Some(commit(1, 3)));
    assert_eq!(
        copied(&mut bench, 2, commit(1, 7)),
        [forget(2)],
        "round 2 began from an older one"
    );
    assert_eq!(answer(&mut bench, 3), [(unborn(1), commit(1, 3))]);
}

#[test]
fn a_copy_that_outlasts_the_start_of_a_round_is_kept() {
    let mut bench = Bench::replicating(seconds(10), None);
    follow(&mut bench, 1, 1, None);
    bench.pass(seconds(10), true);
    answer(&mut bench, 2);
    follow(&mut bench, 2, 2, Some(commit(1, 7)));
    assert_eq!(
        copied(&mut bench, 1, commit(1, 3)),
        [reported(commit(1, 3))],
        "it is older than the base, and not void"
    );
    assert_eq!(bench.pass(seconds(10), true), [copy(2, Some(commit(1, 3)))]);
    assert_eq!(
        copied(&mut bench, 2, commit(2, 1)),
        [forget(1), reported(commit(2, 1))]
    );
}

#[test]
fn a_copy_of_an_earlier_round_than_that_of_the_base_is_dropped() {
    let mut bench = Bench::replicating(seconds(10), None);
    follow(&mut bench, 1, 1, None);
    bench.pass(seconds(10), true);
    answer(&mut bench, 3);
    follow(&mut bench, 2, 3, Some(commit(2, 4)));
    assert_eq!(
        copied(&mut bench, 1, commit(1, 3)),
        [forget(1)],
        "round 2 may have made it void"
    );
}

#[test]
fn a_void_replica_does_not_keep_the_base_away() {
    let mut bench = keeping();
    follow(&mut bench, 2, 2, Some(commit(1, 1)));
    assert_eq!(bench.pass(seconds(10), true), [copy(2, None)]);
    assert_eq!(
        copied(&mut bench, 2, commit(1, 1)),
        [forget(1), reported(commit(1, 1))]
    );
}

#[test]
fn a_source_without_a_newer_commit_is_asked_again() {
    let mut bench = keeping();
    bench.pass(seconds(10), true);
    let nothing = Event::Copied {
        process: unborn(2),
        copied: Copied::NothingNewer,
    };
    assert_eq!(bench.event(nothing), [forget(2)]);
    assert_eq!(bench.pass(seconds(10), true), [copy(3, Some(commit(1, 3)))]);
}

#[test]
fn lasting_failures_are_reported_once() {
    let mut bench = keeping();
    let failure = Command::AgentReport(AgentReport::ReplicaFailed {
        why: "cut".into(),
        commit: None,
    });
    for number in 2..=5 {
        bench.pass(seconds(10), true);
        let expected = match number {
            4 => vec![forget(number), failure.clone()],
            _ => vec![forget(number)],
        };
        assert_eq!(failed(&mut bench, number), expected);
    }
    bench.pass(seconds(10), true);
    copied(&mut bench, 6, commit(1, 4));
    for number in 7..=8 {
        bench.pass(seconds(10), true);
        failed(&mut bench, number);
    }
    bench.pass(seconds(10), true);
    assert_eq!(failed(&mut bench, 9), [forget(9), failure]);
}

#[test]
fn a_commit_has_at_most_half_a_share_of_the_memory_for_commits() {
    let mut bench = Bench::replicating(seconds(10), Some(1000));
    follow(&mut bench, 1, 1, None);
    let out = bench.pass(seconds(10), true);
    let limit = |command: &Command| match command {
        Command::Replicate { limit, .. } => *limit,
        _ => None,
    };
    assert_eq!(out.iter().map(limit).collect::<Vec<_>>(), [Some(100)]);
}

#[test]
fn a_copy_of_a_host_that_will_go_away_begins_at_once() {
    let mut bench = keeping();
    order(&mut bench, 2, 1, None, Some(source(true)));
    assert_eq!(
        bench.pass(Duration::ZERO, true),
        [copy(2, Some(commit(1, 3)))]
    );
}

#[test]
fn a_notice_during_a_copy_is_followed_by_another_one() {
    let mut bench = keeping();
    bench.pass(seconds(10), true);
    order(&mut bench, 2, 1, None, Some(source(true)));
    assert_eq!(bench.pass(seconds(50), true), [], "one at a time");
    copied(&mut bench, 2, commit(1, 4));
    let next = bench.pass(Duration::ZERO, true);
    assert_eq!(next, [copy(3, Some(commit(1, 4)))]);
    assert_eq!(bench.pass(seconds(5), true), []);
    copied(&mut bench, 3, commit(1, 5));
    assert_eq!(bench.pass(seconds(9), true), [], "only once");
}

#[test]
fn a_copy_that_failed_is_repeated_after_the_interval() {
    let mut bench = keeping();
    bench.pass(seconds(10), true);
    bench.pass(seconds(60), true);
    failed(&mut bench, 2);
    assert_eq!(bench.pass(seconds(9), true), []);
    assert_eq!(bench.pass(seconds(1), true), [copy(3, Some(commit(1, 3)))]);
}

#[test]
fn a_copy_of_a_former_source_is_given_up() {
    let mut bench = keeping();
    bench.pass(seconds(10), true);
    answer(&mut bench, 2);
    let mut other = source(false);
    other.keeper.host = HostId::new("c");
    let keeper = other.keeper.clone();
    let out = order(&mut bench, 2, 2, Some(commit(1, 3)), Some(other));
    assert_eq!(out, [forget(2)]);
    let next = Command::Replicate {
        process: unborn(3),
        keeper,
        wanted: Wanted::Newer(Some(commit(1, 3))),
        limit: None,
    };
    assert_eq!(bench.pass(seconds(10), true), [next]);
    assert_eq!(copied(&mut bench, 2, commit(1, 4)), [forget(2)]);
    assert_eq!(
        copied(&mut bench, 3, commit(2, 1)),
        [forget(1), reported(commit(2, 1))]
    );
}

#[test]
fn without_a_source_only_the_base_is_kept() {
    let mut bench = keeping();
    assert_eq!(order(&mut bench, 2, 2, Some(commit(1, 3)), None), []);
    assert_eq!(bench.pass(seconds(60), true), []);
    assert_eq!(
        order(&mut bench, 3, 3, Some(commit(2, 1)), None),
        [forget(1)]
    );
}

#[test]
fn a_copy_that_ends_when_no_replica_is_needed_is_the_last_one() {
    let mut bench = keeping();
    bench.pass(seconds(10), true);
    order(&mut bench, 2, 1, None, None);
    assert_eq!(
        copied(&mut bench, 2, commit(1, 4)),
        [forget(1), reported(commit(1, 4))]
    );
    assert_eq!(bench.pass(seconds(60), true), []);
}

/// A worker of this host is in this round, which begins from this base.
fn becomes_member(bench: &mut Bench, round: u64, base: CommitId) -> Vec<Command> {
    if round == 2 {
        bench.command(spawn(0, 1));
        bench.joins(0, None, true);
        bench.flush();
    }
    bench.plan(round, &[0]);
    bench.start(round, &[0], Some(base))
}

#[test]
fn a_new_member_keeps_its_replica_until_a_worker_has_the_base() {
    let mut bench = keeping();
    let out = becomes_member(&mut bench, 2, commit(1, 9));
    assert!(!out.contains(&forget(1)), "{out:?}");
    let out = bench.pass(seconds(2), true);
    assert!(!out.contains(&forget(1)), "{out:?}");
    let base = vec![commit(1, 9)];
    bench.memory.commits.insert(process(0, 1), base);
    assert_eq!(bench.pass(seconds(1), true), [forget(1)]);
}

#[test]
fn it_keeps_the_replica_over_a_round_that_breaks_before() {
    let mut bench = keeping();
    becomes_member(&mut bench, 2, commit(1, 9));
    bench.command(AgentCommand::Abort { round: Round(2) });
    bench.joins(0, Some(2), true);
    let out = becomes_member(&mut bench, 3, commit(1, 9));
    assert!(!out.contains(&forget(1)), "{out:?}");
    let later = vec![commit(3, 0)];
    bench.memory.commits.insert(process(0, 1), later);
    assert_eq!(bench.pass(seconds(1), true), [forget(1)]);
}

#[test]
fn what_a_plan_was_answered_with_stays() {
    let mut bench = keeping();
    becomes_member(&mut bench, 2, commit(1, 9));
    bench.plan(3, &[0]);
    let base = vec![commit(1, 9)];
    bench.memory.commits.insert(process(0, 1), base);
    assert_eq!(bench.pass(seconds(1), true), []);
    bench.command(AgentCommand::Abort { round: Round(2) });
    bench.joins(0, Some(2), true);
    let out = bench.start(3, &[0], Some(commit(1, 9)));
    assert!(out.contains(&forget(1)), "{out:?}");
}

#[test]
fn a_new_member_keeps_a_valid_commit_rather_than_a_newer_void_one() {
    let mut bench = keeping();
    bench.pass(seconds(10), true);
    bench.command(spawn(0, 1));
    bench.joins(0, None, true);
    bench.flush();
    bench.plan(2, &[0]);
    // Too late for the answer. Round 2 begins from the older one, so this one is void.
    copied(&mut bench, 2, commit(1, 7));
    bench.start(2, &[0], Some(commit(1, 3)));
    bench.command(AgentCommand::Abort { round: Round(2) });
    bench.joins(0, Some(2), true);
    bench.plan(3, &[0]);
    let out = bench.start(3, &[0], Some(commit(2, 4)));
    assert!(out.contains(&forget(2)), "{out:?}");
    assert!(!out.contains(&forget(1)), "{out:?}");
}

#[test]
fn a_heartbeat_names_the_newest_commit_in_memory() {
    let mut bench = keeping();
    let mut out = Vec::new();
    let (now, memory) = (bench.now + seconds(1), &mut bench.memory);
    bench.machine.tick(now, memory, &mut out);
    let beat = out.into_iter().find_map(|command| match command {
        Command::AgentReport(AgentReport::Heartbeat { held, .. }) => Some(held),
        _ => None,
    });
    assert_eq!(beat, Some(Some(commit(1, 3))));
}

#[test]
fn a_repeated_command_changes_nothing() {
    let mut bench = keeping();
    order(&mut bench, 1, 1, None, None);
    assert_eq!(bench.pass(seconds(10), true), [copy(2, Some(commit(1, 3)))]);
}

#[test]
fn a_driver_without_replication_is_told_nothing() {
    let mut bench = Bench::new();
    follow(&mut bench, 1, 1, None);
    assert_eq!(bench.pass(seconds(60), true), []);
}
