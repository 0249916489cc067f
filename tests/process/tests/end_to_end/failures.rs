//! Workers, hosts and agents that fail: the others go on from memory, or the job ends with a clear message.

use std::{process::Command, time::Duration};

use elasticrun_process_tests::{Ended, Event, Fault, Job, Kind, Point, What, When, send_signal};
use nix::sys::signal::Signal;

use crate::support::{BOTH, FOUR, USUAL, assert_nothing_lost, at_step, first, on_file, parent_of};

/// Four workers train, rank 0 dies and its host is excluded. The two workers of the other host go on. The driver says how
/// it ended.
fn rank_0_dies(job: Job, what: What, exit: &str) {
    // Rank 0 waits before it dies, so that all others have the last commit and wait for it.
    let faults = [on_file(0, "die", What::Wait), on_file(0, "die", what)];
    let mut job = faults.into_iter().fold(job, Job::fault).start();
    let four = job.wait_training(4, 3);
    job.touch("die");
    job.wait_for("all are at the last step", |events| {
        let last = events.iter().find(|event| event.kind == Kind::Fault)?.step;
        let has = |rank| {
            events
                .iter()
                .any(|e| e.kind == Kind::Step && e.step == last && e.rank == rank)
        };
        (0..4).all(has).then_some(())
    });
    job.touch("release");
    let two = job.wait_training(2, four[0].step + 2);
    assert_eq!(
        (two[0].pid, two[1].pid),
        (four[2].pid, four[3].pid),
        "the old rank 2 is rank 0"
    );
    assert_eq!(two[0].host, "127.0.0.1");
    job.finish();
    let ended = job.end();
    ended.expect(0, &["succeeded", "1 failure"]);
    assert!(ended.stderr.contains(exit), "{}", ended.stderr);
    assert_eq!(ended.sizes(), [4, 2]);
    assert_nothing_lost(&ended.events, 0);
}

#[test]
fn rank_0_dies_by_exception() {
    rank_0_dies(Job::new(FOUR).discovered(BOTH), What::Error, "exit code 1");
}

#[test]
fn rank_0_dies_by_sigkill() {
    rank_0_dies(
        Job::new(FOUR).discovered(BOTH),
        What::Kill,
        "signal 9 (SIGKILL)",
    );
}

#[test]
fn rank_0_dies_by_panic() {
    rank_0_dies(Job::new(FOUR).discovered(BOTH), What::Panic, "exit code 1");
}

#[test]
fn rank_0_dies_by_exception_on_fixed_hosts() {
    rank_0_dies(
        Job::new(FOUR).flag(["-H", "localhost:2,127.0.0.1:2"]),
        What::Error,
        "exit code 1",
    );
}

#[test]
fn rank_0_dies_by_sigkill_on_fixed_hosts() {
    rank_0_dies(
        Job::new(FOUR).flag(["-H", "localhost:2,127.0.0.1:2"]),
        What::Kill,
        "signal 9 (SIGKILL)",
    );
}

/// All four workers reach the same point and die there within a moment, whatever the others do.
fn all_die(restarts: &str) -> Ended {
    let at_ten = |what| {
        let when = When {
            step: Some(10),
            generation: Some(1),
            ..When::default()
        };
        Fault::new(Point::Step, when, what).always()
    };
    let job = Job::new(FOUR).flag(["-H", "localhost:2,127.0.0.1:2", "--max-restarts", restarts]);
    let job = job.fault(at_ten(What::Wait)).fault(at_ten(What::Exit(3)));
    let mut job = job.plan(|plan| plan.steps = Some(40)).start();
    job.wait_for("all are there", |events| {
        (events
            .iter()
            .filter(|event| event.kind == Kind::Fault)
            .count()
            == 4)
            .then_some(())
    });
    job.touch("release");
    job.end()
}

#[test]
fn all_ranks_die_by_themselves_and_the_job_names_the_first() {
    let ended = all_die("0");
    ended.expect(
        1,
        &[
            "all workers failed by themselves",
            "first failure",
            "rank",
            "round 1",
            "exit code 3",
        ],
    );
    assert_eq!(ended.sizes(), [4]);
}

#[test]
fn after_a_restart_the_job_goes_on_from_the_last_commit() {
    let ended = all_die("1");
    ended.expect(0, &["succeeded"]);
    assert_eq!(ended.sizes(), [4, 4]);
    let again = &ended.rounds()[1];
    assert!(
        again
            .iter()
            .all(|event| event.generation == 2 && event.step == 10),
        "{again:?}"
    );
    assert_nothing_lost(&ended.events, 0);
}

#[test]
fn a_mistake_of_the_script_ends_the_job_once_it_fails_on_every_host() {
    let flags = "-np 4 --min-np 2 --max-np 4 -H localhost:2,127.0.0.1:2 --blacklist-cooldown-range 100ms 400ms";
    let when = When {
        rank: Some(0),
        step: Some(10),
        ..When::default()
    };
    let raises = Fault::new(Point::Step, when, What::Exit(3)).always();
    let ended = Job::new(flags).fault(raises).run();
    ended.expect(
        1,
        &[
            "workers failed by themselves on every host, and no round left a commit",
            "exit code 3",
        ],
    );
    // The first round left commits. Two more show that the script fails, or three if both hosts were back for one
    // of them.
    let rounds = ended.sizes().len();
    assert!((3..=4).contains(&rounds), "{rounds} rounds");
}

#[test]
fn one_rank_of_each_host_dies_and_no_host_is_left() {
    // The job ends at once: each timeout is longer than the harness waits.
    let mut job = Job::new(FOUR)
        .flag(["-H", "localhost:2,127.0.0.1:2"])
        .flag(["--heartbeat-timeout", "60s", "--orphan-timeout", "60s"])
        .start();
    let four = job.wait_training(4, 3);
    send_signal(four[1].pid, Signal::SIGKILL);
    send_signal(four[2].pid, Signal::SIGKILL);
    let ended = job.end();
    ended.expect(1, &["all hosts are out for good", "signal 9"]);
    assert_eq!(ended.sizes()[0], 4);
}

#[test]
fn too_few_are_left_and_nobody_comes() {
    let flags = "-np 4 --min-np 4 --max-np 4 -H localhost:2,127.0.0.1:2 --blacklist forever --elastic-timeout 1s";
    let ended = Job::new(flags).fault(at_step(3, 5, What::Kill)).run();
    ended.expect(
        3,
        &["2 usable slots, 4 needed", "--elastic-timeout", "signal 9"],
    );
    let died = first(&ended.events, Kind::Fault);
    assert_eq!((died.rank, ended.sizes()), (3, vec![4]));
}

fn grows_and_shrinks(limit: &str) -> Ended {
    let mut job = Job::new(USUAL)
        .flag(["--reset-limit", limit])
        .discovered("localhost:2\n")
        .start();
    job.wait_training(2, 3);
    job.set_hosts(BOTH);
    job.wait_training(4, 3);
    job.set_hosts("127.0.0.1:2\n");
    if limit == "2" {
        job.wait_for("the third round", |events| {
            events
                .iter()
                .any(|e| e.size == 2 && e.rank == 0 && e.host == "127.0.0.1")
                .then_some(())
        });
        job.finish();
    }
    job.end()
}

#[test]
fn one_reset_too_many() {
    let ended = grows_and_shrinks("1");
    ended.expect(4, &["--reset-limit 1"]);
    assert_eq!(ended.sizes(), [2, 4]);
}

#[test]
fn as_many_resets_as_are_allowed() {
    let ended = grows_and_shrinks("2");
    ended.expect(0, &["succeeded"]);
    assert_eq!(ended.sizes(), [2, 4, 2]);
}

#[test]
fn the_second_cooldown_is_longer_and_the_host_is_used_when_it_ends() {
    let flags =
        "-np 2 --min-np 2 --max-np 2 -H localhost:1,127.0.0.1:1 --blacklist-cooldown-range 1s 4s";
    let dies = |file: &str| {
        let when = When {
            host: Some("127.0.0.1".into()),
            file: Some(file.into()),
            ..When::default()
        };
        Fault::new(Point::Step, when, What::Kill)
    };
    let mut job = Job::new(flags)
        .fault(dies("once"))
        .fault(dies("twice"))
        .start();
    job.wait_training(2, 3);
    job.touch("once");
    let second = job.wait_for("the second start of the slot", |events| {
        events
            .iter()
            .find(|e| e.kind == Kind::Step && e.host == "127.0.0.1" && e.generation == 2)
            .cloned()
    });
    job.touch("twice");
    job.wait_for("the third start of the slot", |events| {
        events
            .iter()
            .find(|e| e.kind == Kind::Step && e.host == "127.0.0.1" && e.generation == 3)
            .cloned()
    });
    job.finish();
    let ended = job.end();
    ended.expect(0, &["succeeded", "2 failures"]);
    assert_eq!(ended.sizes(), [2, 2, 2]);
    assert_eq!(second.rank, 1, "a host that was out returns at the end");
    let at = |kind, generation| {
        let of = |event: &&Event| {
            event.kind == kind && event.host == "127.0.0.1" && event.generation == generation
        };
        Duration::from_nanos(ended.events.iter().find(of).unwrap().at)
    };
    let first_wait = at(Kind::Begin, 2) - at(Kind::Fault, 1);
    let second_wait = at(Kind::Begin, 3) - at(Kind::Fault, 2);
    // The core's tests check exact cooldowns. Here both starts come, and none too early.
    assert!(first_wait >= Duration::from_secs(1), "{first_wait:?}");
    assert!(second_wait >= Duration::from_secs(2), "{second_wait:?}");
}

#[test]
fn a_second_failure_while_the_next_round_is_formed() {
    // Rank 2 is busy in its step and does not learn of the first failure. Rank 3 dies meanwhile.
    let busy = Fault::new(
        Point::Step,
        When {
            rank: Some(2),
            file: Some("busy".into()),
            ..When::default()
        },
        What::Wait,
    );
    let flags = "-np 4 --min-np 2 --max-np 4 -H localhost:2,127.0.0.1:2 --failure-domain slot --blacklist forever";
    let mut job = Job::new(flags).fault(busy).start();
    let four = job.wait_training(4, 3);
    job.touch("busy");
    let busy = job.wait_for("rank 2 is busy", |events| {
        events.iter().find(|e| e.kind == Kind::Fault).map(|e| e.pid)
    });
    assert_eq!(busy, four[2].pid);
    send_signal(four[1].pid, Signal::SIGKILL);
    job.wait_for("rank 3 has left", |events| {
        events
            .iter()
            .any(|e| e.kind == Kind::Left && e.pid == four[3].pid)
            .then_some(())
    });
    send_signal(four[3].pid, Signal::SIGKILL);
    job.wait_said("worker failed on 127.0.0.1 (local rank 1, rank 3 of round 1)");
    job.touch("release");
    let two = job.wait_training(2, four[0].step + 1);
    assert_eq!((two[0].pid, two[1].pid), (four[0].pid, four[2].pid));
    job.finish();
    let ended = job.end();
    ended.expect(0, &["succeeded", "2 failures"]);
    assert_eq!(ended.sizes(), [4, 2], "no round began in between");
    assert_nothing_lost(&ended.events, 0);
}

#[test]
fn the_oldest_worker_dies_while_a_newcomer_is_synced() {
    let dies = Fault::new(
        Point::Save,
        When {
            round: Some(2),
            rank: Some(0),
            ..When::default()
        },
        What::Kill,
    );
    let flags = "-np 1 --min-np 1 --max-np 2 --blacklist forever";
    let mut job = Job::new(flags)
        .discovered("localhost:1\n")
        .fault(dies)
        .start();
    let old = job.wait_training(1, 5);
    job.set_hosts("localhost:1\n127.0.0.1:1\n");
    let new = job.wait_for("the newcomer trains alone", |events| {
        events
            .iter()
            .find(|e| e.kind == Kind::Step && e.host == "127.0.0.1" && e.size == 1)
            .cloned()
    });
    assert!(new.step > old[0].step, "the training is not lost: {new:?}");
    job.finish();
    let ended = job.end();
    ended.expect(0, &["succeeded", "1 failure"]);
    assert_nothing_lost(&ended.events, 0);
}

#[test]
fn a_killed_agent_takes_its_workers_and_nobody_elses() {
    let mut job = Job::new(FOUR)
        .flag(["-H", "localhost:2,127.0.0.1:2"])
        .start();
    let four = job.wait_training(4, 3);
    let parent = parent_of(four[0].pid);
    send_signal(parent, Signal::SIGKILL);
    let two = job.wait_training(2, four[0].step + 1);
    assert_eq!((two[0].pid, two[1].pid), (four[2].pid, four[3].pid));
    job.finish();
    let ended = job.end();
    ended.expect(0, &["succeeded"]);
    assert!(
        ended.stderr.contains("host localhost failed"),
        "{}",
        ended.stderr
    );
    assert_eq!(ended.sizes(), [4, 2]);
}

#[test]
fn all_agents_die_and_no_state_is_left() {
    let flags = "-np 2 --min-np 1 --max-np 2 -H localhost:1,127.0.0.1:1 --blacklist-cooldown-range 200ms 1s";
    let mut job = Job::new(flags).start();
    let two = job.wait_training(2, 3);
    let agents: Vec<_> = two.iter().map(|event| parent_of(event.pid)).collect();
    // The driver gets both losses at once. Otherwise the second worker might go on alone before its agent is
    // killed.
    let driver = job.driver();
    send_signal(driver, Signal::SIGSTOP);
    job.wait_for("the driver is stopped", |_| {
        let stat = std::fs::read_to_string(format!("/proc/{driver}/stat")).unwrap_or_default();
        stat.contains(") T ").then_some(())
    });
    for agent in agents {
        send_signal(agent, Signal::SIGKILL);
    }
    send_signal(driver, Signal::SIGCONT);
    let ended = job.end();
    ended.expect(6, &["no host in reach holds a complete commit"]);
    assert_eq!(ended.sizes(), [2]);
}

/// The second worker dies while no worker trains, since the job waits for the slot of the first.
fn both_die_one_after_the_other(restarts: &str) -> Ended {
    let flags = "-np 2 --min-np 2 --max-np 2 -H localhost:2 --blacklist-cooldown-range 300ms 2s";
    let mut job = Job::new(flags).flag(["--max-restarts", restarts]).start();
    let two = job.wait_training(2, 5);
    send_signal(two[0].pid, Signal::SIGKILL);
    job.wait_for("the other has left", |events| {
        events
            .iter()
            .any(|e| e.kind == Kind::Left && e.pid == two[1].pid)
            .then_some(())
    });
    send_signal(two[1].pid, Signal::SIGKILL);
    if restarts != "0" {
        job.wait_for("two new workers train", |events| {
            let new = |rank| {
                events
                    .iter()
                    .any(|e| e.kind == Kind::Step && e.generation == 2 && e.rank == rank)
            };
            (new(0) && new(1)).then_some(())
        });
        job.finish();
    }
    job.end()
}

#[test]
fn the_last_member_dies_while_the_job_waits_for_slots() {
    both_die_one_after_the_other("0").expect(
        1,
        &["all workers failed by themselves", "rank 0", "signal 9"],
    );
}

#[test]
fn after_a_restart_the_commit_of_the_dead_is_the_base() {
    let ended = both_die_one_after_the_other("1");
    ended.expect(0, &["succeeded"]);
    assert_nothing_lost(&ended.events, 0);
}

#[test]
fn a_standard_job_ends_at_the_first_failure() {
    let ended = Job::new("-np 2 -H localhost:2")
        .fault(at_step(1, 5, What::Exit(9)))
        .run();
    ended.expect(
        1,
        &[
            "a worker failed",
            "host localhost",
            "local rank 1",
            "rank 1",
            "round 1",
            "exit code 9",
        ],
    );
    assert_eq!(ended.sizes(), [2]);
}

#[test]
fn a_process_that_dies_before_it_waits_costs_nobody_a_round() {
    let dies = Fault::new(
        Point::Begin,
        When {
            local_rank: Some(1),
            ..When::default()
        },
        What::Exit(4),
    );
    let flags = "-np 2 --min-np 1 --max-np 3 -H localhost:3 --blacklist forever";
    let mut job = Job::new(flags).fault(dies).start();
    job.wait_training(2, 20);
    job.finish();
    let ended = job.end();
    ended.expect(0, &["succeeded", "1 failure"]);
    assert_eq!(ended.sizes(), [2]);
}

/// Makes the process unable to open anything from now on.
fn exhaust_descriptors(pid: u32) {
    let limited = Command::new("prlimit")
        .args(["--nofile=3:3", "--pid", &pid.to_string()])
        .status();
    assert!(limited.expect("prlimit can be run").success());
}

#[test]
fn a_host_whose_agent_is_out_of_descriptors_is_failed_and_the_others_go_on() {
    let mut job = Job::new("-np 3 --min-np 1 --blacklist forever --last-call 200ms")
        .discovered("localhost:1\n127.0.0.1:2\n")
        .start();
    let three = job.wait_training(3, 3);
    assert_eq!(three[0].host, "localhost");
    exhaust_descriptors(parent_of(three[1].pid));
    job.set_hosts("localhost:2\n127.0.0.1:2\n");
    job.wait_said("host 127.0.0.1 failed");
    let alone = job.wait_training(2, three[0].step + 1);
    assert!(alone.iter().all(|event| event.host == "localhost"));
    assert_eq!(alone[0].pid, three[0].pid, "the worker goes on from memory");
    job.finish();
    let ended = job.end();
    ended.expect(0, &["succeeded"]);
    assert!(
        ended.stderr.contains("Too many open files"),
        "{}",
        ended.stderr
    );
    assert_nothing_lost(&ended.events, 0);
}
