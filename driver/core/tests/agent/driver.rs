//! Drivers that are old, silent or lost, and the end of the agent itself.

use elasticrun_core::agent::{Command, Event};
use elasticrun_protocol::{
    DriverEpoch, Order, Report, Round, ToAgent,
    control::{Exit, StopReason},
};

use crate::bench::*;

#[test]
fn an_older_driver_is_not_obeyed() {
    let mut bench = Bench::training();
    let old = ToAgent {
        epoch: DriverEpoch(2),
        order: Order::Abort { round: Round(1) },
    };
    assert_eq!(bench.event(Event::Ordered(old)), [], "R3");
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
        "nobody says how far to run"
    );
    // What the driver said four seconds ago comes now: the beat it answers was sent even earlier.
    bench.pass(seconds(3), false);
    bench.order(Order::Beat { heard: 1 });
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
        "it stops training at once"
    );
}

#[test]
fn a_driver_that_was_silent_and_answers_again_is_obeyed() {
    let mut bench = Bench::training();
    bench.pass(seconds(8), false);
    bench.order(Order::Beat { heard: 8 });
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
                Command::Report(Report::Exited { .. } | Report::Lost { .. })
            )
        };
        let out = bench.event(exited(slot, Exit::Signal(15)));
        assert!(
            !out.iter().any(reports),
            "it is lost with its agent: {out:?}"
        );
    }
    assert!(bench.machine.has_ended());
}
