//! Drivers that die one after the other, and groups that are cut off in turn: what the last one must know of those before.

use elasticrun_core::{
    Decision, Event, RestartMode, Settings,
    results::{Outcome, Reason},
};
use elasticrun_protocol::{
    AgentCommand, AgentReport, FromAgent, Round,
    control::{AdoptedPhase, Adoption, Exit, Kept, StopReason},
};

use crate::{
    harness::{Harness, commit, host, seconds},
    later_driver::{
        assert_stopped, elastic, exited, kept_of, scripts, took_over, trains, went_on_without_a,
    },
    returning::rounds,
};

/// The commands to end a round on a host.
fn aborts(harness: &Harness, name: &str) -> usize {
    let aborts = |(host, command): &&(_, AgentCommand)| {
        *host == name.into() && matches!(command, AgentCommand::Abort { .. })
    };
    harness.sent.iter().filter(aborts).count()
}

fn process_mode(settings: Settings) -> Settings {
    Settings {
        restart_mode: RestartMode::Process,
        ..settings
    }
}

/// The first driver has started round 1 on a. The second one knows nothing of it and has gone on with b. The third one knows
/// only that a later round was planned. The two drivers lost this many of their last records. Gives what the agent of a has kept.
fn third_driver(first: usize, second: usize) -> Option<(Harness, Adoption)> {
    let mut harness = Harness::new(Settings {
        spares: 2,
        ..Settings::elastic(2, 1, Some(2))
    });
    let list = [host("a", 2), host("b", 2)];
    harness.returns = true;
    harness.list(&list);
    assert_eq!(harness.members(), [("a".into(), 0), ("a".into(), 1)]);
    let of_a = kept_of(&harness, "a");
    harness.driver_dies(first);
    let (_, started) = harness.recorded_rounds()?;
    if started.is_some() {
        return None;
    }
    harness.unreachable.insert("a".into());
    harness.list(&list);
    harness.comes_back_with_workers("b");
    harness.pass_with(&["b"], seconds(30));
    assert_eq!(rounds(&harness), 1, "{first}");
    harness.driver_dies(second);
    let (planned, started) = harness.recorded_rounds()?;
    (started.is_none() && planned > Round(1)).then_some((harness, of_a))
}

/// A later round may train where no agent is back.
#[test]
fn a_round_that_a_driver_has_gone_on_without_ends_as_soon_as_its_agent_is_back() {
    let mut found = false;
    let lost = (0..8).flat_map(|first| (0..8).map(move |second| (first, second)));
    for (mut harness, of_a) in lost.filter_map(|(first, second)| third_driver(first, second)) {
        found = true;
        harness.comes_back_as("a", of_a);
        assert_eq!(aborts(&harness, "a"), 1, "{:?}", harness.sent);
    }
    assert!(found);
}

/// Round 2 was planned on b, and its start is not recorded. The second driver has met another agent on b.
#[test]
fn the_next_driver_waits_as_well_for_a_round_of_which_no_member_is_known() {
    let mut found = false;
    for (mut harness, _) in (0..6).filter_map(went_on_without_a) {
        found = true;
        let list = [host("a", 2), host("b", 2)];
        let fence = harness.job.settings().fence;
        harness.lose_silently("b");
        harness.list(&list);
        harness.comes_back_with_workers("a");
        harness.connects("b");
        harness.pass_with(&["a", "b"], fence - seconds(1));
        assert!(took_over(&harness) && rounds(&harness) == 0);
        harness.driver_dies(0);
        harness.list(&list);
        harness.comes_back_with_workers("a");
        harness.comes_back_with_workers("b");
        assert!(took_over(&harness), "no other agent is awaited");
        harness.pass_with(&["a", "b"], fence - seconds(1));
        assert_eq!(rounds(&harness), 0, "R11");
        harness.pass_with(&["a", "b"], seconds(2));
        assert_eq!(rounds(&harness), 1);
    }
    assert!(found);
}

/// A has left round 2, whose start is not recorded. All members of round 1 failed in it or later.
#[test]
fn failures_of_the_members_of_an_earlier_round_do_not_end_the_job() {
    let mut harness = trains(elastic());
    let mut of_a = kept_of(&harness, "a");
    harness.driver_dies(0);
    for slot in [0, 1] {
        let process = harness.forgets("b", slot);
        harness.says_to_nobody("b", exited(process, Exit::Code(1)));
    }
    harness.comes_back_with_workers("b");
    for (worker, number) in of_a.workers.iter_mut().zip(1..) {
        harness.forgets("a", worker.process.local_rank.0);
        of_a.kept
            .push(Kept::new(worker.process, &[commit(2, number).into()]));
    }
    let ends = of_a.workers.drain(..).map(|worker| worker.process);
    of_a.round = None;
    of_a.reports = ends
        .zip(1000..)
        .map(|(process, number)| FromAgent {
            epoch: of_a.epoch,
            number,
            report: exited(process, Exit::Code(1)),
        })
        .collect();
    harness.comes_back_as("a", of_a);
    assert!(took_over(&harness));
    assert_eq!(harness.outcome, None);
}

#[test]
fn processes_of_a_group_are_in_no_round_once_another_is_found_to_have_the_sdk() {
    let mut harness = scripts(Settings {
        restart_mode: RestartMode::Auto,
        ..elastic()
    });
    harness.driver_dies(0);
    harness.comes_back_with_workers("a");
    let mut adoption = harness.adoption("b");
    for worker in &mut adoption.workers {
        (worker.attached, worker.phase) = (true, AdoptedPhase::Joined);
    }
    harness.comes_back_as("b", adoption);
    let census = harness.job.fleet().census();
    assert_eq!(
        (census.starting, census.waiting, census.training),
        (2, 2, 0)
    );
}

#[test]
fn the_elastic_timeout_waits_for_starts_whose_time_began_with_an_attach() {
    let mut harness = scripts(Settings {
        restart_mode: RestartMode::Auto,
        elastic_timeout: seconds(30),
        start_timeout: seconds(60),
        ..Settings::elastic(4, 4, Some(4))
    });
    harness.pass(seconds(20));
    harness.joins("a", 0);
    harness.pass(seconds(59));
    assert_eq!(harness.outcome, None);
    for (name, slot) in [("a", 1), ("b", 0), ("b", 1)] {
        harness.joins(name, slot);
    }
    assert_eq!((rounds(&harness), harness.size()), (1, 4));
}

/// Process a:0 was lost, and the driver died before it heard how it had ended.
#[test]
fn the_exit_of_a_failed_worker_is_known_although_the_job_is_stopped_meanwhile() {
    let mut harness = trains(elastic());
    let process = harness.current("a", 0);
    let silent = false;
    harness.report("a", AgentReport::WorkerLost { process, silent });
    harness.driver_dies(0);
    harness.forgets("a", 0);
    let exit = Exit::Signal(9);
    harness.comes_back_and_says("a", vec![exited(process, exit.clone())]);
    assert!(!took_over(&harness), "b is not back");
    harness.event(Event::StopRequested { signal: 15 });
    let first = harness.job.results().first_failure();
    let first = first.expect("it is recorded");
    assert_eq!((first.process, &first.exit), (Some(process), &Some(exit)));
}

/// The first group was on a. The script of the second one was told to stop, and may run on while b is out of reach.
#[test]
fn the_end_of_a_process_of_an_earlier_group_says_nothing_of_the_last_one() {
    let mut harness = Harness::new(process_mode(Settings::elastic(1, 1, Some(2))));
    (harness.returns, harness.slow) = (true, true);
    harness.list(&[host("a", 1)]);
    let fence = harness.job.settings().fence;
    let of_a = kept_of(&harness, "a");
    harness.breaks_off("a");
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.pass_with(&["b"], fence + seconds(5));
    assert_eq!((harness.runs("a"), harness.runs("b")), (1, 1));
    harness.passive.extend(["a".into(), "b".into()]);
    harness.returns("a", of_a);
    harness.pass_with(&["a", "b"], seconds(3));
    let process = harness.current("b", 0);
    assert_stopped(&harness, "b", process, StopReason::Removed);
    harness.breaks_off("b");
    harness.passive.remove("a");
    harness.kill("a", 0);
    harness.pass_with(&["a"], seconds(3));
    assert_eq!(harness.runs("a"), 0, "R11");
    harness.pass_with(&["a"], fence + seconds(5));
    assert_eq!(harness.runs("a"), 1);
}

/// The agent of b, whose scripts may have failed, never comes back.
#[test]
fn scripts_of_one_host_are_no_success_if_their_group_is_unknown() {
    let mut found = 0;
    for lost in 0..10 {
        let mut harness = scripts(process_mode(Settings::elastic(2, 1, Some(4))));
        harness.driver_dies(lost);
        if harness
            .recorded_rounds()
            .is_none_or(|(_, started)| started.is_some())
        {
            continue;
        }
        found += 1;
        let ends = [0, 1].map(|slot| exited(harness.forgets("a", slot), Exit::Code(0)));
        harness.comes_back_and_says("a", ends.to_vec());
        harness.unreachable.insert("b".into());
        harness.pass(seconds(30));
        assert!(took_over(&harness));
        assert_eq!(harness.outcome, None, "{lost}");
    }
    assert!(found > 0);
}

/// The script of c has ended, and c has left.
#[test]
fn a_script_on_a_host_that_has_left_takes_no_slot_of_others() {
    let mut harness = Harness::new(Settings {
        restart_mode: RestartMode::InProcess,
        ..Settings::elastic(2, 2, Some(2))
    });
    harness.slow = true;
    harness.list(&[host("c", 1), host("a", 1), host("b", 1)]);
    harness.ends("c", 0, Exit::Code(0));
    harness.joins("a", 0);
    for _ in 0..2 {
        harness.list(&[host("a", 1), host("b", 1)]);
    }
    let waits = |note: &Decision| matches!(note, Decision::WaitingForSlots { .. });
    assert!(!harness.notes.iter().any(waits), "{:?}", harness.notes);
    harness.joins("b", 0);
    assert_eq!((rounds(&harness), harness.size()), (1, 2));
}

/// The agent of a said how its workers had ended, and was out of reach as the agents of the others were given up.
#[test]
fn the_end_of_a_member_counts_although_its_host_is_away_when_the_take_over_ends() {
    let mut harness = trains(elastic());
    for slot in [0, 1] {
        harness.finishes("a", slot);
    }
    harness.driver_dies(0);
    let ends = [0, 1].map(|slot| exited(harness.forgets("a", slot), Exit::Code(slot as i32)));
    harness.comes_back_and_says("a", ends.to_vec());
    harness.unreachable.insert("b".into());
    harness.breaks_off("a");
    let limit = harness.job.settings().take_over();
    harness.pass(limit + seconds(1));
    assert!(took_over(&harness));
    let expected = Outcome::WorkerFailed(Reason::NotAllSucceeded);
    assert_eq!(harness.outcome, Some(expected));
}

/// Seed 910301 of the simulation.
#[test]
fn a_failure_counts_once_although_its_host_is_away_when_the_take_over_ends() {
    let mut harness = trains(elastic());
    let process = harness.current("a", 0);
    let lost = AgentReport::WorkerLost {
        process,
        silent: false,
    };
    harness.report("a", lost);
    let end = exited(harness.forgets("a", 0), Exit::Code(3));
    harness.driver_dies(0);
    harness.comes_back_and_says("a", vec![end]);
    harness.unreachable.insert("b".into());
    harness.breaks_off("a");
    let limit = harness.job.settings().take_over();
    harness.pass(limit + seconds(1));
    assert!(took_over(&harness));
    let failures = harness.job.results().failures();
    harness.driver_dies(0);
    let kept = harness.adoption("a");
    harness.comes_back_as("a", kept);
    assert_eq!(harness.job.results().failures(), failures);
}
