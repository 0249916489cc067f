//! The hold on real pages: threads, futexes, thousands of rounds.

use std::{
    sync::{
        Barrier,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use elasticrun_protocol::{Boundary, Round};
use elasticrun_shm::page::{AgentPage, BoundaryOutcome, WorkerPage};

/// A limit for the slowest machine. It is reached only if a wakeup is lost.
const STUCK: Duration = Duration::from_secs(60);

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

/// Busy work of a random length.
fn work(seed: &mut u64) {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    for turn in 0..*seed % 400 {
        std::hint::black_box(turn);
    }
}

#[test]
fn all_workers_leave_at_the_same_boundary() {
    const ROUNDS: u64 = 2_000;
    let pages: Vec<_> = (0..3).map(|_| pair()).collect();
    let gate = Barrier::new(pages.len() + 1);
    let left: Vec<AtomicU64> = pages.iter().map(|_| AtomicU64::new(0)).collect();
    thread::scope(|scope| {
        for (index, (_, worker)) in pages.iter().enumerate() {
            let (gate, left) = (&gate, &left);
            scope.spawn(move || {
                let mut seed = 88_172_645_463_325_252 + index as u64;
                for number in 1..=ROUNDS {
                    let mut round = worker.enter(Round(number));
                    loop {
                        work(&mut seed);
                        match round.boundary() {
                            BoundaryOutcome::Continue => {}
                            BoundaryOutcome::Leave => break,
                            BoundaryOutcome::Aborted => panic!("this test aborts no round"),
                        }
                    }
                    left[index].store(round.count().0, Ordering::SeqCst);
                    gate.wait();
                    gate.wait();
                }
            });
        }
        let mut seed = 1;
        for number in 1..=ROUNDS {
            let round = Round(number);
            work(&mut seed);
            let counts = pages.iter().map(|(agent, _)| agent.hold(round).unwrap());
            let k = counts.max().unwrap().next();
            for (agent, _) in &pages {
                assert!(agent.set_leave_at(round, k));
            }
            gate.wait();
            for left in &left {
                assert_eq!(left.load(Ordering::SeqCst), k.0, "round {number}");
            }
            gate.wait();
        }
    });
}

#[test]
fn withdrawn_and_aborted_holds_free_their_waiters() {
    const ROUNDS: u64 = 500;
    let (agent, worker) = pair();
    let done = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1..=ROUNDS {
                let mut round = worker.enter(Round(number));
                while round.boundary() == BoundaryOutcome::Continue {}
                assert!(round.aborted());
                done.store(number, Ordering::SeqCst);
            }
        });
        for number in 1..=ROUNDS {
            let round = Round(number);
            for _ in 0..3 {
                agent.hold(round).unwrap();
                agent.withdraw(round);
            }
            let before = agent.count(round);
            until("it runs on", || agent.count(round) > before);
            agent.hold(round).unwrap();
            if number % 2 == 0 {
                agent.abort(round);
            } else {
                worker.abort(round);
            }
            until("it ends", || done.load(Ordering::SeqCst) == number);
        }
    });
}

#[test]
fn stale_orders_change_nothing() {
    let (agent, worker) = pair();
    let mut old = worker.enter(Round(1));
    assert_eq!(old.boundary(), BoundaryOutcome::Continue);
    assert_eq!(agent.hold(Round(1)), Some(Boundary(1)));

    // The page still has the hold of round 1.
    let mut new = worker.enter(Round(2));
    assert_eq!(new.boundary(), BoundaryOutcome::Continue);
    assert!(agent.set_leave_at(Round(1), Boundary(2)));
    assert_eq!(new.boundary(), BoundaryOutcome::Continue);
    assert_eq!(agent.hold(Round(3)), Some(Boundary(0)), "not entered yet");
    assert_eq!(new.boundary(), BoundaryOutcome::Continue);
    assert!(!agent.set_leave_at(Round(2), Boundary(9)), "not held");
    assert_eq!(agent.hold(Round(2)), None, "a newer round was held");
    agent.withdraw(Round(2));

    assert!(agent.set_leave_at(Round(3), Boundary(1)));
    assert!(agent.set_leave_at(Round(3), Boundary(1)), "a repeat");
    assert!(!agent.set_leave_at(Round(3), Boundary(2)), "another K");
    assert_eq!(agent.hold(Round(3)), Some(Boundary(0)), "K stays");
    agent.abort(Round(2));
    let mut held = worker.enter(Round(3));
    assert_eq!(held.boundary(), BoundaryOutcome::Leave);
    assert_eq!(new.boundary(), BoundaryOutcome::Aborted);
    agent.withdraw(Round(3));
    assert!(!agent.set_leave_at(Round(3), Boundary(1)), "withdrawn");
}

#[test]
fn a_descriptor_of_something_else_is_refused() {
    let other = elasticrun_shm::memfd::create("other", 4096).unwrap();
    let error = WorkerPage::open(&other).unwrap_err();
    assert!(error.to_string().contains("no page"), "{error}");
    let short = elasticrun_shm::memfd::create("short", 100).unwrap();
    WorkerPage::open(&short).unwrap_err();
}
