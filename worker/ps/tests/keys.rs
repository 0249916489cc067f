//! The key of a job, with real processes: nodes that have it take part, and others end with what is missing.

#![allow(clippy::unwrap_used, reason = "a helper of a test is a test")]

#[allow(dead_code)]
mod support;

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use support::{Node, finish, free_port, start};

const KEY: (&str, &str) = ("ELASTICRUN_PS_KEY", "the key of the job of this test");
const OTHER_KEY: (&str, &str) = ("ELASTICRUN_PS_KEY", "the key of another job");

/// A job whose nodes wait for the second worker.
fn job(variables: &[(&str, &str)]) -> (u16, [Node; 4]) {
    let port = free_port();
    let roles = ["scheduler", "server", "worker", "worker"];
    let mut nodes = roles.map(|role| Node::start(role, "barrier", port, (1, 2), variables));
    nodes.iter_mut().for_each(|node| _ = node.expect("rank "));
    (port, nodes)
}

/// What a further worker prints.
fn refused(port: u16, variables: &[(&str, &str)]) -> String {
    let (status, lines) = Node::start("worker", "barrier", port, (1, 2), variables).end();
    assert_eq!(status.code(), Some(3));
    lines.join("\n")
}

#[test]
fn nodes_with_the_key_train() {
    finish(start("kv", 2, 2, &[KEY]));
    finish(start("kv", 2, 2, &[KEY, ("DMLC_LOCAL", "1")]));
}

#[test]
fn a_node_without_the_key_is_told() {
    let (port, _nodes) = job(&[KEY]);
    assert_eq!(
        refused(port, &[]),
        "error: the scheduler refused this node: this job has a key: set ELASTICRUN_PS_KEY to that of the other nodes"
    );
    assert_eq!(
        refused(port, &[OTHER_KEY]),
        "error: scheduler is not of this job: it has another key; all nodes need the same ELASTICRUN_PS_KEY"
    );
}

#[test]
fn a_node_with_a_key_takes_no_part_in_a_job_without_one() {
    let (port, _nodes) = job(&[]);
    assert_eq!(
        refused(port, &[KEY]),
        "error: scheduler is not of this job: it has no key; all nodes need the same ELASTICRUN_PS_KEY"
    );
}

#[test]
fn strangers_learn_nothing_and_harm_nobody() {
    let (port, mut nodes) = job(&[KEY]);
    // A recorded opening with a nonce, and a proof that is none.
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let mut opening = *b"ERPS\0\0\0\x02\x08\0\0\0\x01\0\0\0";
    stream.write_all(&opening).unwrap();
    stream.write_all(&[7; 32]).unwrap();
    let mut challenge = [0; 72];
    stream.read_exact(&mut challenge).unwrap();
    stream.write_all(&challenge[40..]).unwrap();
    assert!(matches!(stream.read(&mut [0]), Ok(0) | Err(_)));
    // Somebody who begins, and does not go on.
    opening[8] = 9;
    let mut silent = TcpStream::connect(("127.0.0.1", port)).unwrap();
    silent.write_all(&opening).unwrap();
    assert!(refused(port, &[]).contains("this job has a key"));
    nodes.iter_mut().for_each(Node::write_line);
    finish(nodes.into());
}
