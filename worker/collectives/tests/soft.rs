//! The barrier on which nothing depends.

#[path = "support/mod.rs"]
#[allow(dead_code, clippy::unwrap_used)]
mod support;

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use support::{SESSION, members, round};

/// Longer than any test may take.
const LONG: Duration = Duration::from_secs(60);

#[test]
fn nobody_of_a_host_passes_before_all_of_it_have_come() {
    let counts = [
        AtomicUsize::new(0),
        AtomicUsize::new(0),
        AtomicUsize::new(0),
    ];
    let layout = [3, 1, 4];
    round(&layout, |group| {
        let at = *group.topology();
        let host = at.host_index as usize;
        // The last one is late, and who is alone on its host waits for nobody.
        if at.local_index + 1 == at.local_count {
            thread::sleep(Duration::from_millis(20));
        }
        counts[host].fetch_add(1, Ordering::SeqCst);
        group.soft_barrier().wait(LONG);
        assert_eq!(counts[host].load(Ordering::SeqCst), layout[host] as usize);
        // It is no call of the group's: those go on as if it had not been.
        group.barrier().unwrap();
    });
}

#[test]
fn who_does_not_come_is_waited_for_no_longer_than_that() {
    round(&[3], |group| {
        if group.topology().rank > 0 {
            let start = Instant::now();
            group.soft_barrier().wait(Duration::from_millis(20));
            assert!(start.elapsed() >= Duration::from_millis(20));
        }
        group.barrier().unwrap();
    });
}

#[test]
fn who_leaves_and_an_abort_end_the_wait() {
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
                    group.soft_barrier().wait(LONG);
                    assert!(start.elapsed() < LONG);
                });
            }
            match aborts {
                true => aborter.abort(SESSION),
                false => drop(last),
            }
        });
    }
}
