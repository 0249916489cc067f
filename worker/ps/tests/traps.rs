//! Situations in which ps-lite hangs, crashes or loses something, with real processes.

#![allow(clippy::unwrap_used, reason = "a helper of a test is a test")]

#[allow(dead_code)]
mod support;

use std::net::TcpListener;

use nix::sys::signal::Signal;
use support::{Node, finish, start};

/// The heartbeat timeout is short, and the request timeout far longer than a test: an error that comes was not waited for.
const PATIENT: &[(&str, &str)] = &[
    ("PS_HEARTBEAT_INTERVAL", "0.2"),
    ("PS_HEARTBEAT_TIMEOUT", "4"),
    ("ELASTICRUN_PS_REQUEST_TIMEOUT", "1000"),
];

fn of_role<'a>(nodes: &'a mut [Node], role: &str) -> Vec<&'a mut Node> {
    nodes.iter_mut().filter(|node| node.role == role).collect()
}

#[test]
fn a_push_before_the_servers_have_handlers_is_kept() {
    let mut nodes = start("first-millisecond", 2, 2, &[]);
    for worker in of_role(&mut nodes, "worker") {
        worker.expect("pushed");
    }
    for server in of_role(&mut nodes, "server") {
        server.write_line();
    }
    finish(nodes);
}

#[test]
fn a_push_in_the_first_millisecond_is_served() {
    let mut nodes = start("first-millisecond", 2, 2, &[]);
    for server in of_role(&mut nodes, "server") {
        server.write_line();
    }
    finish(nodes);
}

#[test]
fn the_port_of_the_scheduler_is_taken() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let node = Node::start("scheduler", "kv", port, (1, 1), &[]);
    let (status, lines) = node.end();
    assert_eq!(status.code(), Some(3));
    let expected = format!("error: the scheduler cannot listen on 127.0.0.1:{port}");
    assert!(lines[0].starts_with(&expected), "{lines:?}");
    assert!(
        lines[0].ends_with("choose another DMLC_PS_ROOT_PORT"),
        "{lines:?}"
    );
}

#[test]
fn a_job_without_its_scheduler_ends_with_its_address() {
    let port = support::free_port();
    let variables = [("ELASTICRUN_PS_START_TIMEOUT", "0.3")];
    let (status, lines) = Node::start("worker", "kv", port, (1, 1), &variables).end();
    assert_eq!(status.code(), Some(3));
    assert!(
        lines[0].contains(&format!(
            "scheduler at 127.0.0.1:{port} accepted no connection"
        )),
        "{lines:?}"
    );
}

#[test]
fn a_node_too_many_is_refused() {
    let port = support::free_port();
    let roles = ["scheduler", "server", "worker", "worker"];
    let start = |role| Node::start(role, "barrier", port, (1, 2), PATIENT);
    let mut nodes = roles.map(start);
    for node in &mut nodes {
        node.expect("rank ");
    }
    let (status, lines) = start("worker").end();
    assert_eq!(status.code(), Some(3));
    assert_eq!(
        lines,
        [
            "error: the scheduler refused this node: the job has its 2 workers already: does DMLC_NUM_WORKER say how many run?"
        ]
    );
}

fn lost(signal: Signal, reason: &str) {
    let mut nodes = start("until-lost", 2, 2, PATIENT);
    for worker in of_role(&mut nodes, "worker") {
        worker.expect("working");
    }
    // Ranks are the order of arrival, not of start.
    let victim = &mut of_role(&mut nodes, "server")[0];
    let rank = victim.expect("rank ").split(' ').nth(1).unwrap().to_owned();
    victim.signal(signal);
    for worker in of_role(&mut nodes, "worker") {
        let line = worker.expect("lost: ");
        assert!(names(&line, &rank, reason), "{line}");
    }
}

/// Whether a worker has said which server is lost. It may have met the end of the other server before, which has ended because of it.
fn names(line: &str, rank: &str, reason: &str) -> bool {
    let other = if rank == "0" { "1" } else { "0" };
    let after =
        format!("lost server {other}: it has ended after the loss of server {rank} ({reason})");
    let (_, lost) = line.split_once(": ").unwrap();
    [format!("lost server {rank}: {reason}"), after].contains(&lost.to_owned())
}

#[test]
fn a_killed_server_is_named_at_once() {
    lost(Signal::SIGKILL, "it closed the connection");
}

/// The other server has ended because a worker has, and that one because of the killed server.
#[test]
fn a_killed_server_is_named_after_all_others_have_ended() {
    let nodes = start("asks-once", 2, 2, PATIENT);
    let (mut servers, mut others): (Vec<_>, Vec<_>) =
        nodes.into_iter().partition(|node| node.role == "server");
    let of_rank_0 = |node: &mut Node| node.expect("rank ") == "rank 0";
    let index = servers.iter_mut().position(of_rank_0).unwrap();
    let server = servers.remove(index);
    for worker in of_role(&mut others, "worker") {
        worker.expect("pushed");
    }
    servers[0].signal(Signal::SIGKILL);
    let index = others.iter().position(|node| node.role == "worker");
    let mut one = others.remove(index.unwrap());
    one.write_line();
    let (_, lines) = one.end();
    let last = lines.last().unwrap();
    assert_eq!(last, "error: lost server 1: it closed the connection");
    let (status, lines) = server.end();
    assert_eq!(status.code(), Some(3), "{lines:?}");
    let other = &mut of_role(&mut others, "worker")[0];
    other.write_line();
    let line = other.expect("error: ");
    assert!(names(&line, "1", "it closed the connection"), "{line}");
}

#[test]
fn a_stopped_server_is_named_after_the_heartbeat_timeout() {
    lost(Signal::SIGSTOP, "nothing was heard of it for 4s");
}

/// Nobody is left who could say that it is dead.
#[test]
fn a_stopped_server_is_not_waited_for_without_a_scheduler() {
    let mut nodes = start("until-lost", 1, 2, PATIENT);
    for worker in of_role(&mut nodes, "worker") {
        worker.expect("working");
    }
    of_role(&mut nodes, "server")[0].signal(Signal::SIGSTOP);
    of_role(&mut nodes, "scheduler")[0].signal(Signal::SIGKILL);
    for worker in of_role(&mut nodes, "worker") {
        let line = worker.expect("lost: ");
        assert_eq!(line, "lost: lost scheduler: it closed the connection");
    }
}

fn broken_barrier(signal: Signal) {
    let mut nodes = start("barrier", 1, 2, PATIENT);
    for node in &mut nodes {
        node.expect("rank ");
    }
    let index = nodes
        .iter_mut()
        .position(|node| node.role == "worker" && node.expect("rank ").starts_with("rank 1 "))
        .unwrap();
    let victim = nodes.remove(index);
    victim.signal(signal);
    for node in nodes {
        let (status, lines) = node.end();
        assert_eq!(status.code(), Some(3), "{lines:?}");
        let expected =
            "error: the barrier of scheduler+servers+workers cannot be complete: lost worker 1";
        assert_eq!(lines[1], expected);
    }
    drop(victim);
}

#[test]
fn a_killed_worker_breaks_the_barrier_by_name() {
    broken_barrier(Signal::SIGKILL);
}

#[test]
fn a_stopped_worker_breaks_the_barrier_by_name() {
    broken_barrier(Signal::SIGSTOP);
}

#[test]
fn a_killed_scheduler_is_named() {
    let mut nodes = start("barrier", 1, 2, PATIENT);
    for node in &mut nodes {
        node.expect("rank ");
    }
    nodes[0].signal(Signal::SIGKILL);
    let server = nodes.remove(1);
    let (status, lines) = server.end();
    assert_eq!(status.code(), Some(3), "{lines:?}");
    assert_eq!(lines[1], "error: lost scheduler: it closed the connection");
}

#[test]
fn keys_at_the_ends_and_mixed_lens() {
    finish(start("keys", 2, 2, &[]));
    finish(start("keys", 3, 1, &[]));
}

#[test]
fn bad_input_is_named() {
    let variables = [("ELASTICRUN_PS_HANDLER_TIMEOUT", "0.3")];
    finish(start("bad-input", 2, 1, &variables));
}

#[test]
fn requests_of_high_priority_overtake() {
    let mut nodes = start("priority", 1, 1, &[]);
    of_role(&mut nodes, "worker")[0].expect("sent");
    let server = &mut of_role(&mut nodes, "server")[0];
    server.write_line();
    // 0 and 1 were on their way. Then by priority, and in order among equals.
    assert_eq!(server.expect("order"), "order [0, 1, 4, 6, 2, 5, 3, 99]");
    finish(nodes);
}

#[test]
fn a_node_without_dmlc_local_does_not_join_a_local_job() {
    let port = support::free_port();
    let short = ("ELASTICRUN_PS_START_TIMEOUT", "1");
    let scheduler = Node::start(
        "scheduler",
        "kv",
        port,
        (1, 1),
        &[short, ("DMLC_LOCAL", "1")],
    );
    let (status, lines) = Node::start("worker", "kv", port, (1, 1), &[short]).end();
    assert_eq!(status.code(), Some(3));
    assert!(lines[0].contains("refused"), "{lines:?}");
    scheduler.end();
}

#[test]
fn three_hundred_nodes_start_push_and_end() {
    let mut nodes = start("first-millisecond", 2, 297, &[]);
    for server in of_role(&mut nodes, "server") {
        server.write_line();
    }
    assert_eq!(finish(nodes).len(), 300);
}
