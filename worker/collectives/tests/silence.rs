//! Paths that are cut silently, and neighbours that are only late.

// A test and its helpers may panic.
#![allow(clippy::unwrap_used)]

// Each test needs a process of its own, as nextest provides: connections are found by their ports
// in this process.
#[path = "support/mod.rs"]
#[allow(dead_code, clippy::unwrap_used)]
mod support;

#[path = "support/cut.rs"]
mod cut;

use std::{
    sync::{Barrier, Mutex, mpsc},
    thread,
    time::{Duration, Instant},
};

use cut::Cut;
use elasticrun_collectives::{Error, Group, Op};
use support::members;

/// How long a neighbour's machine may be silent.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Twice the timeout, plus the delays of a busy machine.
const FOUND: Duration = Duration::from_secs(4);

fn names(error: &Error, hosts: &[u32]) -> bool {
    matches!(error, Error::Unreachable { host_indices, .. } if host_indices == hosts)
}

/// Connects a round and cuts the connections accepted by the listener of `host` once all ranks are
/// in `body`. Returns how each rank failed, and when after the cut.
fn cut_at(
    host: usize,
    layout: &[u32],
    body: impl Fn(&mut Group) -> Result<(), Error> + Sync,
) -> Vec<(Error, Duration)> {
    let members = members(layout);
    let leader = layout[..host].iter().sum::<u32>() as usize;
    let port = members[leader].listener.local_addr().unwrap().port();
    let (entered, entries) = mpsc::channel();
    thread::scope(|scope| {
        let ranks: Vec<_> = members
            .into_iter()
            .map(|member| {
                let (entered, body) = (entered.clone(), &body);
                scope.spawn(move || {
                    let mut group = member.connect_within(TIMEOUT).unwrap();
                    group.barrier().unwrap();
                    entered.send(()).unwrap();
                    let error = loop {
                        if let Err(error) = body(&mut group) {
                            break error;
                        }
                    };
                    (error, Instant::now())
                })
            })
            .collect();
        drop(entered);
        ranks.iter().for_each(|_| entries.recv().unwrap());
        let began = Instant::now();
        let cut = Cut::connections_to(port);
        let failed: Vec<_> = ranks.into_iter().map(|rank| rank.join().unwrap()).collect();
        drop(cut);
        failed
            .into_iter()
            .map(|(error, failed_at)| (error, failed_at - began))
            .collect()
    })
}

#[test]
fn a_path_that_is_cut_while_data_is_on_it_is_found_and_both_ends_are_named() {
    let failed = cut_at(0, &[1, 1], |group| {
        group.allreduce(&mut vec![1f32; 300_000], Op::Sum)
    });
    assert!(names(&failed[0].0, &[1]), "{failed:?}");
    assert!(names(&failed[1].0, &[0]), "{failed:?}");
    assert!(failed.iter().all(|(_, after)| *after < FOUND), "{failed:?}");
}

#[test]
fn a_path_that_is_cut_while_its_neighbour_computes_is_found() {
    let failed = cut_at(0, &[2, 1], |group| match group.topology().host_index {
        // The process is alive and calls no operation.
        1 => {
            thread::sleep(FOUND);
            group.barrier()
        }
        _ => group.barrier(),
    });
    // All members of the host that cannot reach the other host report it.
    assert!(
        failed[..2].iter().all(|(error, _)| names(error, &[1])),
        "{failed:?}"
    );
    assert!(
        failed[..2].iter().all(|(_, after)| *after < FOUND),
        "{failed:?}"
    );
    assert!(names(&failed[2].0, &[0]), "{failed:?}");
}

#[test]
fn a_path_that_is_cut_while_the_window_is_closed_is_found() {
    let observer = Mutex::new(None);
    let members = members(&[1, 1]);
    let port = members[0].listener.local_addr().unwrap().port();
    thread::scope(|scope| {
        let mut ranks: Vec<_> = (members.into_iter())
            .map(|member| {
                let observer = &observer;
                scope.spawn(move || {
                    let mut group = member.connect_within(TIMEOUT).unwrap();
                    if group.topology().rank == 1 {
                        thread::sleep(2 * FOUND);
                        return None;
                    }
                    *observer.lock().unwrap() = Some(group.observer());
                    let error = group.broadcast(&mut vec![0u8; 64 << 20], 0).unwrap_err();
                    Some((error, Instant::now()))
                })
            })
            .collect();
        let waits = || {
            let observer = observer.lock().unwrap();
            observer
                .as_ref()
                .is_some_and(|of| of.explain().contains("host 1"))
        };
        while !waits() {
            thread::yield_now();
        }
        let began = Instant::now();
        let _cut = Cut::connections_to(port);
        let (error, failed_at) = ranks.remove(0).join().unwrap().unwrap();
        assert!(names(&error, &[1]), "{error}");
        assert!(failed_at - began < FOUND, "{:?}", failed_at - began);
    });
}

#[test]
fn a_cut_between_two_hosts_is_not_reported_by_the_third() {
    // Only host 2 has connected to host 1.
    let failed = cut_at(1, &[1, 1, 1], |group| {
        group.allreduce(&mut vec![1f32; 300_000], Op::Sum)
    });
    assert!(names(&failed[1].0, &[2]), "{failed:?}");
    assert!(names(&failed[2].0, &[1]), "{failed:?}");
    assert!(matches!(failed[0].0, Error::PeerLost { .. }), "{failed:?}");
    assert!(failed.iter().all(|(_, after)| *after < FOUND), "{failed:?}");
}

#[test]
fn a_neighbour_that_computes_for_long_is_waited_for() {
    let turn = Barrier::new(2);
    let observers = Mutex::new(Vec::new());
    let results = support_round(|group| {
        let rank = group.topology().rank;
        let mut much = vec![rank as u8; 64 << 20];
        turn.wait();
        observers.lock().unwrap().push((rank, group.observer()));
        if rank == 1 {
            // The window is closed for several timeouts. Then the other rank has nothing to do but
            // wait.
            thread::sleep(3 * TIMEOUT);
        }
        group.broadcast(&mut much, 0)?;
        if rank == 0 {
            // The message names the late host and does not blame the network.
            let said = loop {
                let all = observers.lock().unwrap();
                let of_rank_1 = all.iter().find(|(rank, _)| *rank == 1);
                let said = of_rank_1.unwrap().1.explain();
                drop(all);
                if said.contains("host 0") {
                    break said;
                }
                thread::yield_now();
            };
            thread::sleep(3 * TIMEOUT);
            assert!(said.starts_with("late is host 0 (127.0.0.1)"), "{said}");
            assert_eq!(
                observers
                    .lock()
                    .unwrap()
                    .iter()
                    .find(|(rank, _)| *rank == 1)
                    .unwrap()
                    .1
                    .explain(),
                said
            );
        }
        group.allreduce(&mut [1.0f32; 3], Op::Sum)?;
        Ok(much[much.len() - 1])
    });
    assert_eq!(results, [Ok(0), Ok(0)]);
}

#[test]
fn a_cut_that_is_repaired_within_the_timeout_costs_nothing() {
    let members = members(&[1, 1]);
    let port = members[0].listener.local_addr().unwrap().port();
    let long = 3 * TIMEOUT;
    let (entered, entries) = mpsc::channel();
    thread::scope(|scope| {
        for member in members {
            let entered = entered.clone();
            scope.spawn(move || {
                let mut group = member.connect_within(long).unwrap();
                let began = Instant::now();
                entered.send(()).unwrap();
                let mut data = vec![1f32; 300_000];
                let mut go_on = [1f32];
                while go_on[0] > 0.0 {
                    group.allreduce(&mut data, Op::Average).unwrap();
                    go_on[0] = if began.elapsed() < 2 * long { 1.0 } else { 0.0 };
                    group.broadcast(&mut go_on, 0).unwrap();
                }
            });
        }
        entries.recv().unwrap();
        let cut = Cut::connections_to(port);
        thread::sleep(long - Duration::from_millis(500));
        cut.restore();
    });
}

/// A round of two hosts; results by rank.
fn support_round<R: Send>(
    body: impl Fn(&mut Group) -> Result<R, Error> + Sync,
) -> Vec<Result<R, Error>> {
    thread::scope(|scope| {
        let ranks: Vec<_> = (members(&[1, 1]).into_iter())
            .map(|member| {
                let body = &body;
                scope.spawn(move || body(&mut member.connect_within(TIMEOUT).unwrap()))
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}
