//! Planned host removal: by the metadata services of clouds, a signal, a file, a user. No step is lost.

use std::{
    env,
    path::PathBuf,
    process::{Child, Command},
    time::{Duration, Instant},
};

use elasticrun_process_tests::{
    Event, Job, Kind, Plan, Running, Tag,
    agents::{joining, port, wait},
    binaries,
    metadata::{Metadata, Says},
    send_signal,
};
use nix::sys::signal::Signal;

use crate::support::{BOTH, FOUR, assert_nothing_lost};

/// Hosts of one slot whose agents the test starts, each with its own metadata service.
struct Fleet {
    port: u16,
    token: PathBuf,
    tag: Tag,
    hosts: Vec<Host>,
}

struct Host {
    name: String,
    metadata: Metadata,
    agent: Option<Child>,
}

impl Fleet {
    fn start(size: u32, step_ms: u64) -> (Running, Self) {
        Self::planned(size, |plan| plan.step_ms = step_ms)
    }

    fn planned(size: u32, change: impl FnOnce(&mut Plan)) -> (Running, Self) {
        let job = Job::new("--launcher agent --listen 127.0.0.1:0 --min-np 1 --last-call 50ms");
        let (np, token) = (size.to_string(), job.directory().join("token"));
        let job = job.flag(["-np", &np, "--max-np", &np]);
        let job = job.flag(["--join-token-file", &token.display().to_string()]);
        let mut job = job.plan(change).start();
        let port = port(&mut job);
        let host = |index| Host {
            name: format!("h{index}"),
            metadata: Metadata::start(),
            agent: None,
        };
        let tag = job.tag().clone();
        let mut fleet = Self {
            port,
            token,
            tag,
            hosts: (0..size).map(host).collect(),
        };
        for index in 0..fleet.hosts.len() {
            fleet.join(index);
        }
        job.wait_training(size, 2);
        (job, fleet)
    }

    fn join(&mut self, index: usize) {
        let host = &mut self.hosts[index];
        let mut command = joining(self.port, &self.token, &self.tag, &host.name, 1);
        let agent = command.envs(host.metadata.environment()).spawn();
        host.agent = Some(agent.expect("an agent can be started"));
    }

    /// Waits until the job has left a host and its agent has ended.
    fn left(&mut self, index: usize) {
        let agent = self.hosts[index].agent.take().expect("it was started");
        let (code, said) = wait(agent);
        assert_eq!(code, 0, "{said}");
    }

    fn end(&mut self, job: Running) -> Vec<Event> {
        job.finish();
        for index in 0..self.hosts.len() {
            self.left(index);
        }
        let ended = job.end();
        ended.expect(0, &["succeeded"]);
        ended.events.clone()
    }
}

/// Waits until all workers of a round of this size have made a step after the current events.
fn all_train(job: &mut Running, size: u32) {
    let from = job.events().len();
    job.wait_for(&format!("{size} workers train again"), |events| {
        let steps = events[from..]
            .iter()
            .filter(|event| event.kind == Kind::Step);
        let of_size: Vec<_> = steps.filter(|event| event.size == size).collect();
        let round = of_size.iter().map(|event| event.round).max()?;
        let mut ranks: Vec<_> = of_size
            .iter()
            .filter(|e| e.round == round)
            .map(|e| e.rank)
            .collect();
        ranks.sort_unstable();
        ranks.dedup();
        (ranks.len() == size as usize).then_some(())
    });
}

/// Rows of an epoch.
const ROWS: u64 = 1000;

/// Sends `count` random notices to four hosts, one at a time; each host comes back afterwards. Gives how long each
/// removal took, from the notice to the end of the agent, sorted, and the epochs that were trained.
fn random_notices(count: u64, step_ms: u64) -> (Vec<Duration>, u64) {
    let (mut job, mut fleet) =
        Fleet::planned(4, |plan| (plan.step_ms, plan.rows) = (step_ms, ROWS));
    let (mut took, mut dice) = (Vec::new(), count ^ 0x9e37_79b9_7f4a_7c15);
    for number in 0..count {
        // A plain xorshift generator, so that the notices are the same in every run.
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        let index = (dice % 4) as usize;
        let event = format!("event-{number}");
        let says = match (dice >> 8) % 5 {
            0 => Says::SpotInterruption,
            1 => Says::TargetTerminated,
            2 => Says::Preempted,
            3 => Says::Maintenance,
            _ => Says::ScheduledEvent(event.clone()),
        };
        let began = Instant::now();
        fleet.hosts[index].metadata.say(says.clone());
        fleet.left(index);
        took.push(began.elapsed());
        if matches!(says, Says::ScheduledEvent(_)) {
            let approved = fleet.hosts[index].metadata.approved();
            assert_eq!(
                approved.last(),
                Some(&event),
                "approved once the host was left"
            );
        }
        fleet.hosts[index].metadata.say(Says::Nothing);
        fleet.join(index);
        all_train(&mut job, 4);
    }
    let said = job.said();
    let events = fleet.end(job);
    assert_nothing_lost(&events, 0);
    assert!(!said.contains("failed"), "a notice is no failure:\n{said}");
    // At the end of each epoch the workers check that each row was seen once.
    let epochs = events
        .iter()
        .filter_map(|event| event.text.parse::<u64>().ok());
    took.sort();
    (took, epochs.max().unwrap_or(0))
}

#[test]
fn notices_of_three_clouds_cost_no_step() {
    let (_, epochs) = random_notices(12, 2);
    assert!(epochs > 0, "no epoch was whole");
}

/// `make test-notices`: 1,000 notices, and their latencies for the figure of the design.
#[test]
#[ignore = "takes a quarter of an hour"]
fn a_thousand_notices_cost_no_step() {
    let count = env::var("NOTICES").map_or(1000, |text| text.parse().expect("NOTICES is a number"));
    let (took, epochs) = random_notices(count, 10);
    let at = |part: f64| took[((took.len() - 1) as f64 * part) as usize];
    let (median, p99, most) = (at(0.5), at(0.99), at(1.0));
    println!(
        "{count} notices, 0 steps and, in {epochs} epochs of {ROWS} rows, 0 rows lost; from notice to left: median {median:?}, p99 {p99:?}, max {most:?}"
    );
}

#[test]
fn a_path_of_the_metadata_that_fails_hides_no_notice_of_another() {
    let (mut job, mut fleet) = Fleet::start(2, 2);
    let metadata = &fleet.hosts[1].metadata;
    metadata.break_path("meta-data/spot/instance-action");
    metadata.say(Says::TargetTerminated);
    fleet.left(1);
    fleet.hosts[1].metadata.say(Says::Nothing);
    fleet.join(1);
    all_train(&mut job, 2);
    fleet.end(job);
}

#[test]
fn a_risk_moves_nobody() {
    let (mut job, mut fleet) = Fleet::start(2, 2);
    fleet.hosts[1].metadata.say(Says::RebalanceRecommendation);
    job.wait_said("h1 may go away: EC2 recommends to rebalance");
    all_train(&mut job, 2);
    let events = fleet.end(job);
    assert!(
        events.iter().all(|event| event.round <= 1),
        "one round was enough"
    );
}

#[test]
fn a_risk_makes_all_commit_more_often() {
    const RARELY: u64 = 20;
    let (mut job, mut fleet) = Fleet::planned(2, |plan| plan.commit_every = RARELY);
    let committed = |events: &[Event], rank: u32| -> Vec<u64> {
        let of_rank = |event: &&Event| event.kind == Kind::Step && event.rank == rank;
        events
            .iter()
            .filter(of_rank)
            .map(|event| event.step)
            .collect()
    };
    job.wait_for("some commits", |events| {
        (committed(events, 0).len() > 3).then_some(())
    });
    let before = committed(job.events(), 1);
    assert!(before.iter().all(|step| step % RARELY == 0), "{before:?}");
    // Only one of the hosts gets the recommendation.
    fleet.hosts[1].metadata.say(Says::RebalanceRecommendation);
    let in_a_row = |steps: &[u64]| {
        let rows = steps.windows(RARELY as usize);
        rows.into_iter()
            .any(|row| row.windows(2).all(|two| two[1] == two[0] + 1))
    };
    job.wait_for("commits at every step", |events| {
        in_a_row(&committed(events, 0)).then_some(())
    });
    let events = fleet.end(job);
    let [first, second] = [0, 1].map(|rank| committed(&events, rank));
    assert_eq!(first, second, "all commit at the same steps");
    let begun = first.iter().position(|step| step % RARELY != 0).unwrap();
    let after = &first[begun..];
    assert!(
        after.windows(2).all(|two| two[1] == two[0] + 1),
        "{first:?}"
    );
}

#[test]
fn an_agent_that_gets_sigterm_is_left_first() {
    let (mut job, mut fleet) = Fleet::start(2, 2);
    let agent = fleet.hosts[1]
        .agent
        .as_ref()
        .map(Child::id)
        .expect("it was started");
    send_signal(agent, Signal::SIGTERM);
    fleet.left(1);
    job.wait_said("host h1 is drained");
    all_train(&mut job, 1);
    assert!(job.said().contains("its agent got a signal"));
    fleet.join(1);
    all_train(&mut job, 2);
    let said = job.said();
    assert_nothing_lost(&fleet.end(job), 0);
    assert!(!said.contains("failed"), "{said}");
}

#[test]
fn a_notice_file_says_that_its_host_will_go() {
    // Agents of one machine would share the notice file and all drain, so the job has one host.
    let job = Job::new("-np 1 --min-np 1 --max-np 1 -H localhost:1");
    let file = job.directory().join("leave");
    let mut job = job
        .flag(["--notice-file", &file.display().to_string()])
        .start();
    job.wait_training(1, 2);
    std::fs::write(&file, "60\n").unwrap();
    job.wait_said(
        "host localhost will go away, in 60 s at the latest (its notice file has appeared)",
    );
    // No other worker could go on, so this one trains on for a while.
    all_train(&mut job, 1);
    job.finish();
    job.end().expect(0, &["succeeded"]);
}

/// The parent of a process.
fn parent(pid: u32) -> u32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, rest) = stat.rsplit_once(") ").unwrap();
    rest.split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_signal_with_a_known_time_is_no_hurry() {
    let job = Job::new("-np 1 --min-np 1 --max-np 1 -H localhost:1 --signal-notice 60s");
    let mut job = job.start();
    job.wait_training(1, 2);
    let processes = job.tag().processes();
    let driver = job.driver();
    let mut children = processes.iter().filter(|(pid, _)| parent(*pid) == driver);
    let (agent, _) = children.next().expect("the driver has started its agent");
    send_signal(*agent, Signal::SIGUSR1);
    job.wait_said("host localhost will go away, in 60 s at the latest (its agent got a signal)");
    // Without the time it would be left at once.
    all_train(&mut job, 1);
    job.finish();
    job.end().expect(0, &["succeeded"]);
}

fn drain(words: &[&str]) -> (i32, String, String) {
    let output = Command::new(binaries::elasticrun())
        .arg("drain")
        .args(words)
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap_or(-1),
        text(output.stdout),
        text(output.stderr),
    )
}

/// The run of a job with `--log-level debug`.
fn run_of(job: &Running) -> String {
    let said = job.said();
    let after = said.split("run_id=").nth(1).expect("the log names the run");
    after.split_whitespace().next().unwrap().to_owned()
}

#[test]
fn hosts_that_are_all_noticed_within_a_step_train_on() {
    const HOSTS: [&str; 3] = ["localhost", "127.0.0.1", "127.0.0.2"];
    let flags = "-np 3 --min-np 1 --max-np 3 --launcher local --log-level debug";
    let mut job = Job::new(flags)
        .flag(["-H", "localhost:1,127.0.0.1:1,127.0.0.2:1"])
        .plan(|plan| plan.step_ms = 500)
        .start();
    job.wait_training(3, 2);
    let run = run_of(&job);
    // The first host is left at the end of the step. The others get their notices before.
    for host in HOSTS {
        let (code, _, why) = drain(&[host, "--in", "600s", "--run", &run]);
        assert_eq!(code, 0, "{why}");
    }
    let from = job.events().len();
    job.wait_for("a worker trains in the next round", |events| {
        let next = |event: &Event| event.kind == Kind::Step && event.round > 1;
        events[from..].iter().any(next).then_some(())
    });
    job.finish();
    let ended = job.end();
    ended.expect(0, &["succeeded"]);
    assert_nothing_lost(&ended.events, 0);
}

#[test]
fn a_person_drains_a_host() {
    let mut job = Job::new(&format!("{FOUR} --log-level debug"))
        .discovered(BOTH)
        .start();
    job.wait_training(4, 2);
    let run = run_of(&job);
    let (code, _, why) = drain(&["moon", "--run", &run]);
    assert_eq!(
        (code, why.as_str()),
        (
            2,
            "elasticrun: moon is no host of this job; it has localhost, 127.0.0.1\n"
        )
    );
    let (code, _, why) = drain(&["localhost", "--in", "soon"]);
    assert!(
        code == 2 && why.contains("--in soon: expected a duration"),
        "{why}"
    );
    let (code, answer, _) = drain(&["127.0.0.1", "--in", "110s", "--run", &run]);
    assert_eq!((code, answer.as_str()), (0, "127.0.0.1 is being left\n"));
    job.wait_said("host 127.0.0.1 is drained");
    all_train(&mut job, 2);
    job.finish();
    let ended = job.end();
    ended.expect(0, &["succeeded"]);
    assert_nothing_lost(&ended.events, 0);
    let (code, _, why) = drain(&["localhost", "--run", &run]);
    assert!(
        code == 2 && why.contains("no such job of this user runs"),
        "{why}"
    );
}
