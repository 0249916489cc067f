//! W4: which commits are made.

use elasticrun_core::worker::{Ended, Event, Failure, Interrupt, Over};
use elasticrun_protocol::{Round, control::StopReason};

use super::{enter, member, round, start, step};

#[test]
fn commits_of_a_round_are_counted() {
    let mut machine = member(0, None);
    for count in 1..=3 {
        assert_eq!(machine.commit(), Ok(round(1).commit(count)));
        // A commit that failed does not count.
        assert_eq!(machine.commit(), Ok(round(1).commit(count)));
        machine.committed(round(1).commit(count));
    }
    machine.leave(true, false);
    assert_eq!(machine.commit(), Err(Over::OutOfRound));
    enter(&mut machine, start(2, 0, None));
    assert_eq!(machine.commit(), Ok(round(2).commit(1)));
}

#[test]
fn w4_a_round_that_is_over_elsewhere_takes_the_commit_that_is_on_its_way() {
    let mut machine = member(0, None);
    step(&mut machine, Event::Aborted { round: Round(1) });
    assert_eq!(machine.commit(), Ok(round(1).commit(1)));
}

#[test]
fn w4_what_was_cut_short_is_not_committed() {
    let over = Err(Over::Interrupted(Interrupt::WorkersFailed));
    let mut machine = member(0, None);
    step(&mut machine, Event::CutShort { id: round(1) });
    assert_eq!(machine.commit(), over);
    // The worker may leave without an abort.
    assert!(machine.leave(false, false).is_some());

    let mut machine = member(0, None);
    machine.failed(Failure::Lost { hosts: Vec::new() });
    assert_eq!(machine.commit(), over);

    let mut machine = member(0, None);
    step(&mut machine, Event::CutShort { id: round(0) });
    assert!(machine.commit().is_ok(), "that was another round");
}

#[test]
fn a_process_that_is_told_to_stop_commits_nothing() {
    let mut machine = member(0, None);
    let ended = Ended::Stopped(StopReason::JobEnded);
    step(&mut machine, Event::Ended(ended.clone()));
    assert_eq!(machine.commit(), Err(Over::Ended(ended)));
}

#[test]
fn behind_the_common_boundary_nothing_is_committed() {
    let mut machine = member(0, None);
    assert_eq!(machine.leave_at_commit(), Interrupt::HostsUpdated);
    let over = Over::Interrupted(Interrupt::HostsUpdated);
    assert_eq!(machine.commit(), Err(over));
}
