//! Workers that end, are ended, or fall silent.

use std::time::Duration;

use elasticrun_core::agent::{Command, Event, Signal};
use elasticrun_protocol::{
    AgentCommand, AgentReport, FromWorker, Round,
    control::{Exit, StopReason},
};

use crate::bench::*;

#[test]
fn who_says_that_it_failed_is_lost_at_once_and_killed_if_it_stays() {
    let mut bench = Bench::training();
    let out = bench.event(Event::FromWorker {
        process: process(0, 1),
        message: FromWorker::Failed,
    });
    let lost = Command::AgentReport(AgentReport::WorkerLost {
        process: process(0, 1),
        silent: false,
    });
    assert_eq!(out[0], lost);
    assert!(matches!(&out[1], Command::Abort { .. }), "{out:?}");
    // The death of the process follows and adds nothing.
    let died = bench.event(Event::Died {
        process: process(0, 1),
    });
    assert_eq!(died, []);
    let killed = bench.pass(seconds(6), true);
    assert!(killed.contains(&signal(0, Signal::Kill)), "{killed:?}");
}

#[test]
fn who_does_not_come_back_is_killed_and_lost() {
    let mut bench = Bench::training();
    bench.command(AgentCommand::Abort { round: Round(1) });
    bench.joins(0, Some(1), true);
    assert_eq!(bench.pass(Duration::from_millis(19_999), true), []);
    let lost = Command::AgentReport(AgentReport::WorkerLost {
        process: process(1, 1),
        silent: true,
    });
    assert_eq!(
        bench.pass(Duration::from_millis(1), true),
        [signal(1, Signal::Kill), lost]
    );
}

#[test]
fn who_does_not_beat_is_killed_and_lost() {
    let mut bench = Bench::training();
    bench.event(Event::Attached {
        process: process(0, 1),
    });
    let out = bench.pass(seconds(5), true);
    let lost = Command::AgentReport(AgentReport::WorkerLost {
        process: process(0, 1),
        silent: true,
    });
    assert!(out.contains(&lost), "{out:?}");
    assert!(out.contains(&signal(0, Signal::Kill)));
}

#[test]
fn who_waits_for_a_processor_is_not_silent_for_ten_times_longer() {
    let mut bench = Bench::training();
    let starved = process(0, 1);
    bench.event(Event::Attached { process: starved });
    bench.memory.starved.insert(starved);
    let silent = |out: &[Command]| out.contains(&signal(0, Signal::Kill));
    let out = bench.pass(seconds(49), true);
    assert!(!silent(&out), "{out:?}");
    let out = bench.pass(seconds(2), true);
    assert!(silent(&out), "its peers go on without it");
}

#[test]
fn who_got_a_processor_again_is_not_silent() {
    let mut bench = Bench::training();
    let starved = process(0, 1);
    bench.event(Event::Attached { process: starved });
    bench.memory.starved.insert(starved);
    bench.pass(seconds(30), true);
    bench.memory.starved.clear();
    bench.memory.beats.insert(starved, 1);
    let out = bench.pass(seconds(4), true);
    assert!(!out.contains(&signal(0, Signal::Kill)), "{out:?}");
    let out = bench.pass(seconds(2), true);
    assert!(out.contains(&signal(0, Signal::Kill)), "now it hangs");
}

#[test]
fn who_is_removed_may_end_by_itself_then_is_asked_then_is_killed_once() {
    let mut bench = Bench::with_two();
    bench.event(Event::Attached {
        process: process(0, 1),
    });
    bench.memory.beats.insert(process(0, 1), 1);
    let why = StopReason::Removed;
    let told = Command::TellStop {
        process: process(0, 1),
        why,
    };
    assert_eq!(
        bench.command(AgentCommand::Stop {
            process: process(0, 1),
            why
        }),
        [told]
    );
    assert_eq!(
        bench.command(AgentCommand::Stop {
            process: process(0, 1),
            why
        }),
        [],
        "once"
    );
    assert_eq!(bench.pass(seconds(2), true), [signal(0, Signal::Terminate)]);
    assert_eq!(bench.pass(seconds(2), true), [signal(0, Signal::Kill)]);
    assert_eq!(bench.pass(Duration::from_millis(900), true), []);
}

#[test]
fn an_attached_worker_that_is_reaped_with_an_error_is_lost_before_its_last_lines() {
    let lost = |out: &[Command]| {
        let lost = |command: &&Command| {
            matches!(
                command,
                Command::AgentReport(AgentReport::WorkerLost { .. })
            )
        };
        out.iter().filter(lost).count()
    };
    for (code, expected) in [(0, 0), (1, 1)] {
        let mut bench = Bench::keeping(Duration::ZERO);
        let out = bench.event(Event::Ended {
            process: process(0, 1),
            exit: Exit::Code(code),
        });
        assert_eq!(lost(&out), expected, "code {code}: {out:?}");
    }
    let mut bench = Bench::new();
    bench.command(spawn(0, 1));
    let out = bench.event(Event::Ended {
        process: process(0, 1),
        exit: Exit::Code(1),
    });
    assert_eq!(out, [], "a script has no peers in a round");
}

#[test]
fn who_ends_as_told_before_it_could_report_that_it_left_did_not_fail_by_itself() {
    let lost =
        |report: &Command| matches!(report, Command::AgentReport(AgentReport::WorkerLost { .. }));
    for (outside, expected) in [(true, false), (false, true)] {
        let mut bench = Bench::keeping(Duration::ZERO);
        bench.command(AgentCommand::Stop {
            process: process(0, 1),
            why: StopReason::DomainFailed,
        });
        if outside {
            bench.memory.outside.insert(process(0, 1));
        }
        let out = bench.event(Event::Ended {
            process: process(0, 1),
            exit: Exit::Code(1),
        });
        assert_eq!(
            out.iter().any(lost),
            expected,
            "outside: {outside}, {out:?}"
        );
    }
}

/// Seed 271879 of the simulation.
#[test]
fn who_is_told_twice_to_kill_kills_once() {
    let mut bench = Bench::with_two();
    let killed = bench.command(AgentCommand::Kill);
    for slot in 0..2 {
        assert!(killed.contains(&signal(slot, Signal::Kill)), "{killed:?}");
    }
    assert_eq!(bench.command(AgentCommand::Kill), []);
    let later = bench.pass(seconds(10), true);
    let signals = |command: &&Command| matches!(command, Command::Signal { .. });
    assert_eq!(later.iter().filter(signals).count(), 0, "{later:?}");
}

#[test]
fn a_driver_that_starts_groups_hears_of_attaches_and_of_a_port_before_each_exit() {
    let mut bench = Bench::new();
    bench.command(spawn(0, 1));
    let process = process(0, 1);
    let attached = bench.event(Event::Attached { process });
    assert!(attached.contains(&Command::AgentReport(AgentReport::Attached { process })));
    let out = bench.event(exited(0, Exit::Code(1)));
    let reports: Vec<_> = (out.iter())
        .filter_map(|command| match command {
            Command::AgentReport(report) => Some(report),
            _ => None,
        })
        .collect();
    assert!(
        matches!(
            reports[..],
            [
                AgentReport::FreePort { port: 7 },
                AgentReport::Exited { .. }
            ]
        ),
        "{reports:?}"
    );
}
