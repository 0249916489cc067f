//! An agent whose host asks it to end, or says that it will go.

use elasticrun_core::agent::{Command, Event};
use elasticrun_protocol::{
    Notice, NoticeKind, Order, Report,
    control::{Exit, StopReason},
};

use crate::bench::*;

fn told_to_end(out: &[Command]) -> bool {
    out.iter().any(|command| {
        matches!(
            command,
            Command::TellStop {
                why: StopReason::JobEnded,
                ..
            }
        )
    })
}

fn training_within(wait: u64) -> Bench {
    let mut bench = Bench::draining_within(seconds(wait));
    bench.order(spawn(0, 1));
    bench.joins(0, None, true);
    bench.flush();
    bench.plan(1, &[0]);
    bench.start(1, &[0], None);
    bench
}

#[test]
fn a_notice_goes_to_the_driver_and_workers_are_told_of_the_risk() {
    let mut bench = training_within(0);
    let risks = |bench: &Bench| {
        let calls = bench.memory.calls.iter();
        calls
            .filter(|call| call.starts_with("at risk"))
            .cloned()
            .collect::<Vec<_>>()
    };
    assert_eq!(risks(&bench), [""; 0]);
    let kind = NoticeKind::Preempted;
    let notice = Notice {
        kind,
        within: Some(seconds(30)),
    };
    let out = bench.event(Event::Noticed(notice));
    assert_eq!(out, [Command::Report(Report::Noticed { notice })]);
    let first = format!("at risk {:?}", process(0, 1));
    assert_eq!(risks(&bench), std::slice::from_ref(&first));
    bench.order(spawn(1, 1));
    bench.event(Event::Attached {
        process: process(1, 1),
    });
    let second = format!("at risk {:?}", process(1, 1));
    assert_eq!(risks(&bench), [first, second], "who comes later as well");
}

#[test]
fn the_first_sigterm_asks_the_driver_and_the_second_ends_the_workers() {
    let mut bench = training_within(25);
    let kind = NoticeKind::Signal;
    let notice = Notice {
        kind,
        within: Some(seconds(25)),
    };
    let out = bench.event(Event::StopRequested);
    assert_eq!(out, [Command::Report(Report::Noticed { notice })]);
    assert!(told_to_end(&bench.event(Event::StopRequested)));
}

#[test]
fn workers_that_do_not_leave_in_time_are_ended() {
    let mut bench = training_within(3);
    bench.event(Event::StopRequested);
    assert!(!told_to_end(&bench.pass(seconds(2), true)));
    assert!(told_to_end(&bench.pass(seconds(2), true)));
}

#[test]
fn an_agent_without_workers_or_without_that_time_ends_at_once() {
    let mut bench = Bench::draining_within(seconds(25));
    assert_eq!(bench.event(Event::StopRequested), [Command::Exit]);
    let mut bench = training_within(0);
    assert!(told_to_end(&bench.event(Event::StopRequested)));
}

#[test]
fn a_drained_agent_ends_when_the_driver_says_so() {
    let mut bench = training_within(25);
    bench.event(Event::StopRequested);
    bench.order(Order::Stop {
        process: process(0, 1),
        why: StopReason::Removed,
    });
    let out = bench.event(exited(0, Exit::Code(0)));
    assert!(
        !out.contains(&Command::Exit),
        "it may keep a commit that others need"
    );
    assert_eq!(bench.order(Order::Shutdown), [Command::Exit]);
}
