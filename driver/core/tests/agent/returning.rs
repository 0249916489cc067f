//! Agents that keep their workers over a broken connection, and return with them.

use elasticrun_core::agent::{Command, Event, Signal};
use elasticrun_protocol::{
    AgentCommand, AgentReport, DriverEpoch, Round,
    control::{AdoptedPhase, Exit, Setup, StopReason},
};

use crate::bench::*;

/// Two workers in round 1, whose driver takes agents back and keeps them for a minute.
fn returning() -> Bench {
    let mut bench = Bench::keeping(seconds(60));
    bench.machine.set_adoptable(true);
    bench
}

/// A driver of this epoch answers the registration of the agent.
fn back(bench: &mut Bench, epoch: u64, adopted: bool) -> Vec<Command> {
    let setup = Box::new(Setup {
        adopted,
        keep_timeout: seconds(60),
        ..setup(seconds(0))
    });
    let epoch = DriverEpoch(epoch);
    bench.event(Event::DriverBack { epoch, setup })
}

/// The same, without the heartbeat.
fn back_quietly(bench: &mut Bench, epoch: u64) -> Vec<Command> {
    let mut out = back(bench, epoch, true);
    let beat =
        |command: &Command| matches!(command, Command::AgentReport(AgentReport::Heartbeat { .. }));
    assert!(
        beat(&out[0]),
        "a start may follow the first report at once: {out:?}"
    );
    out.remove(0);
    out
}

fn ends(commands: &[Command]) -> bool {
    (commands.iter()).any(|command| matches!(command, Command::TellStop { .. }))
}

#[test]
fn workers_of_a_broken_connection_are_kept_as_long_as_those_of_a_silent_driver() {
    let mut bench = returning();
    bench.event(Event::DriverLost);
    bench.event(Event::DialFailed { refused: false });
    let kept = bench.pass(seconds(10 + 60 - 1), false);
    assert!(!ends(&kept), "{kept:?}");
    assert!(ends(&bench.pass(seconds(2), false)));
}

#[test]
fn workers_of_a_driver_whose_machine_refuses_dials_end_after_the_orphan_timeout() {
    let mut bench = returning();
    bench.event(Event::DriverLost);
    bench.event(Event::DialFailed { refused: true });
    let kept = bench.pass(seconds(9), false);
    assert!(!ends(&kept), "{kept:?}");
    assert!(ends(&bench.pass(seconds(2), false)));
}

#[test]
fn a_refused_dial_that_is_followed_by_another_failure_proves_nothing() {
    let mut bench = returning();
    bench.event(Event::DriverLost);
    bench.event(Event::DialFailed { refused: true });
    bench.event(Event::DialFailed { refused: false });
    let kept = bench.pass(seconds(30), false);
    assert!(!ends(&kept), "{kept:?}");
}

#[test]
fn a_refusal_before_the_connection_ended_says_nothing_of_its_end() {
    let mut bench = returning();
    bench.event(Event::DialFailed { refused: true });
    bench.event(Event::DriverLost);
    let kept = bench.pass(seconds(30), false);
    assert!(!ends(&kept), "{kept:?}");
}

#[test]
fn an_agent_returns_with_all_that_its_driver_needs() {
    let mut bench = returning();
    bench
        .memory
        .commits
        .insert(process(0, 1), vec![commit(1, 4)]);
    bench.event(Event::DriverLost);
    let adoption = bench.machine.adoption(&bench.memory);
    assert_eq!((adoption.run_id.as_str(), adoption.epoch), ("run", EPOCH));
    let round = Round(1);
    for (slot, worker) in (0..).zip(&adoption.workers) {
        assert_eq!(worker.process, process(slot, 1));
        assert_eq!(worker.phase, AdoptedPhase::Training { round });
        assert!(worker.attached && !worker.stopping);
    }
    assert_eq!(adoption.starts, [process(0, 1), process(1, 1)]);
    let trained = adoption.round.expect("it trains");
    assert_eq!((trained.round, trained.size), (round, 2));
    assert_eq!(trained.members.len(), 2);
    assert_eq!(adoption.kept.len(), 1);
    assert_eq!(adoption.kept[0].commits, [commit(1, 4)]);
}

#[test]
fn a_round_that_is_over_here_is_not_named() {
    let mut bench = returning();
    bench.command(AgentCommand::Abort { round: Round(1) });
    let adoption = bench.machine.adoption(&bench.memory);
    assert_eq!(adoption.round, None);
    let returning = AdoptedPhase::Returning { round: Round(1) };
    assert!((adoption.workers.iter()).all(|worker| worker.phase == returning));
}

#[test]
fn reports_without_an_acknowledgement_are_repeated() {
    let mut bench = returning();
    let first = bench.machine.number(AgentReport::FreePort { port: 1 });
    let second = bench.machine.number(AgentReport::FreePort { port: 2 });
    bench.command(AgentCommand::Heartbeat {
        acked_count: 0,
        lease: None,
        applied: first.number,
        standbys: Vec::new(),
        job_code: None,
    });
    bench.event(Event::DriverLost);
    let adoption = bench.machine.adoption(&bench.memory);
    assert_eq!(adoption.acknowledged, first.number);
    assert_eq!(adoption.reports, std::slice::from_ref(&second));
    assert_eq!(back_quietly(&mut bench, EPOCH.0), [Command::Repeat(second)]);
}

#[test]
fn the_lease_is_renewed_by_the_first_answer_and_not_by_the_return() {
    let mut bench = returning();
    bench.lease = Some(seconds(7));
    bench.command(spawn(2, 1));
    bench.event(Event::DriverLost);
    let out = bench.pass(seconds(30), false);
    assert_eq!(out, [signal(2, Signal::Stop)]);
    let before = bench.memory.leases[&process(0, 1)];
    assert_eq!(back_quietly(&mut bench, EPOCH.0), []);
    assert!(!bench.machine.misses_driver());
    assert_eq!(bench.memory.leases[&process(0, 1)], before, "R11");
    let answer = AgentCommand::Heartbeat {
        acked_count: u64::MAX,
        lease: bench.lease,
        applied: 0,
        standbys: Vec::new(),
        job_code: None,
    };
    assert_eq!(bench.command(answer), [signal(2, Signal::Continue)]);
    assert_eq!(bench.memory.leases[&process(0, 1)], bench.now + seconds(7));
}

#[test]
fn a_process_that_is_stopped_beyond_the_lease_is_killed_and_never_continued() {
    let mut bench = returning();
    bench.command(spawn(2, 1));
    bench.event(Event::DriverLost);
    bench.pass(seconds(30), false);
    back(&mut bench, EPOCH.0, true);
    let why = StopReason::Removed;
    let process = process(2, 1);
    let out = bench.command(AgentCommand::Stop { process, why });
    assert_eq!(out, [signal(2, Signal::Kill)], "R11");
    assert_eq!(bench.pass(seconds(1), true), []);
}

#[test]
fn an_order_to_stop_that_comes_again_beyond_the_lease_does_nothing() {
    let mut bench = returning();
    bench.command(spawn(2, 1));
    assert_eq!(bench.pass(seconds(15), false), []);
    let (process, why) = (process(2, 1), StopReason::Removed);
    let stop = || AgentCommand::Stop { process, why };
    assert_eq!(bench.command(stop()), [signal(2, Signal::Terminate)]);
    assert_eq!(bench.pass(seconds(1), false), [signal(2, Signal::Stop)]);
    assert_eq!(bench.command(stop()), [], "R3");
    assert_eq!(bench.pass(seconds(1), false), [signal(2, Signal::Kill)]);
}

#[test]
fn an_older_driver_is_not_gone_on_with() {
    let mut bench = returning();
    bench.event(Event::DriverLost);
    assert_eq!(back(&mut bench, EPOCH.0 - 1, true), []);
    assert!(
        bench.machine.misses_driver() && bench.machine.epoch() == EPOCH,
        "R3"
    );
    assert_eq!(back(&mut bench, EPOCH.0 - 1, false), []);
    assert!(!bench.machine.is_ending(), "its refusal is of no concern");
}

#[test]
fn a_newer_driver_is_obeyed_from_then_on() {
    let mut bench = returning();
    bench.event(Event::DriverLost);
    back(&mut bench, EPOCH.0 + 1, true);
    assert_eq!(bench.machine.epoch(), DriverEpoch(EPOCH.0 + 1));
    let abort = AgentCommand::Abort { round: Round(1) };
    assert_eq!(bench.command(abort), [], "R3: the older driver is stale");
}

#[test]
fn an_agent_that_is_not_adopted_ends_its_workers() {
    let mut bench = returning();
    bench.event(Event::DriverLost);
    assert!(ends(&back(&mut bench, EPOCH.0, false)));
    assert!(!bench.machine.may_return());
    for slot in 0..2 {
        bench.event(exited(slot, Exit::Signal(15)));
    }
    assert!(bench.machine.has_ended());
}

#[test]
fn a_driver_of_another_run_sends_an_agent_away_whatever_its_epoch() {
    for adopted in [true, false] {
        let mut bench = returning();
        bench.event(Event::DriverLost);
        let setup = Box::new(Setup {
            run_id: "another".into(),
            adopted,
            ..setup(seconds(0))
        });
        let epoch = DriverEpoch(EPOCH.0 - 1);
        assert!(ends(&bench.event(Event::DriverBack { epoch, setup })));
    }
}

#[test]
fn an_agent_that_ends_by_itself_says_that_it_does_not_return() {
    let mut bench = returning();
    let out = bench.event(Event::StopRequested);
    let leaving = Command::AgentReport(AgentReport::Leaving);
    assert!(out.contains(&leaving), "{out:?}");
}

#[test]
fn a_driver_that_is_back_and_falls_silent_is_missed_again() {
    let mut bench = returning();
    bench.event(Event::DriverLost);
    bench.pass(seconds(20), false);
    back(&mut bench, EPOCH.0, true);
    bench.pass(seconds(4), false);
    assert!(!bench.machine.misses_driver());
    bench.pass(seconds(2), false);
    assert!(bench.machine.misses_driver());
}

#[test]
fn a_worker_that_comes_back_after_the_return_says_that_it_waits() {
    let mut bench = returning();
    bench.event(Event::DriverLost);
    back(&mut bench, EPOCH.0, true);
    bench.command(AgentCommand::Abort { round: Round(1) });
    bench.joins(0, Some(1), true);
    let waits = |command: &Command| matches!(command, Command::AgentReport(AgentReport::Waiting { workers }) if workers.len() == 1);
    let out = bench.flush();
    assert!(
        out.iter().any(waits),
        "a round may have begun without it: {out:?}"
    );
}
