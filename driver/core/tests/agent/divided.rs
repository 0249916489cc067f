//! Commits of a state that is divided among workers: each copy may be the only one of its shard.

use std::{collections::BTreeSet, time::Duration};

use elasticrun_core::agent::Command;
use elasticrun_protocol::{
    AgentCommand, AgentReport, CommitId, Process, Round, Shard,
    control::{BaseShards, Exit},
};

use super::bench::{Bench, commit, exited, process, spawn};

const LAYOUT: BaseShards = BaseShards { layout: 7, of: 3 };

fn shard(index: u32) -> Shard {
    let BaseShards { layout, of } = LAYOUT;
    Shard { layout, index, of }
}

/// Three workers in round 1, each with two commits of its shard.
fn training() -> Bench {
    let mut bench = Bench::new();
    for slot in 0..3 {
        bench.command(spawn(slot, 1));
        bench.joins(slot, None, true);
        let process = process(slot, 1);
        bench.memory.shards.insert(process, shard(slot));
    }
    bench.flush();
    bench.plan(1, &[0, 1, 2]);
    bench.start(1, &[0, 1, 2], None);
    for slot in 0..3 {
        commits(&mut bench, slot, &[commit(1, 2), commit(1, 1)]);
    }
    bench
}

fn commits(bench: &mut Bench, slot: u32, newest_first: &[CommitId]) {
    let commits = newest_first.to_vec();
    bench.memory.commits.insert(process(slot, 1), commits);
}

fn dies(bench: &mut Bench, slot: u32) -> Vec<Command> {
    bench.event(exited(slot, Exit::Signal(9)))
}

fn forgotten(commands: &[Command]) -> BTreeSet<Process> {
    let forgotten = commands.iter().filter_map(|command| match command {
        Command::Forget { process } => Some(*process),
        _ => None,
    });
    forgotten.collect()
}

/// The shards of the commits of an answer to a plan, with their ids.
fn answered(commands: &[Command]) -> BTreeSet<(CommitId, u32)> {
    let ready = commands.iter().find_map(|command| match command {
        Command::AgentReport(AgentReport::Ready { members, kept, .. }) => Some((members, kept)),
        _ => None,
    });
    let (members, kept) = ready.expect("all members have come back");
    let members = members
        .iter()
        .filter_map(|held| Some((held.commit?, held.shard.index)));
    let kept = kept.iter().flat_map(|kept| kept.keys());
    members
        .chain(kept.map(|key| (key.commit, key.shard.index)))
        .collect()
}

#[test]
fn all_shards_of_all_commits_are_reported() {
    let mut bench = training();
    dies(&mut bench, 2);
    bench.plan(2, &[0, 1]);
    bench.joins(0, Some(1), true);
    let out = bench.joins(1, Some(1), true);
    let all = (1..=2).flat_map(|count| (0..3).map(move |index| (commit(1, count), index)));
    assert_eq!(answered(&out), all.collect());
}

#[test]
fn each_dead_copy_of_the_base_is_kept_for_the_round_and_not_longer() {
    let mut bench = training();
    bench.base_shards = Some(LAYOUT);
    dies(&mut bench, 1);
    dies(&mut bench, 2);
    bench.joins(0, Some(1), true);
    bench.plan(2, &[0]);
    let out = bench.start(2, &[0], Some(commit(1, 2)));
    assert_eq!(forgotten(&out), BTreeSet::new());
    // It has sealed commit 0 and one more.
    bench.memory.shards.insert(process(0, 1), Shard::default());
    commits(&mut bench, 0, &[commit(2, 1), commit(2, 0)]);
    bench.command(AgentCommand::Abort { round: Round(2) });
    bench.joins(0, Some(2), true);
    bench.plan(3, &[0]);
    bench.base_shards = None;
    let out = bench.start(3, &[0], Some(commit(2, 1)));
    assert_eq!(
        forgotten(&out),
        BTreeSet::from([process(1, 1), process(2, 1)])
    );
}

/// The commits that heartbeats report as sealed by all members.
fn sealed(bench: &mut Bench) -> Option<CommitId> {
    bench.now = bench.now + Duration::from_secs(1);
    let mut out = Vec::new();
    let (now, memory) = (bench.now, &mut bench.memory);
    bench.machine.tick(now, memory, &mut out);
    let mut beats = out.iter().filter_map(|command| match command {
        Command::AgentReport(AgentReport::Heartbeat { sealed, .. }) => Some(*sealed),
        _ => None,
    });
    beats.next_back().expect("it beats")
}

#[test]
fn a_heartbeat_names_the_commit_that_all_members_have_sealed() {
    let mut bench = training();
    assert_eq!(sealed(&mut bench), Some(commit(1, 2)));
    commits(&mut bench, 1, &[commit(1, 3), commit(1, 2)]);
    assert_eq!(sealed(&mut bench), Some(commit(1, 2)));
    commits(&mut bench, 2, &[]);
    assert_eq!(sealed(&mut bench), None, "one has sealed nothing");
}

#[test]
fn a_heartbeat_names_no_commit_of_a_whole_state() {
    let mut bench = training();
    bench.memory.shards.clear();
    assert_eq!(sealed(&mut bench), None);
}

/// The ends of the passing on of parts until the next heartbeat.
fn ends_of_passing(bench: &mut Bench) -> Vec<Round> {
    bench.now = bench.now + Duration::from_secs(1);
    let mut out = Vec::new();
    let (now, memory) = (bench.now, &mut bench.memory);
    bench.machine.tick(now, memory, &mut out);
    let ends = out.iter().filter_map(|command| match command {
        Command::EndPassing { round } => Some(*round),
        _ => None,
    });
    ends.collect()
}

#[test]
fn parts_of_the_base_are_passed_on_until_all_members_have_sealed_the_first_commit() {
    let mut bench = training();
    assert_eq!(ends_of_passing(&mut bench), []);
    bench.base_shards = Some(LAYOUT);
    for slot in 0..3 {
        bench.joins(slot, Some(1), true);
    }
    bench.plan(2, &[0, 1, 2]);
    bench.start(2, &[0, 1, 2], Some(commit(1, 2)));
    for slot in 0..3 {
        assert_eq!(ends_of_passing(&mut bench), [], "slot {slot}");
        commits(&mut bench, slot, &[commit(2, 0), commit(1, 2)]);
    }
    assert_eq!(ends_of_passing(&mut bench), [Round(2)]);
    assert_eq!(ends_of_passing(&mut bench), []);
}
