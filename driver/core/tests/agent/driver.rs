//! Drivers that are old, silent or lost, and the end of the agent itself.

use std::time::Duration;

use elasticrun_core::{
    Time,
    agent::{Command, Event, Machine, Signal},
};
use elasticrun_protocol::{
    AgentCommand, AgentReport, DriverEpoch, Round, ToAgent,
    control::{Exit, ProbeHost, StopReason},
};

use crate::bench::*;

#[test]
fn an_older_driver_is_not_obeyed() {
    let mut bench = Bench::training();
    let old = ToAgent {
        epoch: DriverEpoch(2),
        command: AgentCommand::Abort { round: Round(1) },
    };
    assert_eq!(bench.event(Event::FromDriver(old)), [], "R3");
}

#[test]
fn a_beat_that_comes_late_extends_nothing() {
    let mut bench = Bench::training();
    bench.pass(seconds(5), false);
    assert!(
        bench
            .memory
            .calls
            .iter()
            .any(|call| call.starts_with("withdraw")),
        "without an acknowledgement the hold is withdrawn"
    );
    // The acknowledgement is four seconds late, and it is of a heartbeat that was sent even earlier.
    bench.pass(seconds(3), false);
    bench.command(AgentCommand::Heartbeat {
        acked_count: 1,
        lease: None,
        applied: 0,
        standbys: Vec::new(),
        job_code: None,
    });
    let out = bench.pass(seconds(7), false);
    let ends = |c: &Command| {
        matches!(
            c,
            Command::TellStop {
                why: StopReason::JobEnded,
                ..
            }
        )
    };
    assert!(out.iter().any(ends), "R11: {out:?}");
    assert!(
        matches!(
            out[0],
            Command::Abort {
                round: Round(1),
                ..
            }
        ),
        "training stops at once"
    );
}

#[test]
fn a_driver_that_was_silent_and_answers_again_is_obeyed() {
    let mut bench = Bench::training();
    bench.pass(seconds(8), false);
    bench.command(AgentCommand::Heartbeat {
        acked_count: 8,
        lease: None,
        applied: 0,
        standbys: Vec::new(),
        job_code: None,
    });
    assert_eq!(bench.pass(seconds(60), true), []);
    assert!(!bench.machine.is_ending());
}

#[test]
fn what_an_agent_ends_by_itself_has_not_failed() {
    let mut bench = Bench::training();
    bench.event(Event::StopRequested);
    for slot in 0..2 {
        let reports = |c: &Command| {
            matches!(
                c,
                Command::AgentReport(AgentReport::Exited { .. } | AgentReport::WorkerLost { .. })
            )
        };
        let out = bench.event(exited(slot, Exit::Signal(15)));
        assert!(
            !out.iter().any(reports),
            "the driver loses the worker with its agent: {out:?}"
        );
    }
    assert!(bench.machine.has_ended());
}

/// The driver sends nothing for so many minutes. With `reached`, its machine still acknowledges.
fn silent_driver(bench: &mut Bench, minutes: u64, reached: bool) -> Vec<Command> {
    let mut all = Vec::new();
    for _ in 0..minutes * 60 {
        if reached {
            all.extend(bench.event(Event::DriverReached));
        }
        all.extend(bench.pass(seconds(1), false));
    }
    all
}

fn ends(commands: &[Command]) -> bool {
    commands
        .iter()
        .any(|command| matches!(command, Command::TellStop { .. }))
}

#[test]
fn a_suspended_driver_costs_nothing_however_long_it_takes() {
    let mut bench = Bench::keeping(seconds(60));
    assert_eq!(silent_driver(&mut bench, 20, true), []);
    assert!(bench.machine.misses_driver() && !bench.machine.is_ending());
    // The driver has now read what was waiting in its socket.
    let beats = bench.answered_by(seconds(2));
    assert_eq!(beats, [], "workers go on as if nothing had been");
    assert!(!bench.machine.misses_driver());
    let lease = bench.memory.leases[&process(0, 1)];
    assert!(bench.now < lease, "their lease is renewed: {lease:?}");
}

#[test]
fn a_driver_that_is_out_of_reach_is_waited_for_a_minute_longer_than_one_that_is_gone() {
    let mut bench = Bench::keeping(seconds(60));
    let silent = bench.pass(seconds(5 + 10 + 60 - 1), false);
    assert!(!ends(&silent), "{silent:?}");
    let silent = bench.pass(seconds(3), false);
    assert!(ends(&silent), "{silent:?}");
    let mut bench = Bench::keeping(seconds(60));
    bench.event(Event::DriverLost);
    let gone = bench.pass(seconds(10), false);
    assert!(ends(&gone), "{gone:?}");
}

#[test]
fn workers_train_no_longer_than_the_driver_has_said() {
    let mut bench = Bench::keeping(seconds(60));
    bench.lease = Some(seconds(7));
    bench.pass(seconds(10), true);
    let since = Time::from_start(seconds(10));
    bench.pass(seconds(30), false);
    assert_eq!(
        bench.memory.leases[&process(0, 1)],
        since + seconds(7),
        "R11: the lease counts from the sending of the last acknowledged heartbeat"
    );
}

#[test]
fn a_start_that_comes_after_the_lease_is_refused() {
    let mut bench = Bench::keeping(seconds(60));
    bench.command(AgentCommand::Abort { round: Round(1) });
    bench.joins(0, Some(1), true);
    bench.joins(1, Some(1), true);
    bench.plan(2, &[0, 1]);
    bench.pass(seconds(5 + 1 + 10), false);
    let out = bench.start(2, &[0, 1], None);
    let broken =
        |command: &&Command| matches!(command, Command::AgentReport(AgentReport::PeerLost { .. }));
    assert_eq!(out.iter().filter(broken).count(), 2, "{out:?}");
    assert!(
        !out.iter()
            .any(|command| matches!(command, Command::Start(_))),
        "R11: the round may have been given up long ago"
    );
}

#[test]
fn processes_without_the_sdk_are_stopped_beyond_the_lease_and_go_on_with_the_driver() {
    let mut bench = Bench::keeping(seconds(60));
    bench.command(spawn(2, 1));
    let out = bench.pass(seconds(20), false);
    assert_eq!(out, [signal(2, Signal::Stop)]);
    assert_eq!(bench.answered_by(seconds(1)), [signal(2, Signal::Continue)]);
}

#[test]
fn orders_that_were_held_up_since_the_registration_start_nothing_that_runs() {
    let mut bench = Bench::keeping(seconds(60));
    bench.now = bench.now + seconds(30);
    bench.machine.registered(Time::ZERO);
    bench.command(spawn(2, 1));
    let mut out = Vec::new();
    bench.machine.tick(bench.now, &mut bench.memory, &mut out);
    assert!(out.contains(&signal(2, Signal::Stop)), "R11: {out:?}");
}

#[test]
fn a_stop_that_comes_twice_kills_no_process_that_was_frozen_in_between() {
    let mut bench = Bench::keeping(seconds(60));
    bench.now = bench.now + seconds(30);
    bench.machine.registered(Time::ZERO);
    bench.command(spawn(2, 1));
    let stop = || AgentCommand::Stop {
        process: process(2, 1),
        why: StopReason::Removed,
    };
    assert_eq!(bench.command(stop()), [signal(2, Signal::Terminate)]);
    let mut out = Vec::new();
    bench.machine.tick(bench.now, &mut bench.memory, &mut out);
    assert!(out.contains(&signal(2, Signal::Stop)), "{out:?}");
    assert_eq!(bench.command(stop()), [], "R3");
}

#[test]
fn the_first_heartbeat_follows_at_once_if_the_registration_was_answered_late() {
    let mut bench = Bench::new();
    let mut out = Vec::new();
    bench.now = bench.now + seconds(30);
    bench.machine = Machine::new(bench.now, EPOCH, setup(Duration::ZERO), 7);
    bench.machine.registered(Time::ZERO);
    bench.machine.tick(bench.now, &mut bench.memory, &mut out);
    let beats = |command: &Command| {
        let report = Command::AgentReport(AgentReport::Heartbeat {
            commits: 0,
            count: 1,
            held: None,
            sealed: None,
        });
        *command == report
    };
    assert!(out.iter().any(beats), "{out:?}");
}

#[test]
fn who_is_stopped_beyond_the_lease_is_killed_when_its_agent_ends() {
    let mut bench = Bench::keeping(seconds(60));
    bench.command(spawn(2, 1));
    bench.pass(seconds(20), false);
    let out = bench.command(AgentCommand::Shutdown);
    let signals: Vec<_> = (out.iter())
        .filter(|command| matches!(command, Command::Signal { process, .. } if process.local_rank.0 == 2))
        .collect();
    assert_eq!(
        signals,
        [&signal(2, Signal::Kill)],
        "R11: the stopped worker does not run again"
    );
}

#[test]
fn an_agent_that_stood_still_blames_no_worker_for_it() {
    let mut bench = Bench::keeping(seconds(60));
    bench.pass(seconds(10), true);
    bench.memory.alive.clear();
    bench.pass(seconds(1), true);
    // Agent and workers were suspended together, as with their machine.
    bench.now = bench.now + seconds(30);
    let mut out = Vec::new();
    bench.machine.tick(bench.now, &mut bench.memory, &mut out);
    let lost = |command: &Command| {
        matches!(
            command,
            Command::AgentReport(AgentReport::WorkerLost { .. })
        )
    };
    assert!(!out.iter().any(lost), "{out:?}");
    let out = bench.pass(seconds(10), true);
    assert!(
        out.iter().any(lost),
        "a worker without a further heartbeat is lost: {out:?}"
    );
}

#[test]
fn an_older_probe_is_not_run_and_an_older_answer_not_given() {
    let mut bench = Bench::training();
    let probe = |number| AgentCommand::Probe {
        number,
        hosts: vec![ProbeHost {
            host: "b".into(),
            address: ([10, 0, 0, 2], 7).into(),
        }],
        within: seconds(5),
    };
    let answer = |number| Event::Probed {
        number,
        unreachable: vec!["b".into()],
    };
    let runs = |out: &[Command]| matches!(out, [Command::Probe { .. }]);
    assert!(runs(&bench.command(probe(3))));
    assert_eq!(bench.command(probe(3)), [], "R3");
    assert_eq!(bench.command(probe(2)), [], "R3");
    assert!(runs(&bench.command(probe(5))));
    assert_eq!(bench.event(answer(3)), []);
    let report = AgentReport::Probed {
        number: 5,
        unreachable: vec!["b".into()],
    };
    assert_eq!(bench.event(answer(5)), [Command::AgentReport(report)]);
}
