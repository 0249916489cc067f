//! The server of an endpoint: V1 to V4, and its keys.

use std::{collections::BTreeMap, time::Duration};

use elasticrun_core::{
    Time,
    rendezvous::server::{Command, Event, PAUSE, Refusal, Server, TURN},
};
use elasticrun_protocol::{
    Blob,
    rendezvous::{
        Channel, FromNode, HeartbeatChanges, MAX_RUN, MAX_STATE, Open, Silence, Snapshot, ToNode,
    },
    store::{FromClient, Namespace, Op, Request, Value},
};
use proptest::{collection::vec, prelude::*};

const FIRST: u64 = 1000;

/// A server whose shell is the test.
struct Alone {
    server: Server,
    now: Time,
    /// What was sent, in order.
    sent: Vec<(u64, ToNode)>,
    closed: Vec<u64>,
}

impl Alone {
    fn new() -> Self {
        Self {
            server: Server::new(FIRST),
            now: Time::ZERO,
            sent: Vec::new(),
            closed: Vec::new(),
        }
    }

    /// A server with watching connections 1 to `nodes` of one run, which have seen the empty state.
    fn watched_by(nodes: u64) -> Self {
        let mut alone = Self::new();
        for connection in 1..=nodes {
            alone.open(connection, "run", true);
            alone.tell(connection, FromNode::Seen);
        }
        alone.sent.clear();
        alone
    }

    fn open(&mut self, connection: u64, run: &str, watch: bool) {
        let mut out = Vec::new();
        let channel = Channel::State { watch };
        let open = open(run, channel);
        assert_eq!(self.server.open(connection, open, &mut out), Ok(()));
        self.execute(out);
    }

    fn tell(&mut self, connection: u64, message: FromNode) {
        self.step(Event::FromNode {
            connection,
            message,
        });
    }

    fn write(&mut self, connection: u64, expected: Option<u64>, state: &str) {
        self.tell(
            connection,
            FromNode::CompareAndSet {
                request: 1,
                expected,
                state: blob(state),
                heartbeats: HeartbeatChanges::default(),
            },
        );
    }

    fn step(&mut self, event: Event) {
        let mut out = Vec::new();
        self.server.step(self.now, event, &mut out);
        self.execute(out);
    }

    fn pass(&mut self, by: Duration) {
        self.now = self.now + by;
        let mut out = Vec::new();
        self.server.tick(self.now, &mut out);
        self.execute(out);
    }

    fn execute(&mut self, commands: Vec<Command>) {
        for command in commands {
            match command {
                Command::ToNodes {
                    connections,
                    message,
                } => self
                    .sent
                    .extend(connections.into_iter().map(|to| (to, message.clone()))),
                Command::Close { connection, .. } => self.closed.push(connection),
                Command::Answer { .. } => {}
            }
        }
    }

    fn taken(&mut self) -> Vec<(u64, ToNode)> {
        std::mem::take(&mut self.sent)
    }
}

fn open(run: &str, channel: Channel) -> Open {
    Open {
        run: run.to_owned(),
        channel,
    }
}

fn blob(text: &str) -> Blob {
    Blob(text.as_bytes().to_vec())
}

fn snapshot(token: u64, state: &str) -> Snapshot {
    Snapshot {
        token,
        state: Some(blob(state)),
    }
}

fn written(token: u64) -> ToNode {
    ToNode::Written { request: 1, token }
}

fn conflict(token: u64, state: &str) -> ToNode {
    ToNode::Conflict {
        request: 1,
        snapshot: snapshot(token, state),
    }
}

#[test]
fn v1_a_write_needs_the_token_and_gives_a_larger_one() {
    let mut alone = Alone::new();
    alone.open(1, "run", false);
    alone.write(1, None, "a");
    alone.write(1, Some(FIRST), "b");
    alone.write(1, Some(FIRST + 1), "c");
    alone.write(1, None, "d");
    alone.tell(1, FromNode::Read { request: 2 });
    let read = ToNode::Current {
        request: 2,
        snapshot: snapshot(FIRST + 2, "c"),
    };
    let expected = [
        written(FIRST + 1),
        conflict(FIRST + 1, "a"),
        written(FIRST + 2),
        conflict(FIRST + 2, "c"),
        read,
    ];
    let sent: Vec<_> = alone
        .taken()
        .into_iter()
        .map(|(_, message)| message)
        .collect();
    assert_eq!(sent, expected);
}

#[test]
fn v1_the_token_of_the_empty_state_is_the_one_of_the_first_write() {
    let mut alone = Alone::new();
    alone.open(1, "run", false);
    alone.write(1, Some(FIRST), "a");
    assert_eq!(alone.taken(), [(1, written(FIRST + 1))]);
}

#[test]
fn v3_a_write_is_reported_at_once_and_a_slow_node_gets_the_newest_one() {
    let mut alone = Alone::watched_by(3);
    alone.write(1, None, "a");
    let a = ToNode::Changed(snapshot(FIRST + 1, "a"));
    assert_eq!(
        alone.taken(),
        [(1, written(FIRST + 1)), (2, a.clone()), (3, a)]
    );
    alone.tell(2, FromNode::Seen);
    alone.write(1, Some(FIRST + 1), "b");
    alone.write(1, Some(FIRST + 2), "c");
    let b = ToNode::Changed(snapshot(FIRST + 2, "b"));
    let c = ToNode::Changed(snapshot(FIRST + 3, "c"));
    assert_eq!(
        alone.taken(),
        [(1, written(FIRST + 2)), (2, b), (1, written(FIRST + 3))]
    );
    alone.tell(3, FromNode::Seen);
    alone.tell(2, FromNode::Seen);
    assert_eq!(alone.taken(), [(3, c.clone()), (2, c)]);
    alone.tell(3, FromNode::Seen);
    assert_eq!(alone.taken(), []);
}

#[test]
fn a_node_that_comes_late_learns_the_state() {
    let mut alone = Alone::new();
    alone.open(1, "run", false);
    alone.write(1, None, "a");
    alone.open(2, "run", true);
    let a = ToNode::Changed(snapshot(FIRST + 1, "a"));
    assert_eq!(alone.taken().last(), Some(&(2, a)));
}

#[test]
fn v3_writes_are_reported_together_while_others_wait() {
    let mut alone = Alone::watched_by(9);
    for connection in 1..=4 {
        alone.write(connection, Some(FIRST), "a");
        if connection == 1 {
            // The first write is alone, so all learn of it.
            (5..=9).for_each(|watcher| alone.tell(watcher, FromNode::Seen));
        }
    }
    let reports = |alone: &mut Alone| {
        let sent = alone.taken().into_iter();
        let reports = sent.filter(|(_, message)| matches!(message, ToNode::Changed(_)));
        reports
            .map(|(connection, _)| connection)
            .collect::<Vec<_>>()
    };
    assert_eq!(reports(&mut alone), [2, 3, 4, 5, 6, 7, 8, 9]);
    // Connection 3 has the next turn, and connection 4 waits.
    alone.write(2, Some(FIRST + 1), "b");
    assert!(reports(&mut alone).is_empty());
    alone.pass(PAUSE * 9);
    assert_eq!(reports(&mut alone), [1, 5, 6, 7, 8, 9]);
    // Nobody waits any more.
    (5..=9).for_each(|watcher| alone.tell(watcher, FromNode::Seen));
    alone.write(3, Some(FIRST + 2), "c");
    assert_eq!(reports(&mut alone), [5, 6, 7, 8, 9]);
}

#[test]
fn v4_nodes_that_write_at_once_take_turns() {
    let nodes = 50;
    let mut alone = Alone::watched_by(nodes);
    for connection in 1..=nodes {
        alone.write(connection, Some(FIRST), "first");
    }
    let mut winners = Vec::new();
    let mut conflicts = 0;
    while !alone.sent.is_empty() {
        for (connection, message) in alone.taken() {
            match message {
                ToNode::Written { .. } => winners.push(connection),
                ToNode::Conflict { snapshot, .. } => {
                    conflicts += 1;
                    alone.write(connection, Some(snapshot.token), "again");
                }
                ToNode::Changed(_) => alone.tell(connection, FromNode::Seen),
                other => panic!("nobody asks: {other:?}"),
            }
        }
    }
    let expected: Vec<_> = (1..=nodes).collect();
    assert_eq!(winners, expected);
    assert_eq!(conflicts, nodes - 1);
}

#[test]
fn v4_a_turn_ends_with_its_connection_by_its_word_or_by_time() {
    let mut alone = Alone::watched_by(5);
    for connection in 1..=5 {
        alone.write(connection, Some(FIRST), "a");
    }
    let told = |alone: &mut Alone| -> Vec<u64> {
        let sent = alone.taken().into_iter();
        let conflicts = sent.filter(|(_, message)| matches!(message, ToNode::Conflict { .. }));
        conflicts.map(|(connection, _)| connection).collect()
    };
    assert_eq!(told(&mut alone), [2]);
    alone.step(Event::Closed { connection: 2 });
    assert_eq!(told(&mut alone), [3]);
    // A report that came before says nothing about the turn.
    alone.tell(3, FromNode::Seen);
    assert!(told(&mut alone).is_empty());
    alone.tell(3, FromNode::Pass);
    assert_eq!(told(&mut alone), [4]);
    alone.pass(TURN - Duration::from_millis(1));
    assert!(told(&mut alone).is_empty());
    assert_eq!(
        alone.server.next_deadline(),
        Some(alone.now + Duration::from_millis(1))
    );
    alone.pass(Duration::from_millis(1));
    assert_eq!(told(&mut alone), [5]);
    alone.tell(5, FromNode::Pass);
    assert_eq!(alone.server.next_deadline(), None);
}

#[test]
fn a_later_write_of_a_connection_takes_the_place_of_one_that_waits() {
    let mut alone = Alone::watched_by(3);
    for connection in 1..=3 {
        alone.write(connection, Some(FIRST), "a");
    }
    alone.tell(
        3,
        FromNode::CompareAndSet {
            request: 9,
            expected: Some(FIRST + 1),
            state: blob("b"),
            heartbeats: HeartbeatChanges::default(),
        },
    );
    alone.taken();
    alone.step(Event::Closed { connection: 2 });
    let token = FIRST + 2;
    let expected = ToNode::Written { request: 9, token };
    assert_eq!(alone.taken().first(), Some(&(3, expected)));
}

fn heartbeats(beats: &[&str], dead: &[&str], since: u64) -> HeartbeatChanges {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    HeartbeatChanges {
        beats: names(beats),
        forgets: names(dead),
        unless_beaten: (!dead.is_empty()).then(|| Silence {
            nodes: names(dead),
            since,
        }),
    }
}

fn recorded(number: u64, nodes: usize, silent: &[&str]) -> ToNode {
    ToNode::HeartbeatRecorded {
        request: 5,
        number,
        token: FIRST + 1,
        nodes,
        silent: silent.iter().map(|name| (*name).to_owned()).collect(),
    }
}

impl Alone {
    fn write_with(&mut self, connection: u64, expected: u64, heartbeats: HeartbeatChanges) {
        self.tell(
            connection,
            FromNode::CompareAndSet {
                request: 1,
                expected: Some(expected),
                state: blob("s"),
                heartbeats,
            },
        );
    }

    fn beat(&mut self, connection: u64, node: &str, since: u64) {
        let (request, node) = (5, node.to_owned());
        self.tell(
            connection,
            FromNode::Heartbeat {
                request,
                node,
                since,
            },
        );
    }
}

#[test]
fn v5_a_heartbeat_is_answered_and_reported_to_nobody() {
    let mut alone = Alone::watched_by(3);
    alone.write_with(1, FIRST, heartbeats(&["a", "b"], &[], 0));
    alone.taken();
    alone.beat(1, "a", FIRST + 1);
    alone.beat(2, "b", FIRST + 1);
    alone.beat(3, "stranger", FIRST + 2);
    let expected = [
        (1, recorded(FIRST + 2, 2, &["b"])),
        (2, recorded(FIRST + 3, 2, &[])),
        (3, recorded(FIRST + 4, 2, &["a"])),
    ];
    assert_eq!(alone.taken(), expected);
}

/// The connection of a heartbeat learns the token and not the state, so the report is still due.
#[test]
fn v5_a_heartbeat_does_not_stand_for_a_report() {
    let mut alone = Alone::watched_by(2);
    alone.write(1, None, "a");
    alone.write(1, Some(FIRST + 1), "b");
    alone.taken();
    alone.beat(2, "x", 0);
    alone.tell(2, FromNode::Seen);
    let b = ToNode::Changed(snapshot(FIRST + 2, "b"));
    assert_eq!(alone.taken().last(), Some(&(2, b)));
}

#[test]
fn v5_a_removal_of_a_node_that_has_beaten_is_refused() {
    let mut alone = Alone::watched_by(2);
    alone.write_with(1, FIRST, heartbeats(&["a", "b"], &[], 0));
    alone.beat(2, "b", 0);
    alone.taken();
    alone.write_with(1, FIRST + 1, heartbeats(&["a"], &["b"], FIRST + 1));
    let refused = ToNode::NotSilent {
        request: 1,
        nodes: vec!["b".into()],
    };
    assert_eq!(alone.taken(), [(1, refused)]);
    alone.write_with(1, FIRST + 1, heartbeats(&["a"], &["b"], FIRST + 2));
    assert_eq!(alone.taken().first(), Some(&(1, written(FIRST + 3))));
    alone.beat(1, "a", FIRST + 3);
    let ToNode::HeartbeatRecorded { nodes, .. } = alone.taken()[0].1 else {
        panic!("an answer")
    };
    assert_eq!(nodes, 1);
}

/// A removal that was refused in its turn does not hold up those behind it.
#[test]
fn v4_a_refused_removal_ends_the_turn() {
    let mut alone = Alone::watched_by(4);
    alone.write_with(1, FIRST, heartbeats(&["a", "b"], &[], 0));
    alone.write(2, Some(FIRST), "late");
    alone.write(3, Some(FIRST), "later");
    alone.taken();
    alone.beat(4, "b", 0);
    alone.write_with(2, FIRST + 1, heartbeats(&[], &["b"], FIRST + 1));
    let sent = alone.taken();
    assert!(matches!(sent[1], (2, ToNode::NotSilent { .. })), "{sent:?}");
    assert!(matches!(sent[2], (3, ToNode::Conflict { .. })), "{sent:?}");
}

#[test]
fn heartbeats_of_no_node_close_the_connection() {
    let mut alone = Alone::watched_by(3);
    alone.beat(1, "", 0);
    alone.write_with(2, FIRST, heartbeats(&["a\nb"], &[], 0));
    alone.write_with(3, FIRST, heartbeats(&[], &[&"x".repeat(256)], 0));
    assert_eq!(alone.closed, [1, 2, 3]);
    assert_eq!(alone.taken(), []);
}

#[test]
fn runs_know_nothing_of_each_other() {
    let mut alone = Alone::new();
    alone.open(1, "one", true);
    alone.open(2, "two", true);
    alone.taken();
    alone.write(1, None, "a");
    assert_eq!(alone.taken(), [(1, written(FIRST + 1))]);
    assert_eq!(alone.server.watching(Some("one")), 1);
    assert_eq!(alone.server.watching(None), 2);
    alone.step(Event::Closed { connection: 1 });
    assert_eq!(alone.server.watching(Some("one")), 0);
    alone.open(3, "one", true);
    let a = ToNode::Changed(snapshot(FIRST + 1, "a"));
    assert_eq!(alone.taken(), [(3, a)]);
}

#[test]
fn names_have_limits() {
    let mut server = Server::new(FIRST);
    let mut refused = |run: &str| server.open(1, open(run, Channel::Keys), &mut Vec::new());
    for name in ["", "a\nb", &"x".repeat(MAX_RUN + 1)] {
        assert_eq!(refused(name), Err(Refusal::Name), "{name:?}");
    }
    for number in 0..1024 {
        assert_eq!(refused(&number.to_string()), Ok(()));
    }
    assert_eq!(refused("another"), Err(Refusal::Runs));
    assert_eq!(refused("7"), Ok(()));
}

#[test]
fn a_state_that_is_too_long_and_a_message_of_another_channel_close_the_connection() {
    let mut alone = Alone::new();
    alone.open(1, "run", false);
    let state = Blob(vec![0; MAX_STATE + 1]);
    alone.tell(
        1,
        FromNode::CompareAndSet {
            request: 1,
            expected: None,
            state,
            heartbeats: HeartbeatChanges::default(),
        },
    );
    alone.step(Event::FromClient {
        connection: 1,
        message: FromClient::Left,
    });
    alone.tell(7, FromNode::Seen);
    assert_eq!(alone.closed, [1, 1, 7]);
    assert_eq!(alone.taken(), []);
}

#[test]
fn keys_are_shared_within_a_run() {
    let mut server = Server::new(FIRST);
    for (connection, run) in [(1, "run"), (2, "run"), (3, "other")] {
        let opened = server.open(connection, open(run, Channel::Keys), &mut Vec::new());
        assert_eq!(opened, Ok(()));
    }
    let mut ask = |connection: u64, op: Op| {
        let request = Request {
            number: 1,
            namespace: Namespace::Job,
            timeout: Duration::from_secs(1),
            op,
            reads_staged: true,
        };
        let mut out = Vec::new();
        let event = Event::FromClient {
            connection,
            message: FromClient::Ask(request),
        };
        server.step(Time::ZERO, event, &mut out);
        out
    };
    let get = || Op::Get { key: "k".into() };
    assert_eq!(ask(2, get()), []);
    assert_eq!(ask(3, get()), []);
    let set = ask(
        1,
        Op::Set {
            key: "k".into(),
            value: blob("v"),
        },
    );
    let answers: BTreeMap<_, _> = set
        .into_iter()
        .map(|command| match command {
            Command::Answer { connection, answer } => (connection, answer.result),
            other => panic!("{other:?}"),
        })
        .collect();
    let expected = [(1, Ok(Value::Done)), (2, Ok(Value::Bytes(blob("v"))))];
    assert_eq!(answers, BTreeMap::from(expected));
}

/// What a peer does next.
#[derive(Clone, Debug)]
enum Act {
    Write(u64, bool),
    Read(u64),
    Seen(u64),
    Close(u64),
    Pass(u64),
    Wait(u64),
}

fn an_act() -> impl Strategy<Value = Act> {
    let peer = || 1u64..5;
    prop_oneof![
        4 => (peer(), any::<bool>()).prop_map(|(peer, right)| Act::Write(peer, right)),
        1 => peer().prop_map(Act::Read),
        2 => peer().prop_map(Act::Seen),
        1 => peer().prop_map(Act::Close),
        1 => peer().prop_map(Act::Pass),
        1 => (0u64..300).prop_map(Act::Wait),
    ]
}

proptest! {
    /// V1 and V2 whatever peers do: tokens grow, and no request gets two answers.
    #[test]
    fn v1_v2_whatever_peers_do(acts in vec(an_act(), 0..200)) {
        let mut alone = Alone::watched_by(4);
        let mut token = FIRST;
        let mut request = 0;
        for act in acts {
            match act {
                Act::Write(peer, right) => {
                    request += 1;
                    let expected = Some(if right { token } else { FIRST });
                    let state = blob("s");
                    let heartbeats = HeartbeatChanges::default();
                    alone.tell(peer, FromNode::CompareAndSet { request, expected, state, heartbeats });
                }
                Act::Read(peer) => {
                    request += 1;
                    alone.tell(peer, FromNode::Read { request });
                }
                Act::Seen(peer) => alone.tell(peer, FromNode::Seen),
                Act::Pass(peer) => alone.tell(peer, FromNode::Pass),
                Act::Close(peer) => {
                    alone.step(Event::Closed { connection: peer });
                    alone.open(peer, "run", true);
                }
                Act::Wait(millis) => alone.pass(Duration::from_millis(millis)),
            }
            let news = alone.sent.iter().filter_map(|(_, message)| match message {
                ToNode::Written { token, .. } => Some(*token),
                _ => None,
            });
            token = news.max().unwrap_or(token).max(token);
        }
        let mut answered = Vec::new();
        let mut tokens = Vec::new();
        for (_, message) in alone.taken() {
            match message {
                ToNode::Written { request, token } => {
                    answered.push(request);
                    tokens.push(token);
                }
                ToNode::Conflict { request, .. }
                | ToNode::Current { request, .. }
                | ToNode::NotSilent { request, .. }
                | ToNode::HeartbeatRecorded { request, .. } => answered.push(request),
                ToNode::Changed(_) => {}
            }
        }
        prop_assert!(tokens.windows(2).all(|pair| pair[0] < pair[1]), "{tokens:?}");
        let once = answered.len();
        answered.sort_unstable();
        answered.dedup();
        prop_assert_eq!(answered.len(), once);
    }
}
