//! Waiting for a round, and leaving it.

use elasticrun_core::worker::{
    Announcement, Command, Departure, Ended, Event, Failure, Interrupt, Join, Machine, Over,
};
use elasticrun_protocol::{Round, control::StopReason};

use super::{enter, member, round, start, step};

const LOST: Failure = Failure::Lost { hosts: Vec::new() };

fn announced(machine: &mut Machine) -> Announcement {
    match machine.join() {
        Ok(Join::Announce(announcement)) => announcement,
        other => panic!("{other:?}"),
    }
}

#[test]
fn w1_a_start_that_came_before_the_call_is_seen_by_it() {
    let mut machine = Machine::default();
    assert_eq!(announced(&mut machine).left, None);
    assert_eq!(machine.join(), Ok(Join::Wait));
    step(&mut machine, Event::Started(start(1, 0, None)));
    step(&mut machine, Event::Started(start(2, 0, None)));
    assert_eq!(machine.join(), Ok(Join::Connect(start(2, 0, None))));
    assert_eq!(machine.join(), Err(Over::OutOfRound));
}

#[test]
fn a_round_that_was_left_is_not_entered_again() {
    let mut machine = member(0, None);
    machine.leave(true, false);
    step(&mut machine, Event::Started(start(1, 0, None)));
    announced(&mut machine);
    assert_eq!(machine.join(), Ok(Join::Wait));
}

#[test]
fn a_process_that_is_told_to_stop_says_that_it_is_back_and_then_ends() {
    let mut machine = member(0, None);
    let ended = Ended::Stopped(StopReason::Removed);
    let commands = step(&mut machine, Event::Ended(ended.clone()));
    assert_eq!(
        commands,
        [
            Command::EndCalls(ended.clone()),
            Command::EndRound(round(1))
        ]
    );
    assert_eq!(machine.failed(LOST), Some(Over::Ended(ended.clone())));
    assert!(machine.leave(false, true).is_some());
    announced(&mut machine);
    assert_eq!(machine.join(), Err(Over::Ended(ended)));
}

#[test]
fn an_abort_of_another_round_ends_nothing() {
    let mut machine = member(0, None);
    let abort = |round| Event::Aborted {
        round: Round(round),
    };
    assert_eq!(step(&mut machine, abort(9)), []);
    assert_eq!(step(&mut machine, abort(1)), [Command::EndRound(round(1))]);
}

#[test]
fn it_says_whether_it_was_told_to_leave() {
    for (aborted, updated) in [(false, false), (true, false), (false, true)] {
        let mut machine = member(0, None);
        match updated {
            true => drop(machine.leave_at_commit()),
            false => drop(machine.failed(LOST)),
        }
        let departure = Departure {
            round: Round(1),
            ordered: aborted || updated,
            committed: updated,
        };
        assert_eq!(machine.leave(false, aborted), Some(departure));
        assert_eq!(announced(&mut machine).left, Some(departure));
    }
}

#[test]
fn an_announcement_that_did_not_arrive_is_made_again() {
    let mut machine = member(0, None);
    let departure = machine.leave(true, false);
    assert_eq!(announced(&mut machine).left, departure);
    machine.give_up();
    assert_eq!(announced(&mut machine).left, departure);
    assert_eq!(machine.join(), Ok(Join::Wait));
}

#[test]
fn it_stays_in_a_round_that_goes_on_unless_it_cannot() {
    let mut machine = member(0, None);
    assert_eq!(machine.leave(false, false), None);
    assert!(machine.leave(true, false).is_some());
}

#[test]
fn hosts_that_do_not_answer_are_named_once_and_of_their_round() {
    let mut machine = member(0, None);
    let hosts = vec![2, 1];
    machine.failed(Failure::Lost { hosts });
    machine.judge(Failure::Lost { hosts: vec![2] });
    machine.leave(false, false);
    assert_eq!(announced(&mut machine).unreachable, [1, 2]);
    step(&mut machine, Event::Started(start(2, 0, None)));
    assert!(matches!(machine.join(), Ok(Join::Connect(_))));
    machine.failed(LOST);
    machine.leave(false, false);
    assert!(announced(&mut machine).unreachable.is_empty());
}

#[test]
fn calls_that_do_not_match_are_a_mistake_unless_the_round_is_over() {
    let mut machine = member(0, None);
    assert_eq!(machine.failed(Failure::Mismatch), None);
    assert_eq!(machine.check(), Ok(()));
    step(&mut machine, Event::Aborted { round: Round(1) });
    let over = Over::Interrupted(Interrupt::WorkersFailed);
    assert_eq!(machine.failed(Failure::Mismatch), Some(over.clone()));
    assert_eq!(machine.check(), Err(over));
}

#[test]
fn a_base_that_cannot_be_fetched_three_times_in_a_row_fails_the_worker() {
    let mut machine = Machine::default();
    for number in 1..=5 {
        enter(&mut machine, start(number, 0, None));
        let over = machine.fetch_failed(Some(1));
        assert_eq!(over.is_none(), number == 5, "{number}");
        if number == 2 {
            machine.fetched();
        }
        machine.leave(false, false);
    }
}
