//! What each action changes in the state. The cases are those of PyTorch's executor, and ours.

use elasticrun_core::rendezvous::{Action, Phase, Role, State};
use elasticrun_protocol::{Rank, Round};

use crate::states::{Made, after, node, settings};

const DUMMIES: [&str; 3] = ["dummy2", "dummy1", "dummy0"];

fn role(state: &State, name: &str) -> Option<Role> {
    state.member(&node(name)).map(|member| member.role)
}

fn rank(state: &State, name: &str) -> Option<u32> {
    match role(state, name)? {
        Role::Participant { rank } => rank.map(|rank| rank.0),
        _ => None,
    }
}

const UNRANKED: Option<Role> = Some(Role::Participant { rank: None });

/// PyTorch: a heartbeat is a write of the state.
#[test]
fn keeps_alive_without_a_change_of_the_state() {
    let made = Made::new(1, 2).participants(&["this"]);
    let beaten = after(&made.state, &made.settings, "this", &[Action::KeepAlive]);
    assert_eq!(beaten, made.state);
    assert!(!Action::KeepAlive.changes_state());
}

#[test]
fn adds_to_participants() {
    let made = Made::new(2, 2).participants(&["this"]);
    assert_eq!(role(&made.state, "this"), UNRANKED);
    assert_eq!(made.state.phase(), Phase::Forming { last_call: None });
}

#[test]
fn adds_to_participants_if_node_was_in_waitlist() {
    let made = Made::new(2, 2).waiting("this").participants(&["this"]);
    assert_eq!(role(&made.state, "this"), UNRANKED);
    assert_eq!(made.state.waiting(), 0);
}

#[test]
fn adds_to_participants_and_starts_last_call_if_min_nodes_is_reached() {
    for others in 0..3 {
        let made = Made::new(others + 1, others + 2).participants(&DUMMIES[..others]);
        assert_eq!(made.state.phase(), Phase::Forming { last_call: None });
        let made = made.waiting("this").participants(&["this"]);
        assert_eq!(made.state.phase(), Phase::Forming { last_call: Some(1) });
    }
}

#[test]
fn adds_to_participants_and_completes_rendezvous_if_max_nodes_is_reached() {
    for others in 0..3 {
        for min in [1, others + 1] {
            let made = Made::new(min, others + 1).participants(&DUMMIES[..others]);
            let made = made.waiting("this").participants(&["this"]);
            let world_size = others as u32 + 1;
            assert_eq!(made.state.phase(), Phase::Complete { world_size });
            assert_eq!(rank(&made.state, "this"), Some(others as u32));
            // The order of arrival and not of the alphabet.
            for (arrival, name) in DUMMIES[..others].iter().enumerate() {
                assert_eq!(rank(&made.state, name), Some(arrival as u32));
            }
        }
    }
}

#[test]
fn adds_to_waitlist() {
    let made = Made::new(1, 2).waiting("this");
    assert_eq!(role(&made.state, "this"), Some(Role::Waiting));
}

#[test]
fn adds_to_redundancy_list() {
    let made = Made::new(1, 1).participants(&["other"]).redundant("this");
    assert_eq!(role(&made.state, "this"), Some(Role::Redundant));
    let moved = made.waiting("this");
    assert_eq!((moved.state.redundant(), moved.state.waiting()), (0, 1));
}

#[test]
fn removes_from_participants() {
    let forming = Made::new(1, 4).participants(&["one", "two", "this"]);
    for (made, complete) in [(forming.clone(), false), (forming.complete(), true)] {
        let phase = made.state.phase();
        let left = made.apply("this", Action::RemoveFromParticipants);
        assert_eq!(role(&left.state, "this"), None);
        assert_eq!(
            left.state.phase(),
            phase,
            "neither the last call nor the world changes"
        );
        assert_eq!(left.state.is_complete(), complete);
        assert_eq!(left.state.left(), usize::from(complete));
    }
}

#[test]
fn removes_from_participants_and_moves_to_next_round_if_node_is_last_participant() {
    let made = Made::new(1, 1).participants(&["this"]);
    let left = made.apply("this", Action::RemoveFromParticipants);
    assert_eq!(left.state.round(), Round(1));
    assert_eq!(left.state.phase(), Phase::Forming { last_call: None });
    assert_eq!(left.state.members().count(), 0);
}

#[test]
fn removes_from_participants_and_clears_last_call_if_rendezvous_has_less_than_min_nodes() {
    let made = Made::new(3, 4).participants(&["one", "two", "this"]);
    assert_eq!(made.state.phase(), Phase::Forming { last_call: Some(1) });
    let left = made.apply("this", Action::RemoveFromParticipants);
    assert_eq!(left.state.phase(), Phase::Forming { last_call: None });
    let again = left.participants(&["this"]);
    assert_eq!(
        again.state.phase(),
        Phase::Forming { last_call: Some(2) },
        "another last call"
    );
}

#[test]
fn removes_from_waitlist() {
    let made = Made::new(1, 2).waiting("this");
    let left = made.apply("this", Action::RemoveFromWaitList);
    assert_eq!(role(&left.state, "this"), None);
}

#[test]
fn removes_from_redundancy_list() {
    let made = Made::new(1, 1).participants(&["other"]).redundant("this");
    let left = made.apply("this", Action::RemoveFromRedundancyList);
    assert_eq!(role(&left.state, "this"), None);
    assert!(left.state.is_complete());
}

#[test]
fn marks_rendezvous_closed() {
    let made = Made::new(1, 2).closed();
    assert!(made.state.is_closed());
}

#[test]
fn marks_rendezvous_complete() {
    let made = Made::new(1, 4).participants(&["b", "a"]).complete();
    assert_eq!(made.state.phase(), Phase::Complete { world_size: 2 });
    assert_eq!(
        (rank(&made.state, "b"), rank(&made.state, "a")),
        (Some(0), Some(1))
    );
}

#[test]
fn actions_that_only_end_an_operation_change_nothing() {
    let made = Made::new(1, 2).participants(&["this"]);
    for action in [
        Action::Sync,
        Action::ErrorClosed,
        Action::ErrorTimeout,
        Action::ErrorFull,
        Action::Release,
        Action::Finish,
    ] {
        assert!(!action.changes_state());
        let unchanged = after(&made.state, &made.settings, "this", &[action]);
        assert_eq!(unchanged, made.state);
    }
}

#[test]
fn ours_a_loss_in_a_complete_round_moves_no_rank() {
    let made = Made::new(1, 3).participants(&["one", "two", "three"]);
    let left = made.apply("one", Action::RemoveFromParticipants);
    assert_eq!(left.state.phase(), Phase::Complete { world_size: 3 });
    assert_eq!(
        (rank(&left.state, "two"), rank(&left.state, "three")),
        (Some(1), Some(2))
    );
}

#[test]
fn ours_nodes_that_wait_for_a_full_round_become_redundant() {
    let made = Made::new(1, 2)
        .waiting("late")
        .participants(&["one", "two"]);
    assert!(made.state.is_complete());
    assert_eq!((made.state.waiting(), made.state.redundant()), (0, 1));
}

#[test]
fn ours_a_node_that_joins_again_in_one_write_keeps_its_age() {
    let made = Made::new(1, 3).participants(&["one", "two", "three"]);
    let again = [Action::RemoveFromParticipants, Action::AddToWaitList];
    let state = after(&made.state, &made.settings, "one", &again);
    let arrival = |name| state.member(&node(name)).map(|member| member.arrival);
    assert_eq!((arrival("one"), arrival("two")), (Some(0), Some(1)));
    assert_eq!(role(&state, "one"), Some(Role::Waiting));
}

#[test]
fn ours_a_node_that_left_and_comes_back_is_the_youngest() {
    let made = Made::new(1, 4).participants(&["one", "two"]).complete();
    let left = made.apply("one", Action::RemoveFromParticipants);
    let back = left.waiting("one");
    assert_eq!(
        back.state.member(&node("one")).map(|one| one.arrival),
        Some(2)
    );
}

#[test]
fn ours_a_dead_node_leaves_each_list() {
    let made = Made::new(1, 2)
        .participants(&["one", "dead1"])
        .redundant("dead2");
    let this = node("one");
    let limits = settings(1, 2);
    let mut draft = elasticrun_core::rendezvous::Draft::new(&this, &limits, &made.state);
    for dead in ["dead1", "dead2", "absent"] {
        let was_there = draft.remove(&node(dead)).is_some();
        assert_eq!(was_there, dead != "absent");
    }
    let state = draft.into_changed().expect("two nodes were removed");
    assert_eq!(
        state
            .members()
            .map(|(node, _)| node.as_str())
            .collect::<Vec<_>>(),
        ["one"]
    );
    assert_eq!(state.left(), 1);
    assert_eq!(rank(&state, "one"), Some(Rank(0).0));
}
