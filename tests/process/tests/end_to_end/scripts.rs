//! Scripts without the SDK in an elastic job: their processes start, end and restart as a group.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    time::{Duration, Instant},
};

use elasticrun_process_tests::{Ended, Job, Running, send_signal};
use nix::sys::signal::Signal;

use crate::support::parent_of;

/// The line that each worker records at its start.
const SAY: &str = "echo group $MASTER_PORT $RANK $WORLD_SIZE $TORCHELASTIC_RESTART_COUNT $$ >> $PROCESS_TEST_DIR/said;";

/// A worker as recorded at its start.
#[derive(Clone, Debug)]
struct Member {
    rank: u32,
    size: usize,
    restarts: u32,
    pid: u32,
}

/// Waits until all members of the group have recorded their start.
const ALL: &str = "until [ $(grep -c \"^group $MASTER_PORT\" $PROCESS_TEST_DIR/said) = $WORLD_SIZE ]; do sleep 0.05; done;";

fn job(flags: &str, script: &str) -> Job {
    let script = format!("{SAY} {script}");
    Job::new(flags).command(["sh", "-c", &script])
}

/// Members by the port of their group, groups in the order of their starts.
fn groups(text: &str) -> Vec<Vec<Member>> {
    let mut order = Vec::new();
    let mut groups: BTreeMap<&str, Vec<Member>> = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with("group ")) {
        let words: Vec<_> = line.split_whitespace().collect();
        let number = |index: usize| words[index].parse().expect("a number");
        let member = Member {
            rank: number(2),
            size: number(3) as usize,
            restarts: number(4),
            pid: number(5),
        };
        let group = groups.entry(words[1]).or_default();
        if group.is_empty() {
            order.push(words[1]);
        }
        group.push(member);
    }
    let all: Vec<_> = order.iter().map(|port| groups[port].clone()).collect();
    for group in &all {
        let size = group[0].size;
        assert!(group.iter().all(|member| member.size == size), "{group:?}");
        let ranks: BTreeSet<_> = group.iter().map(|member| member.rank).collect();
        assert!(
            ranks.len() == group.len() && group.len() <= size,
            "{group:?}"
        );
    }
    all
}

fn groups_of(ended: &Ended) -> Vec<Vec<Member>> {
    groups(&fs::read_to_string(ended.path("said")).expect("workers record their start"))
}

/// Number of recorded members of each group.
fn sizes(groups: &[Vec<Member>]) -> Vec<usize> {
    groups.iter().map(Vec::len).collect()
}

fn wait_group(running: &mut Running, number: usize, size: usize) -> Vec<Member> {
    let path = running.path("said");
    running.wait_for(&format!("group {number} of {size} workers"), |_| {
        let all = groups(&fs::read_to_string(&path).unwrap_or_default());
        all.get(number - 1)
            .filter(|group| group.len() == size)
            .cloned()
    })
}

#[test]
fn a_script_may_run_longer_than_the_start_timeout() {
    let ended = job("-np 2 --min-np 1 --start-timeout 1s", "sleep 3").run();
    ended.expect(0, &["succeeded"]);
    assert_eq!(sizes(&groups_of(&ended)), [2]);
}

#[test]
fn a_worker_that_fails_without_a_restart_fails_the_job_at_once() {
    let began = Instant::now();
    let ended = job(
        "-np 4 --min-np 2 --restart-mode process",
        "[ $RANK = 1 ] && exit 7; sleep 100",
    )
    .run();
    ended.expect(1, &["no restart is left", "rank 1", "exit code 7"]);
    assert!(began.elapsed() < Duration::from_secs(20));
    assert_eq!(groups_of(&ended).len(), 1);
}

#[test]
fn some_that_fail_beside_some_that_succeed_are_no_success() {
    let script = "[ $((RANK % 2)) = 1 ] && exit 3; exit 0";
    let ended = job("-np 4 --min-np 2", script).run();
    ended.expect(1, &["exit code 3"]);
}

#[test]
fn survivors_that_hang_are_ended_and_the_next_group_has_another_port() {
    let script =
        "[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0; [ $RANK = 1 ] && exit 7; sleep 100";
    let ended = job("-np 3 --max-restarts 1", &format!("{ALL} {script}")).run();
    ended.expect(0, &["succeeded through 1 failure"]);
    let groups = groups_of(&ended);
    assert_eq!(sizes(&groups), [3, 3], "{}", ended.stderr);
    assert!(groups[1].iter().all(|member| member.restarts == 1));
    for text in ["no worker has attached to elasticrun", "restart 1 of 1"] {
        assert!(ended.stderr.contains(text), "{}", ended.stderr);
    }
}

#[test]
fn a_survivor_that_ignores_sigterm_is_killed_before_the_next_group() {
    let script = "[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0; cd $PROCESS_TEST_DIR; \
                  [ $RANK = 1 ] && { until [ -e deaf ]; do sleep 0.05; done; exit 7; }; \
                  trap '' TERM; touch deaf; while :; do sleep 1; done";
    let ended = job(
        "-np 2 --min-np 2 --restart-mode process --max-restarts 1",
        script,
    )
    .flag(["--blacklist-cooldown-range", "0", "0"])
    .run();
    ended.expect(0, &["succeeded"]);
    assert_eq!(sizes(&groups_of(&ended)), [2, 2]);
}

#[test]
fn restarts_are_counted_and_then_the_job_fails() {
    let ended = job(
        "-np 2 --max-restarts 2",
        "[ $RANK = 0 ] && exit 3; sleep 100",
    )
    .run();
    ended.expect(1, &["--max-restarts 2", "rank 0", "exit code 3"]);
    let restarts: Vec<_> = groups_of(&ended).iter().map(|g| g[0].restarts).collect();
    assert_eq!(restarts, [0, 1, 2]);
}

#[test]
fn growth_and_removal_restart_the_group_once_each_and_count_as_no_restart() {
    let script = "until [ -e $PROCESS_TEST_DIR/finish ]; do sleep 0.05; done";
    let flags = "-np 1 --min-np 1 --restart-mode process";
    let mut running = job(flags, script).discovered("localhost:1\n").start();
    wait_group(&mut running, 1, 1);
    running.set_hosts("localhost:2\n127.0.0.1:1\n");
    wait_group(&mut running, 2, 3);
    running.set_hosts("localhost:2\n");
    wait_group(&mut running, 3, 2);
    running.finish();
    let ended = running.end();
    ended.expect(0, &["succeeded"]);
    let groups = groups_of(&ended);
    assert_eq!(sizes(&groups), [1, 3, 2]);
    assert!(groups.iter().flatten().all(|member| member.restarts == 0));
}

#[test]
fn a_host_that_is_lost_restarts_the_group_without_it() {
    let script = "until [ -e $PROCESS_TEST_DIR/finish ]; do sleep 0.05; done";
    let flags = "-np 2 --min-np 1 -H localhost:1,127.0.0.1:1 --blacklist forever";
    let mut running = job(flags, script).start();
    let members = wait_group(&mut running, 1, 2);
    let agent = parent_of(members.iter().find(|m| m.rank == 1).expect("rank 1").pid);
    send_signal(agent, Signal::SIGKILL);
    let alone = wait_group(&mut running, 2, 1);
    assert_eq!(alone[0].restarts, 0, "a host that is lost uses no restart");
    running.finish();
    running.end().expect(0, &["succeeded"]);
}
