//! Hosts that register themselves: `elasticrun agent --join`.

use std::{
    env, fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, SystemTime},
};

use elasticrun_process_tests::{
    Event, Job, Kind, Running,
    agents::{agent, port, wait},
    binaries, send_signal,
};
use elasticrun_tls::token::Token;
use nix::sys::signal::Signal;

const FLAGS: &str = "-np 2 --min-np 1 --max-np 4 --launcher agent --listen 127.0.0.1:0";

/// A job that waits for agents, with the file of its token and its port.
fn listening() -> (Running, PathBuf, u16) {
    listening_with("")
}

/// The same with more flags.
fn listening_with(flags: &str) -> (Running, PathBuf, u16) {
    let job = Job::new(&format!("{FLAGS} {flags}"));
    let token = job.directory().join("token");
    let mut job = job
        .flag(["--join-token-file", &token.display().to_string()])
        .start();
    let port = port(&mut job);
    (job, token, port)
}

/// The job trains with an agent that is well, and succeeds.
fn trains_with_another(mut job: Running, token: &Path, port: u16) {
    let one = agent(port, token, job.tag(), "one");
    job.wait_training(2, 3);
    job.finish();
    job.wait_said("succeeded");
    wait(one);
    job.end().expect(0, &["succeeded"]);
}

#[test]
fn hosts_that_join_are_used_and_grow_the_job() {
    let (mut job, token, port) = listening();
    let one = agent(port, &token, job.tag(), "one");
    job.wait_training(2, 3);
    let two = agent(port, &token, job.tag(), "two");
    let four = job.wait_training(4, 3);
    assert_eq!(
        (four[0].host.as_str(), four[2].host.as_str()),
        ("one", "two")
    );
    job.finish();
    job.wait_said("succeeded");
    let (one, two) = (wait(one), wait(two));
    assert_eq!(
        (one.0, two.0),
        (0, 0),
        "agents end with their job: {} {}",
        one.1,
        two.1
    );
    job.end().expect(0, &["succeeded"]);
}

#[test]
fn a_wrong_token_is_refused_and_the_job_goes_on() {
    let job = Job::new(FLAGS);
    let (token, wrong) = (job.directory().join("token"), job.directory().join("wrong"));
    let other = Token::random(SystemTime::now() + Duration::from_hours(1)).unwrap();
    fs::write(&wrong, other.expose().as_str()).unwrap();
    fs::set_permissions(&wrong, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let mut job = job
        .flag(["--join-token-file", &token.display().to_string()])
        .start();
    let port = port(&mut job);
    let (code, said) = wait(agent(port, &wrong, job.tag(), "stranger"));
    assert_ne!(code, 0);
    assert!(said.contains("does not take this join token"), "{said}");
    job.wait_said("is not one of this job");
    let good = agent(port, &token, job.tag(), "one");
    job.wait_training(2, 3);
    job.finish();
    job.wait_said("succeeded");
    assert_eq!(wait(good).0, 0);
    let ended = job.end();
    ended.expect(0, &["succeeded"]);
    assert!(ended.events.iter().all(|event| event.host == "one"));
}

/// The token of the file is replaced when half of its time is over. A copy of the old one expires.
#[test]
fn hosts_join_by_a_token_that_was_replaced_and_not_by_one_that_has_expired() {
    let job = Job::new(FLAGS);
    let (token, copy) = (job.directory().join("token"), job.directory().join("copy"));
    let old = Token::random(SystemTime::now() + Duration::from_secs(10)).unwrap();
    for path in [&token, &copy] {
        fs::write(path, old.expose().as_str()).unwrap();
        fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    }
    let mut job = job
        .flag(["--join-token-file", &token.display().to_string()])
        .start();
    let port = port(&mut job);
    job.wait_for("another token", |_| {
        let text = fs::read_to_string(&token).unwrap();
        (text.parse::<Token>().unwrap() != old).then_some(())
    });
    let one = agent(port, &token, job.tag(), "one");
    job.wait_training(2, 3);
    job.wait_for("the end of the old token", |_| {
        old.is_expired(SystemTime::now()).then_some(())
    });
    let (code, said) = wait(agent(port, &copy, job.tag(), "late"));
    assert_ne!(code, 0);
    assert!(said.contains("does not take this join token"), "{said}");
    job.wait_said("has expired");
    job.finish();
    job.wait_said("succeeded");
    assert_eq!(wait(one).0, 0);
    job.end().expect(0, &["succeeded"]);
}

/// An agent that waits for the next job dials with the keys of the last one first.
#[test]
fn an_agent_of_the_last_job_joins_the_next_one_without_a_warning() {
    let (mut job, token, port) = listening();
    let one = agent(port, &token, job.tag(), "one");
    job.wait_training(2, 3);
    job.kill_only_driver();
    let next = Job::new(&format!(
        "-np 2 --min-np 1 --launcher agent --listen 127.0.0.1:{port} --join-token-file {}",
        token.display()
    ));
    let mut next = next.start();
    next.wait_training(2, 3);
    next.finish();
    next.wait_said("succeeded");
    assert_eq!(wait(one).0, 0);
    let ended = next.end();
    ended.expect(0, &["succeeded"]);
    assert!(!ended.stderr.contains("refused"), "{}", ended.stderr);
}

/// The line of an example that makes a token.
fn token_line(example: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let text = fs::read_to_string(root.join(example)).unwrap();
    let line = text.lines().find(|line| line.contains("elasticrun token"));
    line.unwrap().trim_start_matches(['#', ' ']).to_owned()
}

/// Runs a line of an example in a shell that finds this binary. Gives its output.
fn shell(line: &str, token: &Path) -> String {
    let programs = binaries::elasticrun().parent().unwrap().to_owned();
    let path = format!("{}:{}", programs.display(), env::var("PATH").unwrap());
    let output = Command::new("bash")
        .args(["-euc", line])
        .env("PATH", path)
        .env("token", token)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_examples_make_tokens_that_driver_and_agent_take() {
    let kubernetes = token_line("kubernetes/train.yaml");
    let (command, rest) = kubernetes.split_once(" | ").unwrap();
    assert!(rest.starts_with("kubectl create secret"), "{rest}");
    let printed: Token = shell(command, Path::new("")).parse().unwrap();
    assert!(!printed.is_expired(SystemTime::now()));

    let job = Job::new(FLAGS);
    let token = job.directory().join("token");
    shell(&token_line("slurm/train.sbatch"), &token);
    let made = fs::read_to_string(&token).unwrap();
    let mut job = job
        .flag(["--join-token-file", &token.display().to_string()])
        .start();
    let port = port(&mut job);
    let one = agent(port, &token, job.tag(), "one");
    job.wait_training(2, 3);
    assert_eq!(fs::read_to_string(&token).unwrap(), made);
    job.finish();
    job.wait_said("succeeded");
    assert_eq!(wait(one).0, 0);
    job.end().expect(0, &["succeeded"]);
}

#[test]
fn a_token_that_others_may_read_is_refused_by_the_agent() {
    let (job, token, port) = listening();
    let open = token.with_file_name("open");
    fs::copy(&token, &open).unwrap();
    fs::set_permissions(&open, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let (code, said) = wait(agent(port, &open, job.tag(), "one"));
    assert_ne!(code, 0);
    assert!(said.contains("others may read it"), "{said}");
    trains_with_another(job, &token, port);
}

#[test]
fn an_agent_that_cannot_reach_its_driver_says_so() {
    let (job, token, port) = listening();
    // Nothing listens at port 1, which the kernel gives to nobody.
    let mut lost = agent(1, &token, job.tag(), "lost");
    let mut said = String::new();
    let mut stderr = BufReader::new(lost.stderr.take().unwrap());
    while !said.contains("cannot reach the driver yet") {
        let read = stderr.read_line(&mut said).unwrap();
        assert_ne!(read, 0, "it has ended: {said}");
    }
    lost.kill().unwrap();
    lost.wait().unwrap();
    trains_with_another(job, &token, port);
}

#[test]
fn a_driver_keeps_no_connection_of_a_silent_host() {
    let (mut job, token, port) = listening_with(
        "--heartbeat-interval 100ms --heartbeat-timeout 4s --orphan-timeout 500ms --log-level debug",
    );
    let one = agent(port, &token, job.tag(), "one");
    job.wait_training(2, 3);
    let mut two = agent(port, &token, job.tag(), "two");
    job.wait_training(4, 3);
    // The last of its connections.
    job.wait_said("the death of an agent would be reported host=two");
    send_signal(two.id(), Signal::SIGSTOP);
    job.wait_said("host two is out of reach: its agent was silent");
    // The kernel answers for a stopped process, so only the driver can end the connections.
    job.wait_for("the driver closes all of them", |_| {
        (connections(two.id()) == 0).then_some(())
    });
    // It would join again, or wait for a driver once this one has ended.
    two.kill().unwrap();
    two.wait().unwrap();
    job.finish();
    job.wait_said("succeeded");
    wait(one);
    job.end().expect(0, &["succeeded"]);
}

/// The number of TCP connections of a process that no side has closed.
fn connections(pid: u32) -> usize {
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let links = descriptors
        .flatten()
        .map(|entry| std::fs::read_link(entry.path()));
    let links: Vec<_> = links
        .flatten()
        .map(|link| link.display().to_string())
        .collect();
    let table = std::fs::read_to_string(format!("/proc/{pid}/net/tcp")).unwrap();
    let established = table.lines().filter(|line| {
        let mut words = line.split_whitespace();
        let state = words.nth(3);
        let inode = words.nth(5).unwrap_or_default();
        state == Some("01") && links.contains(&format!("socket:[{inode}]"))
    });
    established.count()
}

#[test]
fn the_token_is_in_no_environment_and_on_no_command_line() {
    let (mut job, token, port) = listening();
    let one = agent(port, &token, job.tag(), "one");
    job.wait_training(2, 3);
    let secret = fs::read_to_string(&token).unwrap();
    for (pid, command) in job.tag().processes() {
        assert!(!command.contains(secret.trim()), "{command}");
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        assert!(
            !String::from_utf8_lossy(&environment).contains(secret.trim()),
            "environment of {command}"
        );
    }
    job.finish();
    job.wait_said("succeeded");
    wait(one);
    job.end().expect(0, &["succeeded"]);
}

/// A source that infers four slots from the type of its one machine.
const INFERS: &str = r#"#!/usr/bin/env python3
import json, os

stream = os.fdopen(3, "rb", buffering=0)

def say(body):
    data = json.dumps(body).encode()
    os.write(3, b"%d\n" % len(data) + data)

say({"hello": {"frames": 1, "manifest": {"name": "infers", "version": "1"}}})
while head := stream.readline():
    call = json.loads(stream.read(int(head)))
    answer = {"answer": call["id"]}
    if call["call"] == "poll":
        host = {"id": "one", "slots": 4, "slots_from": "accelerators", "type": "quad.large"}
        answer["snapshot"] = {"hosts": [host]}
    say(answer)
    if call["call"] == "destroy":
        break
"#;

#[test]
fn a_host_that_shows_fewer_slots_than_were_inferred_is_believed() {
    let job = Job::new(FLAGS);
    let file = |name: &str| job.directory().join(name);
    let (token, source) = (file("token"), file("source.py"));
    fs::write(&source, INFERS).unwrap();
    fs::set_permissions(&source, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let mut job = job
        .flag(["--join-token-file", &token.display().to_string()])
        .flag(["--discovery", &format!("exec:path={}", source.display())])
        .start();
    let one = agent(port(&mut job), &token, job.tag(), "one");
    job.wait_said(
        "host one: its source reports 4 slots (its accelerators), its agent detects 2; using 2",
    );
    job.wait_training(2, 3);
    job.finish();
    job.wait_said("succeeded");
    assert_eq!(wait(one).0, 0);
    let ended = job.end();
    ended.expect(0, &["succeeded"]);
    assert_eq!(ended.sizes(), [2]);
}

#[test]
fn of_two_machines_of_one_name_the_second_waits_and_takes_over_when_the_first_is_gone() {
    let (mut job, token, port) = listening();
    let other = agent(port, &token, job.tag(), "other");
    job.wait_training(2, 3);
    let mut first = agent(port, &token, job.tag(), "one");
    let four = job.wait_training(4, 3);
    let second = agent(port, &token, job.tag(), "one");
    job.wait_said("registers as host one, which is 127.0.0.1");
    job.wait_training(4, four[0].step + 3);
    assert!(!job.said().contains("host one failed"), "{}", job.said());
    first.kill().unwrap();
    first.wait().unwrap();
    let before: Vec<_> = four.iter().map(|worker| worker.pid).collect();
    job.wait_for("a worker of the second machine trains", |events| {
        let new = |e: &&Event| e.kind == Kind::Step && e.host == "one" && !before.contains(&e.pid);
        events.iter().find(new).map(|_| ())
    });
    job.finish();
    job.wait_said("succeeded");
    let (code, said) = wait(second);
    assert_eq!(code, 0, "{said}");
    assert_eq!(said.matches("host one is 127.0.0.1 already").count(), 1);
    assert_eq!(wait(other).0, 0);
    job.end().expect(0, &["succeeded"]);
}

/// Without the report of its reaper process, the host would be out of reach for 7.5 s, and then for 74 s.
#[test]
fn the_death_of_an_agent_is_reported_at_once() {
    let (mut job, token, port) = listening_with("--log-level debug");
    let one = agent(port, &token, job.tag(), "one");
    let mut two = agent(port, &token, job.tag(), "two");
    job.wait_training(4, 3);
    job.wait_until("two last wills", |job| {
        let said = job.said();
        let count = said
            .matches("the death of an agent would be reported")
            .count();
        (count == 2).then_some(())
    });
    send_signal(two.id(), Signal::SIGKILL);
    two.wait().unwrap();
    job.wait_said("host two failed: its agent died");
    let events = job.wait_training(2, 3);
    assert!(events.iter().all(|event| event.host == "one"), "{events:?}");
    job.finish();
    job.wait_said("succeeded");
    assert_eq!(wait(one).0, 0);
    job.end().expect(0, &["succeeded"]);
}
