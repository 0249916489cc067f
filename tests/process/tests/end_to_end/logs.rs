//! What a log record belongs to: job, round, host and worker.

use elasticrun_process_tests::{
    Job, What,
    agents::{joining, port, wait},
};
use serde_json::{Value, json};

use crate::support::at_step;

/// Standard error of a job, one worker of which is killed.
fn log_of_a_death(flags: &str) -> String {
    let mut job = Job::new(&format!("-np 2 --min-np 1 -H localhost:2 {flags}"))
        .fault(at_step(1, 5, What::Kill))
        .start();
    job.wait_said(KILLED);
    job.finish();
    job.end().stderr.clone()
}

/// What an agent writes about a worker that was killed. It may have written before that its sign of life is gone.
const KILLED: &str = "a worker has ended exit=signal 9";

fn records(log: &str) -> Vec<Value> {
    (log.lines())
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

#[test]
fn a_log_record_names_its_job_and_its_round() {
    let job = Job::new("-np 1 -H localhost:1 --log-format json --log-level trace").start();
    job.finish();
    let ended = job.end();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let records = records(&ended.stderr);
    let run = &records.iter().find(|r| r["event"] == "job_ended").unwrap()["run"];
    let spans = json!([{"name": "job", "run": run}, {"name": "round", "number": 1}]);
    assert!(
        records.iter().any(|record| record["spans"] == spans),
        "{}",
        ended.stderr
    );
}

#[test]
fn a_log_record_of_an_agent_names_its_job_round_host_and_worker() {
    let log = log_of_a_death("--log-format json --log-level debug");
    let records = records(&log);
    let run = &records.iter().find(|r| r["event"] == "job_ended").unwrap()["run"];
    let death = |record: &&Value| {
        let message = record["message"].as_str().unwrap_or_default();
        message == KILLED
    };
    let died = records.iter().find(death).expect(&log);
    let round = &died["spans"][1]["number"];
    let spans = json!([
        {"name": "job", "run": run},
        {"name": "round", "number": round},
        {"name": "host", "id": "localhost"},
        {"name": "worker", "local_rank": 1, "generation": 1},
    ]);
    assert_eq!(
        (&died["spans"], &died["agent_level"]),
        (&spans, &json!("DEBUG"))
    );
    // Its process may be reaped after the next round has started.
    assert!(matches!(round.as_u64(), Some(1 | 2)), "{died}");
    let joined = records.iter().find(|r| {
        let message = r["message"].as_str().unwrap_or_default();
        message.starts_with("joined")
    });
    let spans = json!([{"name": "job", "run": run}, {"name": "host", "id": "localhost"}]);
    assert_eq!(
        joined.expect(&log)["spans"],
        spans,
        "before the first round"
    );
}

#[test]
fn the_text_of_a_log_record_of_an_agent_names_them_too() {
    let log = log_of_a_death("--log-level debug");
    let line = log.lines().find(|line| line.contains(KILLED)).expect(&log);
    assert!(line.contains("job{run=\""), "{line}");
    assert!(line.contains(":round{number="), "{line}");
    let inner = "}:host{id=localhost}:worker{local_rank=1 generation=1}: a worker has ended";
    assert!(line.contains(inner), "{line}");
}

#[test]
fn an_agent_that_joins_by_itself_names_them_in_its_own_log() {
    let job = Job::new("-np 2 --min-np 1 --launcher agent --listen 127.0.0.1:0");
    let token = job.directory().join("token");
    let mut job = job
        .flag(["--join-token-file", &token.display().to_string()])
        .fault(at_step(1, 5, What::Kill))
        .start();
    let mut agent = joining(port(&mut job), &token, job.tag(), "one", 2);
    agent.args(["--log-format", "json", "--log-level", "debug"]);
    let agent = agent.spawn().unwrap();
    job.wait_said("worker failed");
    job.finish();
    job.wait_said("succeeded");
    let (_, log) = wait(agent);
    job.end().expect(0, &["succeeded"]);
    let records = records(&log);
    let died = (records.iter())
        .find(|r| r["exit"] == "signal 9")
        .expect(&log);
    let names: Vec<&Value> = died["spans"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| &s["name"])
        .collect();
    assert_eq!(names, ["job", "round", "host", "worker"]);
    assert_eq!(
        died["spans"][0].as_object().unwrap().len(),
        2,
        "its run is known: {died}"
    );
}
