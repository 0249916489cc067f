//! Each row of the tables of operations. The rows of PyTorch's tests have the names that they have there.

use std::time::Duration;

use elasticrun_core::{
    Time,
    rendezvous::{Action, Context, Op, Role},
};
use elasticrun_protocol::Round;

use crate::states::{Made, node, settings};

/// The clock of the node in all rows.
const NOW: u64 = 10;

/// Deadlines that are in time, less than five seconds ago, and more.
const IN_TIME: u64 = 11;
const ROLLBACK: u64 = 6;
const OVER: u64 = 0;

/// The node of a row and what its clock says.
struct Row {
    made: Made,
    deadline: u64,
    heartbeat_due: bool,
    last_call_over: bool,
}

impl Row {
    fn new(made: Made) -> Self {
        Self {
            made,
            deadline: IN_TIME,
            heartbeat_due: false,
            last_call_over: false,
        }
    }

    fn deadline(self, deadline: u64) -> Self {
        Self { deadline, ..self }
    }

    fn heartbeat_due(self) -> Self {
        Self {
            heartbeat_due: true,
            ..self
        }
    }

    fn last_call_over(self) -> Self {
        Self {
            last_call_over: true,
            ..self
        }
    }

    #[track_caller]
    fn gives(&self, op: Op, expected: Action) {
        let this = node("this");
        let seconds = |seconds| Time::from_start(Duration::from_secs(seconds));
        let ctx = Context {
            node: &this,
            state: &self.made.state,
            settings: &self.made.settings,
            now: seconds(NOW),
            heartbeat_due: self.heartbeat_due,
            last_call_over: self.last_call_over,
        };
        assert_eq!(op.decide(&ctx, seconds(self.deadline)), expected);
    }

    #[track_caller]
    fn join_gives(&self, expected: Action) {
        self.gives(Op::Join { leaves: None }, expected);
    }

    /// Rows in which a node waits: it sends a heartbeat if one is due.
    #[track_caller]
    fn join_waits(self) {
        self.join_gives(Action::Sync);
        self.heartbeat_due().join_gives(Action::KeepAlive);
    }
}

/// The state of PyTorch's rows: one other participant, one to two nodes.
fn one_other() -> Made {
    Made::new(1, 2).participants(&["other"])
}

fn of(max_nodes: usize) -> Made {
    Made::new(1, max_nodes).participants(&["other"])
}

mod exit {
    use super::*;

    #[test]
    fn removes_from_participants_if_node_is_participant() {
        let made = of(3).participants(&["this"]);
        Row::new(made).gives(Op::Exit, Action::RemoveFromParticipants);
    }

    #[test]
    fn raises_timeout_if_deadline_exceeded() {
        let made = of(3).participants(&["this"]);
        Row::new(made.clone())
            .deadline(OVER)
            .gives(Op::Exit, Action::ErrorTimeout);
        Row::new(made)
            .deadline(ROLLBACK)
            .gives(Op::Exit, Action::ErrorTimeout);
    }

    #[test]
    fn finishes_if_node_is_not_participant() {
        Row::new(one_other()).gives(Op::Exit, Action::Finish);
        Row::new(one_other())
            .deadline(OVER)
            .gives(Op::Exit, Action::Finish);
    }

    #[test]
    fn ours_removes_from_the_other_lists() {
        let waiting = one_other().complete().waiting("this");
        Row::new(waiting).gives(Op::Exit, Action::RemoveFromWaitList);
        let redundant = of(1).redundant("this");
        Row::new(redundant).gives(Op::Exit, Action::RemoveFromRedundancyList);
    }
}

mod join {
    use super::*;

    #[test]
    fn raises_closed_if_rendezvous_is_closed() {
        Row::new(one_other().closed()).join_gives(Action::ErrorClosed);
        Row::new(one_other().closed())
            .deadline(OVER)
            .join_gives(Action::ErrorClosed);
    }

    #[test]
    fn a_redundant_node_ends_without_an_error_if_rendezvous_is_closed() {
        Row::new(of(1).redundant("this").closed()).join_gives(Action::Release);
    }

    #[test]
    fn finishes_if_rendezvous_is_complete_and_node_is_participant() {
        let made = one_other().participants(&["this"]);
        assert!(made.state.is_complete());
        Row::new(made.clone()).join_gives(Action::Finish);
        Row::new(made).deadline(OVER).join_gives(Action::Finish);
    }

    #[test]
    fn treat_as_redundancy_for_next_rendezvous_if_rendezvous_is_complete() {
        Row::new(of(1)).join_gives(Action::AddToRedundancyList);
    }

    #[test]
    fn waits_next_round_if_rendezvous_is_complete_and_node_is_redundant() {
        Row::new(of(1).redundant("this")).join_waits();
    }

    #[test]
    fn remove_from_redundancy_list() {
        let made = one_other().complete().redundant("this");
        Row::new(made).join_gives(Action::RemoveFromRedundancyList);
    }

    #[test]
    fn waits_next_round_if_rendezvous_is_complete_and_node_is_in_wait_list() {
        Row::new(one_other().complete().waiting("this")).join_waits();
    }

    #[test]
    fn adds_to_wait_list_if_rendezvous_is_complete_and_num_nodes_is_less_than_max_nodes() {
        Row::new(one_other().complete()).join_gives(Action::AddToWaitList);
    }

    #[test]
    fn waits_rendezvous_to_complete_if_node_is_participant() {
        Row::new(of(3).participants(&["this"])).join_waits();
    }

    #[test]
    fn marks_rendezvous_complete_if_node_is_participant_and_last_call_deadline_exceeded() {
        let made = of(3).participants(&["this"]);
        Row::new(made)
            .last_call_over()
            .join_gives(Action::MarkRendezvousComplete);
    }

    #[test]
    fn adds_to_participants() {
        Row::new(one_other()).join_gives(Action::AddToParticipants);
    }

    #[test]
    fn raises_timeout_if_deadline_exceeded() {
        Row::new(one_other())
            .deadline(OVER)
            .join_gives(Action::ErrorTimeout);
    }

    #[test]
    fn raises_timeout_if_rollback_deadline_exceeded_and_node_is_participant() {
        let made = of(3).participants(&["this"]);
        Row::new(made)
            .deadline(OVER)
            .join_gives(Action::ErrorTimeout);
    }

    #[test]
    fn raises_timeout_if_rollback_deadline_exceeded_and_node_is_in_wait_list() {
        let made = one_other().complete().waiting("this");
        Row::new(made)
            .deadline(OVER)
            .join_gives(Action::ErrorTimeout);
    }

    #[test]
    fn removes_from_participants_if_timed_out_but_rollback_deadline_is_not_reached() {
        let made = of(3).participants(&["this"]);
        Row::new(made)
            .deadline(ROLLBACK)
            .join_gives(Action::RemoveFromParticipants);
    }

    #[test]
    fn removes_from_wait_list_if_timed_out_but_rollback_deadline_is_not_reached() {
        let made = one_other().complete().waiting("this");
        Row::new(made)
            .deadline(ROLLBACK)
            .join_gives(Action::RemoveFromWaitList);
    }

    #[test]
    fn no_timeout_for_redundant_node() {
        Row::new(of(1).redundant("this"))
            .deadline(OVER)
            .join_waits();
    }

    #[test]
    fn ours_leaves_the_round_in_which_the_node_was() {
        let made = one_other().participants(&["this"]);
        let join = |leaves| Op::Join {
            leaves: Some(Round(leaves)),
        };
        Row::new(made.clone()).gives(join(0), Action::RemoveFromParticipants);
        // A round of another number is the one that it waits for.
        Row::new(made).gives(join(7), Action::Finish);
    }

    #[test]
    fn ours_a_last_call_ends_only_with_enough_participants() {
        let made = Made::new(3, 4).participants(&["other", "this"]);
        Row::new(made).last_call_over().join_waits();
    }

    #[test]
    fn ours_a_waiting_node_becomes_redundant_if_the_round_is_full() {
        let mut made = of(3).participants(&["third"]).complete().waiting("this");
        made.settings = settings(1, 2);
        Row::new(made).join_gives(Action::AddToRedundancyList);
    }

    #[test]
    fn ours_a_node_that_waited_longer_has_the_place() {
        // The last participant leaves: a round forms, and older nodes wait for its two places.
        let made = of(2)
            .complete()
            .waiting("first")
            .waiting("second")
            .waiting("this");
        let made = made.apply("other", Action::RemoveFromParticipants);
        assert!(!made.state.is_complete());
        Row::new(made.clone()).join_waits();
        let left = made.apply("second", Action::RemoveFromWaitList);
        Row::new(left).join_gives(Action::AddToParticipants);
    }

    #[test]
    fn ours_a_new_node_waits_behind_nodes_that_wait_for_all_places() {
        let made = of(2).complete().waiting("first").waiting("second");
        let made = made.apply("other", Action::RemoveFromParticipants);
        Row::new(made).join_gives(Action::AddToWaitList);
    }

    #[test]
    fn ours_only_as_many_redundant_nodes_take_over_as_places_are_free() {
        let full = Made::new(1, 2).participants(&["one", "two"]);
        let made = full.redundant("first").redundant("this");
        let one_left = made.clone().apply("two", Action::RemoveFromParticipants);
        Row::new(one_left.clone()).join_waits();
        // The older redundant node has the place, and keeps it as a waiting node.
        let taken = one_left.waiting("first");
        assert_eq!(
            taken.state.member(&node("first")).map(|first| first.role),
            Some(Role::Waiting)
        );
        Row::new(taken).join_waits();
        let gone = made.apply("two", Action::RemoveFromParticipants);
        let gone = gone.apply("first", Action::RemoveFromRedundancyList);
        Row::new(gone).join_gives(Action::RemoveFromRedundancyList);
    }

    #[test]
    fn ours_the_place_of_a_participant_that_joins_again_is_not_free() {
        let full = Made::new(1, 2)
            .participants(&["one", "two"])
            .redundant("this");
        let again = full
            .apply("two", Action::RemoveFromParticipants)
            .waiting("two");
        Row::new(again).join_waits();
    }
}

mod close {
    use super::*;

    #[test]
    fn finishes_if_rendezvous_is_closed() {
        Row::new(one_other().closed()).gives(Op::Close, Action::Finish);
        Row::new(one_other().closed())
            .deadline(OVER)
            .gives(Op::Close, Action::Finish);
    }

    #[test]
    fn raises_timeout_if_deadline_exceeded() {
        Row::new(one_other())
            .deadline(OVER)
            .gives(Op::Close, Action::ErrorTimeout);
    }

    #[test]
    fn marks_rendezvous_closed() {
        Row::new(one_other()).gives(Op::Close, Action::MarkRendezvousClosed);
    }
}

mod keep_alive {
    use super::*;

    #[test]
    fn updates_keep_alive_if_needed() {
        let made = of(3).participants(&["this"]);
        Row::new(made)
            .heartbeat_due()
            .gives(Op::KeepAlive, Action::KeepAlive);
    }

    #[test]
    fn raises_timeout_if_deadlined_exceeded() {
        let row = Row::new(of(3).participants(&["this"])).heartbeat_due();
        row.deadline(OVER)
            .gives(Op::KeepAlive, Action::ErrorTimeout);
    }

    #[test]
    fn finishes_if_no_keep_alive_update_is_needed() {
        let made = of(3).participants(&["this"]);
        Row::new(made).gives(Op::KeepAlive, Action::Finish);
    }

    #[test]
    fn finishes_if_node_is_on_no_list() {
        Row::new(of(3))
            .heartbeat_due()
            .gives(Op::KeepAlive, Action::Finish);
    }
}
