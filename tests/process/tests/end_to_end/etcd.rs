//! A journal in a real cluster of etcd, and drivers that continue its run.

use elasticrun_etcd_tests::Cluster;
use elasticrun_process_tests::{Beside, Job, Proxy, Running, send_signal};
use nix::sys::signal::Signal;
use serde_json::json;

use crate::support::{assert_nothing_lost, cluster, next_steps, workers};

/// Four workers on two hosts of this machine. Agents wait long enough for a driver on a busy machine.
const FOUR: &str = "-np 4 --min-np 2 --max-np 4 -H localhost:2,127.0.0.1:2 --launcher local --blacklist forever \
    --orphan-timeout 30s";

/// The same for hosts that a script lists.
const DISCOVERED: &str =
    "-np 4 --min-np 2 --max-np 4 --launcher local --blacklist forever --orphan-timeout 30s";

/// The hosts of four workers.
const HOSTS: &str = "localhost:2\n127.0.0.1:2\n";

/// A job with its journal in etcd.
struct Journaled {
    job: Running,
    /// The arguments that continue it.
    resume: String,
}

impl Journaled {
    fn start(cluster: &Cluster, job: Job) -> Self {
        Self::start_at(&cluster.endpoints().join(","), job)
    }

    /// A job on discovered hosts whose driver reaches the cluster over a proxy. Later drivers reach it directly.
    fn start_over_proxy(cluster: &Cluster) -> (Self, Proxy) {
        let direct = cluster.endpoints().remove(0);
        let proxy = Proxy::to_address(direct.parse().unwrap());
        let over_proxy = format!("127.0.0.1:{}", proxy.port);
        let mut run = Self::start_at(&over_proxy, Job::new(DISCOVERED).discovered(HOSTS));
        run.resume = run.resume.replace(&over_proxy, &direct);
        (run, proxy)
    }

    fn start_at(endpoints: &str, job: Job) -> Self {
        let address = format!("etcd://{endpoints}/jobs");
        let mut job = job.flag(["--journal", &address]).start();
        job.wait_said("elasticrun resume ");
        let said = job.said();
        let id = said.split("elasticrun resume ").nth(1).unwrap();
        let id = id.split_whitespace().next().unwrap();
        let resume = format!("resume {id} --journal {address}");
        Self { job, resume }
    }

    /// Kills the driver when its journal is written, and starts the next one: that one knows the round.
    fn take_over(mut self, cluster: &Cluster) -> Self {
        cluster.wait_quiet();
        self.job.kill_only_driver();
        self.resumed()
    }

    /// Starts a standby driver, and waits until it waits.
    fn standby(&mut self) -> Standby {
        let mut driver = self.job.start_beside(&format!("{} --standby", self.resume));
        driver.wait_said(": standby driver at ");
        Standby { driver }
    }

    /// Starts the next driver.
    fn resumed(mut self) -> Self {
        self.job = self.job.resume(&self.resume);
        self
    }
}

/// A driver that waits.
struct Standby {
    driver: Beside,
}

impl Standby {
    /// Where it will listen.
    fn address(&self) -> String {
        self.driver.standby_address().unwrap()
    }
}

#[test]
fn workers_train_on_under_the_next_driver() {
    let cluster = cluster!(3);
    let mut run = Journaled::start(&cluster, Job::new(FOUR));
    let before = workers(&run.job.wait_training(4, 3));
    for _ in 0..2 {
        run = run.take_over(&cluster);
        run.job.wait_said("round 1 goes on with 4 workers");
        let after = next_steps(&mut run.job);
        assert_eq!(workers(&after), before, "the same processes");
    }
    run.job.finish();
    run.job.end().expect(0, &["succeeded"]);
}

#[test]
fn a_run_that_has_ended_shows_its_outcome() {
    let cluster = cluster!(1);
    let mut run = Journaled::start(&cluster, Job::new(FOUR));
    run.job.wait_training(4, 3);
    run.job.finish();
    run.job.wait_end();
    let mut run = run.resumed();
    run.job.wait_end();
    assert!(run.job.said().contains("has ended\n"), "{}", run.job.said());
    run.job.end().expect(0, &["succeeded"]);
}

#[test]
fn a_cluster_that_is_down_refuses_a_start_in_one_line() {
    let mut cluster = cluster!(1);
    cluster.kill(0);
    let address = format!("etcd://{}", cluster.endpoints().join(","));
    let ended = Job::new(FOUR).flag(["--journal", &address]).run();
    ended.expect(
        2,
        &["--journal", &address, "no etcd endpoint can be reached"],
    );
    assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
}

#[test]
fn training_goes_on_while_the_cluster_is_down() {
    let mut cluster = cluster!(1);
    let job = Job::new(DISCOVERED).discovered(HOSTS);
    let mut run = Journaled::start(&cluster, job);
    let before = workers(&run.job.wait_training(4, 3));
    cluster.kill(0);
    // Something to write.
    run.job.set_hosts(&format!("{HOSTS}127.0.0.2:1\n"));
    run.job
        .wait_said("the journal cannot be written, and the job goes on without it");
    assert_eq!(workers(&next_steps(&mut run.job)), before);
    cluster.restart(0);
    run.job.wait_said("the journal is written again");
    let mut run = run.take_over(&cluster);
    run.job.wait_said("round 1 goes on with 4 workers");
    assert_eq!(workers(&next_steps(&mut run.job)), before);
    run.job.finish();
    run.job.end().expect(0, &["succeeded"]);
}

/// As after the loss of its disk.
#[test]
fn a_journal_that_the_cluster_has_lost_is_written_anew() {
    let cluster = cluster!(1);
    let job = Job::new(DISCOVERED).discovered(HOSTS);
    let mut run = Journaled::start(&cluster, job);
    let before = workers(&run.job.wait_training(4, 3));
    run = run.take_over(&cluster);
    run.job.wait_said("round 1 goes on with 4 workers");
    // From a zero byte to the end.
    let all_keys = json!({"key": "AA==", "range_end": "AA=="});
    (cluster.post(0, "kv/deleterange", "", &all_keys)).expect("they are deleted");
    // Something to write.
    run.job.set_hosts(&format!("{HOSTS}127.0.0.2:1\n"));
    run.job.wait_said("all of it is written anew");
    assert_eq!(workers(&next_steps(&mut run.job)), before);
    // Agents follow only a driver of a later epoch.
    let mut run = run.take_over(&cluster);
    run.job.wait_said("round 1 goes on with 4 workers");
    assert_eq!(workers(&next_steps(&mut run.job)), before);
    run.job.finish();
    run.job.end().expect(0, &["succeeded"]);
}

/// The cluster does not come back.
#[test]
fn a_job_ends_without_a_cluster() {
    let mut cluster = cluster!(1);
    let mut run = Journaled::start(&cluster, Job::new(FOUR));
    run.job.wait_training(4, 3);
    cluster.kill(0);
    run.job.finish();
    let ended = run.job.end();
    ended.expect(0, &["succeeded"]);
    assert!(
        ended
            .stderr
            .contains("the journal lacks the end of this run"),
        "{}",
        ended.stderr
    );
}

#[test]
fn one_of_three_members_may_fail() {
    let mut cluster = cluster!(3);
    let mut run = Journaled::start(&cluster, Job::new(FOUR));
    let before = workers(&run.job.wait_training(4, 3));
    let leader = cluster.leader();
    cluster.kill(leader);
    let mut run = run.take_over(&cluster);
    run.job.wait_said("round 1 goes on with 4 workers");
    assert_eq!(workers(&next_steps(&mut run.job)), before);
    run.job.finish();
    run.job.end().expect(0, &["succeeded"]);
}

#[test]
fn a_run_has_one_driver() {
    let cluster = cluster!(1);
    let mut run = Journaled::start(&cluster, Job::new(FOUR));
    run.job.wait_training(4, 3);
    let (code, said) = run.job.start_beside(&run.resume).end();
    assert_eq!(code, 7, "{said}");
    assert!(said.contains(" has a driver at 127.0.0.1:"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    run.job.finish();
    run.job.end().expect(0, &["succeeded"]);
}

/// The standby driver has another port.
#[test]
fn standby_drivers_take_over_one_after_the_other() {
    let cluster = cluster!(3);
    let job = Job::new(DISCOVERED).discovered(HOSTS);
    let mut run = Journaled::start(&cluster, job);
    let before = workers(&run.job.wait_training(4, 3));
    for count in 0..3 {
        let standby = run.standby();
        let known = format!("standby drivers: {}", standby.address());
        run.job.wait_said(&known);
        assert_eq!(workers(&next_steps(&mut run.job)), before);
        cluster.wait_quiet();
        run.job.kill_only_driver();
        run.job = run.job.continue_with(standby.driver);
        run.job.wait_said("round 1 goes on with 4 workers");
        run.job
            .set_hosts(&format!("{HOSTS}127.0.0.2:{}\n", 1 + count % 2));
        run.job.wait_said(&format!("with {} slots", 5 + count % 2));
    }
    assert_eq!(workers(&next_steps(&mut run.job)), before);
    run.job.finish();
    let ended = run.job.end();
    ended.expect(0, &["succeeded"]);
    assert_nothing_lost(&ended.events, 0);
}

/// It is asked before it has heard of the other one.
#[test]
fn a_driver_hands_its_run_over_to_the_next_standby_driver() {
    let cluster = cluster!(1);
    let mut run = Journaled::start(&cluster, Job::new(FOUR));
    let before = workers(&run.job.wait_training(4, 3));
    send_signal(run.job.driver(), Signal::SIGUSR2);
    run.job.wait_said("no standby driver is known");
    let mut standby = run.standby();
    (standby.driver).wait_said("round 1 goes on with 4 workers");
    run.job.wait_end();
    assert_eq!(run.job.code(), Some(9), "{}", run.job.said());
    run.job = run.job.continue_with(standby.driver);
    assert_eq!(workers(&next_steps(&mut run.job)), before);
    run.job.finish();
    let ended = run.job.end();
    ended.expect(0, &["succeeded"]);
    assert_nothing_lost(&ended.events, 0);
}

#[test]
fn a_standby_driver_shows_the_outcome_of_a_run_that_ends() {
    let cluster = cluster!(1);
    let mut run = Journaled::start(&cluster, Job::new(FOUR));
    run.job.wait_training(4, 3);
    let standby = run.standby();
    run.job.finish();
    run.job.wait_end();
    let (code, said) = standby.driver.end();
    assert_eq!(code, 0, "{said}");
    assert!(said.ends_with("succeeded\n"), "{said}");
    run.job.end().expect(0, &["succeeded"]);
}

/// Its machine was too busy, or suspended.
#[test]
fn a_driver_that_stands_still_is_replaced_and_ends() {
    let cluster = cluster!(1);
    let mut run = Journaled::start(&cluster, Job::new(FOUR));
    let before = workers(&run.job.wait_training(4, 3));
    let mut standby = run.standby();
    run.job.wait_said(&standby.address());
    let former = run.job.driver();
    send_signal(former, Signal::SIGSTOP);
    standby.driver.wait_said("round 1 goes on with 4 workers");
    send_signal(former, Signal::SIGCONT);
    run.job.wait_end();
    let said = run.job.said();
    assert!(
        said.ends_with("continues this run, and this one ends\n"),
        "{said}"
    );
    assert_eq!(run.job.code(), Some(9), "{said}");
    run.job = run.job.continue_with(standby.driver);
    assert_eq!(workers(&next_steps(&mut run.job)), before);
    run.job.finish();
    run.job.end().expect(0, &["succeeded"]);
}

/// It has reported that the journal cannot be written, and its next write is refused.
#[test]
fn a_driver_that_could_not_write_is_replaced_and_ends() {
    let cluster = cluster!(1);
    let (mut run, proxy) = Journaled::start_over_proxy(&cluster);
    let before = workers(&run.job.wait_training(4, 3));
    let mut standby = run.standby();
    run.job.wait_said(&standby.address());
    proxy.cut();
    // Something to write, and no host on which this driver could start an agent once it has lost its own.
    run.job
        .set_hosts(&HOSTS.replace("127.0.0.1:2", "127.0.0.1:3"));
    run.job
        .wait_said("the journal cannot be written, and the job goes on without it");
    let former = run.job.driver();
    send_signal(former, Signal::SIGSTOP);
    standby.driver.wait_said("round 1 goes on with 4 workers");
    proxy.mend();
    send_signal(former, Signal::SIGCONT);
    run.job.wait_end();
    assert_eq!(run.job.code(), Some(9), "{}", run.job.said());
    run.job = run.job.continue_with(standby.driver);
    assert_eq!(workers(&next_steps(&mut run.job)), before);
    run.job.finish();
    run.job.end().expect(0, &["succeeded"]);
}

#[test]
fn a_driver_that_is_cut_off_from_the_cluster_keeps_its_agents() {
    let cluster = cluster!(1);
    let (mut run, proxy) = Journaled::start_over_proxy(&cluster);
    let before = workers(&run.job.wait_training(4, 3));
    let mut standby = run.standby();
    proxy.cut();
    standby
        .driver
        .wait_said("its driver has lost its lease, and still answers");
    run.job.set_hosts(&format!("{HOSTS}127.0.0.2:1\n"));
    run.job
        .wait_said("the journal cannot be written, and the job goes on without it");
    proxy.mend();
    run.job.wait_said("the journal is written again");
    assert_eq!(workers(&next_steps(&mut run.job)), before);
    run.job.finish();
    run.job.wait_end();
    let (code, said) = standby.driver.end();
    assert_eq!(code, 0, "{said}");
    let ended = run.job.end();
    ended.expect(0, &["succeeded"]);
    assert_nothing_lost(&ended.events, 0);
}
