//! Agents that keep their workers over a broken connection, and return with them.

use std::{collections::BTreeSet, process::Child, thread, time::Duration};

use elasticrun_process_tests::{
    Ended, Event, Job, Kind, Proxy, Running,
    agents::{agent, port, wait},
    monotonic,
};

use crate::support::assert_nothing_lost;

/// Longer than a lease on a busy machine may seem short: workers train on through a short cut.
const FLAGS: &str = "--heartbeat-interval 200ms --heartbeat-timeout 3s --orphan-timeout 2s";

/// A job of two hosts with two workers each, and the proxies of the hosts.
fn joined(flags: &str) -> (Running, [Proxy; 2], [Child; 2]) {
    let job = Job::new(&format!(
        "-np 4 --launcher agent --listen 127.0.0.1:0 {FLAGS} {flags}"
    ));
    let token = job.directory().join("token");
    let mut job = job
        .flag(["--join-token-file", &token.display().to_string()])
        .start();
    let driver = port(&mut job);
    let ways = [Proxy::to(driver), Proxy::to(driver)];
    let agents = [("one", &ways[0]), ("two", &ways[1])]
        .map(|(name, way)| agent(way.port, &token, job.tag(), name));
    job.wait_training(4, 3);
    (job, ways, agents)
}

/// Ends the training of a job and waits until its agents and its driver have ended with success.
fn finish(job: Running, agents: [Child; 2]) -> Ended {
    job.finish();
    let mut job = job;
    job.wait_said("succeeded");
    for agent in agents {
        assert_eq!(wait(agent).0, 0);
    }
    let ended = job.end();
    ended.expect(0, &["succeeded"]);
    ended
}

fn pids(events: &[Event]) -> BTreeSet<u32> {
    let steps = events.iter().filter(|event| event.kind == Kind::Step);
    steps.map(|event| event.pid).collect()
}

/// Waits until all four workers have made many steps since now.
fn wait_until_all_go_on(job: &mut Running) {
    let since = monotonic();
    job.wait_for("all workers go on", |events| {
        let later = |event: &&Event| event.at > since;
        let later: Vec<_> = events.iter().filter(later).cloned().collect();
        let steps = later.iter().filter(|e| e.kind == Kind::Step).count();
        (pids(&later).len() == 4 && steps > 80).then_some(())
    });
}

/// All agents are cut off for so long. They keep their workers, and the round goes on.
fn all_cut_off_for(time: Duration) {
    let (mut job, ways, agents) = joined("--min-np 4");
    ways.iter().for_each(Proxy::cut_off);
    job.wait_said("host one is out of reach");
    job.wait_said("host two is out of reach");
    // The fault under test.
    thread::sleep(time);
    ways.iter().for_each(Proxy::mend);
    job.wait_said("host one is back, with its workers");
    job.wait_said("host two is back, with its workers");
    wait_until_all_go_on(&mut job);
    let ended = finish(job, agents);
    assert_eq!(pids(&ended.events).len(), 4, "{}", ended.stderr);
    assert_eq!(ended.sizes(), [4], "one round: {}", ended.stderr);
    assert!(!ended.stderr.contains("two failed"), "{}", ended.stderr);
    assert_nothing_lost(&ended.events, 0);
}

#[test]
fn all_agents_that_are_cut_off_for_a_second_lose_nothing() {
    all_cut_off_for(Duration::from_secs(1));
}

#[test]
fn all_agents_that_are_cut_off_beyond_the_lease_lose_nothing() {
    all_cut_off_for(Duration::from_secs(8));
}

#[test]
fn a_host_that_all_need_is_waited_for() {
    let (mut job, ways, agents) = joined("--min-np 4");
    ways[1].cut_off();
    job.wait_said("host two is out of reach");
    thread::sleep(Duration::from_secs(3));
    ways[1].mend();
    job.wait_said("host two is back, with its workers");
    wait_until_all_go_on(&mut job);
    let ended = finish(job, agents);
    assert_eq!(ended.sizes(), [4], "one round: {}", ended.stderr);
    assert_eq!(pids(&ended.events).len(), 4, "{}", ended.stderr);
    assert_nothing_lost(&ended.events, 0);
}

#[test]
fn others_go_on_without_a_host_and_take_its_workers_back() {
    let (mut job, ways, agents) = joined("--min-np 2");
    let before = pids(job.events());
    ways[1].cut_off();
    job.wait_training(2, 5);
    ways[1].mend();
    job.wait_said("host two is back, with its workers");
    job.wait_training(4, 10);
    let ended = finish(job, agents);
    assert_eq!(pids(&ended.events), before, "{}", ended.stderr);
    assert!(!ended.stderr.contains("two failed"), "{}", ended.stderr);
    // The others cannot reach the memory of host two, which may hold the newest commit alone.
    assert_nothing_lost(&ended.events, 1);
}

#[test]
fn scripts_go_on_and_their_output_is_whole() {
    let script = "for i in $(seq 1 40); do echo tick $i.; sleep 0.2; done";
    let job = Job::new(&format!(
        "-np 4 --min-np 2 --launcher agent --listen 127.0.0.1:0 {FLAGS}"
    ))
    .command(["sh", "-c", script]);
    let token = job.directory().join("token");
    let mut job = job
        .flag(["--join-token-file", &token.display().to_string()])
        .start();
    let proxy = Proxy::to(port(&mut job));
    let agents = ["one", "two"].map(|name| agent(proxy.port, &token, job.tag(), name));
    let stdout = job.path("stdout");
    job.wait_for("all run", |_| {
        let said = std::fs::read_to_string(&stdout).unwrap_or_default();
        (said.matches("tick 3.").count() == 4).then_some(())
    });
    proxy.cut_off();
    job.wait_said("host two is out of reach");
    // The fault under test.
    thread::sleep(Duration::from_secs(3));
    proxy.mend();
    job.wait_said("host one is back, with its workers");
    job.wait_said("host two is back, with its workers");
    for agent in agents {
        assert_eq!(wait(agent).0, 0);
    }
    let ended = job.end();
    ended.expect(0, &["succeeded"]);
    for tick in 1..=40 {
        let times = ended.stdout.matches(&format!("tick {tick}.")).count();
        assert_eq!(times, 4, "tick {tick}: {}", ended.stdout);
    }
}
