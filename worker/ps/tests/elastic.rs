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
        let port = free_port();
        let variables = vec![
            ("PS_ELASTIC", "1"),
            ("PS_REPLICAS", replicas),
            ("PS_HEARTBEAT_INTERVAL", "0.2"),
            ("PS_HEARTBEAT_TIMEOUT", "3"),
        ];
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
    let (mut job, mut servers) = Job::start(2, "0");
    let mut third = job.add_server();
    third.expect("serving 2");
    job.go_on("a third server joins");
    drain(servers.remove(0));
    job.go_on("a server leaves");
    drain(servers.remove(0));
    job.go_on("another server leaves");
    third.signal(Signal::SIGTERM);
    let line = third.expect("not drained");
    assert!(line.contains("it is the last server"), "{line}");
    job.finish(vec![third]);
}

#[test]
fn a_killed_server_loses_nothing() {
    let (mut job, mut servers) = Job::start(2, "1");
    let mut third = job.add_server();
    third.expect("serving 2");
    job.go_on("a third server joins");
    servers[0].signal(Signal::SIGKILL);
    job.go_on("a server is killed");
    drain(servers.remove(1));
    job.go_on("a server leaves");
    job.finish(vec![third]);
}
