//! Heartbeats beside the state: what confirms a lease, what refuses a removal, and what a holder may lose.

use std::time::Duration;

use elasticrun_core::{
    Time,
    rendezvous::{
        BeatNumber, Command, Event, HeartbeatChanges, Machine, MemoryHolder, Recorded, Refused,
        RoundOver, Silence, State, Token,
    },
};
use elasticrun_protocol::Round;

use crate::{
    harness::{World, seconds},
    states::{Made, node, settings},
};

/// A participant of a complete round of two nodes, whose holder is the test. The other node is a heartbeat in the holder.
struct Observer {
    machine: Machine,
    holder: MemoryHolder,
    now: Time,
}

impl Observer {
    fn new() -> Self {
        let mut holder = MemoryHolder::default();
        let other = Made::new(1, 2).participants(&["other"]).state;
        let joined = HeartbeatChanges {
            beats: vec![node("other")],
            ..HeartbeatChanges::default()
        };
        let written = holder.compare_and_set(Token::UNWRITTEN, other, &joined);
        assert_eq!(written, Ok(Token(1)));
        let mut observer = Self {
            machine: Machine::new(node("this"), settings(1, 2), 1),
            holder,
            now: Time::from_start(seconds(100)),
        };
        let mut commands = observer.step(Event::JoinRequested);
        while !commands.is_empty() {
            commands = observer.answer(commands);
        }
        assert_eq!(observer.machine.round(), Some(Round(0)));
        observer
    }

    fn step(&mut self, event: Event) -> Vec<Command> {
        let mut out = Vec::new();
        self.machine.step(self.now, event, &mut out);
        out
    }

    /// Lets time pass up to the next deadline, which is that of a heartbeat.
    fn wait(&mut self) -> Vec<Command> {
        self.now = self.machine.next_deadline().expect("a deadline");
        let mut out = Vec::new();
        self.machine.tick(self.now, &mut out);
        out
    }

    /// The holder answers, and the machine goes on.
    fn answer(&mut self, commands: Vec<Command>) -> Vec<Command> {
        let commands = commands.into_iter();
        let answers = commands.filter_map(|command| self.holder.perform(command));
        let answers: Vec<_> = answers.collect();
        let steps = answers.into_iter().flat_map(|event| self.step(event));
        steps.collect()
    }

    /// Sends heartbeats until the other node counts as dead, and gives the write that is to remove it.
    fn removal(&mut self) -> Vec<Command> {
        for _ in 0..4 {
            let heartbeat = self.wait();
            assert!(
                matches!(heartbeat[..], [Command::Heartbeat { .. }]),
                "{heartbeat:?}"
            );
            let next = self.answer(heartbeat);
            if !next.is_empty() {
                return next;
            }
        }
        panic!("the other node is not dead");
    }
}

#[test]
fn a_heartbeat_is_no_write_and_is_reported_to_nobody() {
    let mut world = World::new(4, settings(4, 4));
    (0..4).for_each(|index| world.join(index));
    world.settle();
    let writes = world.writes;
    world.run(seconds(1000));
    assert_eq!(world.writes, writes);
    assert_eq!(world.heartbeats, 4 * 200);
    assert_eq!(world.removed, []);
}

#[test]
fn the_write_that_adds_a_node_is_its_first_heartbeat() {
    let mut world = World::new(2, settings(1, 2));
    world.join(0);
    world.join(1);
    world.settle();
    assert_eq!((world.holder.heartbeats(), world.heartbeats), (2, 0));
    // It dies before it has sent another one.
    world.kill(1);
    world.run(seconds(30));
    assert_eq!(world.removed.len(), 1);
    assert_eq!(world.holder.heartbeats(), 1);
}

#[test]
fn many_dead_nodes_are_removed_by_several_writes() {
    let mut world = World::new(100, settings(1, 100));
    (0..100).for_each(|index| world.join(index));
    world.settle();
    (1..100).for_each(|index| world.kill(index));
    world.run(seconds(60));
    assert_eq!(world.removed.len(), 99);
    let at_once = world.nodes[0]
        .log
        .iter()
        .filter_map(|command| match command {
            Command::NodesRemoved { nodes } => Some(nodes.len()),
            _ => None,
        });
    assert_eq!(at_once.collect::<Vec<_>>(), [40, 40, 19]);
}

#[test]
fn a_removed_node_that_misses_the_report_learns_by_its_next_heartbeat() {
    let mut this = Observer::new();
    let heartbeat = this.wait();
    let without = Made::new(1, 2).participants(&["other"]).state;
    let removed = HeartbeatChanges {
        forgets: vec![node("this")],
        ..HeartbeatChanges::default()
    };
    let token = this.holder.snapshot().token;
    assert!(
        this.holder
            .compare_and_set(token, without, &removed)
            .is_ok()
    );
    let lease = this.machine.clone().next_deadline();
    // The heartbeat reaches the holder after the removal: it confirms nothing.
    let read = this.answer(heartbeat);
    assert!(matches!(read[..], [Command::Read { .. }]), "{read:?}");
    assert!(this.machine.next_deadline() <= lease.max(Some(this.now + seconds(5))));
    let over = Command::RoundOver {
        round: Round(0),
        reason: RoundOver::Removed,
    };
    assert_eq!(this.answer(read), [over]);
    assert_eq!(this.holder.heartbeats(), 1, "the heartbeat adds nothing");
}

#[test]
fn a_heartbeat_that_learns_of_another_change_is_confirmed_by_the_state() {
    let mut this = Observer::new();
    let sent = this.machine.next_deadline().expect("a heartbeat");
    let heartbeat = this.wait();
    let snapshot = this.holder.snapshot().clone();
    let closed = Made {
        settings: settings(1, 2),
        state: snapshot.state.expect("a state"),
    };
    let written = this.holder.compare_and_set(
        snapshot.token,
        closed.closed().state,
        &HeartbeatChanges::default(),
    );
    assert!(written.is_ok());
    let read = this.answer(heartbeat);
    assert_eq!(this.answer(read), []);
    // The holder is out of reach from now on. The lease ends three intervals after the heartbeat was sent.
    let over = Command::RoundOver {
        round: Round(0),
        reason: RoundOver::LeaseExpired,
    };
    while !this.wait().contains(&over) {}
    assert_eq!(this.now, sent + seconds(15));
}

#[test]
fn a_removal_that_races_with_a_heartbeat_is_refused_and_counted_anew() {
    let mut this = Observer::new();
    let removal = this.removal();
    let [Command::CompareAndSet { ref heartbeats, .. }] = removal[..] else {
        panic!("{removal:?}")
    };
    assert_eq!(heartbeats.forgets, [node("other")]);
    this.holder.heartbeat(&node("other"), BeatNumber(0));
    assert_eq!(this.answer(removal), [], "no second attempt");
    let state = this.holder.snapshot().state.as_ref().expect("a state");
    assert!(state.member(&node("other")).is_some());
    // It falls silent again: it misses three ticks after the one that its heartbeat precedes.
    let began = this.now;
    let removal = this.removal();
    assert_eq!(this.now.since(began), seconds(20));
    let news = this.answer(removal);
    let removed = Command::NodesRemoved {
        nodes: vec![node("other")],
    };
    assert!(news.contains(&removed), "{news:?}");
}

/// What arrives after a stop is one tick, whatever the time in between.
#[test]
fn an_observer_that_stood_still_counts_one_tick() {
    let mut this = Observer::new();
    let heartbeat = this.wait();
    this.now = this.now + seconds(3600);
    this.holder.heartbeat(&node("other"), BeatNumber(0));
    let next = this.answer(heartbeat);
    let over = |command: &Command| matches!(command, Command::RoundOver { .. });
    assert!(!next.iter().any(over), "{next:?}");
    this.answer(next);
    let before = this.now;
    assert_eq!(this.wait().len(), 1);
    assert!(this.now.since(before) <= seconds(5));
    let state = this.holder.snapshot().state.as_ref().expect("a state");
    assert!(state.member(&node("other")).is_some());
}

#[test]
fn a_holder_that_loses_all_heartbeats_gets_them_by_one_write_and_the_dead_are_removed() {
    let mut world = World::new(4, settings(1, 4));
    (0..4).for_each(|index| world.join(index));
    world.settle();
    world.run(seconds(12));
    let writes = world.writes;
    world.holder.lose_heartbeats();
    world.heartbeats_lost = true;
    world.run(seconds(6));
    assert_eq!(world.writes, writes + 1);
    assert_eq!(world.holder.heartbeats(), 4);
    world.run(seconds(100));
    assert_eq!((world.writes, world.removed.len()), (writes + 1, 0));
    // The same beside a death.
    world.kill(3);
    world.holder.lose_heartbeats();
    world.run(seconds(60));
    assert_eq!(world.removed.len(), 1);
    assert_eq!(world.ranks(), [Some(0), Some(1), Some(2), None]);
}

#[test]
fn a_holder_forgets_heartbeats_of_nodes_that_are_no_members() {
    let mut this = Observer::new();
    let snapshot = this.holder.snapshot().clone();
    let stranger = HeartbeatChanges {
        beats: vec![node("stranger")],
        ..HeartbeatChanges::default()
    };
    let state = snapshot.state.expect("a state");
    assert!(
        (this.holder)
            .compare_and_set(snapshot.token, state, &stranger)
            .is_ok()
    );
    for _ in 0..2 {
        this.holder.heartbeat(&node("other"), BeatNumber(0));
        let mut commands = this.wait();
        while !commands.is_empty() {
            commands = this.answer(commands);
        }
    }
    assert_eq!(this.holder.heartbeats(), 2);
}

/// It learns so by a report, and not by an answer to its own heartbeat.
#[test]
fn a_node_that_becomes_redundant_at_the_end_of_its_join_waits_on() {
    let settings = settings(1, 2).with("join_timeout", "7");
    let settings = settings.and_then(|settings| settings.with("last_call_timeout", "1"));
    let mut world = World::new(3, settings.expect("seconds"));
    world.join(0);
    world.run(seconds(2));
    world.nodes[0].obeys = false;
    world.join(1);
    world.settle();
    world.join(2);
    world.run(Duration::from_millis(6900));
    assert_eq!(world.state().waiting(), 2);
    world.join(0);
    world.run(seconds(60));
    assert_eq!(world.ranks(), [Some(0), Some(1), None]);
    assert_eq!(
        (world.state().redundant(), &world.nodes[2].log),
        (1, &vec![])
    );
}

mod holder {
    use super::*;

    fn changes(beats: &[&str], forgets: &[&str]) -> HeartbeatChanges {
        let nodes = |names: &[&str]| names.iter().map(|name| node(name)).collect();
        HeartbeatChanges {
            beats: nodes(beats),
            forgets: nodes(forgets),
            unless_beaten: None,
        }
    }

    #[test]
    fn a_heartbeat_of_a_node_that_no_write_has_added_is_not_kept() {
        let mut holder = MemoryHolder::default();
        let recorded = holder.heartbeat(&node("a"), BeatNumber(0));
        let expected = Recorded {
            number: BeatNumber(1),
            nodes: 0,
            silent: vec![],
        };
        assert_eq!(recorded, expected);
    }

    #[test]
    fn tokens_and_heartbeats_have_one_counter() {
        let mut holder = MemoryHolder::default();
        let both = changes(&["a", "b"], &[]);
        let token = holder.compare_and_set(Token::UNWRITTEN, State::default(), &both);
        assert_eq!(token, Ok(Token(1)));
        let first = holder.heartbeat(&node("a"), BeatNumber(0));
        assert_eq!((first.number, first.silent), (BeatNumber(2), vec![]));
        let second = holder.heartbeat(&node("a"), BeatNumber(1));
        assert_eq!(
            (second.number, second.silent),
            (BeatNumber(3), vec![node("b")])
        );
        let last = changes(&[], &["a"]);
        let token = holder.compare_and_set(Token(1), State::default(), &last);
        assert_eq!((token, holder.heartbeats()), (Ok(Token(4)), 1));
    }

    /// Both or neither. A node of which the holder knows nothing may live.
    #[test]
    fn a_refused_removal_changes_nothing() {
        let mut holder = MemoryHolder::default();
        let both = changes(&["a", "b"], &[]);
        let token = holder.compare_and_set(Token::UNWRITTEN, State::default(), &both);
        assert_eq!(token, Ok(Token(1)));
        holder.heartbeat(&node("b"), BeatNumber(0));
        let removal = |since: u64, names: [&str; 2]| HeartbeatChanges {
            unless_beaten: Some(Silence {
                nodes: names.map(node).to_vec(),
                since: BeatNumber(since),
            }),
            ..changes(&[], &names)
        };
        let before = holder.clone();
        let refused = holder.compare_and_set(Token(1), State::default(), &removal(1, ["a", "b"]));
        assert_eq!(refused, Err(Refused::Beaten(vec![node("b")])));
        let unknown = holder.compare_and_set(Token(1), State::default(), &removal(9, ["a", "c"]));
        assert_eq!(unknown, Err(Refused::Beaten(vec![node("c")])));
        assert_eq!(holder.snapshot(), before.snapshot());
        assert_eq!(holder.heartbeats(), 2);
        let removed = holder.compare_and_set(Token(1), State::default(), &removal(2, ["a", "b"]));
        assert_eq!((removed, holder.heartbeats()), (Ok(Token(3)), 0));
    }
}
