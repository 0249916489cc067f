//! Suspended drivers and agents, and networks that are down for a while.

use std::{process::Child, thread, time::Duration};

use elasticrun_process_tests::{
    Ended, Event, Fault, Job, Kind, Point, Proxy, Running, What, When,
    agents::{agent, joining, port, wait},
    monotonic, send_signal,
};
use nix::sys::signal::Signal;

use crate::support::assert_nothing_lost;

/// Flags that give a lease of 4.6 s. A machine under load may stop a process for more than a second, which is no failure.
const QUICK: &str = "--heartbeat-interval 100ms --heartbeat-timeout 4s --orphan-timeout 500ms";
const LEASE: Duration = Duration::from_millis(4600);
/// Longer than every timeout of these flags.
const LONG: Duration = Duration::from_secs(7);

fn last_step(events: &[Event]) -> u64 {
    let steps = events.iter().filter(|event| event.kind == Kind::Step);
    steps.map(|event| event.at).max().unwrap_or(0)
}

/// Waits until no worker has made a step for `time`. Gives the time of the last step.
fn wait_until_idle(job: &mut Running, time: Duration) -> u64 {
    job.wait_for("no worker makes a step", |events| {
        let last = last_step(events);
        (monotonic() - last > time.as_nanos() as u64).then_some(last)
    })
}

/// Waits until a worker makes a step after `since`.
fn wait_until_busy(job: &mut Running, since: u64) {
    job.wait_for("workers go on", |events| {
        (last_step(events) > since).then_some(())
    });
}

#[test]
fn a_suspended_driver_of_a_standard_job_loses_nothing_and_its_workers_train_on() {
    let mut job = Job::new(&format!("-np 2 {QUICK}")).start();
    job.wait_training(2, 3);
    send_signal(job.driver(), Signal::SIGSTOP);
    let began = monotonic();
    wait_until_busy(&mut job, began + LONG.as_nanos() as u64);
    send_signal(job.driver(), Signal::SIGCONT);
    job.wait_said("the driver stood still for");
    let now = monotonic();
    wait_until_busy(&mut job, now + Duration::from_secs(1).as_nanos() as u64);
    job.finish();
    let ended = job.end();
    ended.expect(0, &["succeeded"]);
    assert_eq!(ended.sizes(), [2], "{}", ended.stderr);
}

#[test]
fn workers_of_a_suspended_driver_wait_at_the_end_of_their_lease_and_go_on_with_it() {
    let flags = format!("-np 4 --min-np 2 -H localhost:2,127.0.0.1:2 {QUICK}");
    let mut job = Job::new(&flags).start();
    job.wait_training(4, 3);
    send_signal(job.driver(), Signal::SIGSTOP);
    wait_until_idle(&mut job, Duration::from_secs(1));
    let stopped = monotonic();
    send_signal(job.driver(), Signal::SIGCONT);
    wait_until_busy(&mut job, stopped + Duration::from_secs(2).as_nanos() as u64);
    job.finish();
    let ended = job.end();
    ended.expect(0, &["succeeded"]);
    assert_eq!(ended.sizes(), [4], "no round was lost: {}", ended.stderr);
}

#[test]
fn processes_without_the_sdk_outlive_a_suspended_driver() {
    let script = "for i in 1 2 3 4 5 6; do sleep 1; echo tick $i; done";
    let mut job = Job::new(&format!("-np 2 --min-np 1 -H localhost:2 {QUICK}"))
        .command(["sh", "-c", script])
        .start();
    let stdout = job.path("stdout");
    let says = |text: &str| {
        let said = std::fs::read_to_string(&stdout).unwrap_or_default();
        (said.matches(text).count() == 2).then_some(())
    };
    job.wait_for("both run", |_| says("tick 1"));
    send_signal(job.driver(), Signal::SIGSTOP);
    // The fault under test.
    thread::sleep(LONG);
    send_signal(job.driver(), Signal::SIGCONT);
    let ended = job.end();
    ended.expect(0, &["succeeded"]);
    for tick in ["tick 1", "tick 6"] {
        let times = ended.stdout.matches(tick).count();
        assert_eq!(times, 2, "no process began anew: {}", ended.stdout);
    }
}

#[test]
fn workers_of_a_stopped_agent_make_no_step_beyond_their_lease() {
    let flags = format!("-np 2 --min-np 1 -H localhost:1,127.0.0.1:1 {QUICK}");
    let mut job = Job::new(&flags).start();
    let two = job.wait_training(2, 3);
    let agents: Vec<u32> = two.iter().map(|event| parent(event.pid)).collect();
    let began = monotonic();
    for agent in &agents {
        send_signal(*agent, Signal::SIGSTOP);
    }
    let last = wait_until_idle(&mut job, Duration::from_millis(600));
    let trained = Duration::from_nanos(last.saturating_sub(began));
    // A step is logged after its commit, on a machine that may be busy.
    assert!(trained < LEASE + Duration::from_millis(500), "{trained:?}");
    job.wait_said("host localhost is out of reach: its agent was silent");
    send_signal(job.driver(), Signal::SIGTERM);
    job.end().expect(143, &["stopped by signal 15"]);
}

fn parent(pid: u32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    line.unwrap().trim().parse().unwrap()
}

fn joined(flags: &str) -> (Running, Proxy, [Child; 2]) {
    let job = Job::new(&format!(
        "-np 4 --launcher agent --listen 127.0.0.1:0 {flags}"
    ));
    let token = job.directory().join("token");
    let mut job = job
        .flag(["--join-token-file", &token.display().to_string()])
        .start();
    let proxy = Proxy::to(port(&mut job));
    let agents = ["one", "two"].map(|name| agent(proxy.port, &token, job.tag(), name));
    job.wait_training(4, 3);
    (job, proxy, agents)
}

/// Ends the training of a job and waits until its agents and its driver have ended with success.
fn finish(mut job: Running, agents: impl IntoIterator<Item = Child>) -> Ended {
    job.finish();
    job.wait_said("succeeded");
    for agent in agents {
        assert_eq!(wait(agent).0, 0);
    }
    let ended = job.end();
    ended.expect(0, &["succeeded"]);
    ended
}

#[test]
fn a_network_that_is_gone_for_less_than_the_heartbeat_timeout_costs_nothing() {
    let (mut job, proxy, agents) = joined(
        "--min-np 2 --heartbeat-interval 1500ms --heartbeat-timeout 2s --orphan-timeout 500ms",
    );
    proxy.cut();
    thread::sleep(Duration::from_millis(1950));
    proxy.mend();
    let mended = monotonic();
    wait_until_busy(&mut job, mended + Duration::from_secs(2).as_nanos() as u64);
    let ended = finish(job, agents);
    assert_eq!(ended.sizes().last(), Some(&4), "{}", ended.stderr);
    assert!(!ended.stderr.contains("silent"), "{}", ended.stderr);
    assert_nothing_lost(&ended.events, 0);
}

#[test]
fn hosts_that_were_all_out_of_reach_and_are_all_needed_go_on_where_they_were() {
    let flags =
        format!("--min-np 4 {QUICK} --blacklist-cooldown-range 100ms 200ms --max-host-failures 0");
    let (mut job, proxy, agents) = joined(&flags);
    let step = job.wait_training(4, 20)[0].step;
    proxy.cut();
    job.wait_said("host one is out of reach: its agent was silent");
    job.wait_said("host two is out of reach: its agent was silent");
    wait_until_idle(&mut job, Duration::from_millis(500));
    proxy.mend();
    job.wait_training(4, step + 20);
    let ended = finish(job, agents);
    assert_nothing_lost(&ended.events, 0);
    assert_eq!(ended.sizes(), [4], "one round: {}", ended.stderr);
}

#[test]
fn a_host_that_is_back_alone_goes_on_at_once_and_is_a_step_behind_at_most() {
    // The lease is long enough for a step on a busy machine.
    let flags = "-np 2 --min-np 1 --launcher agent --listen 127.0.0.1:0 --heartbeat-interval 100ms \
        --heartbeat-timeout 4s --orphan-timeout 500ms --blacklist-cooldown-range 100ms 200ms --max-host-failures 0";
    let when = When {
        host: Some("two".to_owned()),
        file: Some("cut".to_owned()),
        ..When::default()
    };
    let job = Job::new(flags).fault(Fault::new(Point::Save, when, What::Kill));
    let token = job.directory().join("token");
    let mut job = job
        .flag(["--join-token-file", &token.display().to_string()])
        .start();
    let driver = port(&mut job);
    let ways = [Proxy::to(driver), Proxy::to(driver)];
    let agents = ["one", "two"].map(|name| {
        let way = &ways[usize::from(name == "two")];
        joining(way.port, &token, job.tag(), name, 1)
            .spawn()
            .unwrap()
    });
    job.wait_training(2, 20);
    ways.iter().for_each(Proxy::cut);
    job.touch("cut");
    job.wait_said("host one is out of reach: its agent was silent");
    job.wait_said("host two is out of reach: its agent was silent");
    // Host one has made the commit at which the worker of host two was killed.
    let newest = |events: &[Event], host| {
        let steps = (events.iter()).filter(|e| e.kind == Kind::Step && e.host == host);
        steps.map(|event| event.step).max().unwrap()
    };
    let events = job.events();
    let (ahead, behind) = (newest(events, "one"), newest(events, "two"));
    assert_eq!(ahead, behind + 1);
    ways[1].mend();
    let step = job.wait_training(1, ahead + 20)[0].step;
    ways[0].mend();
    job.wait_training(2, step + 1);
    let ended = finish(job, agents);
    assert!(
        !ended.stderr.contains("waiting for them"),
        "{}",
        ended.stderr
    );
    let back = ended.rounds();
    let alone = (back.iter()).find(|round| round[0].size == 1 && round[0].step > 0);
    assert_eq!(alone.unwrap()[0].step, behind, "{}", ended.stderr);
    assert_nothing_lost(&ended.events, 1);
}

#[test]
fn a_host_with_an_older_commit_waits_for_those_with_the_newest() {
    let flags = format!(
        "-np 6 --min-np 2 --launcher agent --listen 127.0.0.1:0 {QUICK} --blacklist-cooldown-range 4s 5s --max-host-failures 0"
    );
    let job = Job::new(&flags);
    let token = job.directory().join("token");
    let mut job = job
        .flag(["--join-token-file", &token.display().to_string()])
        .start();
    let driver = port(&mut job);
    let proxy = Proxy::to(driver);
    let agents = [(proxy.port, "one"), (proxy.port, "two"), (driver, "three")]
        .map(|(port, name)| agent(port, &token, job.tag(), name));
    let six = job.wait_training(6, 3);
    let alone = six.iter().find(|event| event.host == "three").unwrap();
    send_signal(alone.pid, Signal::SIGKILL);
    let step = job.wait_training(4, six[0].step + 20)[0].step;
    proxy.cut();
    // The commit is of round 2, or of round 3 if the peers of the killed worker report it before its agent does.
    job.wait_said("may be kept by one, two: waiting for them, 60 s at most");
    proxy.mend();
    job.wait_training(6, step + 20);
    let ended = finish(job, agents);
    assert!(!ended.stderr.contains("goes back"), "{}", ended.stderr);
    // The host that comes back first is enough, and the other one may be a step ahead of it.
    assert_nothing_lost(&ended.events, 1);
}
