//! Servers join, leave and die while workers push and pull: real processes. In the end each sum is what an undisturbed job has, bit
//! by bit.

#![allow(clippy::unwrap_used, reason = "a helper of a test is a test")]

#[allow(dead_code)]
mod support;

use nix::sys::signal::Signal;
use support::{Node, finish, free_port};

struct Job {
    port: u16,
    servers: u32,
    variables: Vec<(&'static str, &'static str)>,
    scheduler: Node,
    workers: Vec<Node>,
    told: u32,
}

impl Job {
    /// A job, and its first servers.
    fn start(servers: u32, replicas: &'static str) -> (Self, Vec<Node>) {
        Self::start_with(servers, replicas, &[])
    }

    /// The same, with such variables too.
    fn start_with(
        servers: u32,
        replicas: &'static str,
        more: &[(&'static str, &'static str)],
    ) -> (Self, Vec<Node>) {
        let port = free_port();
        let mut variables = vec![
            ("ELASTICRUN_PS_KEY", "the key of the job of this test"),
            ("PS_ELASTIC", "1"),
            ("PS_REPLICAS", replicas),
            ("PS_HEARTBEAT_INTERVAL", "0.2"),
            ("PS_HEARTBEAT_TIMEOUT", "3"),
        ];
        variables.extend(more);
        let start = |role| Node::start(role, "elastic", port, (servers, 2), &variables);
        let mut job = Self {
            port,
            servers,
            scheduler: start("scheduler"),
            workers: vec![start("worker"), start("worker")],
            told: 0,
            variables: variables.clone(),
        };
        let mut nodes: Vec<_> = (0..servers).map(|_| job.add_server()).collect();
        nodes
            .iter_mut()
            .for_each(|server| _ = server.expect("serving "));
        for worker in &mut job.workers {
            worker.expect("working");
        }
        (job, nodes)
    }

    fn add_server(&self) -> Node {
        let counts = (self.servers, 2);
        Node::start("server", "elastic", self.port, counts, &self.variables)
    }

    /// A worker that comes later.
    fn add_worker(&mut self) {
        let counts = (self.servers, 2);
        let mut worker = Node::start("worker", "elastic", self.port, counts, &self.variables);
        worker.expect("working");
        // It has missed the lines that the others were told.
        for _ in 0..self.told {
            worker.say("go on");
        }
        worker.expect(&format!("past {}:", self.told));
        self.workers.push(worker);
    }

    /// Waits until all workers have made some steps more.
    fn go_on(&mut self, after: &str) {
        self.told += 1;
        for worker in &mut self.workers {
            worker.say("go on");
        }
        for worker in &mut self.workers {
            let line = worker.expect(&format!("past {}:", self.told));
            println!("{after}: {line}");
        }
    }

    fn finish(mut self, servers: Vec<Node>) {
        for worker in &mut self.workers {
            worker.say("end");
        }
        for worker in &mut self.workers {
            println!("{}", worker.expect("equal after"));
        }
        let nodes = [self.scheduler].into_iter().chain(self.workers);
        finish(nodes.chain(servers).collect());
    }
}

/// Tells a server to leave, and waits until it has.
fn drain(server: Node) {
    server.signal(Signal::SIGTERM);
    let (status, lines) = server.end();
    println!("{}", lines.last().unwrap());
    assert!(status.success(), "{lines:?}");
}

#[test]
fn servers_join_and_leave() {
    let (mut job, mut servers) = Job::start_with(2, "0", &[("TEST_WORKERS", "3")]);
    let mut third = job.add_server();
    third.expect("serving 2");
    job.go_on("a third server joins");
    job.add_worker();
    drain(servers.remove(0));
    job.go_on("a server leaves");
    drain(servers.remove(0));
    job.go_on("another server leaves");
    third.signal(Signal::SIGTERM);
    let line = third.expect("not drained");
    assert!(line.contains("it is the last server"), "{line}");
    job.finish(vec![third]);
}

/// In memory that the nodes share, in memory that is mostly full, and over TCP.
#[test]
fn a_killed_server_loses_nothing() {
    for memory in ["33554432", "8192", "0"] {
        kill_a_server(("ELASTICRUN_PS_SHARED_MEMORY", memory));
    }
}

fn kill_a_server(memory: (&'static str, &'static str)) {
    let (mut job, mut servers) = Job::start_with(2, "1", &[memory]);
    for node in job.workers.iter().chain(&servers) {
        assert_eq!(node.shares_memory(), memory.1 != "0", "{}", node.role);
    }
    let mut third = job.add_server();
    third.expect("serving 2");
    job.go_on("a third server joins");
    servers[0].signal(Signal::SIGKILL);
    job.go_on("a server is killed");
    drain(servers.remove(1));
    job.go_on("a server leaves");
    job.finish(vec![third]);
}

/// Its connections stay, and it goes on when others have its ranges.
#[test]
fn a_stopped_server_is_replaced_and_harms_nobody_afterwards() {
    let (mut job, mut servers) = Job::start(3, "1");
    let stopped = servers.remove(0);
    stopped.signal(Signal::SIGSTOP);
    job.go_on("a server stands still");
    stopped.signal(Signal::SIGCONT);
    job.go_on("it goes on");
    let (status, lines) = stopped.end();
    assert_eq!(status.code(), Some(3), "{lines:?}");
    assert!(
        lines.last().unwrap().contains("lost scheduler"),
        "{lines:?}"
    );
    job.finish(servers);
}

#[test]
fn without_replicas_the_lost_keys_are_named() {
    let (mut job, servers) = Job::start(2, "0");
    servers[0].signal(Signal::SIGKILL);
    for worker in &mut job.workers {
        let line = worker.expect("error: ");
        assert!(
            line.contains("are lost: all their servers are dead"),
            "{line}"
        );
    }
}

#[test]
fn servers_with_other_apps_are_refused() {
    let port = free_port();
    let variables = [("PS_ELASTIC", "1")];
    let start = |role, scenario| Node::start(role, scenario, port, (1, 1), &variables);
    let _job = [start("scheduler", "elastic"), start("worker", "elastic")];
    let mut first = start("server", "elastic");
    first.expect("serving");
    let (status, lines) = start("server", "elastic-other").end();
    assert_eq!(status.code(), Some(3), "{lines:?}");
    assert!(lines[0].contains("elastic apps 7 of f32"), "{lines:?}");
}

#[test]
fn servers_that_pass_on_large_pushes_to_each_other_do_not_wait_for_each_other() {
    for memory in MEMORY {
        let variables = [
            ("PS_ELASTIC", "1"),
            ("PS_REPLICAS", "1"),
            ("ELASTICRUN_PS_SEND_BUFFER", "1000000"),
            ("ELASTICRUN_PS_SHARED_MEMORY", memory),
        ];
        all_sums(support::start("elastic-large", 2, 2, &variables));
    }
}

/// More than the pushes need, less, and none.
const MEMORY: [&str; 3] = ["33554432", "1000000", "0"];

fn all_sums(nodes: Vec<Node>) {
    let lines = finish(nodes);
    let sums = lines
        .iter()
        .filter(|(_, lines)| lines.iter().any(|line| line == "all sums"));
    assert_eq!(sums.count(), 2);
}

/// A server that waits to pass on pushes to one that stands still goes on to hear of its death.
#[test]
fn large_pushes_outlast_a_server_that_stands_still() {
    for memory in MEMORY {
        let variables = [
            ("PS_ELASTIC", "1"),
            ("PS_REPLICAS", "1"),
            ("ELASTICRUN_PS_SEND_BUFFER", "1000000"),
            ("ELASTICRUN_PS_SHARED_MEMORY", memory),
            ("PS_HEARTBEAT_INTERVAL", "0.2"),
            ("PS_HEARTBEAT_TIMEOUT", "3"),
        ];
        let mut nodes = support::start("elastic-large", 3, 2, &variables);
        let mut still = nodes.remove(1);
        still.expect("serving");
        still.signal(Signal::SIGSTOP);
        all_sums(nodes);
    }
}
