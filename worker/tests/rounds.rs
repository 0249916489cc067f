//! A worker in rounds, against an agent that the test plays.

mod common;

use std::time::Instant;

use common::{
    Agent, BEAT, BaseLocation, Offer, Worker, id, start, start_from, start_on_separate_hosts,
    wait_until,
};
use elasticrun_protocol::{Boundary, FromWorker, Round, ToWorker, control::StopReason};
use elasticrun_shm::page::Phase;
use nix::{
    sys::{
        signal::{Signal, kill},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};

const FAILED: &str = "a worker of the round failed: return this error to run(), which continues from the newest commit";
const UPDATED: &str =
    "the hosts of the job change: return this error to run(), which continues in the next round";

/// Not a test: the worker process of the other tests.
#[test]
#[ignore = "run by the other tests"]
fn a_worker() {
    std::process::exit(common::scripted_worker());
}

/// Not a test: the worker process of one of the tests.
#[test]
#[ignore = "run by the other tests"]
fn a_careless_worker() {
    std::process::exit(common::careless());
}

/// Ends the round of a worker that waits for a call, as an agent does.
fn lose(worker: &mut Worker, round: u64) {
    worker.page.abort(Round(round));
    worker.abort(round);
    assert_eq!(worker.run("check"), FAILED);
    assert!(matches!(worker.join(), (Some(left), true, _) if left == Round(round)));
}

/// Waits until the SDK's thread has read its messages, which is the case after further heartbeats.
fn wait_until_read(worker: &Worker) {
    let beats = worker.page.beats();
    wait_until("it beats", || worker.page.beats() > beats + 1);
}

/// Stops all threads of a worker.
fn stop(worker: &Worker) -> Pid {
    let stopped_worker = Pid::from_raw(worker.child.id().cast_signed());
    kill(stopped_worker, Signal::SIGSTOP).expect("it lives");
    // Threads may run for a short time after the signal was sent.
    let stopped = waitpid(stopped_worker, Some(WaitPidFlag::WUNTRACED)).expect("our child");
    assert_eq!(
        stopped,
        WaitStatus::Stopped(stopped_worker, Signal::SIGSTOP)
    );
    stopped_worker
}

#[test]
fn a_first_round_begins_with_the_state_of_rank_0_and_ends_well() {
    let agent = Agent::new();
    let (mut a, mut b) = (agent.worker(0), agent.worker(1));
    assert_eq!(a.page.phase(), Phase::Waiting);
    start(&mut [&mut a, &mut b], 1, None);
    assert_eq!(
        a.next_line(),
        "round 1 rank 0 of 2 value 0 restored 0 reset 1"
    );
    assert_eq!(
        b.next_line(),
        "round 1 rank 1 of 2 value 0 restored 1 reset 1"
    );
    assert_eq!((a.newest(), b.newest()), (Some(id(1, 0)), Some(id(1, 0))));
    assert_eq!(a.page.phase(), Phase::Training);
    for worker in [&mut a, &mut b] {
        assert_eq!(worker.run("add 5"), "value 5");
        assert_eq!(worker.run("commit"), "committed 1.1.1");
        assert_eq!(worker.committed(id(1, 1)), 5);
        assert_eq!(worker.page.count(Round(1)), Boundary(1));
        assert_eq!(worker.page.commits(), 1);
    }
    a.send_command("sum");
    b.send_command("sum");
    assert_eq!(
        (a.next_line(), b.next_line()),
        ("sum 2".into(), "sum 2".into())
    );
    for worker in [&mut a, &mut b] {
        worker.send_command("return");
        assert_eq!(worker.receive(), FromWorker::Finished { round: Round(1) });
        assert_eq!(worker.next_line(), "done");
        assert!(worker.end().success());
        assert_eq!(worker.page.phase_at_exit(), Some(Phase::Finished));
    }
}

#[test]
fn a_worker_encrypts_as_its_agent_says() {
    let agent = Agent::new();
    let offer = |encrypt_data| Offer {
        encrypt_data,
        ..Offer::default()
    };
    let mut a = agent.worker_with(0, "a_worker", offer(true));
    let mut b = agent.worker_with(1, "a_worker", offer(true));
    start_on_separate_hosts(&mut [&mut a, &mut b], 1, None);
    a.next_line();
    b.next_line();
    a.send_command("sum");
    assert_eq!(b.run("sum"), "sum 2");
    assert_eq!(a.next_line(), "sum 2");
    // A worker that does not encrypt forms no round with it.
    lose(&mut a, 1);
    let mut c = agent.worker_with(2, "a_worker", offer(false));
    start_on_separate_hosts(&mut [&mut a, &mut c], 2, Some(id(1, 0)));
    let ended = c.next_line();
    assert!(ended.contains("another view of the round"), "{ended}");
}

#[test]
fn a_commit_that_an_agent_copies_stays_while_the_worker_commits() {
    let agent = Agent::new();
    let offer = Offer {
        buffers: 3,
        ..Offer::default()
    };
    let mut a = agent.worker_with(0, "a_worker", offer);
    start(&mut [&mut a], 1, None);
    a.next_line();
    a.run("add 5");
    a.run("commit");
    let pinned = a.commits.pin(id(1, 1)).unwrap();
    for count in 2..8 {
        a.run("add 1");
        assert_eq!(a.run("commit"), format!("committed {}", id(1, count)));
        assert_eq!(a.committed(id(1, count)), 4 + count);
    }
    assert_eq!(pinned.bytes(), 5_u64.to_le_bytes());
}

#[test]
fn a_worker_that_exceeds_its_share_of_the_memory_for_commits_goes_on() {
    let agent = Agent::new();
    let offer = Offer {
        buffers: 3,
        commit_memory: Some(6_000),
        ..Offer::default()
    };
    let mut a = agent.worker_with(0, "a_worker", offer);
    start(&mut [&mut a], 1, None);
    a.next_line();
    a.run("add 5");
    for count in 1..4 {
        assert_eq!(a.run("commit"), format!("committed {}", id(1, count)));
        assert_eq!(a.committed(id(1, count)), 5);
    }
}

#[test]
fn an_abort_ends_a_collective_at_once_and_the_state_goes_back_to_the_base() {
    let agent = Agent::new();
    let (mut a, mut b) = (agent.worker(0), agent.worker(1));
    // Over TCP, where no shared region can end the wait.
    start_on_separate_hosts(&mut [&mut a, &mut b], 1, None);
    a.next_line();
    b.next_line();
    a.run("add 5");
    a.run("commit");
    a.run("add 100");
    a.send_command("sum");
    a.abort(1);
    assert_eq!(a.next_line(), FAILED);
    assert_eq!(a.join(), (Some(Round(1)), true, Some(id(1, 1))));
    // The other worker got no abort. It notices the lost peer in its next call. Data that a had
    // sent before may complete one call.
    let line = b.run("sum");
    assert!(
        line == FAILED || (line == "sum 2" && b.run("sum") == FAILED),
        "{line}"
    );
    assert_eq!(b.join(), (Some(Round(1)), false, Some(id(1, 0))));
    start(&mut [&mut a, &mut b], 3, Some(id(1, 1)));
    assert_eq!(
        a.next_line(),
        "round 3 rank 0 of 2 value 5 restored 1 reset 2"
    );
    assert_eq!(
        b.next_line(),
        "round 3 rank 1 of 2 value 5 restored 2 reset 2"
    );
    assert_eq!(b.newest(), Some(id(1, 1)));
}

#[test]
fn an_abort_that_came_before_a_call_is_seen_by_it() {
    let agent = Agent::new();
    for call in ["commit", "check", "barrier"] {
        let mut worker = agent.worker(0);
        start(&mut [&mut worker], 1, None);
        worker.next_line();
        // The page is set as the agent does. The message comes later.
        worker.page.abort(Round(1));
        if call == "barrier" {
            worker.abort(1);
            wait_until_read(&worker);
        }
        assert_eq!(worker.run(call), FAILED, "{call}");
        let newest = id(1, u64::from(call == "commit"));
        assert_eq!(worker.join(), (Some(Round(1)), true, Some(newest)));
    }
}

#[test]
fn a_commit_that_a_worker_is_on_its_way_to_is_made_although_the_round_is_over() {
    let agent = Agent::new();
    let (mut a, mut b) = (agent.worker(0), agent.worker(1));
    start(&mut [&mut a, &mut b], 1, None);
    a.next_line();
    b.next_line();
    for worker in [&mut a, &mut b] {
        worker.run("add 5");
        worker.page.abort(Round(1));
        worker.abort(1);
        wait_until_read(worker);
        assert_eq!(worker.run("commit"), FAILED);
        assert_eq!(worker.join(), (Some(Round(1)), true, Some(id(1, 1))));
    }
    start(&mut [&mut a, &mut b], 2, Some(id(1, 1)));
    assert_eq!(
        a.next_line(),
        "round 2 rank 0 of 2 value 5 restored 1 reset 2"
    );
    assert_eq!(
        b.next_line(),
        "round 2 rank 1 of 2 value 5 restored 2 reset 2"
    );
}

#[test]
fn a_commit_behind_a_call_that_was_cut_short_is_refused() {
    let agent = Agent::new();
    let (mut a, mut b) = (agent.worker(0), agent.worker(1));
    start(&mut [&mut a, &mut b], 1, None);
    a.next_line();
    b.next_line();
    a.run("add 5");
    a.send_command("insist");
    a.abort(1);
    assert_eq!(a.next_line(), FAILED);
    assert_eq!(a.join(), (Some(Round(1)), true, Some(id(1, 0))));
    // It commits again in the next round.
    lose(&mut b, 1);
    start(&mut [&mut a, &mut b], 2, Some(id(1, 0)));
    assert!(a.next_line().starts_with("round 2 rank 0 of 2 value 0 "));
    assert_eq!(a.run("commit"), "committed 1.2.1");
}

#[test]
fn a_commit_of_a_worker_that_was_told_to_stop_is_refused() {
    let agent = Agent::new();
    let mut worker = agent.worker(0);
    start(&mut [&mut worker], 1, None);
    worker.next_line();
    let why = StopReason::Removed;
    worker.send(&ToWorker::Stop { why }, &[]);
    wait_until_read(&worker);
    let removed =
        "this worker's slot is no longer part of the job (its rank is -1): the process can end";
    assert_eq!(worker.run("commit"), removed);
    assert_eq!(worker.newest(), Some(id(1, 0)));
}

#[test]
fn a_round_that_is_over_before_it_begins_is_left_at_once() {
    let agent = Agent::new();
    let (mut a, mut b) = (agent.worker(0), agent.worker(1));
    start(&mut [&mut a, &mut b], 1, None);
    a.next_line();
    b.next_line();
    lose(&mut a, 1);
    lose(&mut b, 1);
    // Only a learns of round 2, then of its end.
    let mut other = agent.worker(2);
    let (page, round) = (a.page.clone(), Round(2));
    // It is stopped until the round is over, so that the two cannot begin it.
    let stopped_worker = stop(&other);
    start_on_separate_hosts(&mut [&mut a, &mut other], 2, Some(id(1, 0)));
    page.abort(round);
    a.abort(2);
    assert_eq!(a.join().0, Some(Round(2)));
    other.abort(2);
    kill(stopped_worker, Signal::SIGCONT).unwrap();
    assert_eq!(other.join().0, Some(Round(2)));
    // A late abort of an old round changes nothing.
    start(&mut [&mut a], 3, Some(id(1, 0)));
    a.abort(1);
    a.abort(2);
    assert_eq!(
        a.next_line(),
        "round 3 rank 0 of 1 value 0 restored 1 reset 2"
    );
    assert_eq!(a.run("barrier"), "passed");
}

#[test]
fn all_leave_at_the_same_boundary_which_is_a_commit_and_nothing_is_restored() {
    let agent = Agent::new();
    let (mut a, mut b) = (agent.worker(0), agent.worker(1));
    start(&mut [&mut a, &mut b], 1, None);
    a.next_line();
    b.next_line();
    a.run("add 7");
    b.run("add 7");
    assert_eq!(a.run("check"), "checked");
    // a is at boundary 1, b at 0: K is 2.
    let counts = [&a, &b].map(|worker| worker.page.hold(Round(1)).unwrap());
    assert_eq!(counts, [Boundary(1), Boundary(0)]);
    a.send_command("check");
    b.send_command("check");
    wait_until("b waits", || b.page.count(Round(1)) == Boundary(1));
    for worker in [&a, &b] {
        assert!(worker.page.set_leave_at(Round(1), Boundary(2)));
    }
    assert_eq!(b.next_line(), "checked");
    b.send_command("check");
    for worker in [&mut a, &mut b] {
        assert_eq!(worker.next_line(), UPDATED);
        assert_eq!(worker.join(), (Some(Round(1)), true, Some(id(1, 1))));
        assert_eq!(worker.committed(id(1, 1)), 7);
    }
    start(&mut [&mut b, &mut a], 2, Some(id(1, 1)));
    assert_eq!(
        b.next_line(),
        "round 2 rank 0 of 2 value 7 restored 1 reset 2"
    );
    assert_eq!(
        a.next_line(),
        "round 2 rank 1 of 2 value 7 restored 0 reset 2"
    );
    assert_eq!(a.run("commit"), "committed 1.2.1");
}

#[test]
fn newcomers_and_members_that_committed_something_else_get_what_rank_0_has() {
    let agent = Agent::new();
    let (mut a, mut b) = (agent.worker(0), agent.worker(1));
    start(&mut [&mut a, &mut b], 1, None);
    a.next_line();
    b.next_line();
    a.run("add 1");
    b.run("add 2");
    a.run("commit");
    b.run("commit");
    // This void commit is forgotten.
    b.run("add 4");
    b.run("commit");
    lose(&mut a, 1);
    lose(&mut b, 1);
    let mut c = agent.worker(2);
    start(&mut [&mut a, &mut b, &mut c], 2, Some(id(1, 1)));
    for worker in [&mut a, &mut b, &mut c] {
        assert!(worker.next_line().contains(" value 1 "));
        assert_eq!(worker.newest(), Some(id(1, 1)));
        assert_eq!(worker.committed(id(1, 1)), 1);
    }
}

#[test]
fn a_dead_process_of_this_host_keeps_the_base() {
    let agent = Agent::new();
    let mut dead = agent.worker(0);
    start(&mut [&mut dead], 1, None);
    dead.next_line();
    dead.run("add 9");
    dead.run("commit");
    dead.child.kill().unwrap();
    dead.end();
    let (mut a, mut b) = (agent.worker(0), agent.worker(1));
    let location = BaseLocation {
        same_host: Some(&dead.commits),
        other_host: None,
    };
    start_from(&mut [&mut a, &mut b], 2, Some(id(1, 1)), location);
    for worker in [&mut a, &mut b] {
        assert!(worker.next_line().contains(" value 9 "));
        assert_eq!(worker.committed(id(1, 1)), 9);
    }
}

#[test]
fn a_base_that_was_fetched_and_never_taken_over_is_what_the_next_round_begins_with() {
    let agent = Agent::new();
    let mut dead = agent.worker(0);
    start(&mut [&mut dead], 1, None);
    dead.next_line();
    dead.run("add 9");
    dead.run("commit");
    dead.child.kill().unwrap();
    dead.end();
    let mut rank_0 = agent.worker_as(0, "a_careless_worker");
    let mut late = agent.worker(1);
    stop(&late);
    let location = BaseLocation {
        same_host: Some(&dead.commits),
        other_host: None,
    };
    start_from(&mut [&mut rank_0, &mut late], 2, Some(id(1, 1)), location);
    wait_until("it holds the base", || rank_0.newest() == Some(id(1, 1)));
    rank_0.page.abort(Round(2));
    rank_0.abort(2);
    assert_eq!(rank_0.join(), (Some(Round(2)), true, Some(id(1, 1))));
    start(&mut [&mut rank_0], 3, Some(id(1, 1)));
    assert_eq!(rank_0.next_line(), "begins with 9");
    assert_eq!(rank_0.newest(), Some(id(1, 1)));
}

#[test]
fn a_base_that_no_process_holds_ends_the_worker() {
    let agent = Agent::new();
    let mut worker = agent.worker(0);
    start(&mut [&mut worker], 2, Some(id(1, 1)));
    let line = worker.next_line();
    assert!(
        line.starts_with("ended: the state of commit 1.1.1 is not where"),
        "{line}"
    );
    assert_eq!(worker.end().code(), Some(1));
}

#[test]
fn a_removed_worker_reports_it_and_ends_well() {
    let agent = Agent::new();
    let removed = "ended: this worker's slot is no longer part of the job (its rank is -1): the process can end";
    let mut waiting = agent.worker(0);
    waiting.send(
        &ToWorker::Stop {
            why: StopReason::Removed,
        },
        &[],
    );
    assert_eq!(waiting.next_line(), removed);
    assert!(waiting.end().success());

    let (mut a, mut b) = (agent.worker(0), agent.worker(1));
    start(&mut [&mut a, &mut b], 1, None);
    a.next_line();
    b.next_line();
    a.send_command("barrier");
    a.send(
        &ToWorker::Stop {
            why: StopReason::JobEnded,
        },
        &[],
    );
    assert_eq!(
        a.next_line(),
        "this worker was told to stop: the job is over"
    );
    assert!(
        a.next_line()
            .starts_with("ended: this worker was told to stop")
    );
    assert_eq!(a.end().code(), Some(1));
}

#[test]
fn a_worker_told_to_stop_before_its_peers_connect_learns_of_it() {
    // Workers on two hosts lack their connections; workers of one host lack the first messages of
    // the sync.
    for apart in [true, false] {
        let agent = Agent::new();
        let (mut stopped, mut late) = (agent.worker(0), agent.worker(1));
        stop(&late);
        let both = &mut [&mut stopped, &mut late];
        if apart {
            start_on_separate_hosts(both, 1, None);
        } else {
            start(both, 1, None);
        }
        wait_until("it has begun", || stopped.page.round() == Some(Round(1)));
        let why = StopReason::DomainFailed;
        stopped.send(&ToWorker::Stop { why }, &[]);
        // Otherwise its end would count as a failure of its own.
        assert_eq!(stopped.join().0, Some(Round(1)));
        assert!(
            stopped
                .next_line()
                .starts_with("ended: this worker was told to stop")
        );
    }
}

#[test]
fn errors_of_the_training_function_and_wrong_calls_are_no_interrupts() {
    let agent = Agent::new();
    let mut worker = agent.worker(0);
    start(&mut [&mut worker], 1, None);
    worker.next_line();
    let line = worker.run("wrong");
    assert!(
        line.starts_with("bad argument: root 1 is not a rank"),
        "{line}"
    );
    assert_eq!(worker.run("barrier"), "passed");
    worker.send_command("fail");
    assert_eq!(worker.next_line(), "ended: an error of my own");
    assert_eq!(worker.end().code(), Some(1));
    assert_eq!(worker.page.phase_at_exit(), Some(Phase::Training));
}

#[test]
fn it_beats_whatever_the_training_thread_does() {
    let agent = Agent::new();
    let mut worker = agent.worker(0);
    start(&mut [&mut worker], 1, None);
    worker.next_line();
    let enough = std::env::temp_dir().join(format!("elasticrun-enough-{}", std::process::id()));
    worker.send_command(&format!("busy {}", enough.display()));
    let (start, before) = (Instant::now(), worker.page.beats());
    wait_until("it beats", || worker.page.beats() >= before + 3);
    let beats = worker.page.beats() - before;
    let due = start.elapsed().as_millis() / BEAT.as_millis() + 1;
    assert!(u128::from(beats) <= due, "{beats} beats, {due} are due");
    std::fs::write(&enough, "").unwrap();
    assert_eq!(worker.next_line(), "idle");
    std::fs::remove_file(&enough).unwrap();
}

#[test]
fn an_agent_that_is_gone_ends_the_worker() {
    let agent = Agent::new();
    let mut worker = agent.worker(0);
    worker.disconnect();
    assert!(
        worker
            .next_line()
            .starts_with("ended: the agent of this host is gone")
    );
    assert_eq!(worker.end().code(), Some(1));

    let mut worker = agent.worker(0);
    start(&mut [&mut worker], 1, None);
    worker.next_line();
    worker.page.hold(Round(1));
    worker.send_command("check");
    wait_until("it waits", || worker.page.count(Round(1)) == Boundary(1));
    worker.disconnect();
    assert!(
        worker
            .next_line()
            .starts_with("the agent of this host is gone")
    );
}

#[test]
fn a_refused_worker_reports_why() {
    let agent = Agent::new();
    let mut process = agent.spawn_unattached(3);
    process.send(
        &ToWorker::Refused {
            why: "no such slot".into(),
        },
        &[],
    );
    assert_eq!(
        process.next_line(),
        "ended: the agent refused this process: no such slot"
    );
    assert_eq!(process.end().code(), Some(1));
}
