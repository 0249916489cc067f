//! Draining: the host asks the agent to end, or gives notice that it will go.

use elasticrun_core::agent::{Command, End, Event, Signal};
use elasticrun_protocol::{
    AgentCommand, AgentReport, Notice, NoticeKind,
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
    bench.command(spawn(0, 1));
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
    assert_eq!(out, [Command::AgentReport(AgentReport::Noticed { notice })]);
    let first = format!("at risk {:?}", process(0, 1));
    assert_eq!(risks(&bench), std::slice::from_ref(&first));
    bench.command(spawn(1, 1));
    bench.event(Event::Attached {
        process: process(1, 1),
    });
    let second = format!("at risk {:?}", process(1, 1));
    assert_eq!(
        risks(&bench),
        [first, second],
        "a worker that attaches later as well"
    );
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
    assert_eq!(out, [Command::AgentReport(AgentReport::Noticed { notice })]);
    let second = bench.event(Event::StopRequested);
    assert!(told_to_end(&second));
    assert!(second.contains(&signal(0, Signal::Kill)), "{second:?}");
    assert_eq!(bench.event(Event::StopRequested), [], "and a third nothing");
    let out = bench.event(exited(0, Exit::Signal(9)));
    assert!(out.contains(&exits(End::Stopped)), "{out:?}");
}

#[test]
fn a_killed_worker_that_does_not_go_is_left_behind() {
    let mut bench = Bench::with_two();
    bench.command(AgentCommand::Shutdown);
    bench.event(exited(0, Exit::Code(0)));
    let exit = |out: Vec<Command>| {
        let exit = |command: &Command| matches!(command, Command::Exit { .. });
        out.into_iter().find(exit)
    };
    // The worker is killed after the grace of 2 s.
    assert_eq!(exit(bench.pass(seconds(11), true)), None);
    let left = Command::Exit {
        why: End::ShutDown,
        stuck: vec![process(1, 1)],
    };
    assert_eq!(exit(bench.pass(seconds(2), true)), Some(left));
}

#[test]
fn workers_that_do_not_leave_in_time_are_ended() {
    let mut bench = training_within(3);
    bench.event(Event::StopRequested);
    assert!(!told_to_end(&bench.pass(seconds(2), true)));
    assert!(told_to_end(&bench.pass(seconds(2), true)));
}

fn exits(why: End) -> Command {
    let stuck = Vec::new();
    Command::Exit { why, stuck }
}

#[test]
fn an_agent_without_workers_or_without_that_time_ends_at_once() {
    let mut bench = Bench::draining_within(seconds(25));
    assert_eq!(bench.event(Event::StopRequested), [exits(End::Stopped)]);
    let mut bench = training_within(0);
    assert!(told_to_end(&bench.event(Event::StopRequested)));
}

#[test]
fn a_drained_agent_ends_when_the_driver_says_so() {
    let mut bench = training_within(25);
    bench.event(Event::StopRequested);
    bench.command(AgentCommand::Stop {
        process: process(0, 1),
        why: StopReason::Removed,
    });
    let out = bench.event(exited(0, Exit::Code(0)));
    assert!(
        !out.iter()
            .any(|command| matches!(command, Command::Exit { .. })),
        "the agent may keep a commit that others need"
    );
    assert_eq!(
        bench.command(AgentCommand::Shutdown),
        [exits(End::ShutDown)]
    );
}
