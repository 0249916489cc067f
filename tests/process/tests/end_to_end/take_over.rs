//! A driver that is killed, and another one that continues its run.

use std::{
    collections::BTreeMap,
    net::{SocketAddr, TcpListener},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use elasticrun_process_tests::{
    Event, Job, Kind, Running, STATE,
    agents::{agent, port, wait},
    binaries, send_signal,
};
use nix::sys::signal::Signal;

use crate::support::{assert_nothing_lost, first, next_steps, workers};

/// Four workers on two hosts of this machine. Agents wait long enough for a driver on a busy machine.
const FOUR: &str = "-np 4 --min-np 2 --max-np 4 -H localhost:2,127.0.0.1:2 --launcher local --blacklist forever \
    --orphan-timeout 30s";
const ORPHAN_TIMEOUT: Duration = Duration::from_secs(30);

/// A job that has the journal of its run in its directory.
pub(crate) struct Survivor {
    pub(crate) job: Running,
    resume: String,
}

impl Survivor {
    pub(crate) fn start(job: Job) -> Self {
        let mut job = job.flag(["--journal", "auto"]).start();
        job.wait_said("elasticrun resume ");
        let said = job.said();
        let id = said.split("elasticrun resume ").nth(1).unwrap();
        let id = id.split_whitespace().next().unwrap();
        let resume = format!("resume {id}");
        Self { job, resume }
    }

    /// Waits until the driver has nothing to write to its journal: it has written nothing for some time.
    fn wait_recorded(&mut self) {
        let id = self.resume.rsplit(' ').next().unwrap();
        let journal = format!("{STATE}/elasticrun/{id}/journal.redb");
        let journal = self.job.path(&journal);
        self.job.wait_for("the journal is written", |_| {
            let written = std::fs::metadata(&journal).unwrap().modified().unwrap();
            let quiet = written.elapsed().unwrap_or_default();
            (quiet > Duration::from_millis(500)).then_some(())
        });
    }

    /// Kills the driver when its journal is written, and starts the next one: that one knows the round.
    pub(crate) fn take_over(mut self) -> Self {
        self.wait_recorded();
        self.job.kill_only_driver();
        self.resumed()
    }

    /// Starts the next driver.
    fn resumed(mut self) -> Self {
        self.job = self.job.resume(&self.resume);
        self
    }
}

/// Checks that each worker has committed each step of its round once.
#[track_caller]
fn assert_each_step_once(events: &[Event]) {
    let mut last: BTreeMap<(u32, u64), u64> = BTreeMap::new();
    for event in events.iter().filter(|event| event.kind == Kind::Step) {
        let key = (event.pid, event.round);
        if let Some(before) = last.insert(key, event.step) {
            assert_eq!(before + 1, event.step, "{event:?}");
        }
    }
}

#[test]
fn workers_train_on_under_the_next_driver() {
    let mut run = Survivor::start(Job::new(FOUR));
    let before = workers(&run.job.wait_training(4, 3));
    let mut run = run.take_over();
    run.job.wait_said("round 1 goes on with 4 workers");
    let after = next_steps(&mut run.job);
    assert_eq!(workers(&after), before, "the same processes");
    assert!(after.iter().all(|event| event.round == 1));
    run.job.finish();
    let ended = run.job.end();
    ended.expect(0, &["succeeded"]);
    assert_each_step_once(&ended.events);
}

#[test]
fn a_driver_is_killed_again_and_again() {
    let mut run = Survivor::start(Job::new(FOUR));
    let before = workers(&run.job.wait_training(4, 2));
    for _ in 0..4 {
        run = run.take_over();
        run.job.wait_said("round 1 goes on with 4 workers");
        assert_eq!(workers(&next_steps(&mut run.job)), before);
    }
    run.job.finish();
    let ended = run.job.end();
    ended.expect(0, &["succeeded"]);
    assert_each_step_once(&ended.events);
}

#[test]
fn a_worker_that_dies_under_the_next_driver_costs_a_round() {
    let mut run = Survivor::start(Job::new(FOUR));
    run.job.wait_training(4, 2);
    let mut run = run.take_over();
    run.job.wait_said("round 1 goes on");
    let victim = next_steps(&mut run.job).remove(3);
    send_signal(victim.pid, Signal::SIGKILL);
    let members = run.job.wait_training(2, 0);
    assert!(members.iter().all(|event| event.round > 1));
    assert!(members.iter().all(|event| event.host != victim.host));
    run.job.finish();
    let ended = run.job.end();
    ended.expect(0, &["succeeded"]);
    assert_nothing_lost(&ended.events, 0);
}

#[test]
fn a_worker_that_dies_while_there_is_no_driver_costs_a_round() {
    let mut run = Survivor::start(Job::new(FOUR));
    let members = run.job.wait_training(4, 2);
    run.wait_recorded();
    run.job.kill_only_driver();
    send_signal(members[3].pid, Signal::SIGKILL);
    let mut run = run.resumed();
    let members = run.job.wait_training(2, 0);
    assert!(members.iter().all(|event| event.round > 1));
    run.job.finish();
    let ended = run.job.end();
    ended.expect(0, &["succeeded"]);
    assert_nothing_lost(&ended.events, 0);
}

#[test]
fn a_driver_that_is_killed_before_the_first_round_is_replaced() {
    let job = Job::new(FOUR).plan(|plan| plan.import_ms = 2000);
    let mut run = Survivor::start(job);
    let begun = |events: &[Event]| {
        let begun = events.iter().filter(|event| event.kind == Kind::Begin);
        (begun.count() == 4).then_some(())
    };
    run.job.wait_for("four processes", begun);
    let mut run = run.take_over();
    let members = run.job.wait_training(4, 2);
    assert!(members.iter().all(|event| event.generation == 1));
    run.job.finish();
    run.job.end().expect(0, &["succeeded"]);
}

#[test]
fn a_driver_that_is_killed_as_its_job_ends_is_replaced() {
    let mut run = Survivor::start(Job::new(FOUR));
    run.job.wait_training(4, 2);
    run.wait_recorded();
    run.job.finish();
    let trained = |events: &[Event]| events.iter().any(|e| e.kind == Kind::Trained).then_some(());
    run.job.wait_for("a worker has finished", trained);
    run.job.kill_only_driver();
    let run = run.resumed();
    // If the first driver had already recorded the end of the job, nobody tells its agents to end.
    let ended = run.job.end_within(ORPHAN_TIMEOUT + Duration::from_secs(4));
    ended.expect(0, &["succeeded"]);
    assert_eq!(first(&ended.events, Kind::Round).round, 1);
    assert_each_step_once(&ended.events);
}

/// The next driver has the certificate authority of the first one, so it needs no token to know its agents.
#[test]
fn agents_return_to_the_next_driver_by_their_certificates() {
    let flags = "-np 4 --min-np 4 --launcher agent --listen 127.0.0.1:0 --orphan-timeout 30s";
    let job = Job::new(flags);
    let token = job.directory().join("token");
    let job = job.flag(["--join-token-file", &token.display().to_string()]);
    let mut run = Survivor::start(job);
    let port = port(&mut run.job);
    let agents = ["one", "two"].map(|name| agent(port, &token, run.job.tag(), name));
    let before = workers(&run.job.wait_training(4, 3));
    run.wait_recorded();
    std::fs::remove_file(&token).unwrap();
    let mut run = run.take_over();
    run.job.wait_said("round 1 goes on with 4 workers");
    assert_eq!(workers(&next_steps(&mut run.job)), before);
    run.job.finish();
    run.job.wait_said("succeeded");
    for agent in agents {
        assert_eq!(wait(agent).0, 0);
    }
    let ended = run.job.end();
    ended.expect(0, &["succeeded"]);
    assert_each_step_once(&ended.events);
    assert!(
        !ended.stderr.contains("refused a connection"),
        "{}",
        ended.stderr
    );
}

#[test]
fn a_run_has_one_driver() {
    let mut run = Survivor::start(Job::new(FOUR));
    run.job.wait_training(4, 2);
    let mut run = run.take_over();
    run.job.wait_said("round 1 goes on");
    let (code, said) = resume(&run.job.path(STATE), &run.resume);
    assert_eq!(code, 7, "{said}");
    let holder = format!("has a driver (process {})", run.job.driver());
    assert!(said.contains(&holder), "{said}");
    next_steps(&mut run.job);
    run.job.finish();
    run.job.end().expect(0, &["succeeded"]);
}

/// Runs another driver of a run to its end. Gives its exit code and its standard error.
fn resume(state: &Path, words: &str) -> (i32, String) {
    let output = Command::new(binaries::elasticrun())
        .args(words.split_whitespace())
        .env("XDG_STATE_HOME", state)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    (output.status.code().unwrap_or(-1), said)
}

#[test]
fn a_driver_whose_port_is_taken_can_be_started_again() {
    let port = {
        let free = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        free.local_addr().unwrap().port()
    };
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let job = Job::new(FOUR).flag(["--listen", &address.to_string()]);
    let mut run = Survivor::start(job);
    run.job.wait_training(4, 2);
    run.wait_recorded();
    run.job.kill_only_driver();
    let taken = TcpListener::bind(address).unwrap();
    let (code, said) = resume(&run.job.path(STATE), &run.resume);
    assert_eq!(code, 7, "{said}");
    assert!(
        said.contains(&format!("cannot listen at {address}")),
        "{said}"
    );
    drop(taken);
    let mut run = run.resumed();
    run.job.wait_said("round 1 goes on with 4 workers");
    run.job.finish();
    run.job.end().expect(0, &["succeeded"]);
}

#[test]
fn a_run_without_agents_has_lost_its_state() {
    let flags = FOUR.replace(
        "--orphan-timeout 30s",
        "--orphan-timeout 500ms --elastic-timeout 5s",
    );
    let mut run = Survivor::start(Job::new(&flags));
    run.job.wait_training(4, 2);
    run.wait_recorded();
    run.job.kill_only_driver();
    run.job.wait_all_gone();
    let run = run.resumed();
    run.job
        .end()
        .expect(6, &["no host in reach holds a complete commit"]);
}

#[test]
fn scripts_run_on_under_the_next_driver() {
    let script = "echo $$ >> $PROCESS_TEST_DIR/pids; until [ -e $PROCESS_TEST_DIR/finish ]; do sleep 0.05; done";
    let job = Job::new(FOUR).command(["sh", "-c", script]);
    let mut run = Survivor::start(job);
    let pids = run.job.path("pids");
    let started = || std::fs::read_to_string(&pids).unwrap_or_default();
    run.job.wait_for("four scripts", |_| {
        (started().lines().count() == 4).then_some(())
    });
    let mut run = run.take_over();
    run.job.wait_said("goes on with 4 workers");
    run.job.finish();
    let ended = run.job.end();
    ended.expect(0, &["succeeded"]);
    assert_eq!(started().lines().count(), 4, "none was started again");
}
