//! Agents that join through a proxy, which holds all traffic with the driver for a while.

use std::{process::Child, thread, time::Duration};

use elasticrun_process_tests::{
    Job, Proxy,
    agents::{self, agent},
};

use crate::{
    report::Row,
    steps::Progress,
    turn::{Turn, Window},
};

/// How long the network is down.
const CUT: Duration = Duration::from_secs(8);

/// How long it works between two cuts.
const UP: Duration = Duration::from_secs(7);

const FLAGS: &str = "-np 4 --min-np 2 --launcher agent --listen 127.0.0.1:0 --orphan-timeout 60s";

/// Trains four workers on two hosts.
pub(crate) fn run(turn: Turn) -> Row {
    let job = Job::new(FLAGS).plan(|plan| plan.step_ms = turn.step_ms);
    let token = job.directory().join("token");
    let token_flag = token.display().to_string();
    let mut job = job.flag(["--join-token-file", &token_flag]).start();
    let proxy = Proxy::to(agents::port(&mut job));
    let join = |name| agent(proxy.port, &token, job.tag(), name);
    let children: [Child; 2] = ["one", "two"].map(join);
    job.wait_training(4, 5);
    let window = Window::begin(turn.time);
    let mut faults = 0;
    while turn.disturbed && window.left() > UP + CUT {
        thread::sleep(UP);
        proxy.cut();
        thread::sleep(CUT);
        proxy.mend();
        faults += 1;
    }
    window.pass();
    job.finish();
    let ended = job.end();
    ended.expect(0, &["succeeded"]);
    for child in children {
        let (code, said) = agents::wait(child);
        assert_eq!(code, 0, "{said}");
    }
    Row {
        name: match turn.disturbed {
            true => "network down for 8 s",
            false => "network undisturbed",
        },
        faults,
        progress: Progress::between(&ended.events, window),
        accepted: Vec::new(),
    }
}
