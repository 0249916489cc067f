//! W5: when reset callbacks run, what state they get, and whether their changes count.

use elasticrun_core::worker::{Event, Failure, Hooks, Machine, Over, SetupStep};

use super::{enter, member, round, start, step};

use SetupStep::{Adapt, FetchBase, RequireBase, Reset, Restore, RestoreNewest, SyncOwn, Train};

const SYNC: SetupStep = SetupStep::Sync { fresh: false };
const SYNC_FRESH: SetupStep = SetupStep::Sync { fresh: true };

const PLAIN: Hooks = Hooks {
    callbacks: false,
    restore: false,
    sync: false,
    divided: false,
};
const CALLBACKS: Hooks = Hooks {
    callbacks: true,
    ..PLAIN
};
const OWN_RESTORE: Hooks = Hooks {
    restore: true,
    ..PLAIN
};
const OWN_SYNC: Hooks = Hooks {
    sync: true,
    ..PLAIN
};

/// A machine that has committed in round 1, left it, and is in round 2 with this rank.
fn survivor(rank: u32, leave: impl FnOnce(&mut Machine)) -> Machine {
    let mut machine = member(rank, None);
    machine.committed(round(1).commit(1));
    leave(&mut machine);
    assert!(machine.leave(false, false).is_some());
    join(&mut machine, rank);
    machine
}

fn join(machine: &mut Machine, rank: u32) {
    let base = Some(round(1).commit(1));
    assert!(machine.join().is_ok());
    step(machine, Event::Started(start(2, rank, base)));
    assert!(machine.join().is_ok());
}

fn fails(machine: &mut Machine) {
    machine.failed(Failure::Lost { hosts: Vec::new() });
}

fn updates(machine: &mut Machine) {
    machine.leave_at_commit();
}

#[test]
fn a_newcomer_is_synced_and_nothing_else_of_it_looks_at_the_state() {
    for hooks in [PLAIN, CALLBACKS, OWN_RESTORE] {
        let machine = member(0, None);
        assert_eq!(machine.setup(hooks), Ok(vec![SYNC, Adapt, Train]));
    }
    let own = Ok(vec![RequireBase, SyncOwn, SYNC, Adapt, Train]);
    assert_eq!(member(1, None).setup(OWN_SYNC), own);
}

#[test]
fn w5_callbacks_see_the_base_after_a_failure_and_what_they_change_counts() {
    let root = survivor(0, fails).setup(CALLBACKS);
    let steps = vec![FetchBase, Restore, Reset, SYNC_FRESH, Adapt, Train];
    assert_eq!(root, Ok(steps));
    let other = survivor(1, fails).setup(CALLBACKS);
    assert_eq!(other, Ok(vec![Restore, Reset, SYNC_FRESH, Adapt, Train]));
}

#[test]
fn w5_behind_the_common_boundary_the_live_state_is_what_callbacks_see() {
    let machine = survivor(0, updates);
    let steps = machine.setup(CALLBACKS);
    assert_eq!(steps, Ok(vec![Reset, SYNC_FRESH, Adapt, Train]));
    let steps = machine.setup(OWN_RESTORE);
    assert_eq!(steps, Ok(vec![Reset, SYNC, Adapt, Train]));
}

/// Seed 668073 of the simulation: a round began and committed without this worker.
#[test]
fn w5_callbacks_of_a_worker_that_sat_out_a_round_see_the_base() {
    for (rank, steps) in [
        (0, vec![FetchBase, Restore, Reset, SYNC_FRESH, Adapt, Train]),
        (1, vec![Reset, SYNC_FRESH, Adapt, Train]),
    ] {
        let mut machine = member(rank, None);
        machine.committed(round(1).commit(1));
        updates(&mut machine);
        assert!(machine.leave(false, false).is_some());
        assert!(machine.join().is_ok());
        let base = Some(round(2).commit(3));
        step(&mut machine, Event::Started(start(3, rank, base)));
        assert!(machine.join().is_ok());
        assert_eq!(machine.setup(CALLBACKS), Ok(steps));
    }
}

/// Seed 592916 of the simulation: the rounds since began from an older commit, so the one that this worker has is void.
#[test]
fn w5_callbacks_of_a_worker_whose_commit_is_void_see_the_base() {
    for (rank, steps) in [
        (0, vec![FetchBase, Restore, Reset, SYNC_FRESH, Adapt, Train]),
        (1, vec![Reset, SYNC_FRESH, Adapt, Train]),
    ] {
        let mut machine = Machine::default();
        enter(&mut machine, start(3, rank, None));
        machine.committed(round(3).commit(1));
        updates(&mut machine);
        assert!(machine.leave(false, false).is_some());
        assert!(machine.join().is_ok());
        let base = Some(round(2).commit(1));
        step(&mut machine, Event::Started(start(9, rank, base)));
        assert!(machine.join().is_ok());
        assert_eq!(machine.setup(CALLBACKS), Ok(steps));
    }
}

#[test]
fn a_state_that_nothing_looks_at_is_restored_by_the_sync_alone() {
    let steps = survivor(0, fails).setup(PLAIN);
    assert_eq!(steps, Ok(vec![Reset, SYNC, Adapt, Train]));
}

#[test]
fn a_state_of_its_own_is_restored_and_synced_by_its_own_code() {
    let steps = survivor(0, fails).setup(OWN_SYNC);
    let own = vec![Restore, Reset, RequireBase, SyncOwn, SYNC, Adapt, Train];
    assert_eq!(steps, Ok(own));
}

#[test]
fn what_was_saved_before_any_commit_reached_the_state_is_no_progress() {
    let mut machine = member(1, None);
    fails(&mut machine);
    assert!(machine.leave(false, false).is_some());
    join(&mut machine, 1);
    let newest = vec![RestoreNewest, Reset, SYNC_FRESH, Adapt, Train];
    assert_eq!(machine.setup(CALLBACKS), Ok(newest));
}

#[test]
fn a_process_begins_anew_with_another_state() {
    let mut machine = survivor(0, fails);
    machine.adopt_state();
    assert_eq!(machine.setup(CALLBACKS), Ok(vec![SYNC, Adapt, Train]));
    fails(&mut machine);
    assert!(machine.leave(false, false).is_some());
    assert!(!machine.live().continues(Some(round(1).commit(1))));
}

#[test]
fn outside_of_a_round_nothing_is_set_up() {
    assert_eq!(Machine::default().setup(PLAIN), Err(Over::OutOfRound));
}
