//! The lease on real pages: a worker continues until its end, and after a renewal.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use elasticrun_protocol::Round;
use elasticrun_shm::{
    boottime,
    page::{AgentPage, BoundaryOutcome, WorkerPage},
};

/// A limit for the slowest machine. It is reached only if a wakeup is lost.
const STUCK: Duration = Duration::from_secs(60);

const R: Round = Round(3);

fn pair() -> (AgentPage, WorkerPage) {
    let agent = AgentPage::create().expect("a page");
    let worker = WorkerPage::open(&agent).expect("the same page");
    (agent, worker)
}

fn until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < STUCK, "never: {what}");
        thread::yield_now();
    }
}

#[test]
fn a_page_without_a_lease_delays_no_worker() {
    let (_agent, worker) = pair();
    let mut round = worker.enter(R);
    assert_eq!(round.boundary(), BoundaryOutcome::Continue);
    round.wait_until_leased();
}

#[test]
fn beyond_its_lease_a_worker_passes_no_boundary_until_there_is_another() {
    let (agent, worker) = pair();
    agent.set_lease(boottime() + Duration::from_millis(50));
    let passed = AtomicU64::new(0);
    thread::scope(|scope| {
        let trains = scope.spawn(|| {
            let mut round = worker.enter(R);
            let mut last = boottime();
            while round.boundary() == BoundaryOutcome::Continue {
                let now = boottime();
                passed.fetch_add(1, Ordering::SeqCst);
                if now - last > Duration::from_millis(100) {
                    return last;
                }
                last = now;
            }
            panic!("this test aborts no round");
        });
        let over = boottime() + Duration::from_millis(50);
        until("the lease is over", || boottime() > over);
        let before = passed.load(Ordering::SeqCst);
        let later = boottime() + Duration::from_millis(200);
        until("some time has passed", || boottime() > later);
        let after = passed.load(Ordering::SeqCst);
        // One boundary may have read the clock just before the end.
        assert!(after <= before + 1, "{before} -> {after}");
        agent.set_lease(boottime() + STUCK);
        let last = trains.join().expect("it goes on");
        assert!(last < later, "it waited meanwhile");
    });
}

#[test]
fn an_abort_ends_the_wait_for_a_lease() {
    let (agent, worker) = pair();
    agent.set_lease(Duration::from_nanos(1));
    thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let mut round = worker.enter(R);
            let result = round.boundary();
            round.wait_until_leased();
            result
        });
        until("it is at the boundary", || agent.count(R).0 == 1);
        agent.abort(R);
        assert_eq!(waits.join().expect("it leaves"), BoundaryOutcome::Aborted);
    });
}
