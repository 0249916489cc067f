//! Optimizers at the servers, and bounded staleness.

use std::{env, time::Duration};

use elasticrun_ps::{
    Array, BoundedHandler, BoundedOptions, Change, Error, Init, KvServer, KvWorker, Optimizer,
    OptimizingHandler, Postoffice, Refusal, Role, ServerControl, SparseStore, Staleness,
    SummingHandler, WORKER_GROUP, WorkerClock,
};

use crate::{ensure, scenarios::spread, traps::wait_for_line};

/// Adam at the servers: workers push gradients, change the rate, and pull weights.
pub(crate) fn optimizer(postoffice: &Postoffice) -> Result<(), Error> {
    let init = Init::<f32>::uniform(-1.0, 1.0, 7);
    match postoffice.role() {
        Role::Scheduler => {}
        Role::Server => {
            let optimizer = Optimizer::adam(0.5);
            let handler = OptimizingHandler::new(SparseStore::new(init), optimizer)
                .map_err(|error| Error::Options(error.to_string()))?;
            KvServer::<f32>::with_commands(postoffice, 0, handler)?;
            KvServer::<f32>::with_commands(postoffice, 1, SummingHandler::default())?;
        }
        Role::Worker => optimize(postoffice)?,
    }
    postoffice.finalize()
}

fn optimize(postoffice: &Postoffice) -> Result<(), Error> {
    let kv = KvWorker::<f32>::new(postoffice, 0, 0)?;
    let control = ServerControl::new(postoffice, 0)?;
    let keys = Array::from(spread(100));
    let pull = || Ok::<_, Error>(kv.pull(&keys, 2)?.wait()?.values);
    let first = pull()?;
    let fresh = first.iter().all(|w| (-1.0..1.0).contains(w));
    ensure(fresh && first[0] != first[1], || format!("{first:?}"))?;
    postoffice.barrier(WORKER_GROUP)?;
    // The first step of Adam has the size of its rate, whatever the gradient.
    if postoffice.my_rank() == 0 {
        let weights = kv.push_pull(&keys, vec![3.0; 200])?.wait()?.values;
        let step = |from: &[f32], to: &[f32], rate: f32| {
            let steps = from.iter().zip(to).map(|(from, to)| from - to);
            let worst = steps.map(|step| (step - rate).abs()).fold(0.0, f32::max);
            ensure(worst < 1e-3, || format!("a step that is wrong by {worst}"))
        };
        step(&first, &weights, 0.5)?;
        let changed = control.set_learning_rate(10, 0.25)?;
        ensure(changed.learning_rate == 0.25, || format!("{changed:?}"))?;
        // An earlier step comes late.
        let late = control.set_learning_rate(9, 9.0)?;
        ensure(late == changed && control.optimizer()? == changed, || {
            format!("{late:?}")
        })?;
        let change = Change {
            weight_decay: Some(-1.0),
            ..Change::default()
        };
        let refused = control.change_optimizer(11, change);
        let text = "the weight decay of an optimizer must be 0 or more, not -1";
        let named = matches!(&refused, Err(Error::Refused { refusal: Refusal::Handler(found), .. }) if found == text);
        ensure(named, || format!("{refused:?}"))?;
        let after = kv.push_pull(&keys, vec![3.0; 200])?.wait()?.values;
        step(&weights, &after, 0.25)?;
        let other = ServerControl::new(postoffice, 1)?;
        let none = other.optimizer();
        ensure(matches!(none, Err(Error::Refused { .. })), || {
            format!("{none:?}")
        })?;
    }
    postoffice.barrier(WORKER_GROUP)?;
    let last = pull()?;
    let moved = first.iter().zip(&last).map(|(from, to)| from - to);
    ensure(
        moved.into_iter().all(|moved| (moved - 0.75).abs() < 1e-3),
        || format!("{last:?}"),
    )
}

fn number(name: &str) -> Option<u64> {
    env::var(name).ok()?.parse().ok()
}

/// Workers make steps. The one with rank 0 makes one for each line, and leaves instead after so many; each says when its pull is
/// held. A pull must see what the bound promises.
pub(crate) fn stale(postoffice: &Postoffice) -> Result<(), Error> {
    println!("rank {} pid {}", postoffice.my_rank(), std::process::id());
    let bound = number("TEST_BOUND");
    match postoffice.role() {
        Role::Scheduler => {}
        Role::Server => {
            let staleness = bound.map_or(Staleness::Asp, Staleness::Ssp);
            let options = BoundedOptions {
                max_hold: Duration::from_millis(number("TEST_HOLD_MS").unwrap_or(60_000)),
                max_bytes: 1 << 20,
            };
            let inner = SummingHandler::default();
            let handler = BoundedHandler::with_options(postoffice, staleness, inner, options);
            KvServer::<f32>::with_commands(postoffice, 0, handler)?;
        }
        Role::Worker => return steps(postoffice, bound),
    }
    if number("TEST_LEAVE_AT").is_some() {
        // A worker will be missing at the last barrier.
        wait_for_line();
        postoffice.finalize_async();
        return Ok(());
    }
    postoffice.finalize()
}

fn steps(postoffice: &Postoffice, bound: Option<u64>) -> Result<(), Error> {
    let kv = KvWorker::<f32>::new(postoffice, 0, 0)?;
    let clock = WorkerClock::join(&ServerControl::new(postoffice, 0)?)?;
    let (rank, workers) = (postoffice.my_rank(), postoffice.num_workers());
    // Two keys for each worker, one on each server.
    let keys = Array::from(spread(2 * u64::from(workers)));
    let steps = number("TEST_STEPS").unwrap_or(5);
    let leave_at = number("TEST_LEAVE_AT");
    let mut worst = 0;
    while clock.clock() < steps {
        if rank == 0 {
            wait_for_line();
            if leave_at == Some(clock.clock()) {
                postoffice.finalize_async();
                return Ok(());
            }
        }
        let mut values = vec![0.0; keys.len()];
        values[rank as usize] = 1.0;
        values[(rank + workers) as usize] = 1.0;
        kv.push(&keys, values)?;
        let now = clock.tick(&kv)?;
        let pull = kv.pull(&keys, 1)?;
        // What is answered at once is answered before this.
        let marker = kv.push(&keys, vec![0.0; keys.len()])?;
        kv.wait(marker)?;
        if !kv.customer().is_done(pull.timestamp()) {
            println!("held {now}");
        }
        let counts = pull.wait()?.values;
        for count in counts {
            let behind = now.saturating_sub(count as u64);
            worst = worst.max(behind);
        }
        println!("at {now}");
    }
    println!("staleness {worst}");
    if leave_at.is_some() {
        postoffice.finalize_async();
        return Ok(());
    }
    let kept = bound.is_none_or(|bound| worst <= bound);
    ensure(kept, || format!("a staleness of {worst}"))?;
    postoffice.finalize()
}
