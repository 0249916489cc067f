//! Streams of messages that were damaged: the fuzzer's check, bounded, on any compiler.

#![allow(clippy::unwrap_used)]

#[path = "../../../../tests/fuzz/seeds.rs"]
mod seeds;

use std::net::SocketAddr;

use crate::{
    AgentCommand, AgentReport, Boundary, CommitId, DriverEpoch, FromAgent, FromWorker, Generation,
    HostId, LocalRank, Notice, NoticeKind, Process, Round, ToAgent, ToWorker, any_stream,
    control::{MemoryRequest, Register, StopReason, Via},
    frame::encode,
    opening::{Hello, Purpose},
    store::StoreOf,
};
use proptest::prelude::*;
use serde::Serialize;

const PROCESS: Process = Process {
    local_rank: LocalRank(1),
    generation: Generation(2),
};

/// Messages of all kinds of peers, each as a frame.
fn frames() -> Vec<Vec<u8>> {
    let epoch = DriverEpoch(1);
    let round = Round(7);
    let commit = CommitId {
        epoch,
        round,
        count: 9,
    };
    let report = |report| FromAgent {
        epoch,
        number: 1,
        report,
    };
    let command = |command| ToAgent { epoch, command };
    let within = Some(std::time::Duration::from_secs(120));
    let kind = NoticeKind::SpotInterruption;
    vec![
        frame(&Hello {
            magic: "elasticrun".into(),
            min: 3,
            max: 3,
            software: "0.1.0".into(),
            purpose: Purpose::Control,
        }),
        frame(&MemoryRequest {
            newer: false,
            ranges: Vec::new(),
            background: false,
            via: vec![Via {
                agent: SocketAddr::from(([10, 0, 0, 1], 4)),
                requests: 2,
            }],
            requests: 3,
            process: PROCESS,
            key: commit.into(),
        }),
        frame(&Register {
            host: HostId::new("node-1"),
            software: "0.1.0".into(),
            slots: 4,
            detected_slots: Some(4),
            self_registered: true,
            memory_port: 7001,
            free_port: 7002,
            address: Some([10, 0, 0, 1].into()),
            task: None,
            keeps_run: Some("run".into()),
            agent: Some(7),
            probes: true,
            adoption: Some(Default::default()),
            durable: false,
            replicas: false,
            cuts: false,
            servers: false,
        }),
        frame(&report(AgentReport::Noticed {
            notice: Notice { kind, within },
        })),
        frame(&report(AgentReport::Heartbeat {
            commits: 3,
            count: 4,
            held: None,
            sealed: None,
        })),
        frame(&report(AgentReport::BoundaryCounted {
            round,
            highest: Boundary(8),
        })),
        frame(&command(AgentCommand::Plan {
            round,
            members: vec![PROCESS],
        })),
        frame(&command(AgentCommand::Leave {
            round,
            at: Boundary(9),
        })),
        frame(&command(AgentCommand::Stop {
            process: PROCESS,
            why: StopReason::Removed,
        })),
        frame(&command(AgentCommand::Shutdown)),
        frame(&FromWorker::Attach {
            local_rank: PROCESS.local_rank,
            generation: PROCESS.generation,
            pid: 4711,
            buffers: 3,
        }),
        frame(&FromWorker::Join {
            left: Some(round),
            told: true,
            data_port: 7003,
            commit: Some(commit),
            empty: false,
            unreachable: Vec::new(),
        }),
        frame(&ToWorker::Abort { round }),
        frame(&StoreOf {
            host: HostId::new("node-1"),
            instance: 3,
        }),
    ]
}

fn frame(message: &impl Serialize) -> Vec<u8> {
    let mut frame = Vec::new();
    encode(message, &mut frame).unwrap();
    frame
}

/// What a peer, or somebody on the way, may do to bytes. Places are shares of the length.
#[derive(Clone, Debug)]
enum Damage {
    Flip(f64, u8),
    Cut(f64, f64),
    Repeat(f64, f64),
    Insert(f64, &'static str),
}

/// Words that mean something to a reader of JSON or of these messages.
const WORDS: [&str; 12] = [
    "null",
    "-1",
    "18446744073709551615",
    "1e400",
    "{}",
    "[[[[",
    "\"",
    "\\ud800",
    "\"round\":",
    "\"order\":",
    ",",
    "\u{0}",
];

fn damage() -> impl Strategy<Value = Damage> {
    let place = || 0.0..1.0;
    prop_oneof![
        (place(), any::<u8>()).prop_map(|(at, mask)| Damage::Flip(at, mask)),
        (place(), place()).prop_map(|(from, to)| Damage::Cut(from, to)),
        (place(), place()).prop_map(|(from, to)| Damage::Repeat(from, to)),
        (place(), prop::sample::select(&WORDS[..])).prop_map(|(at, word)| Damage::Insert(at, word)),
    ]
}

impl Damage {
    fn apply(&self, bytes: &mut Vec<u8>) {
        let length = bytes.len();
        let place = |share: &f64| (share * length as f64) as usize;
        let range = |from: &f64, to: &f64| {
            let (from, to) = (place(from), place(to));
            from.min(to)..from.max(to)
        };
        match self {
            Self::Flip(at, mask) => {
                if let Some(byte) = bytes.get_mut(place(at)) {
                    *byte ^= mask;
                }
            }
            Self::Cut(from, to) => drop(bytes.drain(range(from, to))),
            Self::Repeat(from, to) => {
                let again = bytes[range(from, to)].to_vec();
                bytes.extend(again);
            }
            Self::Insert(at, word) => {
                let at = place(at);
                drop(bytes.splice(at..at, word.bytes()));
            }
        }
    }
}

/// A frame with damage in its body only, so that it still is one.
fn with_body(frame: &[u8], damages: &[Damage]) -> Vec<u8> {
    let mut body = frame[4..].to_vec();
    for damage in damages {
        damage.apply(&mut body);
    }
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    [&length[..], &body].concat()
}

#[test]
fn each_kind_of_message_is_understood() {
    for frame in frames() {
        assert!(any_stream::check(true, 3, &frame) > 0, "{frame:?}");
    }
}

#[test]
fn each_seed_of_the_fuzzer_has_a_message() {
    for (name, seed) in seeds::read("frames") {
        assert!(any_stream::check_input(&seed) > 0, "{name}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn damaged_bodies_are_refused_or_understood(
        which in prop::sample::select(frames()),
        damages in prop::collection::vec(damage(), 1..4),
        cut in 1usize..40,
    ) {
        any_stream::check(true, cut, &with_body(&which, &damages));
    }

    #[test]
    fn damaged_streams_are_closed_or_read_on(
        which in prop::collection::vec(prop::sample::select(frames()), 1..6),
        damages in prop::collection::vec(damage(), 0..4),
        trusted: bool,
        cut in 1usize..40,
    ) {
        let whole = which.len();
        let mut stream = which.concat();
        for damage in &damages {
            damage.apply(&mut stream);
        }
        let understood = any_stream::check(trusted, cut, &stream);
        prop_assert!(understood >= whole || !damages.is_empty());
    }
}
