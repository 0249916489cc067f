//! The barrier on which no correctness depends.

#[path = "support/mod.rs"]
#[allow(dead_code, clippy::unwrap_used)]
mod support;

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use support::{ROUND, members, round};

/// Longer than any test may take.
const LONG: Duration = Duration::from_secs(60);

#[test]
fn no_member_of_a_host_passes_before_all_have_arrived() {
    let counts = [
        AtomicUsize::new(0),
        AtomicUsize::new(0),
        AtomicUsize::new(0),
    ];
    let layout = [3, 1, 4];
    round(&layout, |group| {
        let topology = *group.topology();
        let host = topology.host_index as usize;
        // The last member is late. A member that is alone on its host waits for no other.
        if topology.local_index + 1 == topology.local_count {
            thread::sleep(Duration::from_millis(20));
        }
        counts[host].fetch_add(1, Ordering::SeqCst);
        group.best_effort_barrier().wait(LONG);
        assert_eq!(counts[host].load(Ordering::SeqCst), layout[host] as usize);
        // It is no operation of the group: later operations are not affected.
        group.barrier().unwrap();
    });
}

#[test]
fn the_wait_for_a_missing_member_ends_at_the_timeout() {
    round(&[3], |group| {
        if group.topology().rank > 0 {
            let start = Instant::now();
            group.best_effort_barrier().wait(Duration::from_millis(20));
            assert!(start.elapsed() >= Duration::from_millis(20));
        }
        group.barrier().unwrap();
    });
}

#[test]
fn a_leave_and_an_abort_end_the_wait() {
    for aborts in [false, true] {
        let mut members = members(&[3]);
        let last = members.pop().unwrap();
        let aborter = last.aborter.clone();
        let last = last.connect().unwrap();
        thread::scope(|scope| {
            for member in members {
                let group = member.connect().unwrap();
                scope.spawn(move || {
                    let start = Instant::now();
                    group.best_effort_barrier().wait(LONG);
                    assert!(start.elapsed() < LONG);
                });
            }
            match aborts {
                true => aborter.abort(ROUND),
                false => drop(last),
            }
        });
    }
}
