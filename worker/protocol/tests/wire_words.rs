//! Words on the wire outlive the names in the code: a type or field that is renamed keeps its spelling in frames.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use elasticrun_protocol::{
    AgentCommand, AgentReport, Boundary, Generation, HostId, LocalRank, Process, Round,
    control::Register,
};
use serde_json::{Value, json, to_value};

const PROCESS: Process = Process {
    local_rank: LocalRank(1),
    generation: Generation(2),
};

fn written_and_read<T>(message: T, wire: Value)
where
    T: serde::Serialize + serde::de::DeserializeOwned + PartialEq + std::fmt::Debug,
{
    assert_eq!(to_value(&message).unwrap(), wire);
    assert_eq!(serde_json::from_value::<T>(wire).unwrap(), message);
}

#[test]
fn a_heartbeat_is_a_beat() {
    let command = AgentCommand::Heartbeat {
        acked_count: 7,
        lease: Some(Duration::from_millis(1500)),
    };
    written_and_read(command, json!({"beat": {"heard": 7, "lease": 1500}}));
    let report = AgentReport::Heartbeat {
        commits: 3,
        count: 7,
    };
    written_and_read(report, json!({"beat": {"commits": 3, "count": 7}}));
}

#[test]
fn reports_of_workers_keep_their_words() {
    let round = Round(4);
    let process = to_value(PROCESS).unwrap();
    let counted = AgentReport::BoundaryCounted {
        round,
        highest: Boundary(9),
    };
    written_and_read(counted, json!({"counted": {"round": 4, "highest": 9}}));
    let broken = AgentReport::PeerLost {
        round,
        process: PROCESS,
        unreachable: Vec::new(),
    };
    written_and_read(broken, json!({"broken": {"round": 4, "process": process}}));
    let lost = AgentReport::WorkerLost {
        process: PROCESS,
        silent: true,
    };
    written_and_read(lost, json!({"lost": {"process": process, "silent": true}}));
}

#[test]
fn a_registration_keeps_its_words() {
    let register = Register {
        host: HostId::new("node-1"),
        software: "0.1.0".into(),
        slots: 4,
        detected_slots: Some(4),
        self_registered: true,
        memory_port: 1,
        free_port: 2,
        address: None,
        task: None,
        keeps_run: None,
        agent: None,
        probes: true,
    };
    let wire = json!({
        "host": "node-1", "software": "0.1.0", "slots": 4, "counted": 4, "itself": true,
        "memory_port": 1, "free_port": 2, "address": null, "probes": true,
    });
    written_and_read(register, wire);
}
