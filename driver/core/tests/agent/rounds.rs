//! Plans, holds, and what workers report of rounds.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use elasticrun_core::agent::{Command, Event, Signal};
use elasticrun_protocol::{
    AgentCommand, AgentReport, Boundary, FromWorker, Process, Round, control::Exit,
};

use crate::bench::*;

#[test]
fn a_slot_has_one_process_and_an_old_start_is_not_repeated() {
    let mut bench = Bench::new();
    assert!(matches!(
        bench.command(spawn(0, 1))[..],
        [Command::Spawn(_)]
    ));
    assert_eq!(bench.command(spawn(0, 2)), [], "R4");
    bench.event(exited(0, Exit::Code(1)));
    assert_eq!(bench.command(spawn(0, 1)), [], "R3");
    assert!(matches!(
        bench.command(spawn(0, 2))[..],
        [Command::Spawn(_)]
    ));
}

#[test]
fn workers_that_join_together_are_one_message() {
    let mut bench = Bench::new();
    for slot in 0..3 {
        bench.command(spawn(slot, 1));
        assert_eq!(bench.joins(slot, None, true), []);
    }
    let out = bench.flush();
    assert!(
        matches!(&out[..], [Command::AgentReport(AgentReport::Waiting { workers })] if workers.len() == 3)
    );
    assert_eq!(bench.flush(), []);
}

#[test]
fn a_plan_is_answered_when_all_its_members_are_back_with_what_the_dead_have_left() {
    let mut bench = Bench::training();
    bench.command(spawn(2, 1));
    bench.joins(2, None, true);
    bench
        .memory
        .commits
        .insert(process(0, 1), vec![commit(1, 2), commit(1, 1)]);
    bench
        .memory
        .commits
        .insert(process(1, 1), vec![commit(1, 3)]);
    let out = bench.event(Event::Died {
        process: process(1, 1),
    });
    let abort = Command::Abort {
        round: Round(1),
        members: vec![process(0, 1)],
    };
    assert!(
        out.contains(&abort),
        "its peers here need not wait for the driver"
    );
    bench.event(exited(1, Exit::Signal(9)));
    assert_eq!(bench.plan(2, &[0, 2]), []);
    let out = bench.joins(0, Some(1), true);
    let [
        Command::AgentReport(AgentReport::Ready {
            round: Round(2),
            members,
            kept,
            ..
        }),
    ] = &out[..]
    else {
        panic!("{out:?}");
    };
    let held: Vec<_> = members.iter().map(|held| held.commit).collect();
    assert_eq!(held, [Some(commit(1, 2)), None]);
    let kept = |slot| kept.iter().find(|kept| kept.process == process(slot, 1));
    let commits = |slot| kept(slot).map(|kept| kept.commits.clone());
    assert_eq!(commits(1), Some(vec![commit(1, 3)]), "R12");
    let older = Some(vec![commit(1, 1)]);
    assert_eq!(commits(0), older, "the newest may be void");
    let out = bench.start(2, &[0, 2], Some(commit(1, 3)));
    assert!(
        !out.iter().any(|c| matches!(c, Command::Forget { .. })),
        "the commit is the base"
    );
    bench.command(AgentCommand::Abort { round: Round(2) });
    bench.joins(0, Some(2), true);
    bench.joins(2, Some(2), true);
    bench.plan(3, &[0, 2]);
    let out = bench.start(3, &[0, 2], Some(commit(2, 1)));
    assert!(out.contains(&Command::Forget {
        process: process(1, 1)
    }));
}

#[test]
fn copies_of_one_commit_are_kept_once() {
    let mut bench = Bench::with_two();
    bench.plan(1, &[0, 1]);
    bench.start(1, &[0, 1], None);
    let base = Some(commit(1, 1));
    bench
        .memory
        .commits
        .insert(process(0, 1), vec![commit(1, 1)]);
    let mut kept: BTreeSet<Process> = BTreeSet::new();
    // Each process of slot 1 gets the base and dies before it commits.
    for generation in 1..=100 {
        let dead = process(1, generation);
        bench.memory.commits.insert(dead, vec![commit(1, 1)]);
        bench.event(Event::Exited {
            process: dead,
            exit: Exit::Signal(9),
            tail: Vec::new(),
        });
        kept.insert(dead);
        let round = u64::from(generation) + 1;
        bench.joins(0, Some(round - 1), true);
        bench.plan(round, &[0]);
        for command in bench.start_from(round, &[0], base, Some(dead)) {
            if let Command::Forget { process } = command {
                assert!(kept.remove(&process), "it is forgotten once");
                bench.memory.commits.remove(&process);
            }
        }
        assert_eq!(kept, BTreeSet::from([dead]), "rank 0 gets the base from it");
        bench.command(AgentCommand::Abort {
            round: Round(round),
        });
        bench.command(spawn(1, generation + 1));
    }
}

#[test]
fn a_plan_waits_for_those_who_run_to_the_boundary_planned_or_not() {
    let mut bench = Bench::training();
    bench.command(AgentCommand::Hold { round: Round(1) });
    bench.command(AgentCommand::Leave {
        round: Round(1),
        at: Boundary(5),
    });
    assert_eq!(bench.plan(2, &[]), [], "R11");
    assert_eq!(bench.joins(0, Some(1), true), []);
    let out = bench.joins(1, Some(1), true);
    assert!(matches!(
        out[..],
        [Command::AgentReport(AgentReport::Ready {
            round: Round(2),
            ..
        })]
    ));
    assert!(
        matches!(&bench.flush()[..], [Command::AgentReport(AgentReport::Waiting { workers })] if workers.len() == 2)
    );
}

#[test]
fn who_dies_after_the_answer_stays_dead() {
    let mut bench = Bench::with_two();
    bench.plan(1, &[0, 1]);
    bench.event(Event::Died {
        process: process(0, 1),
    });
    bench.start(1, &[0, 1], None);
    assert_eq!(
        bench.event(Event::Died {
            process: process(0, 1)
        }),
        [],
        "a process is lost once"
    );
}

#[test]
fn a_hold_is_counted_and_not_repeated_once_it_is_taken_back() {
    let mut bench = Bench::training();
    bench.memory.counts = BTreeMap::from([(process(0, 1), 4), (process(1, 1), 6)]);
    let counted = Command::AgentReport(AgentReport::BoundaryCounted {
        round: Round(1),
        highest: Boundary(6),
    });
    assert_eq!(
        bench.command(AgentCommand::Hold { round: Round(1) }),
        [counted]
    );
    bench.command(AgentCommand::Withdraw { round: Round(1) });
    let calls = bench.memory.calls.len();
    assert_eq!(bench.command(AgentCommand::Hold { round: Round(1) }), []);
    bench.command(AgentCommand::Leave {
        round: Round(1),
        at: Boundary(7),
    });
    assert_eq!(bench.memory.calls.len(), calls, "R3");
}

#[test]
fn who_breaks_away_is_told_from_who_leaves() {
    let mut bench = Bench::training();
    let broken = |slot| {
        Command::AgentReport(AgentReport::PeerLost {
            round: Round(1),
            process: process(slot, 1),
            unreachable: Vec::new(),
        })
    };
    assert_eq!(bench.joins(0, Some(1), false), [broken(0)]);
    bench.command(AgentCommand::Leave {
        round: Round(1),
        at: Boundary(3),
    });
    assert_eq!(
        bench.joins(1, Some(1), false),
        [broken(1)],
        "the worker did not reach the boundary"
    );
}

#[test]
fn a_round_that_cannot_begin_here_is_reported_and_its_members_stay_where_they_are() {
    let mut bench = Bench::training();
    let (round, why) = (Round(1), "too many open files".to_owned());
    let out = bench.event(Event::CannotBegin {
        round,
        why: why.clone(),
    });
    assert_eq!(
        out,
        [Command::AgentReport(AgentReport::Unable { round, why })]
    );
    // The round has not begun, so no worker has to come back and the agent answers the next plan at once.
    assert_eq!(bench.command(AgentCommand::Abort { round }), []);
    let members = vec![process(0, 1), process(1, 1)];
    let out = bench.command(AgentCommand::Plan {
        round: Round(2),
        members,
    });
    assert!(
        matches!(&out[..], [Command::AgentReport(AgentReport::Ready { .. })]),
        "{out:?}"
    );
}

#[test]
fn a_worker_says_which_hosts_it_could_not_reach_even_after_the_abort() {
    let mut bench = Bench::training();
    let broken = |slot, unreachable| {
        Command::AgentReport(AgentReport::PeerLost {
            round: Round(1),
            process: process(slot, 1),
            unreachable,
        })
    };
    let faster = bench.joins_without(0, 1, false, vec![2]);
    assert_eq!(faster, [broken(0, vec![2])]);
    bench.command(AgentCommand::Abort { round: Round(1) });
    let slower = bench.joins_without(1, 1, true, vec![2, 3]);
    assert_eq!(slower, [broken(1, vec![2, 3])]);
}

#[test]
fn a_worker_that_finished_as_its_round_was_aborted_has_finished() {
    let mut bench = Bench::training();
    bench.command(AgentCommand::Abort { round: Round(1) });
    let message = FromWorker::Finished { round: Round(1) };
    let out = bench.event(Event::FromWorker {
        process: process(0, 1),
        message,
    });
    assert!(matches!(
        out[..],
        [Command::AgentReport(AgentReport::Finished { .. })]
    ));
    let killed = bench.pass(seconds(21), true);
    assert_eq!(killed[0], signal(1, Signal::Kill), "{killed:?}");
    assert!(!killed.contains(&signal(0, Signal::Kill)));
}

#[test]
fn a_silent_worker_of_the_last_round_does_not_hold_up_the_answer() {
    let mut bench = Bench::keeping(Duration::ZERO);
    let (round, at) = (Round(1), Boundary(5));
    bench.command(AgentCommand::Hold { round });
    bench.command(AgentCommand::Leave { round, at });
    bench.plan(2, &[0]);
    assert_eq!(
        bench.joins(0, Some(1), true),
        [],
        "another one still trains"
    );
    bench.memory.alive.remove(&process(1, 1));
    // Only what the machine commands by itself is collected, not its answers to events.
    let out = bench.pass(seconds(8), true);
    let answers = |command: &Command| matches!(command, Command::AgentReport(AgentReport::Ready { round, .. }) if *round == Round(2));
    assert!(out.iter().any(answers), "{out:?}");
}
