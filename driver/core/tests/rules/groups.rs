//! Process mode: workers without the SDK start, and end, as a group.

use std::net::SocketAddr;

use elasticrun_core::{
    Decision, RestartMode, Settings,
    results::{Outcome, Reason},
};
use elasticrun_protocol::{
    AgentCommand, AgentReport,
    control::{Exit, ResumeFrom, Spawn, StopReason},
};

use crate::{
    harness::{Harness, draining, host, range, seconds},
    hosts::elastic,
};

fn process(np: u32, min: u32, max: u32) -> Settings {
    Settings {
        restart_mode: RestartMode::Process,
        ..elastic(np, min, max)
    }
}

/// A job of scripts, whose processes never join.
fn scripts(settings: Settings) -> Harness {
    let mut harness = Harness::new(settings);
    harness.slow = true;
    harness
}

/// All spawn orders so far, in the order of sending.
fn spawns(harness: &Harness) -> Vec<(String, Spawn)> {
    let spawn = |(host, command): &(elasticrun_protocol::HostId, AgentCommand)| match command {
        AgentCommand::Spawn(spawn) => Some((host.to_string(), spawn.clone())),
        _ => None,
    };
    harness.sent.iter().filter_map(spawn).collect()
}

/// The last `size` of [`spawns`], which must be one group: dense ranks, one size, one coordinator.
fn last_group(harness: &Harness, size: usize) -> Vec<(String, Spawn)> {
    let all = spawns(harness);
    let group = all[all.len() - size..].to_vec();
    let ranks: Vec<_> = group.iter().map(|(_, s)| s.place.rank.0).collect();
    assert_eq!(ranks, (0..size as u32).collect::<Vec<_>>(), "R1");
    for (_, spawn) in &group {
        assert_eq!(spawn.place.size as usize, size);
        assert_eq!(spawn.coordinator, group[0].1.coordinator);
    }
    group
}

fn coordinator(harness: &Harness, size: usize) -> SocketAddr {
    last_group(harness, size)[0].1.coordinator
}

fn groups(harness: &Harness) -> usize {
    let started = |note: &&Decision| matches!(note, Decision::GroupStarted { .. });
    harness.notes.iter().filter(started).count()
}

fn succeed(harness: &mut Harness, members: &[(&str, u32)]) {
    for (host, slot) in members {
        harness.ends(host, *slot, Exit::Code(0));
    }
}

#[test]
fn a_script_may_run_longer_than_the_start_timeout() {
    let mut harness = scripts(Settings {
        start_timeout: seconds(5),
        ..elastic(2, 1, 2)
    });
    harness.list(&[host("a", 2)]);
    harness.pass(seconds(3_000));
    assert_eq!((harness.outcome.clone(), harness.runs("a")), (None, 2));
    succeed(&mut harness, &[("a", 0), ("a", 1)]);
    assert_eq!(harness.outcome, Some(Outcome::Succeeded));
}

#[test]
fn a_group_starts_as_one_with_ranks_that_belong_together() {
    let mut harness = scripts(process(4, 2, 4));
    harness.passive.insert("b".into());
    harness.list(&[host("a", 2), host("b", 2)]);
    assert!(
        spawns(&harness).is_empty(),
        "the agent of b is not there yet"
    );
    harness.connects("b");
    let group = last_group(&harness, 4);
    let places: Vec<_> = (group.iter())
        .map(|(host, s)| (host.as_str(), s.place.local_size, s.place.cross_rank))
        .collect();
    assert_eq!(places, [("a", 2, 0), ("a", 2, 0), ("b", 2, 1), ("b", 2, 1)]);
}

#[test]
fn a_failed_worker_without_a_restart_fails_the_job_at_once_and_is_named() {
    // In mode auto the other workers might have the SDK, so the job waits for them.
    for (settings, wait) in [(process(4, 2, 4), 0), (elastic(4, 2, 4), 30)] {
        let mut harness = scripts(settings);
        harness.list(&[host("a", 4)]);
        harness.ends("a", 1, Exit::Code(7));
        harness.pass(seconds(wait));
        let reason = Reason::NoRestartLeft { allowed: 0 };
        assert_eq!(harness.outcome, Some(Outcome::WorkerFailed(reason)));
        let first = harness.job.results().first_failure().expect("it is named");
        let rank = first.member.map(|(rank, _)| rank.0);
        assert_eq!((rank, first.exit.clone()), (Some(1), Some(Exit::Code(7))));
    }
}

#[test]
fn in_mode_auto_a_failure_of_all_is_not_waited_upon() {
    let mut harness = scripts(elastic(2, 1, 2));
    harness.list(&[host("a", 2)]);
    harness.ends("a", 1, Exit::Code(7));
    assert_eq!(harness.outcome, None);
    harness.ends("a", 0, Exit::Code(7));
    let reason = Reason::NoRestartLeft { allowed: 0 };
    assert_eq!(harness.outcome, Some(Outcome::WorkerFailed(reason)));
}

#[test]
fn in_mode_auto_a_change_does_not_forgive_a_failure() {
    let mut harness = scripts(elastic(2, 1, 2));
    harness.list(&[host("a", 2), host("b", 1)]);
    harness.ends("a", 1, Exit::Code(7));
    harness.list(&[draining("a", 2), host("b", 1)]);
    let reason = Reason::NoRestartLeft { allowed: 0 };
    assert_eq!(harness.outcome, Some(Outcome::WorkerFailed(reason)));
}

#[test]
fn in_mode_auto_workers_that_attach_go_on_without_one_that_failed_before() {
    let mut harness = scripts(Settings {
        cooldown: elasticrun_core::Cooldown::Forever,
        ..elastic(2, 1, 3)
    });
    harness.list(&[host("a", 3)]);
    harness.ends("a", 1, Exit::Code(4));
    harness.pass(seconds(20));
    harness.joins("a", 0);
    harness.joins("a", 2);
    assert_eq!((harness.started(), harness.size()), (1, 2));
    harness.finish_all();
    assert_eq!(harness.outcome, Some(Outcome::Succeeded));
}

#[test]
fn a_failure_ends_the_whole_group_and_starts_it_anew_with_another_port() {
    let mut harness = scripts(Settings {
        max_restarts: 1,
        cooldown: range(0, 0),
        ..process(2, 2, 2)
    });
    harness.list(&[host("a", 2)]);
    let before = coordinator(&harness, 2);
    harness.report("a", AgentReport::FreePort { port: 77 });
    harness.ends("a", 1, Exit::Code(7));
    // Nothing else ends the survivor, so the driver commands its agent to stop it.
    let told = |(_, command): &&(_, AgentCommand)| matches!(command, AgentCommand::Stop { process, .. } if process.local_rank.0 == 0);
    assert_eq!(harness.sent.iter().filter(told).count(), 1);
    assert_eq!(groups(&harness), 2);
    assert_ne!(coordinator(&harness, 2), before);
    let restarts = last_group(&harness, 2)[0].1.restarts.expect("of a group");
    assert_eq!((restarts.used, restarts.allowed), (1, 1));
    harness.ends("a", 0, Exit::Signal(11));
    let reason = Reason::NoRestartLeft { allowed: 1 };
    assert_eq!(harness.outcome, Some(Outcome::WorkerFailed(reason)));
}

#[test]
fn the_next_group_waits_until_the_last_one_is_reaped() {
    let mut harness = scripts(Settings {
        max_restarts: 1,
        cooldown: range(0, 0),
        ..process(2, 1, 2)
    });
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.passive.insert("b".into());
    harness.ends("a", 0, Exit::Code(1));
    harness.pass(seconds(20));
    assert_eq!(spawns(&harness).len(), 2, "b ignores SIGTERM");
    harness.ends("b", 0, Exit::Signal(9));
    last_group(&harness, 2);
    assert_eq!(
        (groups(&harness), harness.blacklisted()),
        (2, 1),
        "b is not blamed"
    );
}

#[test]
fn a_late_exit_of_the_last_group_changes_nothing() {
    let mut harness = scripts(Settings {
        max_restarts: 3,
        cooldown: range(0, 0),
        ..process(2, 2, 2)
    });
    harness.list(&[host("a", 2)]);
    let old = harness.current("a", 0);
    harness.ends("a", 1, Exit::Code(1));
    let (exit, tail) = (Exit::Code(3), Vec::new());
    harness.report(
        "a",
        AgentReport::Exited {
            process: old,
            exit,
            tail,
            stopped: false,
        },
    );
    assert_eq!((groups(&harness), harness.outcome.clone()), (2, None), "R3");
}

#[test]
fn success_needs_every_member() {
    let mut harness = scripts(process(2, 1, 2));
    harness.list(&[host("a", 2)]);
    harness.ends("a", 0, Exit::Code(0));
    assert_eq!(harness.outcome, None);
    harness.ends("a", 1, Exit::Code(3));
    let reason = Reason::NotAllSucceeded;
    assert_eq!(harness.outcome, Some(Outcome::WorkerFailed(reason)));
}

#[test]
fn after_the_first_success_the_others_get_the_exit_timeout() {
    let mut harness = scripts(process(2, 1, 2));
    harness.list(&[host("a", 2)]);
    harness.ends("a", 0, Exit::Code(0));
    harness.pass(seconds(299));
    assert_eq!(harness.outcome, None);
    harness.pass(seconds(1));
    let reason = Reason::ExitTimeout;
    assert_eq!(harness.outcome, Some(Outcome::WorkerFailed(reason)));
}

#[test]
fn a_growth_is_one_group_and_uses_no_restart() {
    let mut harness = scripts(process(2, 1, 4));
    harness.list(&[host("a", 2)]);
    harness.passive.insert("c".into());
    harness.list(&[host("a", 2), host("b", 1), host("c", 1)]);
    assert_eq!(groups(&harness), 1, "c may come within the last call");
    harness.connects("c");
    let group = last_group(&harness, 4);
    assert_eq!(
        (groups(&harness), group[0].1.restarts.map(|r| r.used)),
        (2, Some(0))
    );
    harness.list(&[host("a", 2), host("b", 1), host("c", 1), host("d", 3)]);
    harness.pass(seconds(60));
    assert_eq!(groups(&harness), 2, "no worker beyond max_np");
}

#[test]
fn hosts_that_come_one_by_one_within_the_last_call_are_one_growth() {
    let mut harness = scripts(process(1, 1, 9));
    let names = ["a", "b", "c", "d"];
    let hosts: Vec<_> = names.map(|name| host(name, 1)).into();
    for known in 1..=4 {
        harness.list(&hosts[..known]);
        harness.pass(std::time::Duration::from_millis(300));
    }
    assert_eq!(groups(&harness), 1);
    harness.pass(seconds(1));
    last_group(&harness, 4);
    assert_eq!(groups(&harness), 2);
}

#[test]
fn hosts_that_register_themselves_are_waited_for_until_the_last_call_is_over() {
    let mut harness = scripts(Settings {
        self_registration: true,
        ..process(2, 1, 4)
    });
    for name in ["a", "b", "c"] {
        harness.connects(name);
    }
    assert_eq!(groups(&harness), 0);
    harness.pass(seconds(1));
    last_group(&harness, 3);
    assert_eq!(groups(&harness), 1);
}

#[test]
fn a_growth_does_not_wait_for_a_host_that_does_not_come() {
    let mut harness = scripts(process(1, 1, 4));
    harness.list(&[host("a", 1)]);
    harness.passive.insert("c".into());
    harness.list(&[host("a", 1), host("b", 1), host("c", 1)]);
    harness.pass(seconds(1));
    last_group(&harness, 2);
    assert_eq!(groups(&harness), 2);
}

#[test]
fn a_growth_waits_while_it_is_not_known_whether_the_workers_attach() {
    let mut harness = scripts(elastic(1, 1, 2));
    harness.list(&[host("a", 1)]);
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.pass(seconds(29));
    assert_eq!(groups(&harness), 1);
    harness.pass(seconds(1));
    assert_eq!(groups(&harness), 2);
    let told = harness
        .notes
        .iter()
        .filter(|note| **note == Decision::ProcessMode);
    assert_eq!(told.count(), 1);
}

#[test]
fn a_former_run_that_no_worker_asks_for_is_announced_once() {
    for resume_from in [None, Some(ResumeFrom::Latest)] {
        let unused = |harness: &Harness| {
            let notes = harness.notes.iter();
            notes
                .filter(|note| **note == Decision::DurableUnused)
                .count()
        };
        let expected = usize::from(resume_from.is_some());
        let job = |max| {
            let mut harness = scripts(Settings {
                durable: true,
                resume_from: resume_from.clone(),
                ..elastic(1, 1, max)
            });
            harness.list(&[host("a", 1)]);
            harness
        };
        let mut ends = job(1);
        assert_eq!(unused(&ends), 0, "workers may still attach");
        succeed(&mut ends, &[("a", 0)]);
        assert_eq!(
            (unused(&ends), ends.outcome),
            (expected, Some(Outcome::Succeeded))
        );
        let mut grows = job(2);
        grows.list(&[host("a", 1), host("b", 1)]);
        grows.pass(seconds(30));
        assert_eq!((groups(&grows), unused(&grows)), (2, expected));
        succeed(&mut grows, &[("a", 0), ("b", 0)]);
        assert_eq!(unused(&grows), expected);
    }
}

#[test]
fn a_drained_host_is_left_by_a_new_group() {
    let mut harness = scripts(process(2, 1, 2));
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.list(&[host("a", 1), draining("b", 1)]);
    let group = last_group(&harness, 1);
    assert_eq!((groups(&harness), group[0].0.as_str()), (2, "a"));
    let drained =
        |note: &Decision| matches!(note, Decision::Drained { host } if *host == "b".into());
    assert!(harness.notes.iter().any(drained));
}

#[test]
fn a_draining_host_that_is_needed_is_left_when_its_time_is_almost_over() {
    let mut harness = scripts(process(2, 2, 2));
    harness.list(&[host("a", 1), host("b", 1)]);
    let mut record = draining("b", 1);
    record.deadline = Some(seconds(100));
    harness.list(&[host("a", 1), record.clone()]);
    harness.pass(seconds(69));
    assert_eq!(harness.runs("b"), 1);
    harness.pass(seconds(1));
    assert_eq!(
        (harness.runs("a"), harness.runs("b"), groups(&harness)),
        (0, 0, 1)
    );
    harness.list(&[host("a", 1), record, host("c", 1)]);
    last_group(&harness, 2);
}

#[test]
fn a_host_that_is_lost_ends_the_group_and_uses_no_restart() {
    let mut harness = scripts(process(4, 2, 4));
    harness.list(&[host("a", 2), host("b", 2)]);
    harness.unreachable.insert("b".into());
    harness.lose("b");
    let group = last_group(&harness, 2);
    assert_eq!(group[0].1.restarts.map(|r| r.used), Some(0));
    assert_eq!((groups(&harness), harness.outcome.clone()), (2, None));
}

#[test]
fn members_that_are_only_cut_off_are_fenced() {
    let mut harness = scripts(Settings {
        cooldown: range(0, 0),
        ..process(1, 1, 1)
    });
    harness.list(&[host("a", 1)]);
    harness.lose("a");
    harness.pass(seconds(10));
    assert_eq!(groups(&harness), 1, "R11");
    harness.pass(seconds(1));
    assert_eq!(groups(&harness), 2);
}

#[test]
fn members_that_are_told_to_end_and_then_cut_off_are_fenced() {
    let mut harness = scripts(Settings {
        self_registration: true,
        last_call: seconds(5),
        ..process(1, 1, 2)
    });
    harness.connects("a");
    harness.pass(seconds(5));
    harness.passive.insert("a".into());
    harness.connects("b");
    let ended = |note: &&Decision| matches!(note, Decision::GroupEnded { .. });
    assert_eq!(
        harness.notes.iter().filter(ended).count(),
        1,
        "for a growth"
    );
    harness.lose("a");
    harness.pass(seconds(10));
    assert_eq!(
        groups(&harness),
        1,
        "R11: a worker that got no command trains on"
    );
    harness.pass(seconds(1));
    assert_eq!(groups(&harness), 2, "the last call is over by then");
}

#[test]
fn a_failure_is_forgiven_after_a_long_time_in_a_group() {
    for (health, failures) in [(90, 2), (110, 1)] {
        let mut harness = scripts(Settings {
            max_restarts: 9,
            cooldown: range(10, 100),
            max_host_failures: Some(2),
            ..process(2, 1, 2)
        });
        harness.list(&[host("a", 1), host("b", 1)]);
        harness.ends("b", 0, Exit::Code(1));
        harness.pass(seconds(10));
        harness.pass(seconds(1));
        assert_eq!(last_group(&harness, 2).len(), 2, "b is back");
        harness.pass(seconds(health));
        harness.ends("b", 0, Exit::Code(1));
        harness.pass(seconds(60));
        let is_back = failures == 1;
        let size = if is_back { 2 } else { 1 };
        last_group(&harness, size);
        assert_eq!(
            harness.runs("b"),
            usize::from(is_back),
            "after {health} s of health"
        );
    }
}

#[test]
fn a_host_that_is_gone_from_the_lists_is_left() {
    let mut harness = scripts(process(2, 1, 2));
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.list(&[host("a", 1)]);
    assert_eq!(groups(&harness), 1);
    harness.list(&[host("a", 1)]);
    last_group(&harness, 1);
    assert_eq!(groups(&harness), 2);
}

#[test]
fn fewer_than_min_np_wait_and_the_elastic_timeout_ends_it() {
    let mut harness = scripts(Settings {
        elastic_timeout: seconds(60),
        ..process(2, 2, 2)
    });
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.unreachable.insert("b".into());
    harness.lose("b");
    assert_eq!((groups(&harness), harness.runs("a")), (1, 0));
    harness.pass(seconds(59));
    assert_eq!(harness.outcome, None);
    harness.pass(seconds(1));
    assert!(matches!(harness.outcome, Some(Outcome::TimedOut { .. })));
}

#[test]
fn at_the_elastic_timeout_min_np_are_enough_for_the_first_group() {
    let mut harness = scripts(Settings {
        elastic_timeout: seconds(5),
        ..process(4, 2, 4)
    });
    harness.list(&[host("a", 2)]);
    harness.pass(seconds(4));
    assert_eq!(groups(&harness), 0);
    harness.pass(seconds(1));
    last_group(&harness, 2);
    assert_eq!(harness.outcome, None);
}

#[test]
fn groups_count_against_the_reset_limit() {
    let mut harness = scripts(Settings {
        reset_limit: Some(1),
        ..process(1, 1, 3)
    });
    harness.list(&[host("a", 1)]);
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.pass(seconds(1));
    assert_eq!((groups(&harness), harness.outcome.clone()), (2, None));
    harness.list(&[host("a", 1), host("b", 1), host("c", 1)]);
    assert_eq!(harness.outcome, Some(Outcome::ResetLimit { limit: 1 }));
}

#[test]
fn without_a_cooldown_all_slots_are_used_again_at_once() {
    let mut harness = scripts(Settings {
        max_restarts: 10,
        max_host_failures: None,
        cooldown: range(0, 0),
        ..process(2, 2, 2)
    });
    harness.list(&[host("a", 2)]);
    for restart in 1..=10 {
        harness.ends("a", restart % 2, Exit::Signal(9));
        assert_eq!(
            (groups(&harness), harness.runs("a")),
            (restart as usize + 1, 2)
        );
    }
    harness.ends("a", 0, Exit::Signal(9));
    let reason = Reason::NoRestartLeft { allowed: 10 };
    assert_eq!(harness.outcome, Some(Outcome::WorkerFailed(reason)));
}

#[test]
fn a_worker_that_attaches_ends_process_mode() {
    let mut harness = scripts(Settings {
        start_timeout: seconds(60),
        ..elastic(2, 1, 2)
    });
    harness.list(&[host("a", 2)]);
    harness.pass(seconds(100));
    let process = harness.current("a", 0);
    harness.report("a", AgentReport::Attached { process });
    assert_eq!((harness.outcome.clone(), harness.started()), (None, 0));
    harness.joins("a", 0);
    harness.pass(seconds(59));
    assert_eq!(harness.runs("a"), 2);
    // The other process never attaches. Its start timeout counts from the first attach.
    harness.pass(seconds(2));
    let slow = |(_, command): &(_, AgentCommand)| matches!(command, AgentCommand::Stop { why, .. } if *why == StopReason::TimedOut);
    assert!(harness.sent.iter().any(slow));
}

#[test]
fn with_the_sdk_the_first_round_is_the_first() {
    for mode in [
        RestartMode::Auto,
        RestartMode::InProcess,
        RestartMode::Process,
    ] {
        let mut harness = Harness::new(Settings {
            restart_mode: mode,
            ..elastic(2, 1, 3)
        });
        harness.list(&[host("a", 2)]);
        assert_eq!((harness.started(), harness.size()), (1, 2));
        harness.list(&[host("a", 2), host("b", 1)]);
        assert_eq!((harness.started(), harness.size()), (2, 3));
        harness.finish_all();
        assert_eq!(harness.outcome, Some(Outcome::Succeeded));
    }
}
