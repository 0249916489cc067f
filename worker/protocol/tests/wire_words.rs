//! Words on the wire outlive the names in the code: a type or field that is renamed keeps its spelling in frames.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use elasticrun_protocol::{
    AgentCommand, AgentReport, Boundary, DriverEpoch, FromAgent, FromWorker, Generation, HostId,
    LocalRank, Process, Round, ToWorker,
    control::{AdoptedPhase, AdoptedRound, AdoptedWorker, Adoption, Register},
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
        applied: 5,
        standbys: Vec::new(),
        job_code: None,
    };
    let wire = json!({"beat": {"heard": 7, "lease": 1500, "applied": 5}});
    written_and_read(command, wire);
    let last = AgentCommand::Heartbeat {
        acked_count: 0,
        lease: None,
        applied: 0,
        standbys: Vec::new(),
        job_code: Some(1),
    };
    let wire = json!({"beat": {"heard": 0, "lease": null, "applied": 0, "job_code": 1}});
    written_and_read(last, wire);
    let report = AgentReport::Heartbeat {
        commits: 3,
        count: 7,
        held: None,
        sealed: None,
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
        adoption: None,
        durable: false,
        replicas: false,
        cuts: false,
        servers: false,
    };
    let wire = json!({
        "host": "node-1", "software": "0.1.0", "slots": 4, "counted": 4, "itself": true,
        "memory_port": 1, "free_port": 2, "address": null, "probes": true, "durable": false,
        "replicas": false,
    });
    written_and_read(register, wire);
}

#[test]
fn an_adoption_keeps_its_words() {
    let (round, epoch) = (Round(4), DriverEpoch(2));
    let report = FromAgent {
        epoch,
        number: 8,
        report: AgentReport::FreePort { port: 9 },
    };
    let adoption = Adoption {
        run_id: "run".into(),
        epoch,
        acknowledged: 7,
        workers: vec![AdoptedWorker {
            process: PROCESS,
            phase: AdoptedPhase::Training { round },
            attached: true,
            left: None,
            data_port: 3,
            commit: None,
            empty: false,
            stopping: false,
        }],
        starts: vec![PROCESS],
        seen: round,
        released: Round(3),
        round: Some(AdoptedRound {
            epoch,
            round,
            size: 2,
            base: None,
            members: Vec::new(),
        }),
        kept: Vec::new(),
        cut: None,
        servers: Vec::new(),
        reports: vec![report],
    };
    let process = to_value(PROCESS).unwrap();
    let wire = json!({
        "run_id": "run", "epoch": 2, "acknowledged": 7,
        "workers": [{
            "process": process, "phase": {"training": {"round": 4}}, "attached": true, "data_port": 3,
            "empty": false, "stopping": false,
        }],
        "starts": [process], "seen": 4, "released": 3,
        "round": {"epoch": 2, "round": 4, "size": 2, "members": []},
        "kept": [],
        "reports": [{"epoch": 2, "number": 8, "report": {"free_port": {"port": 9}}}],
    });
    written_and_read(adoption, wire);
}

#[test]
fn a_worker_that_names_no_version_of_the_store_speaks_the_third() {
    let open = json!({"open_store": {"local_rank": 1, "generation": 2}});
    let read: FromWorker = serde_json::from_value(open).unwrap();
    let expected = FromWorker::OpenStore {
        local_rank: PROCESS.local_rank,
        generation: PROCESS.generation,
        version: 3,
    };
    assert_eq!(read, expected);
    let ready = ToWorker::StoreReady { version: 4 };
    written_and_read(ready, json!({"store_ready": {"version": 4}}));
}

#[test]
fn the_settings_of_a_driver_that_adopts_nothing_are_those_of_an_older_one() {
    let setup = json!({
        "run_id": "run", "command": [], "env": {}, "directory": null, "heartbeat_interval": 1, "heartbeat_timeout": 1,
        "orphan_timeout": 1, "abort_timeout": 1, "grace": 1,
    });
    let read: elasticrun_protocol::control::Setup = serde_json::from_value(setup).unwrap();
    assert!(!read.adopted);
    let wire = to_value(&read).unwrap();
    assert_eq!(wire.get("adopted"), None);
}
