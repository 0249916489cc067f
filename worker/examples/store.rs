//! What the key-value store costs between two workers: how long a value takes from one to the other and back.
//!
//! ```text
//! cargo build --release -p elasticrun -p elasticrun-worker --bins --examples
//! target/release/elasticrun -np 2 -H localhost:1,127.0.0.1:1 --no-prefix target/release/examples/store
//! ```
//! By hand it measures the world of one, without messages.

use std::time::{Duration, Instant};

use elasticrun_worker::{Error, Session, Store, run};

const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> Result<(), Error> {
    run(&mut (), |session, _| {
        let store = session.store();
        if session.rank() == 0 {
            println!(
                "{:>9}  {:>34}  {:>10}  {:>10}",
                "bytes", "", "median", "99 %"
            );
        }
        for (bytes, times) in [(64, 2_000), (64 << 10, 200), (1 << 20, 40)] {
            own(session, &store, bytes, times)?;
            between(session, &store, bytes, times)?;
        }
        Ok(())
    })
}

/// One worker alone: what is there already.
fn own(session: &mut Session<'_>, store: &Store, bytes: usize, times: usize) -> Result<(), Error> {
    if session.rank() == 0 {
        let value = vec![7; bytes];
        let set = measure(times, |_| store.set("own", &value))?;
        report(bytes, "set", set);
        let get = measure(times, |_| store.get("own", PATIENCE).map(drop))?;
        report(bytes, "get of what is there", get);
    }
    session.barrier()
}

/// Rank 0 sets a key that rank 1 waits for, which answers by one that rank 0 waits for.
fn between(
    session: &mut Session<'_>,
    store: &Store,
    bytes: usize,
    times: usize,
) -> Result<(), Error> {
    let value = vec![7; bytes];
    let (there, back) = (
        |n| format!("there/{bytes}/{n}"),
        |n| format!("back/{bytes}/{n}"),
    );
    match (session.rank(), session.size()) {
        (_, 1) => return Ok(()),
        (0, _) => {
            let taken = measure(times, |n| {
                store.set(&there(n), &value)?;
                store.get(&back(n), PATIENCE).map(drop)
            })?;
            report(bytes, "there and back: two sets, two gets", taken);
        }
        (1, _) => {
            for n in 0..times {
                let value = store.get(&there(n), PATIENCE)?;
                store.set(&back(n), &value)?;
            }
        }
        _ => {}
    }
    session.barrier()
}

fn measure(
    times: usize,
    mut step: impl FnMut(usize) -> Result<(), Error>,
) -> Result<Vec<Duration>, Error> {
    let mut taken = Vec::with_capacity(times);
    for n in 0..times {
        let began = Instant::now();
        step(n)?;
        taken.push(began.elapsed());
    }
    taken.sort_unstable();
    Ok(taken)
}

fn report(bytes: usize, what: &str, taken: Vec<Duration>) {
    let at = |share: usize| taken[(taken.len() - 1) * share / 100];
    println!(
        "{bytes:>9}  {what:>34}  {:>10.1?}  {:>10.1?}",
        at(50),
        at(99)
    );
}
