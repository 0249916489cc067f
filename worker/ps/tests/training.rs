//! Optimizers at the servers and bounded staleness, with real processes.

#![allow(clippy::unwrap_used, reason = "a helper of a test is a test")]

#[allow(dead_code)]
mod support;

use nix::sys::signal::Signal;
use support::{Node, finish, start};

/// Nodes that stand still in a test are not dead.
const PATIENT: (&str, &str) = ("PS_HEARTBEAT_TIMEOUT", "60");

#[test]
fn weights_follow_pushed_gradients() {
    finish(start("optimizer", 2, 2, &[]));
    let lossy = [
        ("PS_RESEND", "1"),
        ("PS_RESEND_TIMEOUT", "50"),
        ("PS_DROP_MSG", "10"),
    ];
    finish(start("optimizer", 2, 2, &lossy));
}

/// Two servers and three workers: the slow one, the others, the rest of the job.
fn start_stale(variables: &[(&str, &str)]) -> (Node, Vec<Node>, Vec<Node>) {
    let mut variables = variables.to_vec();
    variables.push(PATIENT);
    let nodes = start("stale", 2, 3, &variables);
    let (mut workers, rest): (Vec<_>, Vec<_>) =
        nodes.into_iter().partition(|node| node.role == "worker");
    let slow = workers
        .iter_mut()
        .position(|node| node.expect("rank ").starts_with("rank 0 "))
        .unwrap();
    (workers.swap_remove(slow), workers, rest)
}

fn staleness(nodes: Vec<Node>) -> u64 {
    let ends = finish(nodes).into_iter().map(|(_, lines)| {
        let line = lines.iter().find(|line| line.starts_with("staleness "));
        line.unwrap()["staleness ".len()..].parse().unwrap()
    });
    ends.max().unwrap()
}

/// The others are held whenever they are further ahead than the bound, and see what it promises.
fn nobody_is_further_ahead_than(bound: u64, lossy: bool) {
    const STEPS: u64 = 5;
    let bound_text = bound.to_string();
    let mut variables = vec![("TEST_BOUND", bound_text.as_str())];
    if lossy {
        variables.extend([
            ("PS_RESEND", "1"),
            ("PS_RESEND_TIMEOUT", "50"),
            ("PS_DROP_MSG", "10"),
        ]);
    }
    let (mut slow, mut others, mut rest) = start_stale(&variables);
    for step in 0..STEPS {
        let ahead = bound + step + 1;
        // Dropped messages are no measure of what is held.
        if ahead <= STEPS && !lossy {
            for worker in &mut others {
                worker.expect(&format!("held {ahead}"));
            }
        }
        slow.write_line();
    }
    // The slow one ends with the others: at the last barrier.
    rest.push(slow);
    let seen = staleness(others);
    assert!(seen <= bound, "{seen} steps behind");
    // The others were as far ahead as they may.
    assert!(lossy || seen == bound, "{seen} steps behind");
    for node in rest {
        let (status, lines) = node.end();
        assert!(status.success(), "{lines:?}");
    }
}

#[test]
fn in_step() {
    nobody_is_further_ahead_than(0, false);
}

#[test]
fn with_a_bound_of_two_steps() {
    nobody_is_further_ahead_than(2, false);
}

#[test]
fn in_step_with_drops() {
    nobody_is_further_ahead_than(0, true);
}

#[test]
fn with_a_bound_and_drops() {
    nobody_is_further_ahead_than(1, true);
}

#[test]
fn without_a_bound_nobody_waits() {
    let (mut slow, mut others, rest) = start_stale(&[]);
    for worker in &mut others {
        // All its steps, while the slow one has made none.
        worker.expect("staleness 5");
    }
    for _ in 0..5 {
        slow.write_line();
    }
    finish(others);
    finish(rest);
    finish(vec![slow]);
}

#[test]
fn a_killed_worker_holds_nobody() {
    let (slow, mut others, _rest) = start_stale(&[("TEST_BOUND", "0"), ("TEST_LEAVE_AT", "9")]);
    for worker in &mut others {
        worker.expect("held 1");
    }
    slow.signal(Signal::SIGKILL);
    finish(others);
}

#[test]
fn a_worker_that_leaves_holds_nobody() {
    let (mut slow, mut others, _rest) = start_stale(&[("TEST_BOUND", "0"), ("TEST_LEAVE_AT", "1")]);
    slow.write_line();
    for worker in &mut others {
        worker.expect("held 2");
    }
    slow.write_line();
    finish(others);
    finish(vec![slow]);
}

#[test]
fn a_pull_that_is_held_for_too_long_names_the_slowest() {
    let variables = [
        ("TEST_BOUND", "0"),
        ("TEST_HOLD_MS", "300"),
        ("PS_HEARTBEAT_INTERVAL", "0.1"),
    ];
    let (_slow, others, _rest) = start_stale(&variables);
    let mut refused = 0;
    for worker in others {
        let (status, lines) = worker.end();
        assert_eq!(status.code(), Some(3), "{lines:?}");
        let last = lines.last().unwrap();
        let text = "refused the request: worker 0 is at clock 0 and was not at 1 within ";
        refused += usize::from(last.contains(text));
        // The first one that is refused ends, and servers end without it.
        assert!(
            last.contains(text) || last.ends_with("it has ended"),
            "{lines:?}"
        );
    }
    assert!(refused > 0);
}
