//! Workers use the job's key-value store across hosts, rounds and failures.

use std::time::Duration;

use elasticrun_process_tests::{Job, Kind, What};

use crate::support::{BOTH, FOUR, USUAL, assert_nothing_lost, at_step, first};

/// Rank 0 dies before it stores the key that all other workers wait for, on its own host and on the other one.
#[test]
fn who_waits_for_a_dead_worker_is_woken_and_the_next_round_knows_nobody_of_it() {
    let mut job = Job::new(FOUR)
        .discovered(BOTH)
        .plan(|plan| plan.store = true)
        .fault(at_step(0, 10, What::Kill))
        .start();
    let two = job.wait_training(2, 15);
    assert_eq!(two[0].host, "127.0.0.1");
    job.finish();
    let ended = job.end();
    ended.expect(0, &["succeeded", "1 failure"]);
    assert_eq!(ended.sizes(), [4, 2]);
    assert_nothing_lost(&ended.events, 0);
    let killed = first(&ended.events, Kind::Fault);
    let rounds = ended.rounds();
    let took = Duration::from_nanos(rounds[1][1].at - killed.at);
    println!("from the kill to the next round, met in the store: {took:?}");
    // Keys of the job remain in the second round, one entry for each round.
    for (number, round) in rounds.iter().enumerate() {
        for event in round {
            let known: Vec<_> = event.text.split_whitespace().collect();
            assert_eq!(known.len(), number + 1, "{event:?}");
            assert_eq!(known[number], event.round.to_string());
        }
    }
}

#[test]
fn who_joins_later_meets_all() {
    let mut job = Job::new(USUAL)
        .discovered("localhost:2\n")
        .plan(|plan| plan.store = true)
        .start();
    let two = job.wait_training(2, 5);
    job.set_hosts(BOTH);
    job.wait_training(4, two[0].step + 5);
    job.finish();
    let ended = job.end();
    ended.expect(0, &["succeeded"]);
    assert_eq!(ended.sizes(), [2, 4]);
    assert_nothing_lost(&ended.events, 0);
}
