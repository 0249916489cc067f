//! Nodes that die and are started again, under their old id, with real processes.

#![allow(clippy::unwrap_used, reason = "a helper of a test is a test")]

#[allow(dead_code)]
mod support;

use nix::sys::signal::Signal;
use support::{Node, finish, free_port};

const COUNTS: (u32, u32) = (2, 2);

struct Job {
    port: u16,
    variables: Vec<(&'static str, &'static str)>,
    nodes: Vec<Node>,
}

impl Job {
    fn start(patience: &'static str, more: &[(&'static str, &'static str)]) -> Self {
        let mut variables = vec![
            ("PS_HEARTBEAT_INTERVAL", "0.2"),
            ("PS_HEARTBEAT_TIMEOUT", "2"),
            ("ELASTICRUN_PS_REQUEST_TIMEOUT", "90"),
            ("ELASTICRUN_PS_REPLACE_TIMEOUT", patience),
        ];
        variables.extend(more);
        let port = free_port();
        let roles = ["scheduler", "server", "server", "worker", "worker"];
        let start = |role| Node::start(role, "replaced", port, COUNTS, &variables);
        let mut job = Self {
            port,
            nodes: roles.map(start).into(),
            variables,
        };
        job.of_role("worker")
            .for_each(|node| _ = node.expect("working"));
        job
    }

    fn of_role(&mut self, role: &str) -> impl Iterator<Item = &mut Node> {
        self.nodes.iter_mut().filter(move |node| node.role == role)
    }

    fn take(&mut self, role: &'static str) -> Node {
        let index = self.nodes.iter().position(|node| node.role == role);
        self.nodes.remove(index.unwrap())
    }

    /// Starts a process in the place of one that is dead.
    fn replace(&mut self, dead: &mut Node) {
        let rank = dead.expect("rank ").split(' ').nth(1).unwrap().to_owned();
        let mut node = Node::start(dead.role, "replaced", self.port, COUNTS, &self.variables);
        node.expect(&format!("rank {rank} recovery true"));
        self.nodes.push(node);
    }

    fn finish(mut self) {
        self.of_role("worker").for_each(Node::write_line);
        for (role, lines) in finish(self.nodes) {
            assert!(
                !lines.iter().any(|line| line.starts_with("error")),
                "{role}: {lines:?}"
            );
        }
    }
}

fn replace_a_server(more: &[(&'static str, &'static str)], signal: Signal) {
    let mut job = Job::start("60", more);
    let mut server = job.take("server");
    for times in 1..3 {
        server.signal(signal);
        for worker in job.of_role("worker") {
            worker.expect_times("lost: lost server ", times);
        }
        job.replace(&mut server);
        for worker in job.of_role("worker") {
            worker.expect_times("works again", times);
        }
        if signal == Signal::SIGSTOP {
            // The one that stood still ends, and takes nothing from the one in its place.
            server.signal(Signal::SIGCONT);
            let (status, lines) = server.end();
            assert_eq!(status.code(), Some(3), "{lines:?}");
        }
        // The other one, the next time.
        server = job.take("server");
    }
    job.nodes.push(server);
    job.finish();
}

#[test]
fn killed_servers_are_replaced() {
    replace_a_server(&[], Signal::SIGKILL);
}

#[test]
fn servers_that_stand_still_are_replaced() {
    replace_a_server(&[], Signal::SIGSTOP);
}

#[test]
fn killed_servers_are_replaced_over_tcp_with_resends_and_a_key() {
    let more = [
        ("ELASTICRUN_PS_SHARED_MEMORY", "0"),
        ("ELASTICRUN_PS_KEY", "the key of the job of this test"),
        ("PS_RESEND", "1"),
        ("PS_RESEND_TIMEOUT", "50"),
    ];
    replace_a_server(&more, Signal::SIGKILL);
}

#[test]
fn killed_workers_are_replaced() {
    let mut job = Job::start("60", &[]);
    for _ in 0..2 {
        let mut worker = job.take("worker");
        worker.signal(Signal::SIGKILL);
        job.replace(&mut worker);
    }
    job.of_role("worker")
        .for_each(|node| _ = node.expect("working"));
    job.finish();
}

#[test]
fn a_worker_without_a_request_in_flight_is_told() {
    let variables = [("ELASTICRUN_PS_REPLACE_TIMEOUT", "60")];
    let port = free_port();
    let start = |role| Node::start(role, "idle", port, (1, 1), &variables);
    let (scheduler, server, mut worker) = (start("scheduler"), start("server"), start("worker"));
    worker.expect("pushed");
    server.signal(Signal::SIGKILL);
    drop(server.end());
    let mut server = start("server");
    server.expect("rank 0 recovery true");
    worker.write_line();
    worker.expect("told lost");
    finish(vec![scheduler, server, worker]);
}

/// The answers to a dead worker and to the one in its place have the same id, customer and timestamp.
#[test]
fn a_late_answer_to_a_dead_worker_is_not_taken_by_the_one_in_its_place() {
    for more in [
        &[][..],
        &[
            ("PS_RESEND", "1"),
            ("PS_RESEND_TIMEOUT", "20"),
            ("PS_DROP_MSG", "30"),
        ],
    ] {
        let variables = [&[("ELASTICRUN_PS_REPLACE_TIMEOUT", "60")], more].concat();
        let port = free_port();
        let start = |role| Node::start(role, "late", port, (1, 1), &variables);
        let (scheduler, mut server, first) = (start("scheduler"), start("server"), start("worker"));
        let asked = server.expect("asked 1 at ");
        first.signal(Signal::SIGKILL);
        drop(first.end());
        let mut second = start("worker");
        second.expect("rank 0 recovery true");
        assert_eq!(
            server.expect("asked 2 at "),
            asked.replace("asked 1", "asked 2")
        );
        server.write_line();
        second.expect("got [2.0]");
        for (role, lines) in finish(vec![scheduler, server, second]) {
            let failed = lines.iter().any(|line| line.starts_with("error"));
            assert!(!failed, "{role}: {lines:?}");
        }
    }
}

/// As after the loss of a host: the worker may be there before the server.
#[test]
fn a_server_and_a_worker_are_replaced_together() {
    for worker_first in [true, false] {
        let mut job = Job::start("60", &[]);
        let (mut server, mut worker) = (job.take("server"), job.take("worker"));
        server.signal(Signal::SIGKILL);
        worker.signal(Signal::SIGKILL);
        match worker_first {
            true => {
                job.replace(&mut worker);
                job.replace(&mut server);
            }
            false => {
                job.replace(&mut server);
                job.replace(&mut worker);
            }
        }
        job.of_role("worker")
            .for_each(|node| _ = node.expect("work"));
        job.finish();
    }
}

/// It waits until its death is known. One that goes meanwhile has no part in it.
#[test]
fn a_process_may_come_before_the_death_is_known() {
    let mut job = Job::start("60", &[]);
    let server = job.take("server");
    server.signal(Signal::SIGSTOP);
    let start = || Node::start("server", "replaced", job.port, COUNTS, &job.variables);
    let (gone, second) = (start(), start());
    gone.signal(Signal::SIGKILL);
    drop(gone.end());
    let mut second = second;
    second.expect("recovery true");
    job.nodes.push(second);
    for worker in job.of_role("worker") {
        worker.expect("works again");
    }
    server.signal(Signal::SIGCONT);
    assert_eq!(server.end().0.code(), Some(3));
    job.finish();
}

/// An end before the last barrier is a death: a launcher starts it again.
#[test]
fn a_worker_that_ends_early_is_replaced() {
    let mut job = Job::start("60", &[]);
    let mut worker = job.take("worker");
    worker.say("leave");
    let rank = worker.expect("rank ");
    assert_eq!(worker.end().0.code(), Some(3));
    let mut next = Node::start("worker", "replaced", job.port, COUNTS, &job.variables);
    let line = next.expect("rank ");
    assert_eq!(line, rank.replace("false", "true"));
    job.nodes.push(next);
    job.of_role("worker")
        .for_each(|node| _ = node.expect("working"));
    job.finish();
}

/// Also for the one that has taken a place: it counts barriers anew.
#[test]
fn a_barrier_that_breaks_later_breaks_for_all() {
    let mut job = Job::start("2", &[]);
    let mut server = job.take("server");
    server.signal(Signal::SIGKILL);
    job.replace(&mut server);
    let worker = job.take("worker");
    worker.signal(Signal::SIGKILL);
    job.of_role("worker").for_each(Node::write_line);
    for node in job.nodes {
        let (role, (status, lines)) = (node.role, node.end());
        assert_eq!(status.code(), Some(3), "{role}: {lines:?}");
        let last = lines.last().unwrap();
        assert!(
            last.contains("cannot be complete: lost worker "),
            "{role}: {lines:?}"
        );
    }
}

#[test]
fn barriers_end_when_nobody_comes_in_time() {
    let mut job = Job::start("1", &[]);
    let worker = job.take("worker");
    worker.signal(Signal::SIGKILL);
    job.of_role("worker").for_each(Node::write_line);
    let mut named = 0;
    for node in job.nodes {
        let (role, (status, lines)) = (node.role, node.end());
        named += usize::from(
            lines
                .iter()
                .any(|line| line.contains("cannot be complete: lost worker ")),
        );
        assert_eq!(status.code(), Some(3), "{role}: {lines:?}");
    }
    assert_eq!(named, 4);
}
