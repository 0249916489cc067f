//! One node at its holder: what it asks, what it makes of the answers. The cases are those of PyTorch's state holder,
//! executor and handler, and ours.

use std::time::Duration;

use elasticrun_core::{
    Time,
    rendezvous::{
        Action, BeatNumber, Command, Event, Failure, HeartbeatChanges, HolderError, Machine,
        MemoryHolder, Operation, Recorded, Rejected, RequestId, RoundOver, Settings, Snapshot,
        State, StateError, Token,
    },
};
use elasticrun_protocol::{Rank, Round};

use crate::{
    harness::{World, seconds},
    states::{Made, after, node, settings},
};

/// A machine whose holder is the test.
struct Alone {
    machine: Machine,
    now: Time,
}

impl Alone {
    fn new(settings: Settings) -> Self {
        Self {
            machine: Machine::new(node("this"), settings, 1),
            now: Time::from_start(seconds(100)),
        }
    }

    fn step(&mut self, event: Event) -> Vec<Command> {
        let mut out = Vec::new();
        self.machine.step(self.now, event, &mut out);
        out
    }

    /// Lets the next deadline pass.
    fn wait(&mut self) -> Vec<Command> {
        self.now = self.machine.next_deadline().expect("a deadline");
        let mut out = Vec::new();
        self.machine.tick(self.now, &mut out);
        out
    }

    /// Answers one command from a holder.
    fn answer(&mut self, holder: &mut MemoryHolder, commands: Vec<Command>) -> Vec<Command> {
        let answers = commands
            .into_iter()
            .filter_map(|command| holder.perform(command));
        let answers: Vec<_> = answers.collect();
        answers
            .into_iter()
            .flat_map(|event| self.step(event))
            .collect()
    }
}

/// The changes of a program without heartbeats.
fn unchanged() -> HeartbeatChanges {
    HeartbeatChanges::default()
}

fn holder_of(state: State) -> MemoryHolder {
    let mut holder = MemoryHolder::default();
    assert!(
        holder
            .compare_and_set(Token::UNWRITTEN, state, &unchanged())
            .is_ok()
    );
    holder
}

#[test]
fn init_asks_nothing() {
    let alone = Alone::new(settings(1, 1));
    assert_eq!(alone.machine.state(), None);
    assert_eq!(alone.machine.next_deadline(), None);
}

#[test]
fn an_operation_reads_writes_and_ends() {
    let mut alone = Alone::new(settings(1, 1));
    let mut holder = MemoryHolder::default();
    let read = alone.step(Event::JoinRequested);
    assert!(matches!(read[..], [Command::Read { .. }]), "{read:?}");
    let write = alone.answer(&mut holder, read);
    assert!(matches!(
        write[..],
        [Command::CompareAndSet {
            expected: Token::UNWRITTEN,
            ..
        }]
    ));
    let joined = alone.answer(&mut holder, write);
    let [Command::Joined(membership)] = joined[..] else {
        panic!("{joined:?}")
    };
    assert_eq!((membership.rank, membership.world_size), (Rank(0), 1));
    assert_eq!(alone.machine.state(), holder.snapshot().state.as_ref());
}

#[test]
fn sync_gets_the_newer_state_if_the_local_one_is_old_and_dirty() {
    let mut alone = Alone::new(settings(2, 2));
    let mut holder = MemoryHolder::default();
    let read = alone.step(Event::JoinRequested);
    let write = alone.answer(&mut holder, read);
    // Another node is first.
    let other = after(
        &State::default(),
        &settings(2, 2),
        "other",
        &[Action::AddToParticipants],
    );
    assert!(
        holder
            .compare_and_set(Token::UNWRITTEN, other, &unchanged())
            .is_ok()
    );
    let again = alone.answer(&mut holder, write);
    assert!(matches!(
        again[..],
        [Command::CompareAndSet {
            expected: Token(1),
            ..
        }]
    ));
    let joined = alone.answer(&mut holder, again);
    let [Command::Joined(membership)] = joined[..] else {
        panic!("{joined:?}")
    };
    assert_eq!((membership.rank, membership.world_size), (Rank(1), 2));
}

#[test]
fn a_lost_race_waits_only_if_a_backoff_is_set() {
    let backoff = settings(2, 3)
        .with("cas_backoff_max_seconds", "0.5")
        .unwrap();
    for (settings, waits) in [(settings(2, 3), false), (backoff, true)] {
        let mut alone = Alone::new(settings);
        let mut holder = MemoryHolder::default();
        let read = alone.step(Event::JoinRequested);
        let write = alone.answer(&mut holder, read);
        assert!(
            holder
                .compare_and_set(Token::UNWRITTEN, State::default(), &unchanged())
                .is_ok()
        );
        let after_conflict = alone.answer(&mut holder, write);
        assert_eq!(after_conflict.is_empty(), waits);
        if waits {
            let due = alone.machine.next_deadline().expect("a retry");
            assert!(due.since(alone.now) <= Duration::from_millis(500));
            let read = alone.wait();
            assert!(matches!(read[..], [Command::Read { .. }]), "{read:?}");
        }
    }
}

#[test]
fn a_corrupt_state_fails_the_operation() {
    let mut alone = Alone::new(settings(1, 1));
    alone.step(Event::JoinRequested);
    let error = State::decode(b"corrupt_state").unwrap_err();
    let failed = Event::Failed {
        request: RequestId(1),
        error: HolderError::Corrupt(error.clone()),
    };
    let expected = Command::RequestFailed {
        operation: Operation::Join,
        failure: Failure::Corrupt(error.clone()),
    };
    assert_eq!(alone.step(failed), [expected]);
    assert!(matches!(error, StateError::Malformed { .. }));
}

#[test]
fn a_closed_rendezvous_fails_the_join() {
    let mut alone = Alone::new(settings(1, 1));
    let mut holder = holder_of(Made::new(1, 1).closed().state);
    let read = alone.step(Event::JoinRequested);
    let expected = Command::RequestFailed {
        operation: Operation::Join,
        failure: Failure::Closed,
    };
    assert_eq!(alone.answer(&mut holder, read), [expected]);
}

#[test]
fn a_redundant_node_is_released_when_the_rendezvous_closes() {
    let mut world = World::new(2, settings(1, 1));
    world.join(0);
    world.settle();
    world.join(1);
    world.settle();
    assert_eq!(world.state().redundant(), 1);
    world.request(0, Event::CloseRequested);
    world.settle();
    assert_eq!(world.nodes[1].log, [Command::Released]);
    assert_eq!(world.nodes[0].log.last(), Some(&Command::Closed));
}

#[test]
fn a_node_that_waits_asks_nothing_until_the_state_changes_or_a_deadline_comes() {
    let mut world = World::new(2, settings(2, 2));
    world.join(0);
    world.settle();
    assert_eq!(world.writes, 1);
    world.run(seconds(4));
    assert_eq!(world.writes, 1, "no poll");
    world.join(1);
    world.settle();
    assert_eq!(
        world.ranks(),
        [Some(0), Some(1)],
        "a report of the holder is enough"
    );
    assert_eq!(world.now, seconds(4));
}

#[test]
fn the_last_call_completes_the_round() {
    let mut world = World::new(3, settings(2, 4));
    world.join(0);
    world.join(1);
    world.settle();
    world.run(seconds(29));
    assert_eq!(world.ranks(), [None, None, None]);
    world.join(2);
    world.run(seconds(1));
    assert_eq!(world.ranks(), [Some(0), Some(1), Some(2)]);
}

#[test]
fn the_oldest_participant_ends_the_last_call_and_the_next_one_if_it_is_dead() {
    for dies in [false, true] {
        let mut world = World::new(3, settings(2, 4));
        (0..3).for_each(|index| world.join(index));
        world.settle();
        world.run(seconds(29));
        if dies {
            world.kill(0);
        }
        let conflicts = world.conflicts;
        world.run(seconds(1));
        assert_eq!(world.state().is_complete(), !dies);
        world.run(Duration::from_millis(100));
        assert!(world.state().is_complete());
        assert_eq!(world.conflicts, conflicts, "one node alone writes");
    }
}

/// It knows the state, and a write shows whether it is right.
#[test]
fn a_participant_that_joins_again_reads_nothing() {
    let mut alone = Alone::new(settings(1, 1));
    let mut holder = MemoryHolder::default();
    let read = alone.step(Event::JoinRequested);
    let write = alone.answer(&mut holder, read);
    alone.answer(&mut holder, write);
    assert_eq!(alone.machine.round(), Some(Round(0)));
    let again = alone.step(Event::JoinRequested);
    assert!(
        matches!(again[..], [Command::CompareAndSet { .. }]),
        "{again:?}"
    );
}

#[test]
fn next_rendezvous_respects_the_requested_timeout() {
    let mut world = World::new(1, settings(2, 2).with("join_timeout", "8").unwrap());
    world.join(0);
    world.run(seconds(7));
    assert_eq!(world.state().participants(), 1);
    world.run(seconds(1));
    let failed = Command::RequestFailed {
        operation: Operation::Join,
        failure: Failure::Timeout,
    };
    assert_eq!(world.nodes[0].log, [failed]);
    assert_eq!(world.state().members().count(), 0, "it has left");
}

#[test]
fn a_holder_that_does_not_answer_fails_the_join_in_time() {
    let mut world = World::new(1, settings(1, 1).with("join_timeout", "8").unwrap());
    world.nodes[0].cut = true;
    world.join(0);
    world.run(seconds(12));
    assert_eq!(world.nodes[0].log, []);
    world.run(seconds(1));
    let failed = Command::RequestFailed {
        operation: Operation::Join,
        failure: Failure::Unreachable,
    };
    assert_eq!(world.nodes[0].log, [failed]);
}

#[test]
fn a_refused_request_is_repeated_with_growing_delays() {
    let mut alone = Alone::new(settings(1, 1));
    let mut commands = alone.step(Event::JoinRequested);
    let mut last = Duration::ZERO;
    for failures in 0..10 {
        let [Command::Read { request }] = commands[..] else {
            panic!("{commands:?}")
        };
        let error = HolderError::Unreachable;
        assert_eq!(alone.step(Event::Failed { request, error }), []);
        let before = alone.now;
        commands = alone.wait();
        let delay = alone.now.since(before);
        let ceiling = Duration::from_millis(100 << failures).min(seconds(5));
        assert!(
            delay >= ceiling / 2 && delay <= ceiling,
            "{delay:?} after {failures}"
        );
        last = delay;
    }
    assert!(last >= Duration::from_millis(2500));
}

/// Workers would start under a lease that is almost over.
#[test]
fn a_join_whose_write_was_confirmed_late_beats_once_more_before_it_ends() {
    let mut world = World::new(1, settings(1, 1).with("heartbeat_timeout", "20").unwrap());
    world.join(0);
    assert!(world.serve(0) && world.deliver(0), "the read");
    assert!(world.serve(0), "the write");
    world.pass(seconds(12));
    assert!(world.deliver(0));
    assert_eq!(world.nodes[0].log, []);
    world.settle();
    assert!(world.nodes[0].training.is_some());
    assert_eq!((world.writes, world.heartbeats), (1, 1));
}

#[test]
fn a_redundant_node_is_released_without_another_heartbeat() {
    let mut world = World::new(2, settings(1, 1));
    world.join(0);
    world.settle();
    world.join(1);
    world.settle();
    world.request(0, Event::CloseRequested);
    world.nodes[1].cut = true;
    world.settle();
    world.nodes[1].cut = false;
    // The heartbeat that is due shows that the state is another one, and the state shows the end.
    world.run(seconds(5));
    assert_eq!(world.nodes[1].log, [Command::Released]);
    assert_eq!(world.heartbeats, 2, "one of each node");
}

#[test]
fn next_rendezvous_moves_to_next_round_if_called_repeatedly() {
    let mut world = World::new(1, settings(1, 1));
    for round in 0..4 {
        world.join(0);
        world.settle();
        let training = world.nodes[0].training.expect("a round");
        assert_eq!((training.round, training.rank), (Round(round), Rank(0)));
    }
}

#[test]
fn set_closed_can_be_called_multiple_times() {
    let mut world = World::new(1, settings(1, 1));
    for _ in 0..2 {
        world.request(0, Event::CloseRequested);
        world.settle();
        assert_eq!(world.nodes[0].log.pop(), Some(Command::Closed));
        assert!(world.state().is_closed());
    }
}

#[test]
fn set_closed_respects_the_requested_timeout() {
    let mut world = World::new(1, settings(1, 1).with("close_timeout", "8").unwrap());
    world.nodes[0].cut = true;
    world.request(0, Event::CloseRequested);
    world.run(seconds(8));
    let failed = Command::RequestFailed {
        operation: Operation::Close,
        failure: Failure::Unreachable,
    };
    assert_eq!(world.nodes[0].log, [failed]);
}

#[test]
fn keep_alive_updates_last_heartbeat() {
    let mut world = World::new(1, settings(1, 1));
    world.join(0);
    world.settle();
    world.run(seconds(20));
    assert_eq!((world.heartbeats, world.writes), (4, 1));
    assert_eq!(world.holder.heartbeats(), 1);
    world.request(0, Event::ExitRequested);
    world.run(seconds(20));
    assert_eq!(world.nodes[0].log.last(), Some(&Command::Exited));
    assert_eq!(world.nodes[0].machine.next_deadline(), None);
}

#[test]
fn an_exit_cancels_a_join() {
    let mut world = World::new(1, settings(2, 2));
    world.join(0);
    world.settle();
    world.request(0, Event::ExitRequested);
    world.settle();
    let cancelled = Command::RequestFailed {
        operation: Operation::Join,
        failure: Failure::Cancelled,
    };
    assert_eq!(world.nodes[0].log, [cancelled, Command::Exited]);
    assert_eq!(world.state().members().count(), 0);
}

#[test]
fn a_second_request_and_a_late_answer_are_rejected() {
    let mut alone = Alone::new(settings(1, 1));
    alone.step(Event::JoinRequested);
    let busy = Command::Reject {
        why: Rejected::Busy,
    };
    assert_eq!(alone.step(Event::JoinRequested), [busy]);
    // The request expires, and the answer comes when the next one is in flight.
    assert_eq!(alone.wait(), []);
    assert!(matches!(
        alone.wait()[..],
        [Command::Read {
            request: RequestId(2)
        }]
    ));
    let answer = Event::StateRead {
        request: RequestId(1),
        snapshot: Snapshot::default(),
    };
    let stale = Command::Reject {
        why: Rejected::StaleAnswer,
    };
    assert_eq!(alone.step(answer), [stale]);
}

#[test]
fn reports_that_overtake_each_other_do_not_bring_an_old_state_back() {
    let mut alone = Alone::new(settings(2, 2));
    let report = |token, state| {
        Event::StateChanged(Snapshot {
            token: Token(token),
            state: Some(state),
        })
    };
    let newer = Made::new(2, 2).participants(&["other"]).state;
    alone.step(report(7, newer.clone()));
    alone.step(report(6, State::default()));
    assert_eq!(alone.machine.state(), Some(&newer));
}

#[test]
fn a_holder_that_goes_back_behind_its_own_token_is_a_failure_and_no_busy_loop() {
    let mut alone = Alone::new(settings(2, 2));
    let mut holder = holder_of(Made::new(2, 2).participants(&["other"]).state);
    let read = alone.step(Event::JoinRequested);
    let write = alone.answer(&mut holder, read);
    let mut lost = MemoryHolder::default();
    assert_eq!(alone.answer(&mut lost, write), []);
    assert!(alone.machine.next_deadline() > Some(alone.now));
}

#[test]
fn a_participant_that_others_have_removed_ends_its_round_at_once() {
    let mut alone = Alone::new(settings(1, 1));
    let mut holder = MemoryHolder::default();
    let read = alone.step(Event::JoinRequested);
    let write = alone.answer(&mut holder, read);
    alone.answer(&mut holder, write);
    let without = Snapshot {
        token: Token(9),
        state: Some(Made::new(1, 1).participants(&["other"]).state),
    };
    let over = Command::RoundOver {
        round: Round(0),
        reason: RoundOver::Removed,
    };
    assert_eq!(alone.step(Event::StateChanged(without)), [over]);
    assert_eq!(alone.machine.round(), None);
    assert_eq!(alone.machine.next_deadline(), None, "it sends no heartbeat");
}

/// The reports between two last calls may be lost.
#[test]
fn another_last_call_begins_anew() {
    let mut alone = Alone::new(settings(2, 3));
    let mut holder = holder_of(Made::new(2, 3).participants(&["other"]).state);
    let read = alone.step(Event::JoinRequested);
    let write = alone.answer(&mut holder, read);
    assert_eq!(alone.answer(&mut holder, write), []);
    let first = alone.now;
    let again = Made {
        settings: settings(2, 3),
        state: holder.snapshot().state.clone().unwrap(),
    };
    let again = again.apply("other", Action::RemoveFromParticipants);
    alone.now = first + seconds(25);
    let snapshot = Snapshot {
        token: Token(9),
        state: Some(again.participants(&["other"]).state),
    };
    let read = alone.step(Event::StateChanged(snapshot.clone()));
    let [Command::Read { request }] = read[..] else {
        panic!("{read:?}")
    };
    let beat = alone.step(Event::StateRead { request, snapshot });
    let [Command::Heartbeat { request, .. }] = beat[..] else {
        panic!("{beat:?}")
    };
    alone.step(Event::HeartbeatRecorded {
        request,
        recorded: Recorded {
            number: BeatNumber(10),
            nodes: 2,
            silent: vec![],
        },
        token: Token(9),
    });
    alone.now = first + seconds(31);
    let mut out = Vec::new();
    alone.machine.tick(alone.now, &mut out);
    assert!(
        matches!(out[..], [Command::Heartbeat { .. }]),
        "a heartbeat, and no end of the last call: {out:?}"
    );
}

/// Both states have a first last call.
#[test]
fn a_last_call_after_a_loss_of_the_state_is_another_one() {
    let mut world = World::new(4, settings(2, 5));
    world.reports = false;
    world.join(0);
    world.join(1);
    world.settle();
    world.run(seconds(29));
    world.holder.lose_state();
    for index in 2..4 {
        world.join(index);
        world.settle();
    }
    world.run(seconds(20));
    assert!(!world.state().is_complete());
    world.run(seconds(11));
    assert_eq!(world.state().participants(), 4);
    assert!(world.state().is_complete());
}

#[test]
fn a_holder_that_lost_the_state_begins_with_a_later_round() {
    let mut alone = Alone::new(settings(1, 1));
    let mut holder = MemoryHolder::default();
    for _ in 0..3 {
        let read = alone.step(Event::JoinRequested);
        let write = alone.answer(&mut holder, read);
        alone.answer(&mut holder, write);
    }
    assert_eq!(alone.machine.round(), Some(Round(2)));
    let snapshot = Snapshot {
        token: Token(9),
        state: None,
    };
    let over = Command::RoundOver {
        round: Round(2),
        reason: RoundOver::Removed,
    };
    assert_eq!(alone.step(Event::StateChanged(snapshot.clone())), [over]);
    let read = alone.step(Event::JoinRequested);
    let [Command::Read { request }] = read[..] else {
        panic!("{read:?}")
    };
    let write = alone.step(Event::StateRead { request, snapshot });
    let [Command::CompareAndSet { ref state, .. }] = write[..] else {
        panic!("{write:?}")
    };
    assert_eq!(
        state.round(),
        Round(3),
        "the keys of earlier rounds may exist"
    );
}
