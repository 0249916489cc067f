//! `elasticrun torchrun --rdzv etcd://...`: nodes that elect the one that runs the driver, in a real cluster of etcd.

use std::{collections::BTreeMap, fs, path::PathBuf};

use elasticrun_etcd_tests::Cluster;
use elasticrun_process_tests::{Beside, Job, Running, send_signal};
use nix::sys::signal::Signal;

use crate::support::cluster;

/// A worker that says where it is in the group, and ends when the file `finish` is there.
const WORKER: &str = "echo up $RANK/$WORLD_SIZE restart $TORCHELASTIC_RESTART_COUNT run $TORCHELASTIC_RUN_ID \
                      >> $PROCESS_TEST_DIR/said; while [ ! -e $PROCESS_TEST_DIR/finish ]; do sleep 0.05; done";

/// The nodes of one job on this machine.
struct Nodes {
    first: Running,
    others: Vec<Beside>,
    /// The words of each node.
    line: String,
}

impl Nodes {
    /// Starts the first of several nodes with one worker each.
    fn start(cluster: &Cluster, options: &str, script: &str) -> Self {
        let rendezvous = format!("--rdzv etcd://{}/jobs", cluster.endpoints().join(","));
        Self::start_at(&rendezvous, options, script)
    }

    fn start_at(rendezvous: &str, options: &str, script: &str) -> Self {
        let options = format!("torchrun {rendezvous} --rdzv-id j {options} --no-python");
        let job = Job::new(&options);
        let path = job.directory().join("script");
        fs::write(&path, script).expect("a script can be written");
        let path = path.display().to_string();
        let line = format!("{options} sh {path}");
        Self {
            first: job.command(["sh", &path]).start(),
            others: Vec::new(),
            line,
        }
    }

    /// Three nodes whose workers wait, of at least two. The first one runs the driver, and the others know the run.
    fn three(cluster: &Cluster) -> Self {
        let mut nodes = Self::start(cluster, "--nnodes 2:3", WORKER);
        nodes.wait_started();
        nodes.join().wait_said("standby driver at");
        nodes.join().wait_said("standby driver at");
        nodes.wait_workers("/3 restart 0", 3);
        nodes
    }

    /// Waits until the first node runs the driver, so that it is the one that began the job.
    fn wait_started(&mut self) {
        self.first.wait_said("hosts join by");
    }

    /// Starts another node.
    fn join(&mut self) -> &mut Beside {
        let node = self.first.start_beside(&self.line);
        self.others.push(node);
        self.others.last_mut().expect("it was added")
    }

    /// Waits until this many workers have said a line with this text.
    fn wait_workers(&mut self, text: &str, count: usize) {
        let path = self.first.path("said");
        self.first
            .wait_until(&format!("{count} workers say {text:?}"), |_| {
                let said = fs::read_to_string(&path).unwrap_or_default();
                let found = said.lines().filter(|line| line.contains(text)).count();
                (found >= count).then_some(())
            });
    }

    /// As [`Nodes::wait_workers`], after the end of the first node.
    fn wait_workers_without_first(&self, text: &str, count: usize) {
        let path = self.first.path("said");
        let deadline = std::time::Instant::now() + elasticrun_process_tests::PATIENCE;
        loop {
            let said = fs::read_to_string(&path).unwrap_or_default();
            if said.lines().filter(|line| line.contains(text)).count() >= count {
                return;
            }
            let others: Vec<_> = self.others.iter().map(Beside::said).collect();
            assert!(
                std::time::Instant::now() < deadline,
                "{count} workers do not say {text:?}: {said}\n{others:#?}"
            );
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }

    /// Lets all workers end, and gives the exit codes of the other nodes.
    fn finish(&mut self) -> Vec<i32> {
        fs::write(self.first.path("finish"), "").expect("the directory is ours");
        self.codes()
    }

    fn codes(&mut self) -> Vec<i32> {
        let first = self.first.said();
        let shows_first = || eprintln!("--- the first node\n{first}");
        let nodes = self.others.drain(..);
        let codes = nodes.map(|node| {
            shows_first();
            node.end().0
        });
        codes.collect()
    }
}

/// A process and all that it has started, by the parents that the system names.
fn tree(root: u32) -> Vec<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").expect("there is /proc").flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else {
            continue;
        };
        let stat: PathBuf = entry.path().join("stat");
        let stat = fs::read_to_string(stat).unwrap_or_default();
        let after = stat.rsplit(')').next().unwrap_or_default();
        if let Some(parent) = after
            .split_whitespace()
            .nth(1)
            .and_then(|word| word.parse().ok())
        {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = vec![root];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        found.extend(children.get(&parent).into_iter().flatten());
        next += 1;
    }
    found
}

#[test]
fn nodes_come_together_and_end_with_the_job() {
    let cluster = cluster!(1);
    let mut nodes = Nodes::start(&cluster, "--nnodes 3 --rdzv-conf close_timeout=600", WORKER);
    nodes.join();
    nodes.join();
    nodes.wait_workers("/3 restart 0 run j", 3);
    assert_eq!(nodes.finish(), [0, 0]);
    nodes.first.wait_end();
    // A node that comes late.
    let (code, said) = nodes.first.start_beside(&nodes.line).end();
    assert_eq!(code, 0, "{said}");
    assert!(
        said.contains("has ended") && said.ends_with("succeeded\n"),
        "{said}"
    );
    nodes.first.end().expect(0, &["succeeded"]);
}

#[test]
fn a_later_job_may_have_the_same_name() {
    let cluster = cluster!(1);
    let mut nodes = Nodes::start(&cluster, "--nnodes 1:2 --rdzv-conf close_timeout=0", WORKER);
    nodes.wait_workers("/1 restart 0", 1);
    nodes.finish();
    nodes.first.wait_end();
    assert_eq!(nodes.first.start_beside(&nodes.line).end().0, 0);
    nodes.wait_workers_without_first("/1 restart 0", 2);
    nodes.first.end().expect(0, &["succeeded"]);
}

/// As when the power of a machine fails.
#[test]
fn the_others_go_on_without_the_node_that_ran_the_driver() {
    let cluster = cluster!(1);
    let mut nodes = Nodes::three(&cluster);
    for pid in tree(nodes.first.driver()) {
        send_signal(pid, Signal::SIGKILL);
    }
    nodes.wait_workers_without_first("/2 restart 0", 2);
    assert_eq!(nodes.finish(), [0, 0]);
    nodes.first.wait_end();
    nodes.first.wait_all_gone();
}

#[test]
fn a_node_that_gets_sigterm_hands_the_job_over() {
    let cluster = cluster!(1);
    let mut nodes = Nodes::three(&cluster);
    send_signal(nodes.first.driver(), Signal::SIGTERM);
    nodes.first.wait_end();
    assert_eq!(nodes.first.code(), Some(143), "{}", nodes.first.said());
    let said = nodes.first.said();
    assert!(
        said.contains("a standby driver continues this run"),
        "{said}"
    );
    nodes.wait_workers_without_first("/2 restart 0", 2);
    // The next node takes its place.
    nodes.join();
    nodes.wait_workers_without_first("/3 restart 0", 6);
    assert_eq!(nodes.finish(), [0, 0, 0]);
    nodes.first.wait_all_gone();
}

#[test]
fn the_last_node_ends_the_job() {
    let cluster = cluster!(1);
    let mut nodes = Nodes::start(&cluster, "--nnodes 1:2", WORKER);
    nodes.wait_workers("/1 restart 0", 1);
    send_signal(nodes.first.driver(), Signal::SIGINT);
    nodes.first.end().expect(130, &["stopped"]);
}

#[test]
fn a_failure_ends_all_nodes_with_its_code() {
    let cluster = cluster!(1);
    let script = format!("[ $RANK = 1 ] && exit 7; {WORKER}");
    let mut nodes = Nodes::start(&cluster, "--nnodes 2", &script);
    nodes.join();
    assert_eq!(nodes.codes(), [1]);
    nodes.first.end().expect(1, &["exit code 7"]);
}

#[test]
fn the_driver_of_a_node_may_be_killed() {
    let cluster = cluster!(1);
    let mut nodes = Nodes::start(&cluster, "--nnodes 2", WORKER);
    nodes.wait_started();
    nodes.join();
    nodes.wait_workers("/2 restart 0", 2);
    // By then the journal has the group.
    nodes.first.wait_said("standby drivers: ");
    let is_driver = |pid: &u32| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&words).contains("--as-driver")
    };
    let driver = tree(nodes.first.driver()).into_iter().find(is_driver);
    send_signal(
        driver.expect("the first node has begun the job"),
        Signal::SIGKILL,
    );
    nodes.first.wait_said(": standby driver at ");
    assert_eq!(nodes.finish(), [0]);
    let ended = nodes.first.end();
    ended.expect(0, &["succeeded"]);
    let said = fs::read_to_string(ended.path("said")).expect("workers have said something");
    assert_eq!(said.lines().count(), 2, "no worker was restarted: {said}");
}

#[test]
fn a_cluster_that_is_down_refuses_a_node_in_one_line() {
    let mut cluster = cluster!(1);
    cluster.kill(0);
    let nodes = Nodes::start(&cluster, "--nnodes 2", WORKER);
    let ended = nodes.first.end();
    ended.expect(2, &["etcd://", "no etcd endpoint can be reached"]);
    assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
}

/// Each job of these tests has its own state directory, as machines without a shared home have.
#[test]
fn a_node_with_another_key_is_refused() {
    let cluster = cluster!(1);
    let mut nodes = Nodes::start(&cluster, "--nnodes 1:2", WORKER);
    nodes.wait_workers("/1 restart 0", 1);
    let stranger = Nodes::start(&cluster, "--nnodes 1:2", WORKER);
    let ended = stranger.first.end();
    ended.expect(2, &["was begun with another key", "copy that file"]);
    assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
    nodes.finish();
    nodes.first.end().expect(0, &["succeeded"]);
}
